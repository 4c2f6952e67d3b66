//! Sequences of calls, in and out of transactions, against the reference that the property tests
//! use: answer by answer and row by row. Beside it, two rules that know nothing of the reference: a
//! fence that was handed out is never handed out again, and a job that is done stays so unless its
//! fence grew.
//!
//! A million sequences: `RUSTC_BOOTSTRAP=1 cargo fuzz run -s none calls -- -runs=1000000 -max_len=400`
#![no_main]

#[path = "../../tests/model/reference.rs"]
mod reference;
#[path = "../../tests/properties/table.rs"]
#[allow(dead_code)] // races are for two connections
mod table;

use libfuzzer_sys::fuzz_target;
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{params_from_iter, Connection};
use std::collections::HashMap;
use table::{Answer, Call, Job, Table};

const JOBS: [&str; 5] = ["a", "b", "q:a", "q:b", "q:c"];
const OWNERS: [&str; 3] = ["w1", "w2", "W1"];

/// Four bytes of the input.
#[derive(Clone, Copy)]
struct Step {
    kind: u8,
    names: u8,
    time: u8,
    amount: u8,
}

enum Act {
    Call(Call),
    Begin,
    Commit,
    Rollback,
}

impl Step {
    /// What the step does: its arguments follow from the table that it meets, so that most inputs
    /// are about leases that exist.
    fn act(self, table: &Table) -> Act {
        let id = JOBS[usize::from(self.names) % JOBS.len()].to_owned();
        let worker = || OWNERS[usize::from(self.names) / 8 % OWNERS.len()].to_owned();
        let job = table.job(&id);
        let until = job.map_or(0.0, |job| job.until);
        // At the end of the lease, a bit before or after it, or at some other moment.
        let now = match self.time {
            0..=63 => until,
            64..=127 => until - f64::from(self.time - 63) / 4.0,
            128..=191 => until + f64::from(self.time - 128) / 4.0,
            other => f64::from(other) - 224.0,
        };
        let amount = i64::from(self.amount % 16) + 1;
        let fence = job.map_or(0, |job| job.fence).saturating_add(match self.amount / 16 {
            0..=9 => 0,
            10 => 1,
            11 => -1,
            12 => 1 << 40,
            13 => -(1 << 62),
            _ => i64::from(self.amount) - 240,
        });
        let owner = match (self.names / 32, job.and_then(|job| job.owner.clone())) {
            (0..=4, Some(owner)) => owner,
            _ => worker(),
        };
        let ttl = amount as f64 / 2.0;
        let result = (amount > 4).then(|| format!("{owner} {amount}"));
        let queue = id.split_once(':').map_or("", |(queue, _)| queue).to_owned();
        Act::Call(match self.kind % 24 {
            0 | 1 => Call::Enqueue { id, due: None },
            2 => Call::Enqueue { id, due: Some(now) },
            3..=6 => Call::Claim { id, owner: worker(), now, ttl },
            7 => Call::ClaimBatch { queue, owner: worker(), now, ttl, limit: amount.min(4) },
            8 => Call::Renew { id, owner, fence, now, ttl },
            9 | 10 => Call::Complete { id, owner, fence, now, result },
            11 | 12 => Call::Fail { id, owner, fence, now, result },
            13 => Call::Release { id, owner, fence, due: None },
            14 => Call::Release { id, owner, fence, due: Some(now) },
            15 => Call::Requeue { id },
            16 => Call::Check { id, owner, fence, now },
            17 => Call::State { id },
            18 => Call::Purge { before: now, limit: amount },
            19 if self.amount > 250 => Call::Lift { id },
            19 => Call::Restore { bump: amount },
            20 => Call::Delete { id },
            21 => Call::Replace { id },
            22 => return Act::Begin,
            _ if self.amount % 2 == 0 => return Act::Commit,
            _ => return Act::Rollback,
        })
    }

    /// SQLite makes a number of a text that looks like one, and an integer of a whole REAL.
    fn number(self, number: f64) -> Value {
        match self.kind / 64 {
            0 if number.fract() == 0.0 => Value::Integer(number as i64),
            1 => Value::Text(format!("{number}")),
            _ => Value::Real(number),
        }
    }

    fn integer(self, number: i64) -> Value {
        match self.kind / 64 {
            1 => Value::Text(number.to_string()),
            2 if number.abs() < 1 << 53 => Value::Real(number as f64),
            _ => Value::Integer(number),
        }
    }

    /// The SQL for a call, and its parameters.
    fn sql(self, call: Call) -> (&'static str, Vec<Value>) {
        let text = Value::Text;
        let stored = |result: Option<String>| result.map_or(Value::Null, Value::Text);
        match call {
            Call::Enqueue { id, due: None } => ("SELECT fence_enqueue(?)", vec![text(id)]),
            Call::Enqueue { id, due: Some(due) } => {
                ("SELECT fence_enqueue(?, ?)", vec![text(id), self.number(due)])
            }
            Call::Claim { id, owner, now, ttl } => (
                "SELECT fence_claim(?, ?, ?, ?)",
                vec![text(id), text(owner), self.number(now), self.number(ttl)],
            ),
            Call::ClaimBatch { queue, owner, now, ttl, limit } => (
                "SELECT id, fence, until FROM fence_claim_batch(?, ?, ?, ?, ?)",
                vec![
                    text(owner),
                    self.number(now),
                    self.number(ttl),
                    self.integer(limit),
                    text(queue),
                ],
            ),
            Call::Renew { id, owner, fence, now, ttl } => (
                "SELECT fence_renew(?, ?, ?, ?, ?)",
                vec![
                    text(id),
                    text(owner),
                    self.integer(fence),
                    self.number(now),
                    self.number(ttl),
                ],
            ),
            Call::Complete { id, owner, fence, now, result } => (
                "SELECT fence_complete(?, ?, ?, ?, ?)",
                vec![text(id), text(owner), self.integer(fence), self.number(now), stored(result)],
            ),
            Call::Fail { id, owner, fence, now, result } => (
                "SELECT fence_fail(?, ?, ?, ?, ?)",
                vec![text(id), text(owner), self.integer(fence), self.number(now), stored(result)],
            ),
            Call::Release { id, owner, fence, due: None } => {
                ("SELECT fence_release(?, ?, ?)", vec![text(id), text(owner), self.integer(fence)])
            }
            Call::Release { id, owner, fence, due: Some(due) } => (
                "SELECT fence_release(?, ?, ?, ?)",
                vec![text(id), text(owner), self.integer(fence), self.number(due)],
            ),
            Call::Requeue { id } => ("SELECT fence_requeue(?)", vec![text(id)]),
            Call::Check { id, owner, fence, now } => (
                "SELECT fence_check(?, ?, ?, ?)",
                vec![text(id), text(owner), self.integer(fence), self.number(now)],
            ),
            Call::State { id } => ("SELECT fence_state(?) IS NOT NULL", vec![text(id)]),
            Call::Purge { before, limit } => {
                ("SELECT fence_purge(?, ?)", vec![self.number(before), self.integer(limit)])
            }
            Call::Restore { bump } => ("SELECT fence_restore(?)", vec![self.integer(bump)]),
            Call::Delete { id } => ("DELETE FROM jobs WHERE id = ? RETURNING 1", vec![text(id)]),
            Call::Replace { id } => {
                ("INSERT OR REPLACE INTO jobs(id) VALUES (?) RETURNING 1", vec![text(id)])
            }
            Call::Lift { id } => (
                "UPDATE jobs SET fence = max(fence, 9223372036854775806) WHERE id = ? RETURNING 1",
                vec![text(id)],
            ),
            Call::Race { .. } => unreachable!("no step is one"),
        }
    }
}

/// The answer of the reference as rows.
fn rows_of(answer: Answer) -> Option<Vec<Vec<Value>>> {
    let one = |value| vec![vec![value]];
    Some(match answer {
        Answer::Yes(yes) => one(Value::Integer(yes.into())),
        Answer::Fence(fence) => one(fence.map_or(Value::Null, Value::Integer)),
        Answer::Taken(taken) => taken
            .into_iter()
            .map(|(id, fence, until)| {
                vec![Value::Text(id), Value::Integer(fence), Value::Real(until)]
            })
            .collect(),
        Answer::Word(word) => one(Value::Text(word)),
        Answer::Row(row) => one(Value::Integer(row.is_some().into())),
        Answer::Count(count) => one(Value::Integer(count as i64)),
        Answer::Error => return None,
        Answer::Winner(_) => unreachable!("no step is a race"),
    })
}

fn rows(conn: &Connection, sql: &str, parameters: &[Value]) -> rusqlite::Result<Vec<Vec<Value>>> {
    let mut statement = conn.prepare_cached(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query(params_from_iter(parameters))?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push((0..columns).map(|i| row.get(i)).collect::<rusqlite::Result<_>>()?);
    }
    Ok(all)
}

fn stored(conn: &Connection) -> Table {
    let mut statement = conn
        .prepare_cached("SELECT id, owner, until, fence, result, done FROM jobs ORDER BY rowid")
        .unwrap();
    let jobs = statement
        .query_map([], |row| {
            let job = Job {
                owner: row.get(1)?,
                until: row.get(2)?,
                fence: row.get(3)?,
                result: row.get(4)?,
                done: row.get(5)?,
            };
            Ok((row.get(0)?, job))
        })
        .unwrap();
    let jobs = jobs.collect::<rusqlite::Result<_>>().unwrap();
    let mut statement = conn.prepare_cached("SELECT fence FROM fence_floor").unwrap();
    Table { jobs, floor: statement.query_row([], |row| row.get(0)).unwrap() }
}

/// What is known without the reference: the highest fence ever seen of each id, in this history.
#[derive(Clone, Default)]
struct Seen(HashMap<String, (i64, bool)>);

impl Seen {
    fn claimed(&self, id: &str, fence: i64) {
        let highest = self.0.get(id).map_or(0, |(fence, _)| *fence);
        assert!(fence > highest, "{id}: fence {fence} was handed out before");
    }

    fn look(&mut self, table: &Table) {
        for (id, job) in &table.jobs {
            let (highest, done) = self.0.get(id).copied().unwrap_or((0, false));
            assert!(job.fence >= highest, "{id}: the fence fell from {highest} to {}", job.fence);
            // After the last fence a job that is made anew has no other number, and nobody claims it.
            let spent = job.fence == i64::MAX && job.owner.is_none();
            assert!(
                !done || job.done != 0 || job.fence > highest || spent,
                "{id}: done went back with the fence still {highest}"
            );
            self.0.insert(id.clone(), (job.fence, job.done != 0));
        }
    }
}

/// One database for all inputs, and a second connection on which no trigger runs to empty it.
struct Database {
    conn: Connection,
    sweeper: Connection,
}

impl Database {
    fn new() -> Database {
        let open = || Connection::open("file:/calls?vfs=memdb").unwrap();
        let database = Database { conn: open(), sweeper: open() };
        database.sweeper.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
        let conn = &database.conn;
        fence::register(conn).unwrap();
        conn.set_prepared_statement_cache_capacity(64);
        conn.execute_batch("SELECT fence_init(); SELECT fence_init_queue()").unwrap();
        // Made by the first call, which would change what the other connection has prepared.
        conn.execute_batch("SELECT fence_purge(0, 1)").unwrap();
        database
    }

    fn empty(&self) {
        if !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK").unwrap();
        }
        for sql in [
            "DELETE FROM jobs",
            "DELETE FROM fence_replaced",
            "UPDATE fence_floor SET fence = 0 WHERE fence <> 0",
        ] {
            self.sweeper.prepare_cached(sql).unwrap().execute([]).unwrap();
        }
    }
}

thread_local! {
    static DATABASE: Database = Database::new();
}

fuzz_target!(|input: &[u8]| DATABASE.with(|database| {
    database.empty();
    play(&database.conn, input);
}));

fn play(conn: &Connection, input: &[u8]) {
    let mut table = Table::default();
    let mut seen = Seen::default();
    let mut before: Option<(Table, Seen)> = None;
    for bytes in input.chunks_exact(4).take(100) {
        let step = Step { kind: bytes[0], names: bytes[1], time: bytes[2], amount: bytes[3] };
        let call = match step.act(&table) {
            Act::Call(call) => call,
            Act::Begin => {
                if before.is_none() {
                    conn.execute_batch("BEGIN").unwrap();
                    before = Some((table.clone(), seen.clone()));
                }
                continue;
            }
            Act::Commit => {
                if before.take().is_some() {
                    conn.execute_batch("COMMIT").unwrap();
                }
                continue;
            }
            Act::Rollback => {
                // The numbers are given back.
                if let Some(earlier) = before.take() {
                    conn.execute_batch("ROLLBACK").unwrap();
                    (table, seen) = earlier;
                    assert_eq!(stored(conn), table, "after ROLLBACK");
                }
                continue;
            }
        };
        let mut after = table.clone();
        let expected = rows_of(after.apply(&call));
        let (sql, parameters) = step.sql(call.clone());
        let mut found = rows(conn, sql, &parameters);
        if let Ok(rows) = &mut found {
            // A batch comes in no order; a DELETE or UPDATE of no row answers none.
            rows.sort_by(|a, b| format!("{a:?}").cmp(&format!("{b:?}")));
            if rows.is_empty() && !matches!(call, Call::ClaimBatch { .. }) {
                rows.push(vec![Value::Integer(0)]);
            }
            match (&call, rows.as_slice()) {
                (Call::Claim { id, .. }, [row]) => {
                    if let Value::Integer(fence) = row[0] {
                        seen.claimed(id, fence);
                    }
                }
                (Call::ClaimBatch { .. }, rows) => rows.iter().for_each(|row| {
                    if let [Value::Text(id), Value::Integer(fence), _] = row.as_slice() {
                        seen.claimed(id, *fence);
                    }
                }),
                _ => {}
            }
        }
        match (&found, &expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected, "{call:?}"),
            (Err(_), None) => after = table,
            _ => panic!("{call:?}: {found:?}, the reference says {expected:?}"),
        }
        table = after;
        let now = stored(conn);
        seen.look(&now);
        assert_eq!(now, table, "after {call:?}");
        assert_eq!(conn.is_autocommit(), before.is_none());
    }
}
