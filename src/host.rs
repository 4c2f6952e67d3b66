//! The host's side of a function call: its connection, its arguments, its answer and error code.
//!
//! This is done on the C interface because rusqlite's functions keep neither an error's code
//! beside its text nor SQLite's own rule for what is a number.
use rusqlite::types::Value;
use rusqlite::{ffi, Connection};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::slice;
use std::sync::{Mutex, PoisonError};

use crate::call::Call;
use crate::functions::Function;
use crate::session::Session;
use crate::{claim_batch, statements, Error, Result};

/// The connection of the program that loaded us. It is borrowed: never closed here.
pub(crate) struct Host {
    pub(crate) session: Session,
    /// Whether the virtual table that forgets our statements at close is connected.
    pub(crate) guarded: Cell<bool>,
}

/// A virtual table module's share of the host.
pub(crate) struct Share(pub Rc<Host>);

// SAFETY: SQLite uses a module's data only under the mutex of the one connection it was made
// for, so the count is never touched by two threads at once.
unsafe impl Send for Share {}
// SAFETY: as above.
unsafe impl Sync for Share {}

/// What a function answers.
pub(crate) enum Answer {
    Null,
    Integer(i64),
    Text(String),
}

/// What SQLite keeps for each function and frees when the connection closes.
struct Bound {
    function: &'static Function,
    host: Rc<Host>,
}

/// The connections that have the functions already, each with its host. Registering them again
/// would fail while a statement runs, as in `SELECT load_extension(..)`, and take the virtual table
/// away.
static REGISTERED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn registered() -> std::sync::MutexGuard<'static, BTreeMap<usize, usize>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut registered = registered();
        let db = self.handle() as usize;
        // Not so after a registration that failed half-way and was repeated: the second one's
        // functions take the place of the first one's.
        if registered.get(&db) == Some(&(std::ptr::from_ref(self) as usize)) {
            registered.remove(&db);
        }
    }
}

/// Registers `functions` on a connection, once.
pub(crate) fn register(conn: &Connection, functions: &'static [Function]) -> rusqlite::Result<()> {
    // SAFETY: the reference keeps the connection open during the call.
    unsafe { register_on(conn.handle(), functions) }
}

/// Runs `body` in a session on somebody else's connection.
#[cfg(not(feature = "loadable"))]
pub(crate) fn borrow<T>(conn: &Connection, body: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
    // SAFETY: the reference outlives the session, which finalizes its statements at the end.
    let borrowed = unsafe { Connection::from_handle(conn.handle()) }?;
    body(&Session::new(borrowed))
}

/// # Safety
/// `db` is an open connection, and the caller may use it now.
pub(crate) unsafe fn register_on(
    db: *mut ffi::sqlite3,
    functions: &'static [Function],
) -> rusqlite::Result<()> {
    if registered().contains_key(&(db as usize)) {
        return Ok(());
    }
    // SAFETY: as promised by the caller.
    let result = unsafe { register_all(db, functions) };
    if result.is_err() {
        registered().remove(&(db as usize));
    }
    result
}

/// # Safety
/// As for `register_on`.
unsafe fn register_all(
    db: *mut ffi::sqlite3,
    functions: &'static [Function],
) -> rusqlite::Result<()> {
    // SAFETY: `db` is open, and what SQLite keeps below dies with it.
    let conn = unsafe { Connection::from_handle(db) }?;
    let host = Rc::new(Host { session: Session::new(conn), guarded: Cell::new(false) });
    registered().insert(db as usize, Rc::as_ptr(&host) as usize);
    statements::create_module(&host)?;
    claim_batch::create_module(&host)?;
    for function in functions {
        let name = CString::new(function.name)?;
        let flags = ffi::SQLITE_UTF8
            | if function.writes { ffi::SQLITE_DIRECTONLY } else { ffi::SQLITE_INNOCUOUS };
        let bound = Box::new(Bound { function, host: Rc::clone(&host) });
        // SAFETY: SQLite calls `drop_bound` once for the box, also when it refuses the function.
        let rc = unsafe {
            ffi::sqlite3_create_function_v2(
                db,
                name.as_ptr(),
                function.arguments as c_int,
                flags,
                Box::into_raw(bound).cast(),
                Some(run),
                None,
                None,
                Some(drop_bound),
            )
        };
        if rc != ffi::SQLITE_OK {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(rc), None));
        }
    }
    Ok(())
}

unsafe extern "C" fn drop_bound(bound: *mut c_void) {
    // SAFETY: SQLite hands back what `register` gave it, once.
    drop(unsafe { Box::from_raw(bound.cast::<Bound>()) });
}

unsafe extern "C" fn run(
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite calls this for a function made by `register`, on the connection's thread,
    // with `count` values that live until the call returns.
    let (bound, values) = unsafe {
        let bound = &*ffi::sqlite3_user_data(context).cast::<Bound>();
        let values = if count == 0 { &[] } else { slice::from_raw_parts(values, count as usize) };
        (bound, values)
    };
    let call = Call { function: bound.function, host: &bound.host, values };
    // A panic that crosses into C ends the host's process.
    let answer = catch_unwind(AssertUnwindSafe(|| call.answer()));
    // SAFETY: `context` is this call's, and SQLite copies every text (SQLITE_TRANSIENT).
    unsafe {
        match answer {
            Ok(Ok(Answer::Null)) => ffi::sqlite3_result_null(context),
            Ok(Ok(Answer::Integer(i))) => ffi::sqlite3_result_int64(context, i),
            Ok(Ok(Answer::Text(text))) => match c_int::try_from(text.len()) {
                Ok(len) => ffi::sqlite3_result_text(
                    context,
                    text.as_ptr().cast(),
                    len,
                    ffi::SQLITE_TRANSIENT(),
                ),
                Err(_) => ffi::sqlite3_result_error_toobig(context),
            },
            Ok(Err(error)) => {
                let (message, code) = bound.host.report(bound.function.name, error);
                fail(context, &message, code);
            }
            Err(_) => {
                let (message, code) = Host::report_panic(bound.function.name);
                fail(context, &message, code);
            }
        }
    }
}

/// A copy of a sentence for SQLite to free, or NULL where no memory is left. (rusqlite would end
/// the host's process then.)
pub(crate) fn sentence_for_sqlite(sentence: String) -> *mut c_char {
    let Ok(sentence) = CString::new(sentence) else { return std::ptr::null_mut() };
    let bytes = sentence.as_bytes_with_nul();
    // SAFETY: the copy has room for the sentence and its end.
    unsafe {
        let copy = ffi::sqlite3_malloc64(bytes.len() as u64).cast::<c_char>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), copy, bytes.len());
        }
        copy
    }
}

/// # Safety
/// `context` is a call's that is under way.
unsafe fn fail(context: *mut ffi::sqlite3_context, message: &str, code: c_int) {
    let len = c_int::try_from(message.len()).unwrap_or(c_int::MAX);
    // SAFETY: as promised by the caller. The text comes first: setting it resets the code.
    unsafe {
        ffi::sqlite3_result_error(context, message.as_ptr().cast(), len);
        ffi::sqlite3_result_error_code(context, code);
    }
}

impl Host {
    fn handle(&self) -> *mut ffi::sqlite3 {
        // SAFETY: the handle is used within the call that SQLite made on it.
        unsafe { self.session.connection().handle() }
    }

    /// What the client is told of an error: a sentence that names the function, and the code.
    pub(crate) fn report(&self, function: &str, mut error: Error) -> (String, c_int) {
        // SAFETY: the handle is that of the call under way.
        error.extend(unsafe { ffi::sqlite3_extended_errcode(self.handle()) });
        let code = error.extended_code();
        match error {
            Error::InvalidArgument(sentence) => (sentence, code),
            other => {
                self.end_what_is_left(code);
                (format!("{function}: {other}"), code)
            }
        }
    }

    /// In newer SQLites, a statement of ours that fails because it no longer fits the schema leaves the
    /// transaction that it began open, and with it the lock: SQLite expects it to be tried again
    /// while the caller's statement is active. The end of one that reads ends it, unless somebody
    /// else's needs it. That one also finds out whether the schema has changed again, which SQLite
    /// does not ask where a function is missing.
    fn end_what_is_left(&self, code: c_int) {
        let conn = self.session.connection();
        // SAFETY: the handle is that of the call under way.
        let state = unsafe { ffi::sqlite3_txn_state(self.handle(), std::ptr::null()) };
        let fits = code != ffi::SQLITE_ERROR;
        if conn.is_autocommit() && !(fits && state == ffi::SQLITE_TXN_NONE) {
            // The caller is told of the first error.
            let _ = conn.execute_batch("SELECT 1 FROM main.sqlite_master LIMIT 1");
        }
    }

    /// What the client is told of a panic. (rusqlite has one where no memory is left to convert a
    /// text from UTF-16; SQLite itself then answers SQLITE_NOMEM in the place of this.)
    pub(crate) fn report_panic(function: &str) -> (String, c_int) {
        let sentence = format!("{function}: panicked; this is a bug in sqlite-fence");
        (sentence, ffi::SQLITE_INTERNAL)
    }

    /// The session, for a function that writes.
    pub(crate) fn session_for_writing(&self, function: &str) -> Result<&Session> {
        if self.inside_a_write() {
            return Err(Error::invalid(
                function,
                "cannot run while a statement that writes is under way on this connection",
            ));
        }
        statements::connect(self)?;
        Ok(&self.session)
    }

    /// A number, or a text that SQLite's numeric affinity makes one.
    pub(crate) fn numeric(&self, value: &Value) -> Result<Option<f64>> {
        Ok(match value {
            Value::Integer(i) => Some(*i as f64),
            Value::Real(r) => Some(*r),
            Value::Text(text) => self.session.connection().query_row(
                "SELECT CASE WHEN CAST(?1 AS REAL) = ?1 THEN CAST(?1 AS REAL) END",
                [text],
                |row| row.get(0),
            )?,
            Value::Null | Value::Blob(_) => None,
        })
    }

    /// Whether a statement that writes is under way on this connection. It would write the
    /// columns it read before our update back over it, and the same fence would be issued twice.
    pub(crate) fn inside_a_write(&self) -> bool {
        let db = self.handle();
        // SAFETY: the handle is that of the call under way, which holds its mutex.
        unsafe {
            let writing = ffi::sqlite3_txn_state(db, std::ptr::null()) == ffi::SQLITE_TXN_WRITE;
            // In autocommit, a write transaction is that of a statement.
            if !writing || ffi::sqlite3_get_autocommit(db) != 0 {
                return writing;
            }
            let mut statement = ffi::sqlite3_next_stmt(db, std::ptr::null_mut());
            while !statement.is_null() {
                if ffi::sqlite3_stmt_busy(statement) != 0
                    && ffi::sqlite3_stmt_readonly(statement) == 0
                {
                    return true;
                }
                statement = ffi::sqlite3_next_stmt(db, statement);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    const fn reads(name: &'static str, body: fn(&Call) -> Result<Answer>) -> Function {
        Function { name, arguments: 0, writes: false, body }
    }

    static FUNCTIONS: &[Function] = &[
        reads("fence_broken", |_| panic!("a bug")),
        // In the middle of a kept statement.
        reads("fence_broken_read", |call| {
            protocol::state(call.session()?, "j", |_| panic!("a bug"))
                .map(|_: Option<()>| Answer::Null)
        }),
        reads("fence_read", |call| {
            Ok(Answer::Integer(
                protocol::job_state(call.session()?, "j")?.map_or(0, |job| job.fence),
            ))
        }),
    ];

    #[test]
    fn a_panic_becomes_an_sql_error_and_the_connection_goes_on() {
        let conn = Connection::open_in_memory().unwrap();
        register(&conn, FUNCTIONS).unwrap();
        conn.execute_batch(include_str!("../sql/schema.sql")).unwrap();
        conn.execute_batch("BEGIN; INSERT INTO jobs(id, fence) VALUES ('j', 7)").unwrap();
        let one = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
        for name in ["fence_broken", "fence_broken_read", "fence_broken"] {
            match one(&format!("SELECT {name}()")) {
                Err(rusqlite::Error::SqliteFailure(e, Some(sentence))) => {
                    assert_eq!(e.extended_code, ffi::SQLITE_INTERNAL);
                    assert_eq!(
                        sentence,
                        format!("{name}: panicked; this is a bug in sqlite-fence")
                    );
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(one("SELECT fence_read()"), Ok(7), "after {name}");
        }
        conn.execute_batch("COMMIT").unwrap();
        assert_eq!(one("SELECT count(*) FROM jobs"), Ok(1));
        conn.close().unwrap();
    }
}
