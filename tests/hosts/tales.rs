//! The calls that every host makes, and what they must answer.
use serde_json::{json, Value};
use std::path::Path;

use crate::common::Scratch;
use crate::host::{run, Expected, Host, Step};

/// Every column with its type.
const JOBS: &str = "SELECT quote(id), quote(owner), quote(until), quote(fence), quote(result), \
                    quote(done) FROM jobs ORDER BY rowid";

#[derive(Default)]
pub struct Tale {
    pub steps: Vec<Step>,
}

impl Tale {
    fn step(&mut self, line: String, expected: Expected) {
        assert!(!line.contains('\n'), "a call is one line: {line}");
        self.steps.push(Step { line, expected });
    }

    pub fn open(&mut self, connection: usize, file: &Path) {
        let line = format!("{connection}\t.open\tt:{}", file.display());
        self.step(line, Expected::Rows(String::new()));
    }

    pub fn close(&mut self, connection: usize) {
        self.step(format!("{connection}\t.close"), Expected::Rows(String::new()));
    }

    /// A statement and its rows: one a line, columns separated by '|'.
    pub fn says(&mut self, connection: usize, sql: &str, rows: &str) {
        self.step(format!("{connection}\t{sql}"), Expected::Rows(rows.into()));
    }

    pub fn fails(&mut self, connection: usize, sql: &str, code: i32, sentence: &str) {
        self.step(format!("{connection}\t{sql}"), Expected::Error(code, sentence.into()));
    }

    /// The same, and the job table stays as it was.
    fn fails_and_changes_nothing(&mut self, line: String, sentence: &str) {
        self.step(format!("0\t{JOBS}"), Expected::Anything);
        self.step(line, Expected::Error(1, sentence.into()));
        self.step(format!("0\t{JOBS}"), Expected::SameAs(2));
    }
}

/// Everything that a host is asked for.
pub fn tell_all(host: &Host) {
    vectors(host);
    stale_worker(host);
    busy(host);
    every_function(host, true);
}

/// The contract vectors, each on a database of its own, with bound arguments.
pub fn vectors(host: &Host) {
    assert!(run(host, &vector_steps().steps) > 300, "the vectors are not found");
}

pub fn vector_steps() -> Tale {
    let mut tale = Tale::default();
    for line in include_str!("../vectors/contract.jsonl").lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        tale.open(0, Path::new(":memory:"));
        tale.says(0, "SELECT fence_init()", "1");
        for step in vector["steps"].as_array().unwrap() {
            let operation = step[0].as_str().unwrap();
            let arguments = step[1].as_array().unwrap();
            if operation == "sql" {
                let rows: Vec<String> = step[2].as_array().unwrap().iter().map(row).collect();
                tale.says(0, arguments[0].as_str().unwrap(), &rows.join("\n"));
                continue;
            }
            let marks = vec!["?"; arguments.len()].join(", ");
            let mut line = format!("0\tSELECT fence_{operation}({marks})");
            for argument in arguments {
                line.push('\t');
                line.push_str(&bound(argument));
            }
            match &step[2] {
                Value::String(_) => {
                    tale.fails_and_changes_nothing(line, &format!("fence_{operation}: "));
                }
                Value::Object(object) => tale.step(line, Expected::Json(json!(object))),
                answer => tale.step(line, Expected::Rows(shown(answer))),
            }
        }
        tale.close(0);
    }
    tale
}

fn bound(argument: &Value) -> String {
    match argument {
        Value::Null => "n:".into(),
        Value::Number(n) if n.is_i64() => format!("i:{n}"),
        Value::Number(n) => format!("r:{:?}", n.as_f64().unwrap()),
        Value::String(text) => {
            assert!(!text.contains(['\t', '\n']), "{text:?} does not fit the protocol");
            format!("t:{text}")
        }
        Value::Object(float) => format!("r:{}", float["f"].as_str().unwrap()),
        other => panic!("no argument: {other}"),
    }
}

fn row(row: &Value) -> String {
    row.as_array().unwrap().iter().map(shown).collect::<Vec<_>>().join("|")
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Bool(yes) => i32::from(*yes).to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A stalls past its lease, B takes over and completes, A wakes.
pub fn stale_worker(host: &Host) {
    let scratch = Scratch::new();
    run(host, &stale_worker_steps(&scratch.db()).steps);
    assert_eq!(scratch.files(), ["jobs.db"], "{}: files stay behind", host.name);
}

pub fn stale_worker_steps(file: &Path) -> Tale {
    let mut tale = Tale::default();
    let status = "SELECT state, owner, fence FROM fence_status";
    tale.open(0, file);
    tale.says(0, "PRAGMA journal_mode = wal", "wal");
    tale.says(0, "SELECT fence_init()", "1");
    tale.says(0, "SELECT fence_enqueue('report')", "1");
    tale.says(0, status, "free|NULL|0");
    tale.open(1, file);
    tale.says(0, "SELECT fence_claim('report', 'A', 0, 10)", "1");
    tale.says(1, "SELECT fence_claim('report', 'B', 9, 10)", "NULL");
    tale.says(1, "SELECT fence_claim('report', 'B', 11, 9e9)", "2");
    tale.says(0, "SELECT fence_complete('report', 'A', 1, 11, 'old')", "0");
    tale.says(0, "SELECT fence_renew('report', 'A', 1, 11, 10)", "0");
    tale.says(0, "SELECT fence_release('report', 'A', 1)", "0");
    tale.says(0, "SELECT fence_check('report', 'A', 1, 11)", "superseded");
    tale.says(0, status, "leased|B|2");
    tale.says(1, "SELECT fence_complete('report', 'B', 2, 12, 'new')", "1");
    tale.says(0, "SELECT fence_complete('report', 'A', 1, 9, 'old')", "0");
    // The file itself refuses those who do not call us.
    let falls = "UPDATE jobs SET owner = 'A', fence = 1, result = 'old'";
    tale.fails(0, falls, 1811, "jobs: a fence cannot fall");
    let after = "SELECT id, owner, fence, result, done FROM jobs";
    tale.says(0, after, "report|B|2|new|1");
    tale.says(1, after, "report|B|2|new|1");
    tale.says(1, status, "done|B|2");
    tale.close(0);
    tale.close(1);
    tale
}

/// The codes of a locked database reach the client, nothing has changed, and the next try works.
pub fn busy(host: &Host) {
    let scratch = Scratch::new();
    run(host, &busy_steps(&scratch.db()).steps);
    assert_eq!(scratch.files(), ["jobs.db"], "{}: files stay behind", host.name);
}

pub fn busy_steps(file: &Path) -> Tale {
    let mut tale = Tale::default();
    let claim = "SELECT fence_claim('a', 'A', 0, 10)";
    let locked = "fence_claim: database is locked";
    let read = "SELECT coalesce(owner, 'nobody'), fence FROM jobs WHERE id = 'a'";
    for connection in [0, 1] {
        tale.open(connection, file);
        tale.says(connection, "PRAGMA busy_timeout = 0", "0");
    }
    tale.says(0, "PRAGMA journal_mode = wal", "wal");
    tale.says(0, "SELECT fence_init()", "1");
    tale.says(0, "SELECT fence_enqueue('a')", "1");

    tale.says(1, "BEGIN IMMEDIATE", "");
    tale.fails(0, claim, 5, locked);
    tale.says(1, "ROLLBACK", "");
    tale.says(0, read, "nobody|0");

    tale.says(0, "BEGIN", "");
    tale.says(0, read, "nobody|0");
    tale.says(1, "SELECT fence_enqueue('b')", "1");
    tale.fails(0, claim, 517, locked);
    tale.says(0, "ROLLBACK", "");
    tale.says(0, read, "nobody|0");

    tale.says(0, claim, "1");
    tale.says(1, read, "A|1");
    tale.close(0);
    tale.close(1);
    tale
}

/// Every function once, with or without SQLite's JSON functions, which it has built in since 3.38.
pub fn every_function(host: &Host, json: bool) {
    let scratch = Scratch::new();
    run(host, &every_function_steps(&scratch.db(), json).steps);
    assert_eq!(scratch.files(), ["jobs.db"], "{}: files stay behind", host.name);
}

pub fn every_function_steps(file: &Path, json: bool) -> Tale {
    let mut tale = Tale::default();
    let mut calls = vec![
        ("fence_init()", "1"),
        ("fence_init_queue()", "1"),
        ("fence_enqueue('due', 5)", "1"),
        ("fence_enqueue('j')", "1"),
        ("fence_claim('j', 'A', 0, 10)", "1"),
        ("fence_renew('j', 'A', 1, 1, 10)", "1"),
        ("fence_check('j', 'A', 1, 2)", "held"),
        ("fence_release('j', 'A', 1)", "1"),
        ("fence_claim('j', 'A', 3600)", "2"),
        ("fence_renew('j', 'A', 2, 3600)", "1"),
        ("fence_check('j', 'A', 2)", "held"),
        ("fence_fail('j', 'A', 2, 'why')", "1"),
        ("fence_requeue('j')", "1"),
        ("fence_claim_batch('A', 0, 10, 1)", r#"[["j",4]]"#),
        ("fence_complete('j', 'A', 4, 1, 'r')", "1"),
        ("json_extract(fence_state('j'), '$.done')", "1"),
        ("fence_purge(1e9, 10)", "1"),
        ("fence_restore(5)", "1"),
        ("fence_pass('file', 7)", "1"),
        ("fence_pass('file', 6)", "0"),
        ("fence_guard('t', 'job')", "1"),
        ("fence_unguard('t')", "1"),
        ("fence_version()", concat!("v", env!("CARGO_PKG_VERSION"))),
        ("substr(fence_debug(), 1, 1) <> ''", "1"),
    ];
    let with_json = [
        (r#"fence_enqueue_batch('["x", "y"]')"#, "2"),
        ("fence_claim_batch('B', 0, 10, 2)", r#"[["x",11],["y",11]]"#),
        (r#"fence_renew_batch('B', 1, 10, '[["x",11],["y",10]]')"#, "[1,0]"),
        (r#"fence_complete_batch('B', 1, '[["x",11,"r"],["y",10,"r"]]')"#, "[1,0]"),
    ];
    if json {
        calls.extend(with_json);
    } else {
        calls.retain(|(call, _)| !call.contains("json_"));
    }
    tale.open(0, file);
    tale.says(0, "CREATE TABLE t(job TEXT)", "");
    for (call, answer) in &calls {
        tale.says(0, &format!("SELECT {call}"), answer);
    }
    if !json {
        for (call, _) in with_json.iter().filter(|(call, _)| call.contains("'[")) {
            let function = crate::common::function_of(call);
            let sentence = format!("{function}: no such function: json_valid");
            tale.fails(0, &format!("SELECT {call}"), 1, &sentence);
        }
    }
    tale.says(0, "SELECT id, fence FROM fence_claim_batch('C', 5, 10, 5)", "due|6");
    tale.says(0, "BEGIN", "");
    tale.says(0, "SELECT fence_assert('due', 'C', 6, 6)", "1");
    let sentence = "fence_assert: the lease on job 'due' is not held: superseded";
    tale.fails(0, "SELECT fence_assert('due', 'C', 1, 6)", 19, sentence);
    tale.says(0, "ROLLBACK", "");
    let count = "SELECT count(*) > 20 FROM fence_statements";
    tale.says(0, count, "1");
    tale.close(0);
    tale
}
