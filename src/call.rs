//! One call of a function: its arguments by SQLite's rules, with errors that name the function.
use rusqlite::ffi;
use rusqlite::types::{Value, ValueRef};
use std::slice;

use crate::args::{self, Number, Quoted};
use crate::functions::Function;
use crate::host::{Answer, Host};
use crate::session::Session;
use crate::{statements, Error, Result};

/// One call of a function.
pub(crate) struct Call<'a> {
    pub(crate) function: &'static Function,
    pub(crate) host: &'a Host,
    /// The host's values, which live until the call returns.
    pub(crate) values: &'a [*mut ffi::sqlite3_value],
}

impl<'a> Call<'a> {
    pub(crate) fn answer(&self) -> Result<Answer> {
        if self.function.writes {
            self.host.session_for_writing(self.function.name)?;
        }
        (self.function.body)(self)
    }

    /// The session, with its statements in the care of the virtual table.
    pub(crate) fn session(&self) -> Result<&'a Session> {
        statements::connect(self.host)?;
        Ok(&self.host.session)
    }

    /// Whether what is read now can still be true when a later write of the caller commits:
    /// in a transaction, or in a trigger.
    pub(crate) fn in_transaction(&self) -> bool {
        !self.host.session.connection().is_autocommit() || self.host.inside_a_write()
    }

    /// The host, and the arguments as they are.
    pub(crate) fn raw(&self) -> Result<(&'a Host, Vec<Value>)> {
        let value = |i| {
            Value::try_from(self.value(i)?)
                .map_err(|_| self.invalid(format_args!("argument {} must be valid UTF-8", i + 1)))
        };
        Ok((self.host, (0..self.count()).map(value).collect::<Result<_>>()?))
    }

    /// How many arguments were given.
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.function.name
    }

    pub(crate) fn invalid(&self, what: impl std::fmt::Display) -> Error {
        Error::invalid(self.function.name, what)
    }

    fn value(&self, i: usize) -> Result<ValueRef<'a>> {
        // SAFETY: the value is an argument of the call under way; SQLite keeps its text until
        // the call returns, and nothing here converts it to another encoding.
        Ok(unsafe {
            let value = self.values[i];
            match ffi::sqlite3_value_type(value) {
                ffi::SQLITE_INTEGER => ValueRef::Integer(ffi::sqlite3_value_int64(value)),
                ffi::SQLITE_FLOAT => ValueRef::Real(ffi::sqlite3_value_double(value)),
                ffi::SQLITE_TEXT => {
                    let text = ffi::sqlite3_value_text(value);
                    let len = ffi::sqlite3_value_bytes(value) as usize;
                    // Where memory ran out during a conversion from UTF-16.
                    if text.is_null() {
                        let failure = ffi::Error::new(ffi::SQLITE_NOMEM);
                        return Err(rusqlite::Error::SqliteFailure(failure, None).into());
                    }
                    ValueRef::Text(slice::from_raw_parts(text, len))
                }
                ffi::SQLITE_BLOB => ValueRef::Blob(&[]),
                _ => ValueRef::Null,
            }
        })
    }

    /// The value after SQLite's numeric affinity: text that looks like a number is one.
    fn numeric(&self, i: usize) -> Result<ValueRef<'a>> {
        // SAFETY: the value is an argument of the call under way.
        unsafe { ffi::sqlite3_value_numeric_type(self.values[i]) };
        self.value(i)
    }

    /// An id or an owner.
    pub(crate) fn text(&self, i: usize, argument: &str) -> Result<&'a str> {
        let text = match self.value(i)? {
            ValueRef::Text(bytes) => std::str::from_utf8(bytes)
                .map_err(|_| self.invalid(format_args!("{argument} must be valid UTF-8")))?,
            other => {
                return Err(
                    self.invalid(format_args!("{argument} must be text, got {}", Shown(other)))
                )
            }
        };
        args::name(self.function.name, argument, text)?;
        Ok(text)
    }

    /// A moment or a length of time. Whether it is finite is for the caller to check.
    pub(crate) fn number(&self, i: usize, argument: &str) -> Result<f64> {
        match self.numeric(i)? {
            ValueRef::Integer(i) => Ok(i as f64),
            ValueRef::Real(r) => Ok(r),
            other => {
                Err(self.invalid(format_args!("{argument} must be a number, got {}", Shown(other))))
            }
        }
    }

    /// A fence or a count: JavaScript binds every number as a REAL, so an integral one is
    /// welcome as far as it is exact.
    pub(crate) fn integer(&self, i: usize, argument: &str) -> Result<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.numeric(i)? {
            ValueRef::Integer(i) => Ok(i),
            ValueRef::Real(r) if r.fract() == 0.0 && r.abs() <= EXACT => Ok(r as i64),
            other => {
                Err(self
                    .invalid(format_args!("{argument} must be an integer, got {}", Shown(other))))
            }
        }
    }

    /// A text to store, or NULL; a number becomes text by the column's affinity.
    pub(crate) fn stored(&self, i: usize, argument: &str) -> Result<ValueRef<'a>> {
        match self.value(i)? {
            ValueRef::Blob(_) => {
                Err(self.invalid(format_args!("{argument} must be text or NULL, got a BLOB")))
            }
            ValueRef::Text(bytes) if std::str::from_utf8(bytes).is_err() => {
                Err(self.invalid(format_args!("{argument} must be valid UTF-8")))
            }
            value => Ok(value),
        }
    }
}

/// A value in an error's sentence.
pub(crate) struct Shown<'a>(pub ValueRef<'a>);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ValueRef::Null => f.write_str("NULL"),
            ValueRef::Integer(i) => write!(f, "{i}"),
            ValueRef::Real(r) => Number(r).fmt(f),
            ValueRef::Text(t) => write!(f, "text {}", Quoted(&String::from_utf8_lossy(t))),
            ValueRef::Blob(_) => f.write_str("a BLOB"),
        }
    }
}
