//! The operations over one connection: bind, step to the end, decode. The rules are in `sql/`.
use rusqlite::ToSql;

use crate::operation::{file, Operation};
use crate::session::Session;
use crate::standing::Standing;
use crate::{Error, Result};

/// A job as `state` answers it.
#[cfg(not(feature = "loadable"))]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobState {
    /// The job's id.
    pub id: String,
    /// Who holds, or last held, the lease; `None` if nobody did or it was released.
    pub owner: Option<String>,
    /// The moment, in seconds, from which the job may be claimed: the end of the lease.
    pub until: f64,
    /// The fencing token of the last claim; 0 before the first.
    pub fence: i64,
    /// What the completion, or the failure, stored.
    pub result: Option<String>,
    /// 0 while the job is unfinished, 1 once it is completed, 2 once it failed for good.
    pub done: i64,
}

/// What a claim answers: the fencing token and the end of the lease.
pub(crate) struct Claimed {
    pub fence: i64,
    #[cfg_attr(feature = "loadable", allow(dead_code))]
    pub until: f64,
}

/// `now` is a moment given by the caller, or None for the database's clock.
pub(crate) type Now = Option<f64>;

pub(crate) fn enqueue(session: &Session, id: &str, due: Option<f64>) -> Result<bool> {
    match due {
        None => changed(session, Operation::Enqueue, &[(1, &id)]),
        Some(due) => changed(session, Operation::EnqueueAt, &[(1, &id), (2, &due)]),
    }
}

/// Calls `read` with the job's row, columns in the order of the table.
pub(crate) fn state<T>(
    session: &Session,
    id: &str,
    read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    session.with(Operation::State, |statement| {
        statement.raw_bind_parameter(1, id)?;
        statement.raw_query().next()?.map(read).transpose()
    })
}

#[cfg(not(feature = "loadable"))]
pub(crate) fn job_state(session: &Session, id: &str) -> Result<Option<JobState>> {
    state(session, id, |row| {
        Ok(JobState {
            id: row.get(0)?,
            owner: text(row, 1)?,
            until: row.get(2)?,
            fence: row.get(3)?,
            result: text(row, 4)?,
            done: row.get(5)?,
        })
    })
}

/// Plain SQL can store what is no UTF-8; an error would hide the rest of the row.
#[cfg(not(feature = "loadable"))]
fn text(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

pub(crate) fn claim(
    session: &Session,
    id: &str,
    owner: &str,
    now: Now,
    ttl: f64,
) -> Result<Option<Claimed>> {
    let operation = match now {
        Some(_) => Operation::Claim,
        None => Operation::ClaimByClock,
    };
    session.with(operation, |statement| {
        statement.raw_bind_parameter(1, id)?;
        statement.raw_bind_parameter(2, owner)?;
        if let Some(now) = now {
            statement.raw_bind_parameter(3, now)?;
        }
        statement.raw_bind_parameter(4, ttl)?;
        let mut rows = statement.raw_query();
        let claimed = match rows.next()? {
            Some(row) => Some(Claimed { fence: row.get(0)?, until: row.get(1)? }),
            None => None,
        };
        // In autocommit the commit happens in the last step: without it the row is a promise
        // that a full disk can still break.
        while rows.next()?.is_some() {}
        Ok(claimed)
    })
}

pub(crate) fn renew(
    session: &Session,
    id: &str,
    owner: &str,
    fence: i64,
    now: Now,
    ttl: f64,
) -> Result<bool> {
    match now {
        Some(now) => changed(
            session,
            Operation::Renew,
            &[(1, &id), (2, &owner), (3, &fence), (4, &now), (5, &ttl)],
        ),
        None => changed(
            session,
            Operation::RenewByClock,
            &[(1, &id), (2, &owner), (3, &fence), (5, &ttl)],
        ),
    }
}

/// How a holder finishes its job.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Complete,
    Fail,
}

/// Stores a result, or an error, and finishes the job.
pub(crate) fn finish(
    session: &Session,
    outcome: Outcome,
    id: &str,
    owner: &str,
    fence: i64,
    now: Now,
    result: &dyn ToSql,
) -> Result<bool> {
    let (at, by_clock) = match outcome {
        Outcome::Complete => (Operation::Complete, Operation::CompleteByClock),
        Outcome::Fail => (Operation::Fail, Operation::FailByClock),
    };
    match now {
        Some(now) => {
            changed(session, at, &[(1, &id), (2, &owner), (3, &fence), (4, &now), (5, result)])
        }
        None => changed(session, by_clock, &[(1, &id), (2, &owner), (3, &fence), (5, result)]),
    }
}

/// Gives a job back: for anybody at once, or from a moment on.
pub(crate) fn release(
    session: &Session,
    id: &str,
    owner: &str,
    fence: i64,
    due: Option<f64>,
) -> Result<bool> {
    match due {
        None => changed(session, Operation::Release, &[(1, &id), (2, &owner), (3, &fence)]),
        Some(due) => {
            changed(session, Operation::ReleaseAt, &[(1, &id), (2, &owner), (3, &fence), (4, &due)])
        }
    }
}

pub(crate) fn requeue(session: &Session, id: &str) -> Result<bool> {
    changed(session, Operation::Requeue, &[(1, &id)])
}

/// The word for how a lease stands.
pub(crate) fn check(
    session: &Session,
    id: &str,
    owner: &str,
    fence: i64,
    now: Now,
) -> Result<Standing> {
    let operation = match now {
        Some(_) => Operation::Check,
        None => Operation::CheckByClock,
    };
    session.with(operation, |statement| {
        statement.raw_bind_parameter(1, id)?;
        statement.raw_bind_parameter(2, owner)?;
        statement.raw_bind_parameter(3, fence)?;
        if let Some(now) = now {
            statement.raw_bind_parameter(4, now)?;
        }
        let mut rows = statement.raw_query();
        let row = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        row.get(0)
    })
}

/// An error unless the lease is held, and held it stays until the transaction ends.
pub(crate) fn assert(session: &Session, id: &str, owner: &str, fence: i64, now: Now) -> Result<()> {
    session.lock()?;
    match check(session, id, owner, fence, now)? {
        Standing::Held => Ok(()),
        standing => Err(Error::NotHeld { id: id.into(), standing }),
    }
}

/// Deletes done jobs and tells how many. The first call in a file makes the index.
pub(crate) fn purge(session: &Session, before: f64, limit: i64) -> Result<usize> {
    made(session, "no such index: fence_done", "purge_index", || {
        count(session, Operation::Purge, &[(1, &before), (2, &limit)])
    })
}

/// Lets every fence of the file grow by `bump`.
pub(crate) fn restore(session: &Session, function: &str, bump: i64) -> Result<()> {
    let conn = session.connection();
    session.atomically(|| {
        let highest: i64 = conn.query_row(
            "SELECT max(fence, (SELECT coalesce(max(fence), 0) FROM main.jobs)) AS highest
               FROM main.fence_floor",
            [],
            |row| row.get(0),
        )?;
        if highest.checked_add(bump).is_none() {
            return Err(Error::invalid(
                function,
                format_args!("bump {bump} is too much for the highest fence, {highest}"),
            ));
        }
        for statement in file("restore").split("\n\n") {
            conn.execute(statement, [bump])?;
        }
        Ok(())
    })
}

/// Whether a write with this fence may go on. The first call in a file makes the gate's table.
pub(crate) fn pass(session: &Session, resource: &str, fence: i64) -> Result<bool> {
    made(session, "no such table: main.fence_gate", "gate", || {
        changed(session, Operation::Pass, &[(1, &resource), (2, &fence)])
    })
}

/// Runs `body`, and once more after making what it misses.
fn made<T>(
    session: &Session,
    missing: &str,
    file_name: &str,
    body: impl Fn() -> Result<T>,
) -> Result<T> {
    match body() {
        Err(e) if e.to_string().starts_with(missing) => {
            session.connection().execute_batch(file(file_name))?;
            body()
        }
        answer => answer,
    }
}

/// Whether a statement changed its row.
fn changed(
    session: &Session,
    operation: Operation,
    parameters: &[(usize, &dyn ToSql)],
) -> Result<bool> {
    Ok(count(session, operation, parameters)? > 0)
}

/// Runs a statement that answers by the number of rows it changed.
pub(crate) fn count(
    session: &Session,
    operation: Operation,
    parameters: &[(usize, &dyn ToSql)],
) -> Result<usize> {
    session.with(operation, |statement| {
        for (index, value) in parameters {
            statement.raw_bind_parameter(*index, value)?;
        }
        let rows = statement.raw_execute();
        if operation.binds_large_text() {
            // Not kept in memory until the statement is used again.
            statement.clear_bindings();
        }
        rows
    })
}
