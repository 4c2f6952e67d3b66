//! The SQL functions: one row of the table for each name and number of arguments.
use rusqlite::types::ToSqlOutput;

use crate::batch::{self, Each};
use crate::call::Call;
use crate::host::Answer;
use crate::operation::file;
use crate::protocol::{self, Now, Outcome};
use crate::{args, claim_batch, guard, json, schema, Result};

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
    writes("fence_init_queue", 0, init_queue),
    writes("fence_enqueue", 1, enqueue),
    writes("fence_enqueue", 2, enqueue),
    writes("fence_enqueue_batch", 1, enqueue_batch),
    reads("fence_state", 1, state),
    writes("fence_claim", 3, |call| claim(call, false)),
    writes("fence_claim", 4, |call| claim(call, true)),
    writes("fence_claim_batch", 3, claim_batch),
    writes("fence_claim_batch", 4, claim_batch),
    writes("fence_claim_batch", 5, claim_batch),
    writes("fence_renew", 4, |call| renew(call, false)),
    writes("fence_renew", 5, |call| renew(call, true)),
    writes("fence_renew_batch", 3, |call| renew_batch(call, false)),
    writes("fence_renew_batch", 4, |call| renew_batch(call, true)),
    writes("fence_complete", 4, |call| finish(call, Outcome::Complete, false)),
    writes("fence_complete", 5, |call| finish(call, Outcome::Complete, true)),
    writes("fence_complete_batch", 2, |call| complete_batch(call, false)),
    writes("fence_complete_batch", 3, |call| complete_batch(call, true)),
    writes("fence_fail", 4, |call| finish(call, Outcome::Fail, false)),
    writes("fence_fail", 5, |call| finish(call, Outcome::Fail, true)),
    writes("fence_requeue", 1, requeue),
    writes("fence_release", 3, release),
    writes("fence_release", 4, release),
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

fn init_queue(call: &Call) -> Result<Answer> {
    call.session()?.connection().execute_batch(file("queue"))?;
    Ok(true.into())
}

fn enqueue(call: &Call) -> Result<Answer> {
    let id = call.text(0, "id")?;
    Ok(protocol::enqueue(call.session()?, id, due(call, 1)?)?.into())
}

fn enqueue_batch(call: &Call) -> Result<Answer> {
    let ids = call.text(0, "ids")?;
    Ok(Answer::Integer(batch::enqueue(call.session()?, call.name(), ids)? as i64))
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

/// Answers a JSON array of `[id, fence]`, as the functions for batches take it.
fn claim_batch(call: &Call) -> Result<Answer> {
    let (host, arguments) = call.raw()?;
    let taken = claim_batch::claim(host, &arguments)?;
    Ok(Answer::Text(json::pairs(taken.iter().map(|job| (job.id.as_str(), job.fence)))))
}

fn renew(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let (now, ttl) = lease(call, 3, now_given)?;
    Ok(protocol::renew(call.session()?, id, owner, fence, now, ttl)?.into())
}

fn renew_batch(call: &Call, now_given: bool) -> Result<Answer> {
    let owner = call.text(0, "owner")?;
    let (now, ttl) = lease(call, 1, now_given)?;
    each(call, owner, now, Each::Renew { ttl }, 2 + usize::from(now_given))
}

fn complete_batch(call: &Call, now_given: bool) -> Result<Answer> {
    let owner = call.text(0, "owner")?;
    let now = if now_given { Some(moment(call, 1, "now")?) } else { None };
    each(call, owner, now, Each::Complete, 1 + usize::from(now_given))
}

/// Answers a JSON array of 1 and 0, one for each item.
fn each(call: &Call, owner: &str, now: Now, what: Each, items: usize) -> Result<Answer> {
    let items = call.text(items, "items")?;
    let answers = batch::each(call.session()?, call.name(), owner, now, what, items)?;
    let answers: Vec<_> = answers.into_iter().map(|yes| if yes { "1" } else { "0" }).collect();
    Ok(Answer::Text(format!("[{}]", answers.join(","))))
}

fn finish(call: &Call, outcome: Outcome, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let now = if now_given { Some(moment(call, 3, "now")?) } else { None };
    let argument = match outcome {
        Outcome::Complete => "result",
        Outcome::Fail => "error",
    };
    let stored = ToSqlOutput::Borrowed(call.stored(3 + usize::from(now_given), argument)?);
    Ok(protocol::finish(call.session()?, outcome, id, owner, fence, now, &stored)?.into())
}

fn requeue(call: &Call) -> Result<Answer> {
    let id = call.text(0, "id")?;
    Ok(protocol::requeue(call.session()?, id)?.into())
}

fn release(call: &Call) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    Ok(protocol::release(call.session()?, id, owner, fence, due(call, 3)?)?.into())
}

fn check(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let now = if now_given { Some(moment(call, 3, "now")?) } else { None };
    let standing = protocol::check(call.session()?, id, owner, fence, now)?;
    Ok(Answer::Text(standing.to_string()))
}

fn assert(call: &Call, now_given: bool) -> Result<Answer> {
    let (id, owner, fence) = holder(call)?;
    let now = if now_given { Some(moment(call, 3, "now")?) } else { None };
    // In autocommit the lease could be taken over between this call and the write it is for.
    if !call.in_transaction() {
        return Err(call.invalid("needs a transaction, begin one with BEGIN IMMEDIATE"));
    }
    protocol::assert(call.session()?, id, owner, fence, now)?;
    Ok(true.into())
}

fn purge(call: &Call) -> Result<Answer> {
    let before = moment(call, 0, "before")?;
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
    Ok(guard::guard(call.session()?, call.name(), table, job)?.into())
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

/// A moment in seconds.
fn moment(call: &Call, i: usize, argument: &str) -> Result<f64> {
    let moment = call.number(i, argument)?;
    args::moment(call.name(), argument, moment)?;
    Ok(moment)
}

/// The argument `due`, where it is given.
fn due(call: &Call, i: usize) -> Result<Option<f64>> {
    (i < call.count()).then(|| moment(call, i, "due")).transpose()
}

/// The arguments ([now,] ttl).
fn lease(call: &Call, i: usize, now_given: bool) -> Result<(Now, f64)> {
    let now = if now_given { Some(call.number(i, "now")?) } else { None };
    let ttl = call.number(i + usize::from(now_given), "ttl")?;
    args::lease(call.name(), now, ttl)?;
    Ok((now, ttl))
}
