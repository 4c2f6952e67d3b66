//! What a SQL function costs beside the prepared statement of `sql/`, and that beside the same
//! statement in a file without our triggers, in instructions. `SELECT` is what a statement with the
//! same parameters costs that calls no function of ours: the part of `function` that is SQLite's.
//! *By item* is what the batch functions cost for each of their items.
//!
//! `cargo bench --bench instructions` runs itself under callgrind, each arm with two numbers of
//! calls; the difference is the calls alone. Needs valgrind. The same numbers come out however
//! busy the machine is.

#[path = "../tests/common/mod.rs"]
mod common;

use rusqlite::{Connection, Statement};
use std::process::Command;

const FEW: usize = 200;
const MANY: usize = 1_200;

const CLAIM: &str = include_str!("../sql/claim.sql");
const RENEW: &str = include_str!("../sql/renew.sql");
const COMPLETE: &str = include_str!("../sql/complete.sql");

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, operation, arm, context, calls] = &arguments[..] {
        return run(operation, arm, context, calls.parse().unwrap());
    }
    common::extension(); // built before anything is counted
    for (context, title) in [
        ("autocommit", "Each call a transaction of its own, WAL, synchronous = NORMAL"),
        ("together", "All calls inside one transaction"),
    ] {
        println!("{title}:\n");
        println!(
            "{:10} {:>12} {:>12} {:>6} {:>12} {:>6} {:>8}",
            "operation", "no triggers", "statement", "ratio", "function", "ratio", "SELECT"
        );
        let per_call = |operation: &str, arm: &str| {
            let [few, many] = [FEW, MANY].map(|calls| count(operation, arm, context, calls));
            (many - few) / (MANY - FEW) as u64
        };
        for operation in ["claim", "renew", "complete"] {
            let [bare, statement, function, select] =
                ["bare", "statement", "function", "select"].map(|arm| per_call(operation, arm));
            println!(
                "{operation:10} {bare:>12} {statement:>12} {:>6.2} {function:>12} {:>6.2} {select:>8}",
                statement as f64 / bare as f64,
                function as f64 / statement as f64
            );
        }
        println!();
        println!("{:10} {:>12} {:>12} {:>12}", "by item", "1 item", "10 items", "100 items");
        for operation in ["renew", "complete"] {
            let [one, ten, hundred] = ["1", "10", "100"].map(|items| per_call(operation, items));
            println!("{operation:10} {one:>12} {ten:>12} {hundred:>12}");
        }
        println!();
    }
}

fn count(operation: &str, arm: &str, context: &str, calls: usize) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args([operation, arm, context, &calls.to_string()])
        .output()
        .expect("valgrind is installed");
    let report = common::stderr(&output);
    assert!(output.status.success(), "{report}");
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    collected.expect("callgrind reports").1.trim().parse().unwrap()
}

/// `calls` times one operation, on jobs that are ready for it.
fn run(operation: &str, arm: &str, context: &str, calls: usize) {
    let scratch = common::Scratch::new();
    let conn = scratch.loaded();
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
    conn.query_row("SELECT fence_init()", [], |_| Ok(())).unwrap();
    if arm == "bare" {
        drop_triggers(&conn);
    }
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    for i in 0..MANY {
        let id = id(i);
        conn.query_row("SELECT fence_enqueue(?1)", [&id], |_| Ok(())).unwrap();
        if operation != "claim" {
            conn.query_row("SELECT fence_claim(?1, 'worker', 0, 10)", [&id], |_| Ok(())).unwrap();
        }
    }
    if context == "autocommit" {
        conn.execute_batch("COMMIT").unwrap();
    }
    if let Ok(items) = arm.parse() {
        batches(&conn, operation, calls, items);
    } else {
        one_by_one(&conn, operation, arm, calls);
    }
    if context != "autocommit" {
        conn.execute_batch("COMMIT").unwrap();
    }
}

fn one_by_one(conn: &Connection, operation: &str, arm: &str, calls: usize) {
    let function = arm == "function";
    let mut statement = match arm {
        "select" if operation == "claim" => conn.prepare("SELECT ?1 = ?2 OR ?3 = ?4"),
        "select" => conn.prepare("SELECT ?1 = ?2 OR ?3 = ?4 OR ?5 IS NULL"),
        _ => conn.prepare(text(operation, function)),
    }
    .unwrap();
    for i in 0..calls {
        let id = id(i);
        let answer = match operation {
            "claim" => step(&mut statement, (&id, "worker", 1.5, 30.0)),
            "renew" => step(&mut statement, (&id, "worker", 1, 1.5, 30.0)),
            _ => step(&mut statement, (&id, "worker", 1, 1.5, "result")),
        };
        if arm == "select" {
            assert_eq!(answer, Some(0));
            continue;
        }
        assert_eq!(answer, if function || operation == "claim" { Some(1) } else { None });
        assert_eq!(conn.changes(), 1);
    }
}

/// The same by the batch function, `items` at a time.
fn batches(conn: &Connection, operation: &str, calls: usize, items: usize) {
    let mut statement = conn
        .prepare(match operation {
            "renew" => "SELECT fence_renew_batch(?1, ?2, 30.0, ?3)",
            _ => "SELECT fence_complete_batch(?1, ?2, ?3)",
        })
        .unwrap();
    let result = if operation == "renew" { "" } else { ",\"result\"" };
    for first in (0..calls).step_by(items) {
        let array: Vec<String> =
            (first..first + items).map(|i| format!("[\"{}\",1{result}]", id(i))).collect();
        let array = format!("[{}]", array.join(","));
        let answer: String =
            statement.query_row(("worker", 1.5, &array), |row| row.get(0)).unwrap();
        assert_eq!(answer.matches('1').count(), items);
    }
}

fn drop_triggers(conn: &Connection) {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'trigger'";
    let mut statement = conn.prepare(sql).unwrap();
    let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let names: Vec<_> = names.map(Result::unwrap).collect();
    assert!(!names.is_empty());
    for name in names {
        conn.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
}

fn id(i: usize) -> String {
    format!("job-{i:05}")
}

fn text(operation: &str, function: bool) -> &'static str {
    match (operation, function) {
        ("claim", true) => "SELECT fence_claim(?1, ?2, ?3, ?4)",
        ("renew", true) => "SELECT fence_renew(?1, ?2, ?3, ?4, ?5)",
        (_, true) => "SELECT fence_complete(?1, ?2, ?3, ?4, ?5)",
        ("claim", false) => CLAIM,
        ("renew", false) => RENEW,
        (_, false) => COMPLETE,
    }
}

fn step(statement: &mut Statement<'_>, arguments: impl rusqlite::Params) -> Option<i64> {
    let mut rows = statement.query(arguments).unwrap();
    let answer = rows.next().unwrap().map(|row| row.get(0).unwrap());
    while rows.next().unwrap().is_some() {}
    answer
}
