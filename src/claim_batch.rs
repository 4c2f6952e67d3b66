//! The table-valued function `fence_claim_batch(owner, [now,] ttl, limit [, queue])`.
//!
//! A statement that reads a table, this one too, begins its transaction with a read. In
//! autocommit it therefore cannot wait for another writer: SQLite answers SQLITE_BUSY at once. The
//! function of the same name in a select list can.
use rusqlite::types::{Value, ValueRef};
use rusqlite::vtab::{
    Context, Filters, IndexConstraint, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig,
    VTabConnection, VTabCursor,
};
use rusqlite::{ffi, Result};
use std::borrow::Cow;
use std::ffi::{c_int, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

use crate::batch::{self, Taken};
use crate::host::{sentence_for_sqlite, Host, Share};
use crate::{args, Error};

const FUNCTION: &str = "fence_claim_batch";

/// The columns before the hidden ones, which stand for the arguments.
const COLUMNS: c_int = 3;
const ARGUMENTS: c_int = 5;

pub(crate) fn create_module(host: &Rc<Host>) -> Result<()> {
    const MODULE: &Module<'static, Table> = &Module::eponymous_only_module();
    host.session.connection().create_module(
        c"fence_claim_batch",
        MODULE,
        Some(Share(Rc::clone(host))),
    )
}

#[repr(C)]
struct Table {
    // SQLite's part comes first, as the C interface asks.
    base: ffi::sqlite3_vtab,
    host: Rc<Host>,
}

// SAFETY: `Table` is repr(C) and begins with sqlite3_vtab.
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = Share;
    type Cursor = Cursor;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Share>,
        _module_name: &[u8],
        _database_name: &[u8],
        _table_name: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        // No view or trigger may claim.
        db.config(VTabConfig::DirectOnly)?;
        let host = Rc::clone(&aux.expect("create_module gives a share").0);
        let columns = c"CREATE TABLE x(id TEXT, fence INTEGER, until REAL,
            a1 HIDDEN, a2 HIDDEN, a3 HIDDEN, a4 HIDDEN, a5 HIDDEN)";
        Ok((Cow::Borrowed(columns), Table { base: ffi::sqlite3_vtab::default(), host }))
    }

    /// The arguments come as constraints on the hidden columns; all of them are needed at once.
    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut given = 0;
        for constraint in info.constraints() {
            if let Some(argument) = argument(&constraint) {
                if !constraint.is_usable() {
                    return Ok(false);
                }
                given |= 1 << argument;
            }
        }
        let mut used = 0;
        for (constraint, mut usage) in info.constraints_and_usages() {
            // A second condition on the same argument is for SQLite to check.
            if let Some(argument) = argument(&constraint).filter(|i| used & 1 << i == 0) {
                used |= 1 << argument;
                let before: c_int = given & ((1 << argument) - 1);
                usage.set_argv_index(before.count_ones() as c_int + 1);
                usage.set_omit(true);
            }
        }
        info.set_idx_num(given);
        info.set_estimated_cost(1000.0);
        info.set_estimated_rows(10);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor> {
        Ok(Cursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            host: Rc::clone(&self.host),
            arguments: None,
            taken: Vec::new(),
            row: 0,
        })
    }
}

/// Which argument a condition gives, counted from 0.
fn argument(constraint: &IndexConstraint<'_>) -> Option<c_int> {
    let equal = constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
    Some(constraint.column() - COLUMNS).filter(|argument| equal && *argument >= 0)
}

#[repr(C)]
struct Cursor {
    base: ffi::sqlite3_vtab_cursor,
    host: Rc<Host>,
    /// What the rows were claimed with.
    arguments: Option<Vec<Value>>,
    taken: Vec<Taken>,
    row: usize,
}

/// Takes the jobs, with the arguments as SQL gave them: for the table and for the function of the
/// same name.
pub(crate) fn claim(host: &Host, arguments: &[Value]) -> crate::Result<Vec<Taken>> {
    let session = host.session_for_writing(FUNCTION)?;
    let Arguments { owner, now, ttl, limit, queue } = Arguments::read(host, arguments)?;
    args::name(FUNCTION, "owner", &owner)?;
    args::lease(FUNCTION, now, ttl)?;
    args::count(FUNCTION, "limit", limit)?;
    batch::claim(session, &owner, now, ttl, limit, &queue)
}

impl Cursor {
    fn claim(&mut self, given: c_int, filters: &Filters<'_>) -> crate::Result<()> {
        let mut arguments = Vec::new();
        for (i, value) in filters.iter().enumerate() {
            arguments.push(Value::try_from(value).map_err(|_| {
                Error::invalid(FUNCTION, format_args!("argument {} must be valid UTF-8", i + 1))
            })?);
        }
        // As the inner side of a join we are asked again for each outer row.
        if self.arguments.as_ref() == Some(&arguments) {
            return Ok(());
        }
        if !(0..=ARGUMENTS).any(|n| n >= 3 && given == (1 << n) - 1) {
            return Err(Error::invalid(FUNCTION, "needs (owner, [now,] ttl, limit [, queue])"));
        }
        self.taken = claim(&self.host, &arguments)?;
        self.arguments = Some(arguments);
        Ok(())
    }
}

// SAFETY: `Cursor` is repr(C) and begins with sqlite3_vtab_cursor.
unsafe impl VTabCursor for Cursor {
    fn filter(&mut self, given: c_int, _: Option<&str>, filters: &Filters<'_>) -> Result<()> {
        self.row = 0;
        // A panic that crosses into C ends the host's process.
        let taken = catch_unwind(AssertUnwindSafe(|| self.claim(given, filters)));
        let (message, code) = match taken {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => self.host.report(FUNCTION, error),
            Err(_) => Host::report_panic(FUNCTION),
        };
        self.arguments = None;
        // SAFETY: SQLite has set pVtab, and frees a sentence that it finds there.
        unsafe {
            ffi::sqlite3_free((*self.base.pVtab).zErrMsg.cast());
            (*self.base.pVtab).zErrMsg = sentence_for_sqlite(message);
        }
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    fn next(&mut self) -> Result<()> {
        self.row += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.row >= self.taken.len()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let taken = &self.taken[self.row];
        match column {
            0 => context.set_result(&taken.id),
            1 => context.set_result(&taken.fence),
            2 => context.set_result(&taken.until),
            hidden => {
                let argument = (hidden - COLUMNS) as usize;
                let value = self.arguments.as_ref().and_then(|values| values.get(argument));
                context.set_result(&value.cloned().unwrap_or(Value::Null))
            }
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row as i64)
    }
}

struct Arguments {
    owner: String,
    now: Option<f64>,
    ttl: f64,
    limit: i64,
    queue: String,
}

impl Arguments {
    /// Three are (owner, ttl, limit); four are (owner, ttl, limit, queue) if the last one is a
    /// text that is no number, and (owner, now, ttl, limit) otherwise. Where five are given, a
    /// now of NULL is the clock.
    fn read(host: &Host, values: &[Value]) -> crate::Result<Arguments> {
        let queue_last = values.len() == 4
            && matches!(&values[3], Value::Text(_))
            && host.numeric(&values[3])?.is_none();
        let (now, rest) = match values.len() {
            3 => (None, &values[1..]),
            4 if queue_last => (None, &values[1..]),
            5 if values[1] == Value::Null => (None, &values[2..]),
            _ => (Some(number(host, "now", &values[1])?), &values[2..]),
        };
        Ok(Arguments {
            owner: text("owner", &values[0])?,
            now,
            ttl: number(host, "ttl", &rest[0])?,
            limit: integer(host, "limit", &rest[1])?,
            queue: rest.get(2).map_or(Ok(String::new()), |queue| text("queue", queue))?,
        })
    }
}

fn text(argument: &str, value: &Value) -> crate::Result<String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => Err(wrong(argument, "text", other)),
    }
}

fn number(host: &Host, argument: &str, value: &Value) -> crate::Result<f64> {
    host.numeric(value)?.ok_or_else(|| wrong(argument, "a number", value))
}

/// As `Call::integer` takes it.
fn integer(host: &Host, argument: &str, value: &Value) -> crate::Result<i64> {
    match (value, host.numeric(value)?) {
        (Value::Integer(i), _) => Ok(*i),
        (_, Some(r)) if r.fract() == 0.0 && r.abs() <= 9_007_199_254_740_992.0 => Ok(r as i64),
        _ => Err(wrong(argument, "an integer", value)),
    }
}

fn wrong(argument: &str, what: &str, got: &Value) -> Error {
    let got = crate::call::Shown(ValueRef::from(got));
    Error::invalid(FUNCTION, format_args!("{argument} must be {what}, got {got}"))
}
