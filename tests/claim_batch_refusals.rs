//! Where `fence_claim_batch` is refused, what it says of wrong arguments, and how it meets a lock.
#[path = "common/batch.rs"]
mod batch;
mod common;

use batch::{claimed, prepared, rows};
use common::{error_of, jobs, one, Scratch};
use rusqlite::{ffi, Connection};
use std::cell::RefCell;
use std::time::Duration;

#[test]
fn views_and_triggers_may_not_claim() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    conn.execute_batch(
        "CREATE VIEW v AS SELECT id FROM fence_claim_batch('w', 5, 10, 3, 'q');
         CREATE TABLE u(n);
         CREATE TRIGGER g AFTER INSERT ON u
         BEGIN SELECT id FROM fence_claim_batch WHERE a1 = 'w' AND a2 = 5 AND a3 = 1; END;",
    )
    .unwrap();
    let before = jobs(&conn);
    for trusted in ["ON", "OFF"] {
        conn.execute_batch(&format!("PRAGMA trusted_schema = {trusted}")).unwrap();
        for sql in ["SELECT * FROM v", "INSERT INTO u VALUES (1)"] {
            let sentence = "unsafe use of virtual table \"fence_claim_batch\"";
            assert_eq!(error_of(&conn, sql), (1, sentence.into()), "{sql}");
        }
    }
    assert_eq!(jobs(&conn), before);
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM u"), 0);
    // No file can bring a TEMP view along.
    conn.execute_batch(
        "CREATE TEMP VIEW mine AS SELECT id FROM fence_claim_batch('w', 5, 10, 3, 'q')",
    )
    .unwrap();
    assert_eq!(rows(&conn, "SELECT count(*) FROM mine"), ["3"]);
}

#[test]
fn a_statement_that_writes_may_not_claim() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let before = jobs(&conn);
    let sentence = "fence_claim_batch: cannot run while a statement that writes is under way on \
                    this connection";
    for begin in ["", "BEGIN IMMEDIATE"] {
        conn.execute_batch(begin).unwrap();
        for sql in [
            "INSERT INTO t SELECT fence FROM CALL",
            "INSERT INTO jobs(id) SELECT id || 'x' FROM CALL",
            "CREATE TABLE c AS SELECT * FROM CALL",
            "UPDATE t SET n = (SELECT count(*) FROM CALL)",
            "UPDATE jobs SET result = c.id FROM CALL AS c WHERE jobs.id = c.id",
            "DELETE FROM t WHERE n IN (SELECT fence FROM CALL)",
            "WITH c AS MATERIALIZED (SELECT * FROM CALL) INSERT INTO t SELECT fence FROM c",
        ] {
            let sql = sql.replace("CALL", "fence_claim_batch('w', 5, 10, 3, 'q')");
            assert_eq!(error_of(&conn, &sql), (1, sentence.into()), "{sql}");
            assert_eq!(conn.is_autocommit(), begin.is_empty(), "{sql}");
            assert_eq!(jobs(&conn), before, "{sql}");
            assert_eq!(rows(&conn, "SELECT n FROM t"), ["1", "2", "3"], "{sql}");
        }
        if !begin.is_empty() {
            conn.execute_batch("COMMIT").unwrap();
        }
    }
    assert_eq!(jobs(&conn), before);
}

#[test]
fn error_codes_reach_the_client() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.connect());
    let before = jobs(&conn);
    let sql = "SELECT id FROM fence_claim_batch('w', 5, 10, 3, 'q')";
    let locked = "fence_claim_batch: database is locked".to_string();

    conn.busy_timeout(Duration::ZERO).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(error_of(&conn, sql), (ffi::SQLITE_BUSY, locked.clone()));
    other.execute_batch("COMMIT").unwrap();

    for extended in [true, false] {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_extended_result_codes(conn.handle(), extended.into()) };
        conn.execute_batch("BEGIN").unwrap();
        assert_eq!(jobs(&conn), before);
        other.execute_batch("UPDATE t SET n = n + 1").unwrap();
        let code = if extended { ffi::SQLITE_BUSY_SNAPSHOT } else { ffi::SQLITE_BUSY };
        assert_eq!(error_of(&conn, sql), (code, locked.clone()));
        // SAFETY: as above.
        let kept = unsafe { ffi::sqlite3_extended_errcode(conn.handle()) };
        assert_eq!(kept, ffi::SQLITE_BUSY_SNAPSHOT);
        conn.execute_batch("ROLLBACK").unwrap();
    }

    let read_only = "fence_claim_batch: attempt to write a readonly database".to_string();
    conn.execute_batch("PRAGMA query_only = ON").unwrap();
    assert_eq!(error_of(&conn, sql), (ffi::SQLITE_READONLY, read_only.clone()));
    let reader =
        Connection::open_with_flags(scratch.db(), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap();
    common::load(&reader).unwrap();
    assert_eq!(error_of(&reader, sql), (ffi::SQLITE_READONLY, read_only));
    assert_eq!(jobs(&conn), before);
    conn.execute_batch("PRAGMA query_only = OFF").unwrap();
    assert_eq!(rows(&conn, sql).len(), 3);
}

#[test]
fn wrong_arguments_are_named() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let before = jobs(&conn);
    let usage = "needs (owner, [now,] ttl, limit [, queue])";
    for (arguments, sentence) in [
        ("", usage),
        ("('w')", usage),
        ("('w', 10)", usage),
        (" WHERE a1 = 'w' AND a2 = 10 AND a4 = 1", usage),
        (" WHERE a2 = 5 AND a3 = 10 AND a4 = 1", usage),
        ("(NULL, 5, 10, 1, 'q')", "owner must be text, got NULL"),
        ("(7, 5, 10, 1, 'q')", "owner must be text, got 7"),
        ("(x'77', 5, 10, 1, 'q')", "owner must be text, got a BLOB"),
        ("('', 5, 10, 1, 'q')", "owner must not be empty"),
        (
            "('w' || char(0), 5, 10, 1, 'q')",
            "owner must not contain a NUL character, got 'w\\u{0}'",
        ),
        ("(CAST(x'ff' AS TEXT), 5, 10, 1, 'q')", "argument 1 must be valid UTF-8"),
        ("('w', 5, 10, 1, CAST(x'71ff' AS TEXT))", "argument 5 must be valid UTF-8"),
        ("('w', 'soon', 10, 1, 'q')", "now must be a number, got text 'soon'"),
        ("('w', 'soon', 10, 1)", "now must be a number, got text 'soon'"),
        ("('w', x'35', 10, 1, 'q')", "now must be a number, got a BLOB"),
        ("('w', 9e999, 10, 1, 'q')", "now must be a finite number, got inf"),
        ("('w', 5, NULL, 1, 'q')", "ttl must be a number, got NULL"),
        ("('w', 5, 'long', 1, 'q')", "ttl must be a number, got text 'long'"),
        ("('w', 5, 0, 1, 'q')", "ttl must be greater than 0, got 0"),
        ("('w', 5, -1, 1, 'q')", "ttl must be greater than 0, got -1"),
        ("('w', 5, 9e999, 1, 'q')", "ttl must be a finite number, got inf"),
        ("('w', 1e17, 1, 1, 'q')", "now + ttl must be after now, got 1e17 + 1"),
        ("('w', 1e308, 1e308, 1, 'q')", "now + ttl must be finite, got 1e308 + 1e308"),
        ("('w', 0, 1, 'q')", "ttl must be greater than 0, got 0"),
        ("('w', 5, 10, NULL, 'q')", "limit must be an integer, got NULL"),
        ("('w', 5, 10, 'all', 'q')", "limit must be an integer, got text 'all'"),
        ("('w', 5, 10, x'31', 'q')", "limit must be an integer, got a BLOB"),
        ("('w', 5, 10, 1.5, 'q')", "limit must be an integer, got 1.5"),
        ("('w', 5, 10, 1e17, 'q')", "limit must be an integer, got 1e17"),
        ("('w', 5, 10, 0, 'q')", "limit must be greater than 0, got 0"),
        ("('w', 5, 10, -3, 'q')", "limit must be greater than 0, got -3"),
        ("('w', 5, 10, '-3', 'q')", "limit must be greater than 0, got -3"),
        ("('w', 5, 10, 1, NULL)", "queue must be text, got NULL"),
        ("('w', 5, 10, 1, 7)", "queue must be text, got 7"),
        ("('w', 10, 1, NULL)", "limit must be an integer, got NULL"),
    ] {
        let sql = format!("SELECT id FROM fence_claim_batch{arguments}");
        let sentence = format!("fence_claim_batch: {sentence}");
        assert_eq!(error_of(&conn, &sql), (1, sentence.clone()), "{sql}");
        // The function of the same name says the same.
        if !sentence.ends_with(usage) {
            let sql = format!("SELECT fence_claim_batch{arguments}");
            assert_eq!(error_of(&conn, &sql), (1, sentence), "{sql}");
        }
    }
    let sql = "SELECT id FROM fence_claim_batch('w', 5, 10, 1, 'q', 1)";
    let sentence = "too many arguments on fence_claim_batch() - max 5";
    assert_eq!(error_of(&conn, sql), (1, sentence.into()));
    assert_eq!(jobs(&conn), before);
}

/// A connection that holds the write lock, and how often somebody waited for it.
struct Held {
    holder: Connection,
    waits: u32,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Another connection takes the lock and gives it back to the first who waits for it.
fn hold_until_waited_for(scratch: &Scratch, conn: &Connection) {
    let holder = scratch.connect();
    holder.execute_batch("BEGIN IMMEDIATE; UPDATE t SET n = n + 1").unwrap();
    HELD.set(Some(Held { holder, waits: 0 }));
    let handler = |_| {
        HELD.with_borrow_mut(|held| {
            let held = held.as_mut().unwrap();
            held.waits += 1;
            held.holder.execute_batch("COMMIT").is_ok()
        })
    };
    conn.busy_handler(Some(handler)).unwrap();
}

fn waits() -> u32 {
    HELD.with_borrow(|held| held.as_ref().unwrap().waits)
}

#[test]
fn after_begin_immediate_it_has_waited_for_the_lock() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    hold_until_waited_for(&scratch, &conn);
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(waits(), 1);
    assert_eq!(rows(&conn, "SELECT id FROM fence_claim_batch('w', 5, 10, 3, 'q')").len(), 3);
    conn.execute_batch("COMMIT").unwrap();
    assert_eq!(claimed(&scratch.connect()), 3);
}

#[test]
fn the_function_waits_for_the_lock_without_a_transaction() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    hold_until_waited_for(&scratch, &conn);
    let taken: String = one(&conn, "SELECT fence_claim_batch('w', 5, 10, 3, 'q')");
    assert_eq!(waits(), 1);
    assert_eq!(taken.matches('[').count(), 4, "{taken}");
    assert_eq!(claimed(&scratch.connect()), 3);
}

/// SQLite begins to read for the query around the call, and who reads already cannot wait for a
/// writer: its commit would make what was read old.
#[test]
fn without_a_transaction_it_does_not_wait_for_the_lock() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    hold_until_waited_for(&scratch, &conn);
    let before = jobs(&conn);
    let sql = "SELECT id FROM fence_claim_batch('w', 5, 10, 3, 'q')";
    let sentence = "fence_claim_batch: database is locked";
    assert_eq!(error_of(&conn, sql), (ffi::SQLITE_BUSY, sentence.into()));
    assert_eq!(waits(), 0);
    assert_eq!(jobs(&conn), before);
}
