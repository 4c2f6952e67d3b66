//! Operations over many jobs in one transaction.
use rusqlite::types::ValueRef;
use rusqlite::Row;

use crate::operation::Operation;
use crate::protocol::{self, Now, Outcome};
use crate::session::Session;
use crate::{args, Error, Result};

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

/// What `?1` is.
pub(crate) const IS_ARRAY: &str =
    "SELECT CASE WHEN json_valid(?1) THEN json_type(?1) = 'array' ELSE 0 END";

// A file may have a table json_each, but not in temp.
pub(crate) const ARRAY_OF_IDS: &str = "
    SELECT key + 1, type = 'text', CASE WHEN type = 'text' THEN value END
      FROM temp.json_each(?1) ORDER BY key";

pub(crate) const ARRAY_OF_HELD: &str = "
    SELECT key + 1, shown,
           json_type(item, '$[0]') = 'text'
             AND json_type(item, '$[1]') = 'integer'
             AND typeof(json_extract(item, '$[1]')) = 'integer'  -- else beyond 2^63
             AND coalesce(json_type(item, '$[2]'), 'null') IN ('text', 'null')
             AND json_array_length(item) <= 3,
           json_extract(item, '$[0]'), json_extract(item, '$[1]'), json_extract(item, '$[2]')
      FROM (SELECT key,
                   CASE WHEN type = 'array' THEN value ELSE '[]' END AS item,
                   CASE WHEN type IN ('array', 'object') THEN value
                        ELSE json_quote(value) END AS shown
              FROM temp.json_each(?1))
     ORDER BY key";

/// Adds the jobs of a JSON array of ids and tells how many were new.
pub(crate) fn enqueue(session: &Session, function: &str, ids: &str) -> Result<usize> {
    check_array(session, function, ids)?;
    rows_of(session, Operation::ArrayOfIds, ids, |row| {
        let item: i64 = row.get(0)?;
        if !row.get(1)? {
            return Err(Error::invalid(function, format_args!("item {item} must be a text")));
        }
        let what = format!("item {item}");
        args::name(function, &what, &text(function, &what, row.get_ref(2)?)?.unwrap_or_default())
    })?;
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
    array: &str,
) -> Result<Vec<bool>> {
    let items = items(session, function, array)?;
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

struct Item {
    id: String,
    fence: i64,
    result: Option<String>,
}

fn items(session: &Session, function: &str, array: &str) -> Result<Vec<Item>> {
    check_array(session, function, array)?;
    let mut items = Vec::new();
    rows_of(session, Operation::ArrayOfHeld, array, |row| {
        let number: i64 = row.get(0)?;
        if row.get::<_, Option<bool>>(2)? != Some(true) {
            let shown = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
            let shown = String::from_utf8_lossy(shown);
            return Err(Error::invalid(
                function,
                format_args!(
                    "item {number} must be [id, fence] or [id, fence, result], got {}",
                    args::Cut(&shown, 80)
                ),
            ));
        }
        let what = format!("the id of item {number}");
        let id = text(function, &what, row.get_ref(3)?)?.unwrap_or_default();
        args::name(function, &what, &id)?;
        let what = format!("the result of item {number}");
        let result = text(function, &what, row.get_ref(5)?)?;
        items.push(Item { id, fence: row.get(4)?, result });
        Ok(())
    })?;
    Ok(items)
}

/// Shows `each` the rows of a statement about a JSON text, up to an error.
fn rows_of(
    session: &Session,
    operation: Operation,
    json: &str,
    mut each: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    session.with(operation, |statement| {
        statement.raw_bind_parameter(1, json)?;
        let mut rows = statement.raw_query();
        let mut done = Ok(());
        while let Some(row) = rows.next()? {
            done = each(row);
            if done.is_err() {
                break;
            }
        }
        drop(rows);
        // Not kept in memory until the statement is used again.
        statement.clear_bindings();
        Ok(done)
    })?
}

/// A text or NULL. JSON can spell half of a character, `"\ud800"`.
fn text(function: &str, what: &str, value: ValueRef<'_>) -> Result<Option<String>> {
    match value.as_str_or_null() {
        Ok(text) => Ok(text.map(str::to_owned)),
        Err(_) => Err(Error::invalid(function, format_args!("{what} must be valid UTF-8"))),
    }
}

fn check_array(session: &Session, function: &str, json: &str) -> Result<()> {
    let mut array = false;
    rows_of(session, Operation::IsArray, json, |row| {
        array = row.get(0)?;
        Ok(())
    })?;
    if !array {
        let got = args::Quoted(json);
        return Err(Error::invalid(function, format_args!("needs a JSON array, got {got}")));
    }
    // Older versions of SQLite cut a text there and say nothing.
    let mut rest = json;
    while let Some((_, escape)) = rest.split_once('\\') {
        if escape.starts_with("u0000") {
            return Err(Error::invalid(function, "the array must not contain a NUL character"));
        }
        rest = escape.get(1..).unwrap_or_default();
    }
    Ok(())
}
