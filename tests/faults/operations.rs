//! The operations, run through SQL functions or through the Rust API, with answers and error
//! codes of one form.
#![allow(dead_code)] // two test binaries use their own parts
use fence::{Lease, Options, Store};
use rusqlite::{ffi, Connection, OpenFlags};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::Duration;

use crate::common;

/// The answer as text, or the extended code and the sentence of the error.
pub type Answer = Result<String, (i32, String)>;

#[derive(Clone, Debug)]
pub enum Operation {
    Init,
    InitQueue,
    State(String),
    Check(Held, f64),
    Enqueue(String),
    EnqueueBatch,
    Claim(String, &'static str, f64),
    ClaimBatch(&'static str, f64),
    Renew(Held, f64),
    RenewBatch(Held, f64),
    Complete(Held, f64),
    CompleteBatch(Held, f64),
    Fail(Held, f64),
    Release(Held),
    Requeue(String),
    Purge(f64),
    Restore(i64),
    Guard,
    Unguard,
    Pass(i64),
    /// A row of a guarded table and the completion, in one transaction.
    GuardedWrite(Held, f64),
}

/// Who shows what to hold a job.
#[derive(Clone, Debug)]
pub struct Held {
    pub id: String,
    pub owner: &'static str,
    pub fence: i64,
}

pub fn held(id: &str, owner: &'static str, fence: i64) -> Held {
    Held { id: id.into(), owner, fence }
}

impl Held {
    fn sql(&self) -> String {
        format!("'{}', '{}', {}", self.id, self.owner, self.fence)
    }
}

pub const TTL: f64 = 10.0;

impl Operation {
    pub fn reads(&self) -> bool {
        matches!(self, Operation::State(_) | Operation::Check(..))
    }

    /// The statements of the operation; the last SELECT of them answers.
    pub fn sql(&self) -> Vec<String> {
        use Operation::*;
        let select = |call: String| vec![format!("SELECT {call}")];
        match self {
            Init => select("fence_init()".into()),
            State(id) => select(format!("fence_state('{id}')")),
            Check(h, now) => select(format!("fence_check({}, {now})", h.sql())),
            InitQueue => select("fence_init_queue()".into()),
            Enqueue(id) => select(format!("fence_enqueue('{id}')")),
            EnqueueBatch => select("fence_enqueue_batch('[\"n1\",\"n2\",\"free\"]')".into()),
            Claim(id, owner, now) => {
                select(format!("fence_claim('{id}', '{owner}', {now}, {TTL})"))
            }
            ClaimBatch(owner, now) => vec![format!(
                "SELECT coalesce(group_concat(id || ' ' || fence), '')
                   FROM fence_claim_batch('{owner}', {now}, {TTL}, 2, 'q')"
            )],
            Renew(h, now) => select(format!("fence_renew({}, {now}, {TTL})", h.sql())),
            RenewBatch(h, now) => select(format!(
                "fence_renew_batch('{}', {now}, {TTL}, '[[\"{}\", {}]]')",
                h.owner, h.id, h.fence
            )),
            Complete(h, now) => select(format!("fence_complete({}, {now}, 'r')", h.sql())),
            CompleteBatch(h, now) => select(format!(
                "fence_complete_batch('{}', {now}, '[[\"{}\", {}, \"r\"]]')",
                h.owner, h.id, h.fence
            )),
            Fail(h, now) => select(format!("fence_fail({}, {now}, 'e')", h.sql())),
            Release(h) => select(format!("fence_release({})", h.sql())),
            Requeue(id) => select(format!("fence_requeue('{id}')")),
            Purge(before) => select(format!("fence_purge({before}, 10)")),
            Restore(bump) => select(format!("fence_restore({bump})")),
            Guard => select("fence_guard('plain', 'job')".into()),
            Unguard => select("fence_unguard('notes')".into()),
            Pass(fence) => select(format!("fence_pass('r', {fence})")),
            GuardedWrite(h, now) => vec![
                "BEGIN IMMEDIATE".into(),
                format!("SELECT fence_assert({}, {now})", h.sql()),
                format!(
                    "INSERT INTO notes(job, note, fence) VALUES ('{}', 'n', {})",
                    h.id, h.fence
                ),
                format!("SELECT fence_complete({}, {now}, 'r')", h.sql()),
                "COMMIT".into(),
            ],
        }
    }
}

/// How an operation reaches the file.
pub enum Door {
    Sql(Connection),
    /// With the leases that were handed out.
    Store(Store, Vec<Lease>),
    /// Known to be broken: claims by a statement that is stepped once and then reset.
    OneStep(Connection),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Registered,
    Loaded,
    Store,
    OneStep,
}

/// A connection past the shim, as another process has it.
pub fn outside(db: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags_and_vfs(db, flags, c"unix").unwrap()
}

pub fn connect(db: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_URI;
    let conn = Connection::open_with_flags(db, flags)?;
    conn.busy_timeout(Duration::ZERO)?;
    Ok(conn)
}

impl Door {
    pub fn open(kind: Kind, db: &Path) -> Door {
        if kind == Kind::Store {
            return Door::Store(Store::open_with(db, options()).unwrap(), Vec::new());
        }
        let conn = connect(db).unwrap();
        match kind {
            Kind::Loaded => common::load(&conn).unwrap(),
            _ => fence::register(&conn).unwrap(),
        }
        match kind {
            Kind::OneStep => Door::OneStep(conn),
            _ => Door::Sql(conn),
        }
    }

    pub fn run(&mut self, operation: &Operation) -> Answer {
        let run = || match (self, operation) {
            (Door::OneStep(conn), Operation::Claim(id, owner, now)) => {
                one_step(conn, id, owner, *now)
            }
            (Door::Sql(conn) | Door::OneStep(conn), _) => by_sql(conn, operation),
            (Door::Store(store, leases), _) => {
                by_store(store, leases, operation).map_err(|e| (e.extended_code(), e.to_string()))
            }
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            // rusqlite has no error for a text that no memory is left to convert.
            match panic.downcast_ref::<&str>() {
                Some(why) if why.starts_with("unexpected SQLITE_TEXT") => {
                    Err((ffi::SQLITE_NOMEM, (*why).into()))
                }
                _ => resume_unwind(panic),
            }
        })
    }

    /// Whether the connection is in a transaction that nobody began.
    pub fn in_transaction(&self) -> bool {
        match self {
            Door::Sql(conn) | Door::OneStep(conn) => !conn.is_autocommit(),
            // Seen in its effect: a later answer would not be in the file.
            Door::Store(..) => false,
        }
    }

    pub fn close(self) {
        match self {
            Door::Sql(conn) | Door::OneStep(conn) => {
                conn.close().map_err(|(_, e)| e).expect("sqlite3_close answers 0");
            }
            Door::Store(..) => {}
        }
    }
}

/// Nobody waits in these tests.
pub fn options() -> Options {
    let mut options = Options::default();
    options.busy_timeout = Duration::ZERO;
    options
}

fn failure(e: &rusqlite::Error) -> (i32, String) {
    (e.sqlite_error().map_or(-1, |e| e.extended_code), e.to_string())
}

fn by_sql(conn: &Connection, operation: &Operation) -> Answer {
    let mut answer = String::new();
    // What a program does whose transaction failed, prepared while there is memory.
    let mut rollback = conn.prepare("ROLLBACK").map_err(|e| failure(&e))?;
    for sql in operation.sql() {
        let step = || {
            let mut statement = conn.prepare(&sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query([])?;
            let mut first = None;
            while let Some(row) = rows.next()? {
                if columns > 0 {
                    first = Some(text(row.get(0)?));
                }
            }
            Ok(first)
        };
        match step() {
            Ok(first) => answer = first.unwrap_or(answer),
            Err(e) => {
                if matches!(operation, Operation::GuardedWrite(..)) && !conn.is_autocommit() {
                    rollback.raw_execute().unwrap();
                }
                return Err(failure(&e));
            }
        }
    }
    Ok(answer)
}

fn text(value: rusqlite::types::Value) -> String {
    use rusqlite::types::Value;
    match value {
        Value::Null => "NULL".into(),
        Value::Integer(i) => i.to_string(),
        Value::Real(r) => r.to_string(),
        Value::Text(text) => text,
        Value::Blob(_) => panic!("no function answers a BLOB"),
    }
}

fn one_step(conn: &Connection, id: &str, owner: &str, now: f64) -> Answer {
    let claim = conn.query_row(
        include_str!("../../sql/claim.sql"),
        rusqlite::params![id, owner, now, TTL],
        |row| row.get::<_, i64>(0),
    );
    match claim {
        Ok(fence) => Ok(fence.to_string()),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok("NULL".into()),
        Err(e) => Err(failure(&e)),
    }
}

fn by_store(
    store: &Store,
    leases: &mut Vec<Lease>,
    operation: &Operation,
) -> fence::Result<String> {
    use Operation::*;
    let yes = |yes: bool| Ok(i32::from(yes).to_string());
    match operation {
        State(id) => Ok(store.state(id)?.map_or("NULL".into(), |job| {
            format!("{{\"id\":{:?},\"fence\":{}}}", job.id, job.fence)
        })),
        Check(h, now) => Ok(store.check(&h.id, h.owner, h.fence, *now)?.to_string()),
        Enqueue(id) => yes(store.enqueue(id)?),
        EnqueueBatch => Ok(store.enqueue_many(&["n1", "n2", "free"])?.to_string()),
        Claim(id, owner, now) => {
            let lease = store.claim(id, owner, *now, TTL)?;
            let fence = lease.as_ref().map_or("NULL".into(), |lease| lease.fence().to_string());
            leases.extend(lease);
            Ok(fence)
        }
        ClaimBatch(owner, now) => {
            let taken = store.claim_batch("q", owner, *now, TTL, 2)?;
            let shown: Vec<_> =
                taken.iter().map(|lease| format!("{} {}", lease.id(), lease.fence())).collect();
            leases.extend(taken);
            Ok(shown.join(","))
        }
        Renew(h, now) => yes(store.renew(&h.id, h.owner, h.fence, *now, TTL)?),
        Complete(h, now) => yes(store.complete(&h.id, h.owner, h.fence, *now, "r")?),
        Fail(h, now) => yes(store.fail(&h.id, h.owner, h.fence, *now, "e")?),
        Release(h) => yes(store.release(&h.id, h.owner, h.fence)?),
        Requeue(id) => yes(store.requeue(id)?),
        Purge(before) => Ok(store.purge(*before, 10)?.to_string()),
        Restore(bump) => store.restore(*bump).map(|()| "1".into()),
        InitQueue => store.init_queue().map(|()| "1".into()),
        Guard => yes(store.guard("plain", "job")?),
        Unguard => yes(store.unguard("notes")?),
        GuardedWrite(h, now) => {
            let lease = leases.iter().find(|lease| lease.id() == h.id && lease.fence() == h.fence);
            let lease = lease.expect("a lease that was handed out");
            lease.write(*now, |tx| {
                let sql = "INSERT INTO notes(job, note, fence) VALUES (?1, 'n', ?2)";
                tx.execute(sql, rusqlite::params![h.id, tx.fence()])?;
                tx.complete("r")
            })?;
            Ok("1".into())
        }
        Init | RenewBatch(..) | CompleteBatch(..) | Pass(_) => unreachable!("not of the Store"),
    }
}

/// Everything that the file holds. Without what is made at first use and says nothing while it is
/// empty: the index of purge, the table of the gate.
pub fn dump(conn: &Connection) -> String {
    let mut out = String::new();
    let mut schema = conn
        .prepare_cached(
            "SELECT type, name, coalesce(sql, '') FROM sqlite_master
              WHERE name NOT IN ('fence_done', 'fence_gate', 'sqlite_autoindex_fence_gate_1')
              ORDER BY name",
        )
        .unwrap();
    let objects: Vec<(String, String, String)> = schema
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .and_then(Iterator::collect)
        .unwrap();
    for (kind, name, sql) in &objects {
        out += &format!("{kind} {name} {:x}\n", hash(sql));
        if kind == "table" {
            rows(conn, name, &mut out);
        }
    }
    let gate = "SELECT 1 FROM sqlite_master WHERE name = 'fence_gate'";
    if conn.prepare_cached(gate).unwrap().exists([]).unwrap() {
        rows(conn, "fence_gate", &mut out);
    }
    out
}

fn rows(conn: &Connection, table: &str, out: &mut String) {
    let mut statement = conn.prepare_cached(&format!("SELECT * FROM \"{table}\"")).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        *out += table;
        for i in 0..columns {
            *out += &format!(" {:?}", row.get_ref(i).unwrap());
        }
        out.push('\n');
    }
}

fn hash(text: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

pub fn integrity(conn: &Connection) -> String {
    conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

/// What the fences and their answers are asked of.
pub fn template(conn: &Connection) {
    conn.execute_batch(
        "SELECT fence_init(), fence_init_queue();
         SELECT fence_enqueue_batch('[\"free\",\"held\",\"old\",\"dead\",\"q:1\",\"q:2\"]');
         SELECT fence_claim('held', 'A', 0, 100), fence_claim('old', 'A', 0, 5);
         SELECT fence_complete('old', 'A', 1, 1, 'r');
         SELECT fence_claim('dead', 'A', 0, 5);
         SELECT fence_fail('dead', 'A', 1, 1, 'e');
         CREATE TABLE notes(job TEXT, note TEXT);
         CREATE TABLE plain(job TEXT UNIQUE, note TEXT);
         SELECT fence_guard('notes', 'job');",
    )
    .unwrap();
}
