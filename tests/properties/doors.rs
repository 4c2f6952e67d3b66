//! The same calls through the functions of the loaded extension and through the plain statement
//! files, also by clients that go about it wrongly.
#![allow(dead_code)] // every test binary uses its own part

use rusqlite::types::Value;
use rusqlite::Connection;

use crate::statements::{self, run, Statements};
use crate::table::{Answer, Call, Job, Table};

/// A database that is asked through one door, and looked at through a plain connection.
pub trait Door {
    /// An error is SQLite's extended code and sentence.
    fn call(&self, call: &Call) -> Result<Answer, (i32, String)>;
    fn plain(&self) -> &Connection;
}

/// Makes commits fail on request: while `broken` has a row, a job's update leaves a reference to a
/// parent that is not there, which only the commit finds.
pub const BREAKABLE: &str = "
    CREATE TABLE broken(yes);
    CREATE TABLE parents(id INTEGER PRIMARY KEY);
    CREATE TABLE dangling(id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
    CREATE TRIGGER commit_fails AFTER UPDATE ON jobs WHEN EXISTS (SELECT 1 FROM broken)
    BEGIN
      INSERT INTO dangling VALUES (1);
    END;
    PRAGMA foreign_keys = ON;";

fn failure(e: rusqlite::Error) -> (i32, String) {
    (e.sqlite_error().map_or(0, |e| e.extended_code), e.to_string())
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn stored(result: &Option<String>) -> Value {
    result.as_deref().map_or(Value::Null, text)
}

/// The name of an operation and its arguments, in the order of the functions and the files.
fn arguments(call: &Call) -> (&'static str, Vec<Value>) {
    use Value::{Integer, Real};
    match call {
        Call::Enqueue { id, due: None } => ("enqueue", vec![text(id)]),
        Call::Enqueue { id, due: Some(due) } => ("enqueue_at", vec![text(id), Real(*due)]),
        Call::Claim { id, owner, now, ttl } => {
            ("claim", vec![text(id), text(owner), Real(*now), Real(*ttl)])
        }
        Call::ClaimBatch { queue, owner, now, ttl, limit } => {
            let limit = Integer(*limit);
            ("claim_batch", vec![text(owner), Real(*now), Real(*ttl), limit, text(queue)])
        }
        Call::Renew { id, owner, fence, now, ttl } => {
            ("renew", vec![text(id), text(owner), Integer(*fence), Real(*now), Real(*ttl)])
        }
        Call::Complete { id, owner, fence, now, result } => {
            ("complete", vec![text(id), text(owner), Integer(*fence), Real(*now), stored(result)])
        }
        Call::Fail { id, owner, fence, now, result } => {
            ("fail", vec![text(id), text(owner), Integer(*fence), Real(*now), stored(result)])
        }
        Call::Release { id, owner, fence, due: None } => {
            ("release", vec![text(id), text(owner), Integer(*fence)])
        }
        Call::Release { id, owner, fence, due: Some(due) } => {
            ("release_at", vec![text(id), text(owner), Integer(*fence), Real(*due)])
        }
        Call::Requeue { id } => ("requeue", vec![text(id)]),
        Call::Check { id, owner, fence, now } => {
            ("check", vec![text(id), text(owner), Integer(*fence), Real(*now)])
        }
        Call::State { id } => ("state", vec![text(id)]),
        Call::Purge { before, limit } => ("purge", vec![Real(*before), Integer(*limit)]),
        Call::Restore { bump } => ("restore", vec![Integer(*bump)]),
        other => panic!("not an operation: {other:?}"),
    }
}

/// What a client does that knows nothing of fences, in plain SQL.
pub fn raw(conn: &Connection, call: &Call) -> Option<Answer> {
    let (sql, id) = match call {
        Call::Delete { id } => ("DELETE FROM jobs WHERE id = ?1", id),
        Call::Replace { id } => ("INSERT OR REPLACE INTO jobs(id) VALUES (?1)", id),
        Call::Lift { id } => {
            ("UPDATE jobs SET fence = max(fence, 9223372036854775806) WHERE id = ?1", id)
        }
        _ => return None,
    };
    Some(Answer::Count(conn.execute(sql, [id]).unwrap_or_else(|e| panic!("{sql}: {e}"))))
}

/// Each of two owners claims, one after the other: the first one there wins.
fn race(door: &impl Door, call: &Call) -> Option<Result<Answer, (i32, String)>> {
    let Call::Race { id, owners, now, ttl } = call else { return None };
    let mut winner = None;
    for (i, owner) in owners.clone().into_iter().enumerate() {
        match door.call(&Call::Claim { id: id.clone(), owner, now: *now, ttl: *ttl }) {
            Ok(Answer::Fence(Some(fence))) if winner.is_none() => winner = Some((i, fence)),
            Ok(Answer::Fence(None)) => {}
            Ok(both) => return Some(Err((0, format!("both owners won: {winner:?} and {both:?}")))),
            Err(e) => return Some(Err(e)),
        }
    }
    Some(Ok(Answer::Winner(winner)))
}

/// The jobs in the order of their rows, and the floor; types are checked by the conversions.
pub fn table(conn: &Connection) -> Table {
    let mut statement = conn
        .prepare_cached(
            "SELECT id, owner, until, fence, result, done FROM main.jobs ORDER BY rowid",
        )
        .unwrap();
    let jobs = statement.query_map([], |row| Ok((row.get(0)?, job(row)?))).unwrap();
    let jobs = jobs.collect::<rusqlite::Result<_>>().unwrap();
    let mut statement = conn.prepare_cached("SELECT fence FROM main.fence_floor").unwrap();
    Table { jobs, floor: statement.query_row([], |row| row.get(0)).unwrap() }
}

fn job(row: &rusqlite::Row<'_>) -> rusqlite::Result<Job> {
    Ok(Job {
        owner: row.get(1)?,
        until: row.get(2)?,
        fence: row.get(3)?,
        result: row.get(4)?,
        done: row.get(5)?,
    })
}

/// `SELECT fence_..` of the loaded extension.
pub struct Functions(pub Connection);

impl Functions {
    pub fn new(load: impl Fn(&Connection)) -> Self {
        let conn = Connection::open_in_memory().unwrap();
        load(&conn);
        conn.execute_batch("SELECT fence_init(); SELECT fence_init_queue();").unwrap();
        conn.execute_batch(BREAKABLE).unwrap();
        conn.set_prepared_statement_cache_capacity(256);
        Functions(conn)
    }
}

impl Door for Functions {
    fn plain(&self) -> &Connection {
        &self.0
    }

    fn call(&self, call: &Call) -> Result<Answer, (i32, String)> {
        if let Some(answer) = raw(&self.0, call) {
            return Ok(answer);
        }
        if let Some(answer) = race(self, call) {
            return answer;
        }
        let (operation, arguments) = arguments(call);
        let name = operation.trim_end_matches("_at");
        let marks = vec!["?"; arguments.len()].join(", ");
        let sql = match operation {
            "claim_batch" => format!("SELECT id, fence, until FROM fence_claim_batch({marks})"),
            _ => format!("SELECT fence_{name}({marks})"),
        };
        let statements::Answer::Rows(rows) = run(&self.0, &sql, &arguments).map_err(failure)?
        else {
            panic!("{sql} gives rows");
        };
        if operation == "claim_batch" {
            return Ok(taken(rows));
        }
        Ok(match (call, &rows[0][0]) {
            (Call::Claim { .. }, Value::Integer(fence)) => Answer::Fence(Some(*fence)),
            (Call::Claim { .. }, Value::Null) => Answer::Fence(None),
            (Call::Check { .. }, Value::Text(word)) => Answer::Word(word.clone()),
            (Call::State { .. }, Value::Null) => Answer::Row(None),
            (Call::State { id }, Value::Text(object)) => Answer::Row(Some(json_job(id, object))),
            (Call::Purge { .. }, Value::Integer(deleted)) => Answer::Count(*deleted as usize),
            (_, Value::Integer(yes @ (0 | 1))) => Answer::Yes(*yes == 1),
            other => panic!("{sql}: {other:?}"),
        })
    }
}

fn taken(rows: Vec<Vec<Value>>) -> Answer {
    let mut taken: Vec<_> = rows
        .into_iter()
        .map(|row| match row.as_slice() {
            [Value::Text(id), Value::Integer(fence), Value::Real(until)] => {
                (id.clone(), *fence, *until)
            }
            other => panic!("claim_batch: {other:?}"),
        })
        .collect();
    taken.sort_by(|a, b| a.0.cmp(&b.0));
    Answer::Taken(taken)
}

fn json_job(id: &str, object: &str) -> Job {
    let object: serde_json::Value = serde_json::from_str(object).unwrap();
    assert_eq!(object["id"], id);
    let text = |name: &str| object[name].as_str().map(String::from);
    Job {
        owner: text("owner"),
        until: object["until"].as_f64().unwrap(),
        fence: object["fence"].as_i64().unwrap(),
        result: text("result"),
        done: object["done"].as_i64().unwrap(),
    }
}

/// How a plain client may go about it wrongly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mistake {
    None,
    /// A claim is a SELECT, and an UPDATE that believes it.
    TwoStatements,
    /// A claim is stepped once, for its row, and reset; the error of the commit is dropped.
    OneStep,
}

/// The files of `sql/` on a connection without the extension.
pub struct Plain<'a> {
    conn: Connection,
    statements: &'a Statements,
    mistake: Mistake,
}

impl<'a> Plain<'a> {
    pub fn new(statements: &'a Statements, mistake: Mistake) -> rusqlite::Result<Self> {
        let conn = statements.database()?;
        conn.execute_batch(BREAKABLE)?;
        Ok(Plain { conn, statements, mistake })
    }

    fn restore(&self, arguments: &[Value]) -> rusqlite::Result<bool> {
        self.conn.execute_batch("SAVEPOINT restoring")?;
        let done = self.statements.run(&self.conn, "restore", arguments);
        self.conn.execute_batch(match done {
            Ok(_) => "RELEASE restoring",
            Err(_) => "ROLLBACK TO restoring; RELEASE restoring",
        })?;
        Ok(done?.accepted())
    }

    fn claim_by_first_step(&self, arguments: &[Value]) -> rusqlite::Result<Answer> {
        let mut statement = self.conn.prepare_cached(self.statements.text("claim"))?;
        let mut rows = statement.query(rusqlite::params_from_iter(arguments))?;
        let fence = rows.next()?.map(|row| row.get(0)).transpose()?;
        Ok(Answer::Fence(fence))
    }

    fn race_in_two_statements(&self, call: &Call) -> rusqlite::Result<Answer> {
        let Call::Race { id, owners, now, ttl } = call else { panic!("no race: {call:?}") };
        let look = "SELECT fence FROM jobs WHERE id = ?1 AND done = 0 AND until <= ?2";
        let mut winner = None;
        let seen = owners.clone().map(|owner| {
            let mut look = self.conn.prepare_cached(look).unwrap();
            let fence = look.query_row(rusqlite::params![id, now], |row| row.get::<_, i64>(0)).ok();
            (owner, fence)
        });
        for (i, (owner, fence)) in seen.into_iter().enumerate() {
            let Some(fence) = fence else { continue };
            self.conn.execute(
                "UPDATE jobs SET owner = ?2, until = ?3, fence = ?4 WHERE id = ?1",
                rusqlite::params![id, owner, now + ttl, fence.wrapping_add(1)],
            )?;
            winner = Some((i, fence.wrapping_add(1)));
        }
        Ok(Answer::Winner(winner))
    }
}

impl Door for Plain<'_> {
    fn plain(&self) -> &Connection {
        &self.conn
    }

    fn call(&self, call: &Call) -> Result<Answer, (i32, String)> {
        if let Some(answer) = raw(&self.conn, call) {
            return Ok(answer);
        }
        if let (Call::Race { .. }, Mistake::TwoStatements) = (call, self.mistake) {
            return self.race_in_two_statements(call).map_err(failure);
        }
        if let Some(answer) = race(self, call) {
            return answer;
        }
        let (operation, arguments) = match (call, arguments(call)) {
            (Call::ClaimBatch { limit: 1, .. }, (_, mut arguments)) => {
                arguments.remove(3);
                ("claim_next", arguments)
            }
            (_, operation) => operation,
        };
        if operation == "restore" {
            return self.restore(&arguments).map(Answer::Yes).map_err(failure);
        }
        if operation == "claim" && self.mistake == Mistake::OneStep {
            return self.claim_by_first_step(&arguments).map_err(failure);
        }
        let answer = self.statements.run(&self.conn, operation, &arguments).map_err(failure)?;
        let changed = answer.accepted();
        Ok(match (call, answer) {
            (Call::Claim { .. }, statements::Answer::Rows(rows)) => {
                Answer::Fence(rows.first().map(|row| match row[0] {
                    Value::Integer(fence) => fence,
                    ref other => panic!("claim: {other:?}"),
                }))
            }
            (Call::ClaimBatch { .. }, statements::Answer::Rows(rows)) => taken(rows),
            (Call::Check { .. }, statements::Answer::Rows(rows)) => match &rows[0][0] {
                Value::Text(word) => Answer::Word(word.clone()),
                other => panic!("check: {other:?}"),
            },
            (Call::State { id }, statements::Answer::Rows(_)) => {
                let sql = self.statements.text("state");
                let row = self.conn.query_row(sql, [id], job).map(Some);
                Answer::Row(row.unwrap_or(None))
            }
            (Call::Purge { .. }, statements::Answer::Changes(deleted)) => Answer::Count(deleted),
            _ => Answer::Yes(changed),
        })
    }
}
