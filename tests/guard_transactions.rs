//! fence_guard beside other statements and connections: inside a transaction, while somebody reads,
//! and for statements that were prepared before it.
mod common;
#[path = "common/guarded.rs"]
mod guarded;

use common::{error_of, one, Scratch};
use guarded::*;
use rusqlite::{ffi, Connection};

/// A connection with the extension to a new file, after `JOBS` and `setup`.
fn file(setup: &str) -> (Scratch, Connection) {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    batch(&conn, "PRAGMA synchronous = OFF");
    batch(&conn, JOBS);
    batch(&conn, setup);
    (scratch, conn)
}

fn schema(conn: &Connection) -> String {
    one(conn, "SELECT group_concat(concat_ws(' ', type, name, tbl_name, sql), x'0a') FROM main.sqlite_master")
}

#[test]
fn a_guard_is_part_of_the_callers_transaction() {
    let (scratch, conn) = file(ORDERS);
    let before = schema(&conn);
    for (begin, back) in [
        ("BEGIN IMMEDIATE", "ROLLBACK"),
        ("BEGIN", "ROLLBACK"),
        ("SAVEPOINT s", "ROLLBACK TO s; RELEASE s"),
    ] {
        batch(&conn, begin);
        assert_eq!(one::<i64>(&conn, "SELECT fence_guard('orders', 'job')"), 1, "{begin}");
        refused(&conn, "UPDATE orders SET total = 9", STATE);
        assert_eq!(schema(&scratch.connect()), before, "{begin}");
        batch(&conn, back);
        assert_eq!(schema(&conn), before, "{begin}");
        batch(&conn, "UPDATE orders SET total = 9");
    }
    batch(&conn, "BEGIN");
    assert_eq!(one::<i64>(&conn, "SELECT fence_guard('orders', 'job')"), 1);
    let sentence = "fence_guard: the table 'orders' has no column 'nothing'".to_string();
    assert_eq!(error_of(&conn, "SELECT fence_guard('orders', 'nothing')"), (1, sentence));
    assert!(!conn.is_autocommit());
    batch(&conn, "COMMIT");
    refused(&scratch.connect(), "UPDATE orders SET total = 9", STATE);
}

#[test]
fn a_reader_keeps_its_view_in_wal_mode_and_the_guard_waiting_in_rollback_mode() {
    for journal in ["wal", "delete"] {
        let (scratch, conn) = file(ORDERS);
        assert_eq!(one::<String>(&conn, &format!("PRAGMA journal_mode = {journal}")), journal);
        conn.busy_timeout(std::time::Duration::ZERO).unwrap();
        let (reader, before) = (scratch.connect(), schema(&conn));
        batch(&reader, "BEGIN");
        assert_eq!(one::<i64>(&reader, "SELECT count(*) FROM orders"), 9);
        if journal == "delete" {
            let sentence = "fence_guard: database is locked".to_string();
            let locked = (ffi::SQLITE_BUSY, sentence);
            assert_eq!(error_of(&conn, "SELECT fence_guard('orders', 'job')"), locked);
            assert!(conn.is_autocommit());
            assert_eq!(schema(&conn), before);
            batch(&reader, "COMMIT");
        }
        assert_eq!(one::<i64>(&conn, "SELECT fence_guard('orders', 'job')"), 1, "{journal}");
        if journal == "wal" {
            assert_eq!(schema(&reader), before);
            batch(&reader, "COMMIT");
        }
        // The reader's next statement meets the guard, also one that it prepared before.
        refused(&reader, "UPDATE orders SET total = 9", STATE);
        accepted(&reader, "UPDATE orders SET total = 9, fence = 3 WHERE id = 1", 1);
    }
}

#[test]
fn a_statement_prepared_before_the_guard_meets_it_too() {
    let (scratch, conn) = file(ORDERS);
    let old = scratch.connect();
    let mut update = old.prepare("UPDATE orders SET total = total + 1 WHERE id = ?1").unwrap();
    assert_eq!(update.execute([1]).unwrap(), 1);
    assert_eq!(one::<i64>(&conn, "SELECT fence_guard('orders', 'job')"), 1);
    let error = update.execute([1]).unwrap_err();
    assert_eq!(error.to_string(), STATE);
    assert_eq!(one::<i64>(&conn, "SELECT total FROM orders WHERE id = 1"), 11);
}

#[test]
fn one_statement_can_guard_several_tables() {
    let (_scratch, conn) = file(ORDERS);
    batch(&conn, "CREATE TABLE other(job TEXT); INSERT INTO other VALUES ('a')");
    let tables = "(SELECT 'orders' AS name UNION ALL SELECT 'other' UNION ALL SELECT 'orders')";
    let sum = format!("SELECT sum(fence_guard(name, 'job')) FROM {tables}");
    assert_eq!(one::<i64>(&conn, &sum), 2);
    refused(&conn, "UPDATE orders SET total = 9", STATE);
    refused(&conn, "UPDATE other SET job = 'a'", &STATE.replace("orders", "other"));
}
