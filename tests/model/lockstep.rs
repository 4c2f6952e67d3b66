//! Each call of the model is made on a real database through the real statements, so that the
//! model cannot say what the code does not do.
#![allow(dead_code)] // every test binary uses its own part

use rusqlite::types::Value;
use rusqlite::{Connection, Result};
use std::collections::HashSet;

use crate::protocol::{Answer, Call, Db, Job, Protocol, TTL};
use crate::search::{Bounds, Search};
use crate::statements::{run, Statements};

pub type Edge = (Db, Call, (Answer, Db));

/// Every different call that the search makes within these bounds, with distinct owner names and
/// with a shared one, and what the model says about it.
pub fn edges(bounds: Bounds) -> Vec<Edge> {
    let mut seen = HashSet::new();
    let mut edges = Vec::new();
    for shared_name in [false, true] {
        let search = Search::of(Protocol { without: None, last: 100 }, bounds, shared_name);
        let found = search.run_and(|before, call, after| {
            if seen.insert((before, call)) {
                edges.push((before, call, after));
            }
        });
        assert_eq!(found.broken, None);
    }
    edges
}

/// A database that is set to the model's state before each call.
pub struct Lockstep<'a> {
    conn: Connection,
    statements: &'a Statements,
}

const ROW: &str = "SELECT owner, until, fence, result, done, (SELECT fence FROM main.fence_floor)
                     FROM main.jobs WHERE id = 'j'";

impl<'a> Lockstep<'a> {
    pub fn new(statements: &'a Statements) -> Result<Self> {
        let conn = statements.database()?;
        conn.execute_batch(
            "CREATE TABLE orders(job TEXT, total INTEGER, slug TEXT UNIQUE, fence INTEGER);
             INSERT INTO orders(job, total) VALUES ('j', 0);",
        )?;
        conn.execute_batch(&statements.guard("orders", "job", ""))?;
        Ok(Lockstep { conn, statements })
    }

    /// What is different from what the model says, if anything.
    pub fn replay(
        &self,
        (before, call, (answer, after)): &Edge,
    ) -> std::result::Result<(), String> {
        self.execute("SAVEPOINT edge");
        let outcome = self.compare(before, *call, *answer, after);
        self.execute("ROLLBACK TO edge");
        self.execute("RELEASE edge");
        outcome.map_err(|what| format!("{call:?} on {before:?}: {what}"))
    }

    fn compare(
        &self,
        before: &Db,
        call: Call,
        answer: Answer,
        after: &Db,
    ) -> std::result::Result<(), String> {
        self.set(before).map_err(|e| e.to_string())?;
        if let Call::Claim { .. } = call {
            // A claim that is rolled back leaves nothing; the one below gets the same number.
            self.execute("SAVEPOINT claim");
            let claimed = self.call(call).map_err(|e| e.to_string())?;
            self.execute("ROLLBACK TO claim");
            self.execute("RELEASE claim");
            self.expect("answer before a rollback", &claimed, &answer)?;
            self.expect("row after a rollback", &self.row(), &row(before))?;
        }
        let found = self.call(call).map_err(|e| e.to_string())?;
        self.expect("answer", &found, &answer)?;
        self.expect("row", &self.row(), &row(after))?;
        let stamped = match call {
            Call::Write { fence } | Call::WriteAndComplete { fence, .. } if answer.is_some() => {
                i64::from(fence)
            }
            _ => 0,
        };
        let order = run(&self.conn, "SELECT total, fence FROM orders", &[]);
        let expected = vec![vec![Value::Integer(stamped), Value::Null]];
        self.expect("guarded row", &order, &Ok(crate::statements::Answer::Rows(expected)))
    }

    fn expect<T: std::fmt::Debug + PartialEq>(
        &self,
        what: &str,
        found: &T,
        expected: &T,
    ) -> std::result::Result<(), String> {
        if found == expected {
            return Ok(());
        }
        Err(format!("{what} is {found:?}, the model says {expected:?}"))
    }

    /// Transactions only: they do not fail.
    fn execute(&self, text: &str) {
        let mut statement = self.conn.prepare_cached(text).unwrap();
        statement.execute([]).unwrap_or_else(|e| panic!("{text}: {e}"));
    }

    fn set(&self, db: &Db) -> Result<()> {
        if let Some(job) = db.job {
            let insert = "INSERT INTO main.jobs(id, owner, until, fence, result, done)
                          VALUES ('j', ?1, ?2, ?3, ?4, ?5)";
            run(&self.conn, insert, &values(&job))?;
        }
        // Afterwards, because a new row would be put above it.
        if db.floor > 0 {
            let floor = [Value::Integer(db.floor.into())];
            run(&self.conn, "UPDATE main.fence_floor SET fence = ?1", &floor)?;
        }
        Ok(())
    }

    fn row(&self) -> Vec<Value> {
        match run(&self.conn, ROW, &[]) {
            Ok(crate::statements::Answer::Rows(mut rows)) if rows.len() == 1 => rows.remove(0),
            _ => match run(&self.conn, "SELECT fence FROM main.fence_floor", &[]) {
                Ok(crate::statements::Answer::Rows(rows)) => rows.concat(),
                other => panic!("the floor: {other:?}"),
            },
        }
    }

    fn call(&self, call: Call) -> Result<Answer> {
        let id = || Value::Text("j".into());
        let name = |owner: u8| Value::Text(format!("w{owner}"));
        let result = |worker: u8| Value::Text(format!("r{worker}"));
        let int = |n: u8| Value::Integer(n.into());
        let ttl = || Value::Integer(TTL.into());
        let (file, arguments) = match call {
            Call::Enqueue => ("enqueue", vec![id()]),
            Call::Claim { owner, now } => ("claim", vec![id(), name(owner), int(now), ttl()]),
            Call::Renew { owner, fence, now } => {
                ("renew", vec![id(), name(owner), int(fence), int(now), ttl()])
            }
            Call::Complete { owner, fence, now, result: worker } => {
                ("complete", vec![id(), name(owner), int(fence), int(now), result(worker)])
            }
            Call::Fail { owner, fence, now, result: worker } => {
                ("fail", vec![id(), name(owner), int(fence), int(now), result(worker)])
            }
            Call::Release { owner, fence } => ("release", vec![id(), name(owner), int(fence)]),
            Call::Requeue => ("requeue", vec![id()]),
            Call::Restore { bump } => {
                self.statements.run(&self.conn, "restore", &[int(bump)])?;
                return Ok(Some(1));
            }
            Call::WriteAndComplete { owner, fence, now, result } => {
                self.execute("SAVEPOINT both");
                let written = self.call(Call::Write { fence })?;
                let both = match written {
                    Some(_) => self.call(Call::Complete { owner, fence, now, result })?,
                    None => None,
                };
                if both.is_none() {
                    self.execute("ROLLBACK TO both");
                }
                self.execute("RELEASE both");
                return Ok(both);
            }
            Call::Write { fence } => {
                let text = "UPDATE orders SET total = ?1, fence = ?1 WHERE job = 'j'";
                return self.raw(text, &[int(fence)]);
            }
            Call::Delete => return self.raw("DELETE FROM jobs WHERE id = 'j'", &[]),
            Call::Replace => return self.raw("INSERT OR REPLACE INTO jobs(id) VALUES ('j')", &[]),
            Call::Reopen => return self.raw("UPDATE jobs SET done = 0, result = NULL", &[]),
            Call::Lower => {
                return self.raw("UPDATE jobs SET fence = fence - 1 WHERE fence > 0", &[])
            }
        };
        Ok(match self.statements.run(&self.conn, file, &arguments)? {
            crate::statements::Answer::Changes(changes) => (changes > 0).then_some(1),
            crate::statements::Answer::Rows(rows) => match rows.as_slice() {
                [] => None,
                [row] => match (&row[0], &row[1]) {
                    (Value::Integer(fence), Value::Real(_)) => Some(*fence as u8),
                    other => panic!("{file}: {other:?}"),
                },
                more => panic!("{file}: {more:?}"),
            },
        })
    }

    /// A statement of a client that knows nothing of fences: the file itself may refuse it.
    fn raw(&self, text: &str, arguments: &[Value]) -> Result<Answer> {
        match run(&self.conn, text, arguments) {
            Ok(answer) => Ok(answer.accepted().then_some(1)),
            Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

fn values(job: &Job) -> [Value; 5] {
    [
        job.owner.map_or(Value::Null, |owner| Value::Text(format!("w{owner}"))),
        Value::Real(job.until.into()),
        Value::Integer(job.fence.into()),
        job.result.map_or(Value::Null, |worker| Value::Text(format!("r{worker}"))),
        Value::Integer(job.done.into()),
    ]
}

/// What the row and the floor must be, types included.
fn row(db: &Db) -> Vec<Value> {
    let mut row = db.job.map(|job| values(&job).to_vec()).unwrap_or_default();
    row.push(Value::Integer(db.floor.into()));
    row
}
