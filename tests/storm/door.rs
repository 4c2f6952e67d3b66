//! The doors to one database behind one interface: the loaded extension through SQL, the kept
//! `Store`, and the functions of a path, which leave the file's journal mode as it is.
#![allow(dead_code)] // each test program uses its own part

use super::broken::Fault;
use super::common;
use fence::{Durability, Error, Lease, Options, Store};
use rusqlite::types::FromSql;
use rusqlite::{Connection, ToSql};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A lock stood in the way beyond the busy timeout: nothing was done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy;

pub type Answer<T> = Result<T, Busy>;

/// A job as a door shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub owner: Option<String>,
    pub until: f64,
    pub fence: i64,
    pub result: Option<String>,
    pub done: i64,
}

pub trait Door {
    fn enqueue(&self, id: &str) -> Answer<bool>;
    fn state(&self, id: &str) -> Answer<Option<Row>>;
    fn claim(&self, id: &str, owner: &str, now: f64, ttl: f64) -> Answer<Option<i64>>;
    fn renew(&self, id: &str, owner: &str, fence: i64, now: f64, ttl: f64) -> Answer<bool>;
    fn complete(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> Answer<bool>;
    fn release(&self, id: &str, owner: &str, fence: i64) -> Answer<bool>;
    fn purge(&self, before: f64, limit: i64) -> Answer<usize>;
    /// Writes a row of the guarded table `effects` and completes, in one transaction.
    fn write(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> Answer<bool>;
    /// Claims, or completes where a fence is given, and rolls back.
    fn roll_back(&self, id: &str, owner: &str, fence: Option<i64>, now: f64) -> Answer<()>;
    /// A claim for each owner at once, where the door has a function for it.
    fn claim_many(&self, id: &str, owners: &[String], now: f64, ttl: f64) -> Option<Many>;
}

/// The answer to each owner of a claim_many.
pub type Many = Vec<Answer<Option<i64>>>;

/// The table that `write` writes to. In each row `fence` is NULL: that is where a write shows its
/// fence. `generation` is the fence to keep.
pub const EFFECTS: &str = "
    CREATE TABLE effects(n INTEGER PRIMARY KEY, job TEXT, generation INTEGER, result TEXT);
    SELECT fence_guard('effects', 'job');";

pub const EFFECT: &str =
    "INSERT INTO effects(job, generation, result, fence) VALUES (?1, ?2, ?3, ?2)";

/// Only a lock in the way is no failure: code 5; 517 in a transaction that began by reading; 261
/// while somebody reads back the log that a killed writer left.
pub fn locked<T>(result: fence::Result<T>) -> Answer<T> {
    result.map_err(|e| match e.extended_code() {
        5 | 261 | 517 => Busy,
        code => panic!("code {code}: {e}"),
    })
}

/// A directory for a database whose workers may die, but not its machine: in memory where there
/// is such a place.
pub fn scratch() -> common::Scratch {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    common::Scratch { dir: dir.unwrap() }
}

pub fn connect(db: &Path, timeout: Duration) -> Connection {
    let conn = Connection::open(db).unwrap();
    conn.busy_timeout(timeout).unwrap();
    conn
}

/// A connection with the functions, whose worker may be broken on purpose.
pub struct Sql {
    pub conn: Connection,
    fault: Fault,
}

impl Sql {
    pub fn loaded(db: &Path, extension: &Path, timeout: Duration, fault: Fault) -> Self {
        let conn = connect(db, timeout);
        common::load_file(&conn, extension).unwrap();
        Sql { conn, fault }
    }

    pub fn registered(db: &Path, timeout: Duration) -> Self {
        let conn = connect(db, timeout);
        fence::register(&conn).unwrap();
        Sql { conn, fault: Fault::None }
    }

    fn one<T: FromSql>(&self, sql: &str, parameters: &[&dyn ToSql]) -> fence::Result<T> {
        Ok(self.conn.prepare_cached(sql)?.query_row(parameters, |row| row.get(0))?)
    }

    fn execute(&self, sql: &str, parameters: &[&dyn ToSql]) -> fence::Result<usize> {
        Ok(self.conn.prepare_cached(sql)?.execute(parameters)?)
    }

    /// Runs `body` in a transaction; all but true rolls back.
    fn transaction(&self, begin: &str, body: impl FnOnce() -> fence::Result<bool>) -> Answer<bool> {
        locked(self.execute(begin, &[]))?;
        let answer = body().and_then(|yes| {
            if yes {
                self.execute("COMMIT", &[])?;
            }
            Ok(yes)
        });
        if !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK").unwrap();
        }
        locked(answer)
    }

    fn effect(&self, id: &str, owner: &str, fence: i64, now: f64, r: &str) -> fence::Result<bool> {
        let held = "SELECT fence_assert(?1, ?2, ?3, ?4)";
        match self.one::<i64>(held, &[&id, &owner, &fence, &now]) {
            // SQLITE_CONSTRAINT: the lease is not held.
            Err(e) if e.extended_code() == 19 => return Ok(false),
            answer => assert_eq!(answer?, 1),
        }
        Ok(self.execute(EFFECT, &[&id, &fence, &r])? == 1)
    }

    fn finish(&self, id: &str, owner: &str, fence: i64, now: f64, r: &str) -> fence::Result<bool> {
        let sql = "SELECT fence_complete(?1, ?2, ?3, ?4, ?5)";
        self.one(sql, &[&id, &owner, &fence, &now, &r])
    }
}

impl Door for Sql {
    fn enqueue(&self, id: &str) -> Answer<bool> {
        locked(self.one("SELECT fence_enqueue(?1)", &[&id]))
    }

    fn state(&self, id: &str) -> Answer<Option<Row>> {
        let json: Option<String> = locked(self.one("SELECT fence_state(?1)", &[&id]))?;
        Ok(json.map(|json| {
            let row: serde_json::Value = serde_json::from_str(&json).unwrap();
            Row {
                owner: row["owner"].as_str().map(str::to_owned),
                until: row["until"].as_f64().unwrap(),
                fence: row["fence"].as_i64().unwrap(),
                result: row["result"].as_str().map(str::to_owned),
                done: row["done"].as_i64().unwrap(),
            }
        }))
    }

    fn claim(&self, id: &str, owner: &str, now: f64, ttl: f64) -> Answer<Option<i64>> {
        if let Some(answer) = self.fault.claim(&self.conn, id, owner, now, ttl) {
            return locked(answer.map_err(Error::from));
        }
        locked(self.one("SELECT fence_claim(?1, ?2, ?3, ?4)", &[&id, &owner, &now, &ttl]))
    }

    fn renew(&self, id: &str, owner: &str, fence: i64, now: f64, ttl: f64) -> Answer<bool> {
        let sql = "SELECT fence_renew(?1, ?2, ?3, ?4, ?5)";
        locked(self.one(sql, &[&id, &owner, &fence, &now, &ttl]))
    }

    fn complete(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> Answer<bool> {
        if let Some(answer) = self.fault.complete(&self.conn, id, result) {
            return locked(answer.map_err(Error::from));
        }
        locked(self.finish(id, owner, fence, now, result))
    }

    fn release(&self, id: &str, owner: &str, fence: i64) -> Answer<bool> {
        locked(self.one("SELECT fence_release(?1, ?2, ?3)", &[&id, &owner, &fence]))
    }

    fn purge(&self, before: f64, limit: i64) -> Answer<usize> {
        let deleted: i64 = locked(self.one("SELECT fence_purge(?1, ?2)", &[&before, &limit]))?;
        Ok(deleted as usize)
    }

    fn write(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> Answer<bool> {
        if self.fault == Fault::WritesThenCompletes {
            let effect = || self.effect(id, owner, fence, now, result);
            let complete = || self.finish(id, owner, fence, now, result);
            return Ok(self.transaction("BEGIN IMMEDIATE", effect)?
                && self.transaction("BEGIN IMMEDIATE", complete)?);
        }
        self.transaction("BEGIN IMMEDIATE", || {
            Ok(self.effect(id, owner, fence, now, result)?
                && self.finish(id, owner, fence, now, result)?)
        })
    }

    fn roll_back(&self, id: &str, owner: &str, fence: Option<i64>, now: f64) -> Answer<()> {
        // After a read another connection's commit gives code 517.
        self.transaction("BEGIN", || {
            self.one::<Option<String>>("SELECT fence_state(?1)", &[&id])?;
            match fence {
                Some(fence) => self.finish(id, owner, fence, now, "rolled back")?,
                None => {
                    let sql = "SELECT fence_claim(?1, ?2, ?3, 1000)";
                    self.one::<Option<i64>>(sql, &[&id, &owner, &now])?.is_some()
                }
            };
            Ok(false)
        })?;
        Ok(())
    }

    fn claim_many(&self, _: &str, _: &[String], _: f64, _: f64) -> Option<Many> {
        None
    }
}

/// A kept store, perhaps shared with other threads, and the leases that it handed out.
pub struct Kept {
    store: Store,
    leases: RefCell<VecDeque<Lease>>,
}

/// How many leases a door keeps; a worker must not remember more.
pub const KEPT: usize = 64;

impl Kept {
    pub fn open(db: &Path, timeout: Duration, durability: Durability) -> Store {
        let mut options = Options::default();
        options.busy_timeout = timeout;
        options.durability = durability;
        // Whoever does not wait for locks may meet one here.
        loop {
            match Store::open_with(db, options) {
                Err(Error::Busy(_)) => std::thread::yield_now(),
                store => return store.unwrap(),
            }
        }
    }

    pub fn new(store: Store) -> Self {
        Kept { store, leases: RefCell::default() }
    }

    fn lease(&self, id: &str, fence: i64) -> Lease {
        let leases = self.leases.borrow();
        let found = leases.iter().find(|lease| (lease.id(), lease.fence()) == (id, fence));
        found.expect("a lease of this door").clone()
    }
}

impl Door for Kept {
    fn enqueue(&self, id: &str) -> Answer<bool> {
        locked(self.store.enqueue(id))
    }

    fn state(&self, id: &str) -> Answer<Option<Row>> {
        Ok(locked(self.store.state(id))?.map(row))
    }

    fn claim(&self, id: &str, owner: &str, now: f64, ttl: f64) -> Answer<Option<i64>> {
        let Some(lease) = locked(self.store.claim(id, owner, now, ttl))? else { return Ok(None) };
        let fence = lease.fence();
        assert_eq!(lease.until(), now + ttl);
        let mut leases = self.leases.borrow_mut();
        leases.push_back(lease);
        if leases.len() > KEPT {
            leases.pop_front();
        }
        Ok(Some(fence))
    }

    fn renew(&self, id: &str, owner: &str, fence: i64, now: f64, ttl: f64) -> Answer<bool> {
        locked(self.store.renew(id, owner, fence, now, ttl))
    }

    fn complete(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> Answer<bool> {
        locked(self.store.complete(id, owner, fence, now, result))
    }

    fn release(&self, id: &str, owner: &str, fence: i64) -> Answer<bool> {
        locked(self.store.release(id, owner, fence))
    }

    fn purge(&self, before: f64, limit: i64) -> Answer<usize> {
        locked(self.store.purge(before, limit))
    }

    fn write(&self, id: &str, _: &str, fence: i64, now: f64, result: &str) -> Answer<bool> {
        let written = self.lease(id, fence).write(now, |tx| {
            tx.execute(EFFECT, (id, fence, result))?;
            tx.complete(result)
        });
        match written {
            Err(Error::NotHeld { .. }) => Ok(false),
            answer => locked(answer).map(|()| true),
        }
    }

    fn roll_back(&self, id: &str, _: &str, fence: Option<i64>, now: f64) -> Answer<()> {
        // A store has no claim that its caller rolls back.
        let Some(fence) = fence else { return Ok(()) };
        let written = self.lease(id, fence).write(now, |tx| -> fence::Result<()> {
            tx.execute(EFFECT, (id, fence, "rolled back"))?;
            tx.complete("rolled back")?;
            Err(Error::Caller("changed my mind".into()))
        });
        match written {
            Err(Error::NotHeld { .. } | Error::Caller(_)) => Ok(()),
            answer => locked(answer),
        }
    }

    fn claim_many(&self, id: &str, owners: &[String], now: f64, ttl: f64) -> Option<Many> {
        let answers = self.store.claim_many(id, owners, now, ttl);
        Some(answers.unwrap().into_iter().map(locked).collect())
    }
}

fn row(job: fence::JobState) -> Row {
    Row { owner: job.owner, until: job.until, fence: job.fence, result: job.result, done: job.done }
}

/// The functions of a path; what they lack goes through a connection that has the functions.
pub struct Paths {
    db: PathBuf,
    rest: Sql,
}

impl Paths {
    pub fn new(db: &Path, timeout: Duration) -> Self {
        Paths { db: db.to_owned(), rest: Sql::registered(db, timeout) }
    }
}

impl Door for Paths {
    fn enqueue(&self, id: &str) -> Answer<bool> {
        locked(fence::enqueue(&self.db, id))
    }

    fn state(&self, id: &str) -> Answer<Option<Row>> {
        Ok(locked(fence::state(&self.db, id))?.map(row))
    }

    fn claim(&self, id: &str, owner: &str, now: f64, ttl: f64) -> Answer<Option<i64>> {
        locked(fence::claim(&self.db, id, owner, now, ttl))
    }

    fn renew(&self, id: &str, owner: &str, fence: i64, now: f64, ttl: f64) -> Answer<bool> {
        locked(fence::renew(&self.db, id, owner, fence, now, ttl))
    }

    fn complete(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> Answer<bool> {
        locked(fence::complete(&self.db, id, owner, fence, now, result))
    }

    fn release(&self, id: &str, owner: &str, fence: i64) -> Answer<bool> {
        locked(fence::release(&self.db, id, owner, fence))
    }

    fn purge(&self, before: f64, limit: i64) -> Answer<usize> {
        self.rest.purge(before, limit)
    }

    fn write(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> Answer<bool> {
        self.rest.write(id, owner, fence, now, result)
    }

    fn roll_back(&self, id: &str, owner: &str, fence: Option<i64>, now: f64) -> Answer<()> {
        self.rest.roll_back(id, owner, fence, now)
    }

    fn claim_many(&self, id: &str, owners: &[String], now: f64, ttl: f64) -> Option<Many> {
        let answers = fence::claim_many(&self.db, id, owners, now, ttl);
        Some(locked(answers).ok()?.into_iter().map(locked).collect())
    }
}
