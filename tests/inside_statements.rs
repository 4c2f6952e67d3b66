//! Where in a statement or a schema a function may stand: alone in a SELECT. A call from a
//! statement that writes, or from anything stored in the file, is refused and changes nothing.
mod common;

use common::{add_jobs, error_of, function_of, jobs, one, Scratch, ALSO_WRITES, WRITES};
use rusqlite::types::Value;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::time::Duration;

/// Jobs, and a table `t` with a row and a trigger-free twin `log`.
fn prepared(scratch: &Scratch) -> Connection {
    let conn = scratch.loaded();
    // Nothing here is about a power cut.
    conn.pragma_update(None, "synchronous", "OFF").unwrap();
    add_jobs(&conn);
    conn.execute_batch(
        "CREATE TABLE t(id TEXT PRIMARY KEY, n);
         INSERT INTO t VALUES ('row', 0);
         CREATE TABLE log(entry);",
    )
    .unwrap();
    conn
}

fn every_write() -> impl Iterator<Item = &'static str> {
    WRITES.into_iter().chain(ALSO_WRITES).chain(["fence_init()", "fence_init_queue()"])
}

#[test]
fn every_function_that_writes_is_tried_here() {
    let conn = Connection::open_in_memory().unwrap();
    common::load(&conn).unwrap();
    const DIRECTONLY: i64 = rusqlite::ffi::SQLITE_DIRECTONLY as i64;
    let sql = "SELECT name FROM pragma_function_list WHERE name LIKE 'fence%' AND flags & ?";
    let mut statement = conn.prepare(sql).unwrap();
    let names = statement.query_map([DIRECTONLY], |row| row.get(0)).unwrap();
    let writing: BTreeSet<String> = names.collect::<rusqlite::Result<_>>().unwrap();
    let tried: BTreeSet<String> = every_write().map(|call| function_of(call).to_string()).collect();
    assert_eq!(tried, writing);
}

/// Everything in the file: jobs, the other tables, and the schema.
fn everything(conn: &Connection) -> Vec<String> {
    let mut all = jobs(conn);
    for sql in [
        "SELECT group_concat(id || ' ' || quote(n)) FROM t",
        "SELECT group_concat(entry) FROM log",
        "SELECT group_concat(name || ' ' || coalesce(sql, '')) FROM main.sqlite_master",
    ] {
        all.push(one::<Option<String>>(conn, sql).unwrap_or_default());
    }
    all
}

fn while_writing(call: &str) -> (i32, String) {
    let sentence = "cannot run while a statement that writes is under way on this connection";
    (1, format!("{}: {sentence}", function_of(call)))
}

/// Statements that write, with `CALL` where a function's answer goes.
const WRITING: [&str; 14] = [
    "UPDATE jobs SET result = CALL WHERE id = 'free'",
    "UPDATE jobs SET result = 'x' WHERE id = 'free' AND CALL",
    "UPDATE t SET n = CALL",
    "UPDATE t SET n = n FROM (SELECT CALL AS f) WHERE f",
    "INSERT INTO t VALUES ('x', CALL)",
    "INSERT INTO t VALUES ('x', 1), ('y', CALL)",
    "INSERT INTO t SELECT id, CALL FROM jobs",
    "INSERT INTO t VALUES ('row', 1) ON CONFLICT DO UPDATE SET n = CALL",
    "INSERT INTO t VALUES ('x', 1) RETURNING CALL",
    "REPLACE INTO t SELECT 'row', CALL",
    "DELETE FROM t WHERE CALL",
    "WITH c AS MATERIALIZED (SELECT CALL AS f) DELETE FROM t WHERE (SELECT f FROM c)",
    "CREATE TABLE made AS SELECT CALL AS f",
    "CREATE TEMP TABLE made AS SELECT CALL AS f",
];

#[test]
fn a_call_inside_a_statement_that_writes_is_refused() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.connect());
    let before = everything(&other);
    for begin in ["", "BEGIN", "BEGIN IMMEDIATE"] {
        for call in every_write() {
            for statement in WRITING {
                let sql = statement.replace("CALL", call);
                conn.execute_batch(begin).unwrap();
                assert_eq!(error_of(&conn, &sql), while_writing(call), "{sql}");
                assert_eq!(conn.is_autocommit(), begin.is_empty(), "{sql}");
                assert_eq!(everything(&conn), before, "{sql}");
                if !begin.is_empty() {
                    conn.execute_batch("COMMIT").unwrap();
                }
                assert_eq!(everything(&other), before, "{sql}");
            }
        }
    }
    for call in ["fence_init()", WRITES[0], WRITES[1], WRITES[3], WRITES[5]] {
        assert_eq!(one::<i64>(&conn, &format!("SELECT {call}")), 1, "{call}");
    }
}

#[test]
fn a_call_beside_a_paused_statement_that_writes_is_refused() {
    for paused in [
        "INSERT INTO t VALUES ('x', 1), ('y', 2) RETURNING id",
        "UPDATE t SET n = 2 RETURNING id",
        "DELETE FROM t RETURNING id",
        "UPDATE jobs SET result = 'x' RETURNING id",
    ] {
        for call in every_write() {
            let scratch = Scratch::new();
            let (conn, other) = (prepared(&scratch), scratch.connect());
            let before = everything(&other);
            let mut statement = conn.prepare(paused).unwrap();
            let mut rows = statement.query([]).unwrap();
            rows.next().unwrap().expect("a first row");
            assert_eq!(error_of(&conn, &format!("SELECT {call}")), while_writing(call), "{paused}");
            assert_eq!(everything(&other), before, "{paused}");

            while rows.next().unwrap().is_some() {}
            one::<Value>(&conn, &format!("SELECT {call}"));
        }
    }
}

#[test]
fn a_statement_that_writes_but_does_not_run_is_no_obstacle() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let _prepared = conn.prepare("INSERT INTO t VALUES ('x', 1) RETURNING id").unwrap();
    let mut reading = conn.prepare("SELECT id FROM t UNION ALL SELECT id FROM jobs").unwrap();
    let mut rows = reading.query([]).unwrap();
    rows.next().unwrap().expect("a first row");
    assert_eq!(one::<i64>(&conn, "SELECT fence_claim('free', 'b', 1, 10)"), 1);
}

#[test]
fn one_claim_per_row_is_one_commit_per_row() {
    for journal in ["delete", "wal"] {
        let scratch = Scratch::new();
        let (conn, other) = (prepared(&scratch), scratch.connect());
        conn.pragma_update(None, "journal_mode", journal).unwrap();
        conn.execute_batch(
            "DELETE FROM t; INSERT INTO t VALUES ('a', 0), ('b', 0), ('c', 0);
             INSERT INTO jobs(id) SELECT id FROM t;",
        )
        .unwrap();
        let claimed = |conn: &Connection| -> i64 {
            one(conn, "SELECT count(*) FROM jobs WHERE owner = 'w' AND fence = 1 AND until = 11")
        };
        let mut statement =
            conn.prepare("SELECT fence_claim(id, 'w', 1, 10) FROM t ORDER BY rowid").unwrap();
        let mut rows = statement.query([]).unwrap();
        for nth in 1..=3 {
            let row = rows.next().unwrap().expect("a row for each job");
            assert_eq!(row.get::<_, Option<i64>>(0).unwrap(), Some(1));
            assert_eq!(claimed(&other), nth, "{journal}");
        }
        assert!(rows.next().unwrap().is_none());
    }
}

#[test]
fn between_two_rows_another_writer_makes_the_rest_fail_with_code_517_in_wal_mode() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.loaded());
    conn.execute_batch("PRAGMA journal_mode = wal; INSERT INTO t VALUES ('x', 1)").unwrap();
    let mut statement = conn.prepare("SELECT fence_enqueue(id) FROM t ORDER BY rowid").unwrap();
    let mut rows = statement.query([]).unwrap();
    assert_eq!(rows.next().unwrap().unwrap().get::<_, i64>(0).unwrap(), 1);
    assert_eq!(one::<i64>(&other, "SELECT fence_enqueue('between')"), 1);
    match rows.next() {
        Err(rusqlite::Error::SqliteFailure(e, Some(message))) => {
            assert_eq!(e.extended_code, rusqlite::ffi::SQLITE_BUSY_SNAPSHOT);
            assert_eq!(message, "fence_enqueue: database is locked");
        }
        other => panic!("{:?}", other.map(|row| row.is_some())),
    }
    drop(rows);
    let ids: String = one(&other, "SELECT group_concat(id) FROM (SELECT id FROM jobs ORDER BY id)");
    assert_eq!(ids, "between,free,held,row", "what was committed stays");
}

#[test]
fn between_two_rows_other_writers_are_locked_out_in_rollback_mode() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.loaded());
    conn.execute_batch("INSERT INTO t VALUES ('x', 1)").unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let mut statement = conn.prepare("SELECT fence_enqueue(id) FROM t ORDER BY rowid").unwrap();
    let mut rows = statement.query([]).unwrap();
    for _ in 0..2 {
        assert_eq!(rows.next().unwrap().unwrap().get::<_, i64>(0).unwrap(), 1);
        let busy = (rusqlite::ffi::SQLITE_BUSY, "fence_enqueue: database is locked".to_string());
        assert_eq!(error_of(&other, "SELECT fence_enqueue('between')"), busy);
    }
    assert!(rows.next().unwrap().is_none());
    assert_eq!(one::<i64>(&other, "SELECT fence_enqueue('between')"), 1);
}

/// Schemas that call a function, and the statement that would run it.
const STORED: [(&str, &str); 9] = [
    ("CREATE VIEW v AS SELECT CALL AS f", "SELECT f FROM v"),
    (
        "CREATE TRIGGER r AFTER UPDATE ON t BEGIN INSERT INTO log VALUES (CALL); END",
        "UPDATE t SET n = 1",
    ),
    (
        "CREATE TRIGGER r BEFORE INSERT ON t WHEN CALL BEGIN SELECT 1; END",
        "INSERT INTO t VALUES ('x', 1)",
    ),
    (
        "CREATE TRIGGER r AFTER UPDATE ON jobs BEGIN SELECT CALL; END",
        "UPDATE jobs SET result = 'x' WHERE id = 'free'",
    ),
    ("CREATE TABLE c(x CHECK (CALL))", "INSERT INTO c VALUES (1)"),
    ("CREATE TABLE c(x, y DEFAULT (CALL))", "INSERT INTO c(x) VALUES (1)"),
    ("CREATE TABLE c(x, y AS (CALL)); INSERT INTO c VALUES (1)", "SELECT y FROM c"),
    ("CREATE INDEX i ON t(CALL)", "INSERT INTO t VALUES ('x', 1)"),
    ("CREATE INDEX i ON t(n) WHERE CALL", "INSERT INTO t VALUES ('x', 1)"),
];

/// Gives a connection a harmless function of that name, as who builds a hostile file would.
fn stand_in(conn: &Connection, name: &str) {
    use rusqlite::functions::FunctionFlags;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function(name, -1, flags, |_| Ok(1)).unwrap();
}

#[test]
fn a_function_that_writes_cannot_be_called_from_the_schema() {
    for call in every_write() {
        for (create, run) in STORED {
            let scratch = Scratch::new();
            prepared(&scratch);
            let hostile = scratch.connect();
            hostile.pragma_update(None, "synchronous", "OFF").unwrap();
            stand_in(&hostile, function_of(call));
            hostile.execute_batch(&create.replace("CALL", call)).unwrap();
            let before = everything(&hostile);
            for trusted in ["ON", "OFF"] {
                let conn = scratch.loaded();
                conn.pragma_update(None, "trusted_schema", trusted).unwrap();
                let (code, sentence) = error_of(&conn, run);
                let mut unsafe_use = format!("unsafe use of {}()", function_of(call));
                if code == rusqlite::ffi::SQLITE_CORRUPT {
                    // Found while SQLite read the schema: it refuses the whole file.
                    let part = create.split([' ', '(']).nth(2).unwrap();
                    unsafe_use = format!("malformed database schema ({part}) - {unsafe_use}");
                }
                assert_eq!(sentence, unsafe_use, "{create} {trusted}: {call}");
                assert_eq!(everything(&hostile), before, "{create} {trusted}: {call}");
            }
        }
    }
}

#[test]
fn fence_state_cannot_be_part_of_an_index_or_a_generated_column() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let before = everything(&conn);
    for (create, place) in [
        ("CREATE INDEX i ON t(fence_state(id))", "index expressions"),
        ("CREATE INDEX i ON t(n) WHERE fence_state(id)", "partial index WHERE clauses"),
        ("CREATE TABLE g(id, state AS (fence_state(id)))", "generated columns"),
    ] {
        let sentence = format!("non-deterministic functions prohibited in {place}");
        assert_eq!(error_of(&conn, create), (1, sentence), "{create}");
        assert_eq!(everything(&conn), before, "{create}");
    }
}

/// The caller's own TEMP triggers are no stored schema to SQLite, but their statement writes.
#[test]
fn a_temporary_trigger_cannot_call_a_function_that_writes() {
    for call in every_write() {
        let scratch = Scratch::new();
        let (conn, other) = (prepared(&scratch), scratch.connect());
        let before = everything(&other);
        conn.execute_batch(&format!(
            "CREATE TEMP TRIGGER r AFTER UPDATE ON main.t BEGIN SELECT {call}; END"
        ))
        .unwrap();
        assert_eq!(error_of(&conn, "UPDATE t SET n = 1"), while_writing(call));
        assert_eq!(everything(&other), before, "{call}");
    }
}

#[test]
fn fence_state_may_stand_in_views_and_triggers_also_of_an_untrusted_schema() {
    for trusted in ["ON", "OFF"] {
        let scratch = Scratch::new();
        let conn = prepared(&scratch);
        conn.pragma_update(None, "trusted_schema", trusted).unwrap();
        conn.execute_batch(
            "CREATE VIEW v AS SELECT fence_state(id) AS state FROM jobs;
             CREATE TRIGGER r AFTER UPDATE ON jobs
             BEGIN INSERT INTO log VALUES (fence_state(new.id)); END;",
        )
        .unwrap();
        let free = |owner: &str, until: &str, fence: i64| {
            format!(
                r#"{{"id":"free","owner":{owner},"until":{until},"fence":{fence},"result":null,"done":0}}"#
            )
        };
        let state: String = one(&conn, "SELECT state FROM v WHERE state LIKE '%free%'");
        assert_eq!(state, free("null", "0.0", 0), "{trusted}");

        // The trigger runs inside our own UPDATE and sees what it does.
        assert_eq!(one::<i64>(&conn, "SELECT fence_claim('free', 'b', 1, 10)"), 1);
        let logged: String = one(&conn, "SELECT entry FROM log");
        assert_eq!(logged, free(r#""b""#, "11.0", 1), "{trusted}");
        conn.execute_batch("UPDATE jobs SET until = 5 WHERE id = 'free'").unwrap();
        let logged: String = one(&conn, "SELECT entry FROM log ORDER BY rowid DESC LIMIT 1");
        assert_eq!(logged, free(r#""b""#, "5.0", 1), "{trusted}");
    }
}
