//! Plays a sequence of steps through a door and compares every answer, and the whole table after
//! every step, with the reference.

use std::collections::BTreeMap;

use crate::doors::{self, Door};
use crate::steps::{Kind, Step};
use crate::table::{Answer, Call, Table};

/// How often each operation had each outcome.
pub type Coverage = BTreeMap<(&'static str, &'static str), usize>;

pub fn play(door: &dyn Door, steps: &[Step], coverage: &mut Coverage) -> Result<(), String> {
    let mut table = Table::default();
    for (i, step) in steps.iter().enumerate() {
        one(door, &mut table, step, coverage)
            .map_err(|what| format!("step {}: {:?}\n  {what}", i + 1, step.call(&table)))?;
    }
    Ok(())
}

fn one(
    door: &dyn Door,
    table: &mut Table,
    step: &Step,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let call = step.call(table);
    let mut after = table.clone();
    let mut expected = after.apply(&call);
    let outcome = outcome(table, &call, &expected);
    // Only the update of a job can be made to fail; races and restores are other transactions.
    let updates = matches!(
        call,
        Call::Claim { .. }
            | Call::ClaimBatch { .. }
            | Call::Renew { .. }
            | Call::Complete { .. }
            | Call::Fail { .. }
            | Call::Release { .. }
            | Call::Requeue { .. }
    );
    let commit_fails = step.commit_fails && updates;
    if commit_fails {
        door.plain().execute("INSERT INTO broken VALUES (1)", []).unwrap();
    }
    let answer = door.call(&call);
    if commit_fails {
        door.plain().execute("DELETE FROM broken", []).unwrap();
        if after != *table {
            // An answer before the commit would be a promise that was not kept.
            *coverage.entry((name(step.kind), "commit fails")).or_default() += 1;
            return match answer {
                Err((787, _)) => unchanged(door, table),
                other => Err(format!("the commit fails, but the answer is {other:?}")),
            };
        }
    }
    if let (Call::Race { .. }, Ok(Answer::Winner(Some((winner, _))))) = (&call, &answer) {
        after = table.clone();
        expected = after.race(&call, *winner);
    }
    match (&answer, &expected) {
        (Err(_), Answer::Error) => unchanged(door, table)?,
        (Ok(found), expected) if found == expected => {}
        _ => return Err(format!("answered {answer:?}, the contract says {expected:?}")),
    }
    *table = after;
    unchanged(door, table)?;
    *coverage.entry((name(step.kind), outcome)).or_default() += 1;
    Ok(())
}

fn unchanged(door: &dyn Door, expected: &Table) -> Result<(), String> {
    let found = doors::table(door.plain());
    if found == *expected {
        return Ok(());
    }
    Err(format!("the table is {found:?}\n  the contract says {expected:?}"))
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Enqueue => "enqueue",
        Kind::EnqueueAt => "enqueue at",
        Kind::Claim => "claim",
        Kind::ClaimBatch => "claim batch",
        Kind::Race => "race",
        Kind::Renew => "renew",
        Kind::Complete => "complete",
        Kind::Fail => "fail",
        Kind::Release => "release",
        Kind::ReleaseAt => "release at",
        Kind::Requeue => "requeue",
        Kind::Check => "check",
        Kind::State => "state",
        Kind::Purge => "purge",
        Kind::Restore => "restore",
        Kind::Delete => "delete",
        Kind::Replace => "replace",
        Kind::Lift => "lift",
    }
}

/// Why the answer is what it is, in a word.
fn outcome(table: &Table, call: &Call, answer: &Answer) -> &'static str {
    let claimed = |id: &str, now: f64| match table.job(id) {
        None => "missing",
        Some(job) if job.done != 0 => "done",
        Some(job) if job.until > now => "not due",
        Some(job) if job.fence == i64::MAX => "used up",
        Some(job) if job.owner.is_some() => "takes over",
        Some(_) => "takes",
    };
    match (call, answer) {
        (Call::Claim { id, now, .. } | Call::Race { id, now, .. }, _) => claimed(id, *now),
        (
            Call::Renew { id, owner, fence, now, .. }
            | Call::Complete { id, owner, fence, now, .. }
            | Call::Fail { id, owner, fence, now, .. }
            | Call::Check { id, owner, fence, now },
            _,
        ) => crate::reference::standing(table.job(id), owner, *fence, *now),
        (Call::Release { id, owner, fence, .. }, _) => {
            crate::reference::standing(table.job(id), owner, *fence, f64::MIN)
        }
        (_, Answer::Yes(true)) => "yes",
        (_, Answer::Yes(false)) => "no",
        (_, Answer::Error) => "error",
        (_, Answer::Taken(taken)) => ["none", "one", "several"][taken.len().min(2)],
        (_, Answer::Count(count)) => ["none", "one", "several"][(*count).min(2)],
        (_, Answer::Row(row)) => ["missing", "found"][usize::from(row.is_some())],
        other => panic!("no outcome: {other:?}"),
    }
}
