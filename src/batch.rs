//! Operations over many jobs in one transaction.
use crate::array::{self, Item};
use crate::operation::Operation;
use crate::protocol::{self, Now, Outcome};
use crate::session::Session;
use crate::Result;

/// A job that a batch took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taken {
    pub id: String,
    pub fence: i64,
    pub until: f64,
}

/// Takes up to `limit` jobs of a queue that are due.
pub(crate) fn claim(
    session: &Session,
    owner: &str,
    now: Now,
    ttl: f64,
    limit: i64,
    queue: &str,
) -> Result<Vec<Taken>> {
    // One job alone is found without a list of rows, at 0.6 of the cost.
    let operation = match (limit, now) {
        (1, Some(_)) => Operation::ClaimNext,
        (1, None) => Operation::ClaimNextByClock,
        (_, Some(_)) => Operation::ClaimBatch,
        (_, None) => Operation::ClaimBatchByClock,
    };
    session.with(operation, |statement| {
        statement.raw_bind_parameter(1, owner)?;
        if let Some(now) = now {
            statement.raw_bind_parameter(2, now)?;
        }
        statement.raw_bind_parameter(3, ttl)?;
        if limit == 1 {
            statement.raw_bind_parameter(4, queue)?;
        } else {
            statement.raw_bind_parameter(4, limit)?;
            statement.raw_bind_parameter(5, queue)?;
        }
        let mut rows = statement.raw_query();
        let mut taken = Vec::new();
        // To the end: in autocommit the commit happens in the last step.
        while let Some(row) = rows.next()? {
            // Plain SQL can store an id that is no UTF-8. An error would lose the other jobs, which
            // are taken already.
            let id = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned();
            taken.push(Taken { id, fence: row.get(1)?, until: row.get(2)? });
        }
        Ok(taken)
    })
}

#[cfg(not(feature = "loadable"))]
/// The earliest moment at which a job of the queue may be claimed.
pub(crate) fn next_due(session: &Session, queue: &str) -> Result<Option<f64>> {
    session.with(Operation::NextDue, |statement| {
        statement.raw_bind_parameter(1, queue)?;
        let mut rows = statement.raw_query();
        rows.next()?.map_or(Ok(None), |row| row.get(0))
    })
}

/// Adds the jobs of a JSON array of ids and tells how many were new.
pub(crate) fn enqueue(session: &Session, function: &str, ids: &str) -> Result<usize> {
    array::check_ids(session, function, ids)?;
    protocol::count(session, Operation::EnqueueBatch, &[(1, &ids)])
}

/// What to do with each item of a batch.
#[derive(Clone, Copy)]
pub(crate) enum Each {
    Complete,
    Renew { ttl: f64 },
}

/// One answer for each item of a JSON array of `[id, fence]`, all in one transaction. An item of
/// `Complete` may be `[id, fence, result]`.
pub(crate) fn each(
    session: &Session,
    function: &str,
    owner: &str,
    now: Now,
    what: Each,
    items: &str,
) -> Result<Vec<bool>> {
    let items = array::items(session, function, items)?;
    session.atomically(|| {
        let answer = |Item { id, fence, result }: &Item| match what {
            Each::Complete => {
                protocol::finish(session, Outcome::Complete, id, owner, *fence, now, result)
            }
            Each::Renew { ttl } => protocol::renew(session, id, owner, *fence, now, ttl),
        };
        items.iter().map(answer).collect()
    })
}
