//! Worker processes: the crate's doors beside a loop of prepared statements.

use fence::{Durability, Options, Store};
use rusqlite::{Connection, Statement};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{alternate, ratio};

const JOBS: usize = 4_000;
pub const CLAIM: &str = include_str!("../../sql/claim.sql");
pub const CLAIM_NEXT: &str = include_str!("../../sql/claim_next.sql");
pub const COMPLETE: &str = include_str!("../../sql/complete.sql");

pub fn by_id(processes: usize) {
    let arm = |kind: &'static str| move || run(kind, processes);
    let [bare, store, functions] = alternate(
        11,
        [&mut arm("bare") as &mut dyn FnMut() -> Duration, &mut arm("store"), &mut arm("function")],
    );
    println!(
        "{processes} process(es): prepared statements 1.00, Store {:.2}, SQL functions {:.2}",
        ratio(bare, store),
        ratio(bare, functions)
    );
}

pub fn batches() {
    let arm = |kind: &'static str| move || run(kind, 1);
    let [single, batch] =
        alternate(3, [&mut arm("next") as &mut dyn FnMut() -> Duration, &mut arm("batch")]);
    println!("one by one 1.00, batches of 100 {:.2}", ratio(single, batch));
}

/// The time that the slowest process needs for its share of the jobs.
fn run(kind: &str, processes: usize) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.db");
    let store = Store::open(&file).unwrap();
    if matches!(kind, "next" | "batch") {
        store.init_queue().unwrap();
    }
    store.enqueue_many(&(0..JOBS).map(id).collect::<Vec<_>>()).unwrap();
    let this_program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..processes)
        .map(|n| {
            Command::new(&this_program)
                .args(["worker", kind])
                .arg(&file)
                .args([n.to_string(), processes.to_string()])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let times = children.into_iter().map(|child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{kind}");
        let micros = String::from_utf8(output.stdout).unwrap();
        Duration::from_micros(micros.trim().parse().unwrap())
    });
    let slowest = times.max().unwrap();
    let conn = Connection::open(&file).unwrap();
    let done = "SELECT count(*) FROM jobs WHERE done = 1 AND fence = 1";
    assert_eq!(
        conn.query_row(done, [], |row| row.get::<_, i64>(0)).unwrap(),
        JOBS as i64,
        "{kind}"
    );
    slowest
}

fn id(i: usize) -> String {
    format!("job-{i:06}")
}

pub fn child(arguments: &[&str]) {
    let [kind, file, n, processes] = arguments else { panic!("{arguments:?}") };
    let (n, processes): (usize, usize) = (n.parse().unwrap(), processes.parse().unwrap());
    let ids: Vec<_> = (0..JOBS).filter(|i| i % processes == n).map(id).collect();
    let plain = open(file.as_ref(), Durability::Normal);
    let time = match *kind {
        "store" => by_store(file.as_ref(), &ids),
        "bare" => by_statement(&plain, &ids, CLAIM, COMPLETE),
        "function" => by_statement(
            &plain,
            &ids,
            "SELECT fence_claim(?1, ?2, ?3, ?4)",
            "SELECT fence_complete(?1, ?2, ?3, ?4, ?5)",
        ),
        "next" => by_queue(&plain, 1),
        _ => by_queue(&plain, 100),
    };
    println!("{}", time.as_micros());
}

pub fn open(file: &Path, durability: Durability) -> Connection {
    let conn = Connection::open(file).unwrap();
    conn.busy_timeout(Duration::from_secs(60)).unwrap();
    conn.pragma_update(None, "synchronous", format!("{durability:?}")).unwrap();
    fence::register(&conn).unwrap();
    conn
}

pub fn normal() -> Options {
    let mut options = Options::default();
    options.durability = Durability::Normal;
    options.busy_timeout = Duration::from_secs(60);
    options
}

fn by_store(file: &Path, ids: &[String]) -> Duration {
    let store = Store::open_with(file, normal()).unwrap();
    let started = Instant::now();
    for id in ids {
        let lease = store.claim(id, "worker", 1.0, 30.0).unwrap().unwrap();
        assert!(lease.complete(2.0, "result").unwrap());
    }
    started.elapsed()
}

fn by_statement(conn: &Connection, ids: &[String], claim: &str, complete: &str) -> Duration {
    let mut statements = ByStatement::new(conn, claim, complete);
    let started = Instant::now();
    for id in ids {
        statements.job(id);
    }
    started.elapsed()
}

/// A job's two statements, prepared once.
pub struct ByStatement<'a> {
    claim: Statement<'a>,
    complete: Statement<'a>,
}

impl<'a> ByStatement<'a> {
    pub fn new(conn: &'a Connection, claim: &str, complete: &str) -> Self {
        ByStatement {
            claim: conn.prepare(claim).unwrap(),
            complete: conn.prepare(complete).unwrap(),
        }
    }

    pub fn job(&mut self, id: &str) {
        let mut rows = self.claim.query((id, "worker", 1.0, 30.0)).unwrap();
        let fence: i64 = rows.next().unwrap().unwrap().get(0).unwrap();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        self.complete(id, fence);
    }

    /// The same where the claim is `claim_next.sql`.
    pub fn next(&mut self) {
        let mut rows = self.claim.query(("worker", 1.0, 30.0, "")).unwrap();
        let row = rows.next().unwrap().unwrap();
        let (id, fence): (String, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
        while rows.next().unwrap().is_some() {}
        drop(rows);
        self.complete(&id, fence);
    }

    fn complete(&mut self, id: &str, fence: i64) {
        let mut rows = self.complete.query((id, "worker", fence, 2.0, "result")).unwrap();
        while rows.next().unwrap().is_some() {}
    }
}

fn by_queue(conn: &Connection, batch: i64) -> Duration {
    let mut claim = conn.prepare("SELECT fence_claim_batch(?1, ?2, ?3, ?4)").unwrap();
    let mut complete = conn.prepare("SELECT fence_complete_batch(?1, ?2, ?3)").unwrap();
    let started = Instant::now();
    loop {
        let jobs: String = claim.query_row(("worker", 1.0, 30.0, batch), |row| row.get(0)).unwrap();
        if jobs == "[]" {
            return started.elapsed();
        }
        complete.query_row(("worker", 2.0, jobs), |_| Ok(())).unwrap();
    }
}
