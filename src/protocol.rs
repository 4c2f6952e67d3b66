//! The operations over one connection: bind, step to the end, decode. The rules are in `sql/`.
use rusqlite::ToSql;
use std::borrow::Cow;

use crate::session::Session;
use crate::Result;

/// The statements that a session keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Operation {
    Enqueue,
    State,
    Claim,
    ClaimByClock,
    Renew,
    RenewByClock,
    Complete,
    CompleteByClock,
    Release,
}

/// Unix seconds with milliseconds. SQLite reads the clock when the statement first asks for it,
/// which is after it took the write lock, and keeps the value for the whole statement.
const CLOCK: &str = include_str!("../sql/clock.sql");

impl Operation {
    pub(crate) const COUNT: usize = Operation::Release as usize + 1;

    /// The files of `sql/` that a client without the extension runs.
    pub(crate) const FILES: [(&'static str, &'static str); 7] = [
        ("schema", include_str!("../sql/schema.sql")),
        ("enqueue", include_str!("../sql/enqueue.sql")),
        ("state", include_str!("../sql/state.sql")),
        ("claim", include_str!("../sql/claim.sql")),
        ("renew", include_str!("../sql/renew.sql")),
        ("complete", include_str!("../sql/complete.sql")),
        ("release", include_str!("../sql/release.sql")),
    ];

    pub(crate) fn sql(self) -> Cow<'static, str> {
        use Operation::*;
        let by_clock = |text: &str, now: &str| Cow::Owned(text.replace(now, CLOCK.trim_end()));
        match self {
            Enqueue => include_str!("../sql/enqueue.sql").into(),
            State => include_str!("../sql/state.sql").into(),
            Claim => include_str!("../sql/claim.sql").into(),
            Renew => include_str!("../sql/renew.sql").into(),
            Complete => include_str!("../sql/complete.sql").into(),
            Release => include_str!("../sql/release.sql").into(),
            ClaimByClock => by_clock(&Claim.sql(), "?3"),
            RenewByClock => by_clock(&Renew.sql(), "?4"),
            CompleteByClock => by_clock(&Complete.sql(), "?4"),
        }
    }
}

/// A job as `state` answers it.
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
    /// What the completion stored.
    pub result: Option<String>,
    /// 0 while the job is unfinished, 1 once it is completed.
    pub done: i64,
}

/// What a claim answers: the fencing token and the end of the lease.
pub(crate) struct Claimed {
    pub fence: i64,
    pub until: f64,
}

/// `now` is a moment given by the caller, or None for the database's clock.
pub(crate) type Now = Option<f64>;

pub(crate) fn enqueue(session: &Session, id: &str) -> Result<bool> {
    changed(session, Operation::Enqueue, &[(1, &id)])
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

pub(crate) fn job_state(session: &Session, id: &str) -> Result<Option<JobState>> {
    state(session, id, |row| {
        Ok(JobState {
            id: row.get(0)?,
            owner: row.get(1)?,
            until: row.get(2)?,
            fence: row.get(3)?,
            result: row.get(4)?,
            done: row.get(5)?,
        })
    })
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

pub(crate) fn complete(
    session: &Session,
    id: &str,
    owner: &str,
    fence: i64,
    now: Now,
    result: &dyn ToSql,
) -> Result<bool> {
    match now {
        Some(now) => changed(
            session,
            Operation::Complete,
            &[(1, &id), (2, &owner), (3, &fence), (4, &now), (5, result)],
        ),
        None => changed(
            session,
            Operation::CompleteByClock,
            &[(1, &id), (2, &owner), (3, &fence), (5, result)],
        ),
    }
}

pub(crate) fn release(session: &Session, id: &str, owner: &str, fence: i64) -> Result<bool> {
    changed(session, Operation::Release, &[(1, &id), (2, &owner), (3, &fence)])
}

/// Runs a statement that answers by the number of rows it changed.
fn changed(
    session: &Session,
    operation: Operation,
    parameters: &[(usize, &dyn ToSql)],
) -> Result<bool> {
    session.with(operation, |statement| {
        for (index, value) in parameters {
            statement.raw_bind_parameter(*index, value)?;
        }
        let rows = statement.raw_execute()?;
        statement.clear_bindings();
        Ok(rows > 0)
    })
}
