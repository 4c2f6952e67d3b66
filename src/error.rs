//! What can go wrong, in variants that a caller can match.
use rusqlite::ffi;
use std::fmt;

use crate::args::Quoted;
use crate::Standing;

/// Shorthand for a result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// A refusal is not an error: `claim` answers `None`, the others `false`. After any variant but
/// [`InvalidArgument`](Error::InvalidArgument) of a claim or a completion, look at the job again
/// before concluding that nothing happened: a commit can succeed and its answer get lost.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An argument is out of its range. The sentence names the function and the value; nothing
    /// was touched.
    InvalidArgument(String),
    /// Another connection holds the lock (`SQLITE_BUSY`, also `SQLITE_BUSY_SNAPSHOT`, or
    /// `SQLITE_LOCKED`). Try again.
    Busy(rusqlite::Error),
    /// The database, or this connection to it, can only be read.
    ReadOnly(rusqlite::Error),
    /// The file has no table `jobs`: call [`init_db`](crate::init_db) or `fence_init()` first. Or
    /// it has no index for claiming what is due: [`Store::init_queue`](crate::Store::init_queue)
    /// or `fence_init_queue()`.
    NotInitialised(rusqlite::Error),
    /// The lease that a write depends on is not held; the write was rolled back.
    NotHeld {
        /// The job.
        id: String,
        /// Why not.
        standing: Standing,
    },
    /// An error of the caller's own, out of the closure of [`Lease::write`](crate::Lease::write).
    Caller(Box<dyn std::error::Error + Send + Sync>),
    /// Any other error of SQLite.
    Sqlite(rusqlite::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidArgument(sentence) => f.write_str(sentence),
            Error::NotHeld { id, standing } => {
                write!(f, "the lease on job {} is not held: {standing}", Quoted(id))
            }
            Error::Caller(e) => e.fmt(f),
            Error::Busy(e) | Error::ReadOnly(e) | Error::Sqlite(e) => message(e, f),
            Error::NotInitialised(e) => {
                message(e, f)?;
                let maker = if is_missing_queue(e) { "fence_init_queue" } else { "fence_init" };
                write!(f, " ({maker}() makes it)")
            }
        }
    }
}

/// SQLite's own sentence, without the SQL text that rusqlite appends.
fn message(error: &rusqlite::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(msg)) => f.write_str(msg),
        #[cfg(feature = "bundled")]
        rusqlite::Error::SqlInputError { msg, .. } => f.write_str(msg),
        other => write!(f, "{other}"),
    }
}

/// SQLite's code, of whichever kind of rusqlite's errors.
fn failure(error: &rusqlite::Error) -> Option<&ffi::Error> {
    match error {
        #[cfg(feature = "bundled")]
        rusqlite::Error::SqlInputError { error, .. } => Some(error),
        other => other.sqlite_error(),
    }
}

fn is_missing_jobs(e: &rusqlite::Error) -> bool {
    e.to_string().starts_with("no such table: main.jobs")
}

fn is_missing_queue(e: &rusqlite::Error) -> bool {
    e.to_string().starts_with("no such index: fence_queue")
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::InvalidArgument(_) | Error::NotHeld { .. } => None,
            Error::Caller(e) => Some(&**e),
            Error::Busy(e) | Error::ReadOnly(e) | Error::NotInitialised(e) | Error::Sqlite(e) => {
                Some(e)
            }
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(e: rusqlite::Error) -> Self {
        let primary = failure(&e).map(|e| e.extended_code & 0xff);
        match primary {
            Some(ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => Error::Busy(e),
            Some(ffi::SQLITE_READONLY) => Error::ReadOnly(e),
            Some(ffi::SQLITE_ERROR) if is_missing_jobs(&e) || is_missing_queue(&e) => {
                Error::NotInitialised(e)
            }
            _ => Error::Sqlite(e),
        }
    }
}

impl Error {
    /// SQLite's extended result code, or `SQLITE_ERROR` (1) where SQLite was not asked.
    pub fn extended_code(&self) -> i32 {
        match self {
            Error::InvalidArgument(_) | Error::Caller(_) => ffi::SQLITE_ERROR,
            Error::NotHeld { .. } => ffi::SQLITE_CONSTRAINT,
            Error::Busy(e) | Error::ReadOnly(e) | Error::NotInitialised(e) | Error::Sqlite(e) => {
                failure(e).map_or(ffi::SQLITE_ERROR, |e| e.extended_code)
            }
        }
    }

    /// Puts the extended code in the place of the primary one, which is all that rusqlite sees
    /// where the host did not turn extended codes on.
    pub(crate) fn extend(&mut self, code: i32) {
        let (Error::Busy(e) | Error::ReadOnly(e) | Error::NotInitialised(e) | Error::Sqlite(e)) =
            self
        else {
            return;
        };
        let failure = match e {
            rusqlite::Error::SqliteFailure(failure, _) => failure,
            #[cfg(feature = "bundled")]
            rusqlite::Error::SqlInputError { error, .. } => error,
            _ => return,
        };
        if failure.extended_code == code & 0xff {
            failure.extended_code = code;
        }
    }

    /// For each of the callers whose common transaction failed.
    #[cfg(not(feature = "loadable"))]
    pub(crate) fn copy(&self) -> Self {
        let failure = ffi::Error::new(self.extended_code());
        rusqlite::Error::SqliteFailure(failure, Some(self.to_string())).into()
    }

    pub(crate) fn invalid(function: &str, what: impl fmt::Display) -> Self {
        Error::InvalidArgument(format!("{function}: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;
    use std::error::Error as _;

    fn failed(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("its sentence".into()))
    }

    /// What SQLite says of a text that it cannot prepare.
    fn unprepared(sql: &str) -> rusqlite::Error {
        Connection::open_in_memory().unwrap().prepare(sql).unwrap_err()
    }

    #[test]
    fn the_code_tells_the_kind() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_SNAPSHOT, ffi::SQLITE_LOCKED_SHAREDCACHE] {
            assert!(matches!(failed(code).into(), Error::Busy(_)), "{code}");
        }
        for code in [ffi::SQLITE_READONLY, ffi::SQLITE_READONLY_DBMOVED] {
            assert!(matches!(failed(code).into(), Error::ReadOnly(_)), "{code}");
        }
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_ERROR, ffi::SQLITE_CORRUPT] {
            assert!(matches!(failed(code).into(), Error::Sqlite(_)), "{code}");
        }
    }

    #[test]
    fn a_file_without_our_tables_is_told_from_another_mistake() {
        let missing = "SELECT 1 FROM main.jobs";
        assert!(matches!(unprepared(missing).into(), Error::NotInitialised(_)));
        let no_queue = "CREATE TEMP TABLE jobs(id); SELECT 1 FROM jobs INDEXED BY fence_queue";
        let conn = Connection::open_in_memory().unwrap();
        let error: Error = conn.execute_batch(no_queue).unwrap_err().into();
        assert!(matches!(error, Error::NotInitialised(_)), "{error:?}");
        assert!(matches!(unprepared("SELECT 1 FROM main.other").into(), Error::Sqlite(_)));
    }

    #[test]
    fn what_sqlite_or_the_caller_said_is_the_source() {
        let source = |error: Error| error.source().map(ToString::to_string);
        assert_eq!(source(failed(ffi::SQLITE_BUSY).into()), Some("its sentence".into()));
        assert_eq!(source(failed(ffi::SQLITE_FULL).into()), Some("its sentence".into()));
        assert_eq!(source(Error::Caller("mine".into())), Some("mine".into()));
        assert_eq!(source(Error::invalid("f", "no")), None);
        assert_eq!(source(Error::NotHeld { id: "a".into(), standing: Standing::Done }), None);
    }

    #[test]
    fn an_extended_code_takes_the_place_of_its_own_primary_code_only() {
        let extended = |error: rusqlite::Error, code| {
            let mut error = Error::from(error);
            error.extend(code);
            error.extended_code()
        };
        let io = ffi::SQLITE_IOERR;
        assert_eq!(extended(failed(io), ffi::SQLITE_IOERR_FSYNC), ffi::SQLITE_IOERR_FSYNC);
        assert_eq!(extended(failed(io), ffi::SQLITE_BUSY_SNAPSHOT), io);
        let read = ffi::SQLITE_IOERR_READ;
        assert_eq!(extended(failed(read), ffi::SQLITE_IOERR_FSYNC), read);
        let misspelt = || unprepared("SELECT misspelt");
        assert!(matches!(misspelt(), rusqlite::Error::SqlInputError { .. }));
        let collation = ffi::SQLITE_ERROR_MISSING_COLLSEQ;
        assert_eq!(extended(misspelt(), collation), collation);
        assert_eq!(extended(misspelt(), ffi::SQLITE_IOERR_FSYNC), ffi::SQLITE_ERROR);
    }
}
