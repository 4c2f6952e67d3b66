//! One connection and its statements, each prepared at first use and kept: preparing costs more
//! than half of a claim.
use rusqlite::{ffi, Connection, Statement};
use std::cell::RefCell;
use std::rc::Rc;

use crate::operation::Operation;
use crate::Result;

pub(crate) struct Session {
    // Before `conn`: statements are finalized before their connection can close.
    kept: [RefCell<Option<Statement<'static>>>; Operation::COUNT],
    conn: Rc<Connection>,
}

// SAFETY: the statements and the Rc never leave the session, so a thread that owns the session
// owns them all; SQLite itself lets a connection move between threads.
unsafe impl Send for Session {}

impl Session {
    pub(crate) fn new(conn: Connection) -> Self {
        Session { kept: std::array::from_fn(|_| RefCell::new(None)), conn: Rc::new(conn) }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.conn
    }

    /// Runs `body` with the kept statement of `operation`.
    pub(crate) fn with<T>(
        &self,
        operation: Operation,
        body: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        // Only a hostile schema gets here twice: a view named jobs that calls the function
        // which reads it.
        let mut kept = self.kept[operation as usize].try_borrow_mut().map_err(|_| {
            rusqlite::Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_ERROR),
                Some("called from within itself".into()),
            )
        })?;
        if kept.is_none() {
            let statement = self.conn.prepare(&operation.sql())?;
            // SAFETY: the statement borrows what the Rc points to, which does not move and
            // outlives it: `kept` is dropped before `conn`, and nobody else can take it out.
            *kept = Some(unsafe {
                std::mem::transmute::<Statement<'_>, Statement<'static>>(statement)
            });
        }
        Ok(body(kept.as_mut().expect("prepared above"))?)
    }

    /// Runs `body` so that all of it counts or nothing: inside the caller's transaction, or in
    /// one of its own. It has the write lock from the beginning.
    pub(crate) fn atomically<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        self.in_savepoint(|| self.lock().and_then(|()| body()))
    }

    /// The same for a `body` whose first statement writes.
    pub(crate) fn in_savepoint<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let conn = self.connection();
        // RELEASE of a transaction of our own would commit, and that may be what failed.
        let undo: &[&str] = if conn.is_autocommit() {
            &["ROLLBACK"]
        } else {
            &["ROLLBACK TO fence", "RELEASE fence"]
        };
        // Prepared now, because the error may be that memory ran out.
        let undo = undo.iter().map(|sql| conn.prepare(sql)).collect::<rusqlite::Result<_>>()?;
        conn.execute_batch("SAVEPOINT fence")?;
        let mut undo = Undo(undo);
        let mut done = body().and_then(|answer| {
            conn.execute_batch("RELEASE fence")?;
            Ok(answer)
        });
        match &mut done {
            Ok(_) => undo.0.clear(),
            // SAFETY: the connection is open. Undoing makes SQLite forget the code.
            Err(error) => error.extend(unsafe { ffi::sqlite3_extended_errcode(conn.handle()) }),
        }
        done
    }

    /// Takes the write lock before anything is read: a transaction that reads first cannot wait
    /// for a writer, it fails with SQLITE_BUSY_SNAPSHOT.
    pub(crate) fn lock(&self) -> Result<()> {
        self.with(Operation::Lock, |statement| statement.raw_execute())?;
        Ok(())
    }

    /// Finalizes the kept statements, so that the connection can close.
    pub(crate) fn forget_statements(&self) {
        for kept in &self.kept {
            if let Ok(mut kept) = kept.try_borrow_mut() {
                *kept = None;
            }
        }
    }
}

/// Statements that run when this is dropped, also by a panic.
pub(crate) struct Undo<'conn>(pub Vec<Statement<'conn>>);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        for statement in &mut self.0 {
            // An error that rolled everything back has left nothing to undo.
            let _ = statement.raw_execute();
        }
    }
}
