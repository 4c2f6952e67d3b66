//! The SQL functions: one row of the table for each name and number of arguments.
use crate::host::{Answer, Call};
use crate::{args, guard, json, protocol, schema, Result};

/// A function as SQLite knows it.
pub(crate) struct Function {
    pub name: &'static str,
    pub arguments: usize,
    /// A function that writes is DIRECTONLY: no view, trigger or hostile schema can call it.
    pub writes: bool,
    pub body: fn(&Call) -> Result<Answer>,
}

const fn reads(
    name: &'static str,
    arguments: usize,
    body: fn(&Call) -> Result<Answer>,
) -> Function {
    Function { name, arguments, writes: false, body }
}

const fn writes(
    name: &'static str,
    arguments: usize,
    body: fn(&Call) -> Result<Answer>,
) -> Function {
    Function { name, arguments, writes: true, body }
}

pub(crate) static FUNCTIONS: &[Function] = &[
    writes("fence_init", 0, init),
    writes("fence_enqueue", 1, enqueue),
    reads("fence_state", 1, state),
    writes("fence_claim", 3, |call| claim(call, false)),
    writes("fence_claim", 4, |call| claim(call, true)),
    writes("fence_renew", 4, |call| renew(call, false)),
    writes("fence_renew", 5, |call| renew(call, true)),
    writes("fence_complete", 4, |call| complete(call, false)),
    writes("fence_complete", 5, |call| complete(call, true)),
    writes("fence_release", 3, release),
    reads("fence_check", 3, |call| check(call, false)),
    reads("fence_check", 4, |call| check(call, true)),
    reads("fence_assert", 3, |call| assert(call, false)),
    reads("fence_assert", 4, |call| assert(call, true)),
    writes("fence_purge", 2, purge),
    writes("fence_restore", 0, |call| restore(call, 1_000_000_000)),
    writes("fence_restore", 1, |call| restore(call, call.integer(0, "bump")?)),
    writes("fence_guard", 2, guard),
    writes("fence_unguard", 1, unguard),
    writes("fence_pass", 2, pass),
    reads("fence_version", 0, |_| Ok(Answer::Text(crate::VERSION.into()))),
    reads("fence_debug", 0, |_| Ok(Answer::Text(crate::debug()))),
];

impl From<bool> for Answer {
    fn from(yes: bool) -> Self {
        Answer::Integer(yes.into())
    }
}

fn init(call: &Call) -> Result<Answer> {
    schema::init(call.session()?, call.name())?;
    Ok(true.into())
}

fn enqueue(call: &Call) -> Result<Answer> {
    let id = call.text(0, "id")?;
    Ok(protocol::enqueue(call.session()?, id)?.into())
}

fn state(call: &Call) -> Result<Answer> {
    let id = call.text(0, "id")?;
    Ok(protocol::state(call.session()?, id, json::object)?.map_or(Answer::Null, Answer::Text))
}

fn claim(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner) = (call.text(0, "id")?, call.text(1, "owner")?);
    let (now, ttl) = lease(call, 2, now_given)?;
    let claimed = protocol::claim(call.session()?, id, owner, now, ttl)?;
    Ok(claimed.map_or(Answer::Null, |claimed| Answer::Integer(claimed.fence)))
}

fn renew(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let (now, ttl) = lease(call, 3, now_given)?;
    Ok(protocol::renew(call.session()?, id, owner, fence, now, ttl)?.into())
}

fn complete(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let now = if now_given { Some(moment(call, 3)?) } else { None };
    let result = call.stored(3 + usize::from(now_given), "result")?;
    let result = rusqlite::types::ToSqlOutput::Borrowed(result);
    Ok(protocol::complete(call.session()?, id, owner, fence, now, &result)?.into())
}

fn release(call: &Call) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    Ok(protocol::release(call.session()?, id, owner, fence)?.into())
}

fn check(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let now = if now_given { Some(moment(call, 3)?) } else { None };
    let standing = protocol::check(call.session()?, id, owner, fence, now)?;
    Ok(Answer::Text(standing.to_string()))
}

fn assert(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let now = if now_given { Some(moment(call, 3)?) } else { None };
    // In autocommit the lease could be taken over between this call and the write it is for.
    if !call.in_transaction() {
        return Err(call.invalid("needs a transaction, begin one with BEGIN IMMEDIATE"));
    }
    protocol::assert(call.session()?, id, owner, fence, now)?;
    Ok(true.into())
}

fn purge(call: &Call) -> Result<Answer> {
    let before = call.number(0, "before")?;
    args::moment(call.name(), "before", before)?;
    let limit = call.integer(1, "limit")?;
    args::count(call.name(), "limit", limit)?;
    Ok(Answer::Integer(protocol::purge(call.session()?, before, limit)? as i64))
}

fn restore(call: &Call, bump: i64) -> Result<Answer> {
    args::count(call.name(), "bump", bump)?;
    protocol::restore(call.session()?, call.name(), bump)?;
    Ok(true.into())
}

fn guard(call: &Call) -> Result<Answer> {
    let (table, job) = (call.text(0, "table")?, call.text(1, "job_column")?);
    Ok(guard::guard(call.session()?, table, job)?.into())
}

fn unguard(call: &Call) -> Result<Answer> {
    let table = call.text(0, "table")?;
    Ok(guard::unguard(call.session()?, table)?.into())
}

fn pass(call: &Call) -> Result<Answer> {
    let (resource, fence) = (call.text(0, "resource")?, call.integer(1, "fence")?);
    args::count(call.name(), "fence", fence)?;
    Ok(protocol::pass(call.session()?, resource, fence)?.into())
}

/// The arguments (id, owner, fence), with which a worker shows that it holds a job.
fn holder<'a>(call: &Call<'a>) -> Result<(&'a str, &'a str, i64)> {
    Ok((call.text(0, "id")?, call.text(1, "owner")?, call.integer(2, "fence")?))
}

/// The argument `now`.
fn moment(call: &Call, i: usize) -> Result<f64> {
    let now = call.number(i, "now")?;
    args::moment(call.name(), "now", now)?;
    Ok(now)
}

/// The arguments ([now,] ttl).
fn lease(call: &Call, i: usize, now_given: bool) -> Result<(protocol::Now, f64)> {
    let now = if now_given { Some(call.number(i, "now")?) } else { None };
    let ttl = call.number(i + usize::from(now_given), "ttl")?;
    args::lease(call.name(), now, ttl)?;
    Ok((now, ttl))
}
