//! A call is one statement of the caller's transaction: what it changes is seen, given back and
//! refused as any other statement's, whichever kind of transaction it runs in.
mod common;

use common::{add_jobs, batch, error_of, function_of, jobs, one, Scratch, ALSO_WRITES, WRITES};
use rusqlite::types::Value;
use rusqlite::{ffi, Connection, OpenFlags};
use std::cell::{Cell, RefCell};
use std::time::{Duration, SystemTime};

const JOURNALS: [&str; 2] = ["delete", "wal"];

/// A connection that calls the functions, and another one to the same file that looks on.
fn two(scratch: &Scratch, journal: &str) -> (Connection, Connection) {
    let conn = scratch.loaded();
    // Nothing here is about a power cut.
    batch(&conn, "PRAGMA synchronous = OFF");
    let mode: String = one(&conn, &format!("PRAGMA journal_mode = {journal}"));
    assert_eq!(mode, journal);
    add_jobs(&conn);
    batch(&conn, "CREATE TABLE t(id)");
    (conn, scratch.loaded())
}

fn answer(conn: &Connection, call: &str) -> Option<i64> {
    one(conn, &format!("SELECT {call}"))
}

/// Makes a call that was refused before. Of the other functions, some find nothing to do.
fn works(conn: &Connection, call: &str) {
    let before = jobs(conn);
    let answer: Value = one(conn, &format!("SELECT {call}"));
    if WRITES.contains(&call) {
        assert_eq!(answer, Value::Integer(1), "{call}");
        assert_ne!(jobs(conn), before, "{call}");
    }
}

/// The error of a call, and its extended code as the C interface tells it.
fn refused(conn: &Connection, call: &str) -> (i32, String) {
    let (_, message) = error_of(conn, &format!("SELECT {call}"));
    // SAFETY: the connection is open.
    (unsafe { ffi::sqlite3_extended_errcode(conn.handle()) }, message)
}

fn show_extended_codes(conn: &Connection, on: bool) {
    // SAFETY: the connection is open.
    unsafe { ffi::sqlite3_extended_result_codes(conn.handle(), on.into()) };
}

thread_local! {
    /// A connection whose transaction the busy handler of another one commits.
    static HOLDER: RefCell<Option<Connection>> = const { RefCell::new(None) };
    static WAITS: Cell<i32> = const { Cell::new(0) };
    /// The wall clock may have to reach this moment before that commit, in milliseconds.
    static NOT_BEFORE: Cell<i64> = const { Cell::new(0) };
    static COMMITTED: Cell<i64> = const { Cell::new(0) };
}

fn milliseconds() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_millis() as i64
}

/// A busy handler: whoever waits lets the holder of the lock finish.
fn let_the_holder_commit(_: i32) -> bool {
    WAITS.set(WAITS.get() + 1);
    let Some(holder) = HOLDER.take() else { return false };
    while milliseconds() < NOT_BEFORE.get() {
        std::hint::spin_loop();
    }
    batch(&holder, "COMMIT");
    COMMITTED.set(milliseconds());
    true
}

/// Gives the write lock to another connection, which `conn` will have to wait for.
fn wait_for_a_holder(conn: &Connection, scratch: &Scratch) {
    let holder = scratch.connect();
    batch(&holder, "BEGIN IMMEDIATE; INSERT INTO jobs(id) VALUES ('holder')");
    HOLDER.set(Some(holder));
    WAITS.set(0);
    NOT_BEFORE.set(0);
    conn.busy_handler(Some(let_the_holder_commit)).unwrap();
}

#[test]
fn in_autocommit_another_connection_sees_the_change_before_the_select_is_finalised() {
    for journal in JOURNALS {
        for call in WRITES {
            let scratch = Scratch::new();
            let (conn, other) = two(&scratch, journal);
            let before = jobs(&other);
            let mut statement = conn.prepare(&format!("SELECT {call}")).unwrap();
            let mut rows = statement.query([]).unwrap();
            assert_eq!(rows.next().unwrap().unwrap().get::<_, i64>(0).unwrap(), 1, "{call}");
            let seen = jobs(&other);
            assert_ne!(seen, before, "{call} in {journal}");
            assert!(rows.next().unwrap().is_none());
            assert_eq!(jobs(&conn), seen, "{call} in {journal}");
        }
    }
}

#[test]
fn after_begin_a_call_belongs_to_the_transaction() {
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT s"] {
        for call in WRITES {
            let scratch = Scratch::new();
            // In WAL mode a reader may look on while a writer has its transaction open.
            let (conn, other) = two(&scratch, "wal");
            let before = jobs(&other);

            batch(&conn, begin);
            assert_eq!(answer(&conn, call), Some(1), "{call} after {begin}");
            assert!(!conn.is_autocommit(), "{call} after {begin}");
            assert_eq!(jobs(&other), before, "{call} after {begin}");
            batch(&conn, "ROLLBACK");
            assert_eq!(jobs(&conn), before, "{call} after {begin}");

            batch(&conn, begin);
            assert_eq!(answer(&conn, call), Some(1), "{call} again after {begin}");
            batch(&conn, "COMMIT");
            assert_ne!(jobs(&other), before, "{call} after {begin}");
            assert_eq!(jobs(&other), jobs(&conn));
        }
    }
}

#[test]
fn rollback_gives_the_fence_back() {
    let claim = "fence_claim('free', 'b', 1, 10)";
    for (begin, undo) in [
        ("BEGIN IMMEDIATE", "ROLLBACK"),
        ("SAVEPOINT s", "ROLLBACK TO s; RELEASE s"),
        ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT"),
    ] {
        let scratch = Scratch::new();
        let (conn, other) = two(&scratch, "delete");
        let before = jobs(&other);
        batch(&conn, begin);
        assert_eq!(answer(&conn, claim), Some(1), "{begin}");
        assert_eq!(answer(&conn, "fence_complete('free', 'b', 1, 1, 'lost')"), Some(1));
        batch(&conn, undo);
        assert!(conn.is_autocommit());
        assert_eq!(jobs(&other), before, "{undo}");
        let next = answer(&other, "fence_claim('free', 'c', 1, 10)");
        assert_eq!(next, Some(1), "the number that {undo} gave back");
    }
}

#[test]
fn a_claim_stays_when_only_a_later_savepoint_is_rolled_back() {
    let scratch = Scratch::new();
    let (conn, other) = two(&scratch, "delete");
    batch(&conn, "BEGIN");
    assert_eq!(answer(&conn, "fence_claim('free', 'b', 1, 10)"), Some(1));
    batch(&conn, "SAVEPOINT s");
    assert_eq!(answer(&conn, "fence_complete('free', 'b', 1, 1, 'lost')"), Some(1));
    batch(&conn, "ROLLBACK TO s; COMMIT");
    assert_eq!(jobs(&other)[0], "'free' 'b' 11.0 1 NULL 0");
}

#[test]
fn after_a_read_that_another_commit_made_stale_a_call_fails_at_once_with_code_517() {
    for extended in [true, false] {
        for call in WRITES.into_iter().chain(ALSO_WRITES) {
            let scratch = Scratch::new();
            let (conn, other) = two(&scratch, "wal");
            wait_for_a_holder(&conn, &scratch);
            HOLDER.set(None); // nobody to wait for: the handler only counts
            show_extended_codes(&conn, extended);
            batch(&conn, "BEGIN; SELECT * FROM jobs");
            assert_eq!(answer(&other, "fence_enqueue('between')"), Some(1));
            let before = jobs(&other);

            let sentence = format!("{}: database is locked", function_of(call));
            assert_eq!(refused(&conn, call), (ffi::SQLITE_BUSY_SNAPSHOT, sentence), "{call}");
            assert_eq!(WAITS.get(), 0, "{call}: waiting cannot help");
            assert!(!conn.is_autocommit(), "{call}: the transaction is the caller's to end");
            batch(&conn, "ROLLBACK");
            assert_eq!(jobs(&conn), before, "{call}");

            batch(&conn, "BEGIN IMMEDIATE");
            works(&conn, call);
            batch(&conn, "COMMIT");
        }
    }
}

#[test]
fn the_hosts_choice_of_result_codes_is_left_alone() {
    for extended in [true, false] {
        let scratch = Scratch::new();
        let (conn, other) = two(&scratch, "wal");
        show_extended_codes(&conn, extended);
        assert_eq!(answer(&conn, WRITES[0]), Some(1));
        batch(&conn, "BEGIN; SELECT * FROM jobs");
        assert_eq!(answer(&other, "fence_enqueue('between')"), Some(1));
        refused(&conn, WRITES[1]);
        let code = if extended { ffi::SQLITE_BUSY_SNAPSHOT } else { ffi::SQLITE_BUSY };
        // SAFETY: the connection is open.
        assert_eq!(unsafe { ffi::sqlite3_errcode(conn.handle()) }, code);
    }
}

#[test]
fn a_call_waits_for_the_write_lock_as_long_as_the_busy_handler_says() {
    for journal in JOURNALS {
        // BEGIN alone reads nothing, so the call is free to wait.
        for begin in ["", "BEGIN"] {
            for call in WRITES {
                let scratch = Scratch::new();
                let (conn, other) = two(&scratch, journal);
                wait_for_a_holder(&conn, &scratch);
                batch(&conn, begin);
                assert_eq!(answer(&conn, call), Some(1), "{call} {begin} in {journal}");
                assert_eq!(WAITS.get(), 1, "{call} {begin} in {journal}");
                assert_eq!(conn.is_autocommit(), begin.is_empty());
                if !begin.is_empty() {
                    batch(&conn, "COMMIT");
                }
                let (ours, theirs) = (jobs(&conn), jobs(&other));
                assert_eq!(ours, theirs);
                assert!(ours.iter().any(|job| job.starts_with("'holder'")), "{ours:?}");
            }
        }
    }
}

#[test]
fn a_busy_database_is_code_5_and_nothing_changes() {
    for extended in [true, false] {
        for call in WRITES.into_iter().chain(ALSO_WRITES) {
            let scratch = Scratch::new();
            let (conn, other) = two(&scratch, "wal");
            conn.busy_timeout(Duration::ZERO).unwrap();
            show_extended_codes(&conn, extended);
            let before = jobs(&conn);
            batch(&other, "BEGIN IMMEDIATE");
            let sentence = format!("{}: database is locked", function_of(call));
            assert_eq!(refused(&conn, call), (ffi::SQLITE_BUSY, sentence), "{call}");
            assert!(conn.is_autocommit());
            batch(&other, "COMMIT");
            assert_eq!(jobs(&other), before, "{call}");
            works(&conn, call);
        }
    }
}

/// The row of an UPDATE .. RETURNING comes before the commit, which can still fail.
#[test]
fn a_commit_that_a_reader_blocks_is_code_5_and_nothing_changes() {
    for call in WRITES.into_iter().chain(ALSO_WRITES) {
        if call == "fence_unguard('t')" {
            continue; // nothing to commit
        }
        let scratch = Scratch::new();
        let (conn, other) = two(&scratch, "delete");
        conn.busy_timeout(Duration::ZERO).unwrap();
        batch(&other, "BEGIN");
        let before = jobs(&other);
        let sentence = format!("{}: database is locked", function_of(call));
        assert_eq!(refused(&conn, call), (ffi::SQLITE_BUSY, sentence), "{call}");
        assert!(conn.is_autocommit(), "{call}");
        assert_eq!(jobs(&conn), before, "{call}");
        batch(&other, "COMMIT");
        assert_eq!(jobs(&other), before, "{call}");
        works(&conn, call);
    }
}

#[test]
fn a_read_waits_only_for_an_exclusive_lock() {
    let scratch = Scratch::new();
    let (conn, other) = two(&scratch, "delete");
    conn.busy_timeout(Duration::ZERO).unwrap();
    let state = "fence_state('free')";
    batch(&other, "BEGIN IMMEDIATE");
    let json: String = one(&conn, &format!("SELECT {state}"));
    assert!(json.contains(r#""id":"free""#), "{json}");
    batch(&other, "COMMIT; BEGIN EXCLUSIVE");
    let sentence = "fence_state: database is locked".to_string();
    assert_eq!(refused(&conn, state), (ffi::SQLITE_BUSY, sentence));
    batch(&other, "COMMIT");
    assert_eq!(one::<String>(&conn, &format!("SELECT {state}")), json);
}

#[test]
fn a_connection_that_never_lets_go_of_its_lock_calls_as_ever() {
    for journal in JOURNALS {
        let scratch = Scratch::new();
        let (conn, other) = two(&scratch, journal);
        drop(other);
        batch(&conn, "PRAGMA locking_mode = EXCLUSIVE; UPDATE t SET id = id");
        for (call, expected) in [
            ("fence_claim('free', 'b', 1, 10)", 1),
            ("fence_claim('free', 'b', 11, 10)", 2),
            ("fence_complete('free', 'b', 2, 12, 'r')", 1),
        ] {
            assert_eq!(answer(&conn, call), Some(expected), "{call} in {journal}");
        }
    }
}

#[test]
fn a_connection_that_may_only_read_gets_code_8() {
    let scratch = Scratch::new();
    let (conn, other) = two(&scratch, "delete");
    let before = jobs(&other);
    let reader = Connection::open_with_flags(scratch.db(), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let reader = reader.unwrap();
    common::load(&reader).unwrap();
    batch(&conn, "PRAGMA query_only = ON");
    for conn in [&reader, &conn] {
        for extended in [true, false] {
            show_extended_codes(conn, extended);
            for call in WRITES.into_iter().chain(ALSO_WRITES) {
                let sentence =
                    format!("{}: attempt to write a readonly database", function_of(call));
                assert_eq!(refused(conn, call), (ffi::SQLITE_READONLY, sentence), "{call}");
                assert_eq!(jobs(&other), before, "{call}");
            }
        }
        let json: String = one(conn, "SELECT fence_state('held')");
        assert!(json.contains(r#""owner":"a""#), "{json}");
        assert_eq!(answer(conn, "fence_init()"), Some(1), "the table is there already");
    }
    batch(&conn, "PRAGMA query_only = OFF");
    assert_eq!(answer(&conn, WRITES[0]), Some(1));
}

#[test]
fn fence_init_cannot_create_the_table_in_a_file_that_may_only_be_read() {
    let scratch = Scratch::new();
    batch(&scratch.connect(), "CREATE TABLE other(x)");
    let reader = Connection::open_with_flags(scratch.db(), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let reader = reader.unwrap();
    common::load(&reader).unwrap();
    let sentence = "fence_init: attempt to write a readonly database".to_string();
    assert_eq!(refused(&reader, "fence_init()"), (ffi::SQLITE_READONLY, sentence));
}

#[test]
fn a_lease_without_now_begins_after_the_wait_for_the_lock() {
    for (call, id) in
        [("fence_claim('free', 'b', 10)", "free"), ("fence_renew('held', 'a', 1, 10)", "held")]
    {
        for journal in JOURNALS {
            for begin in ["", "BEGIN"] {
                let scratch = Scratch::new();
                let (conn, _other) = two(&scratch, journal);
                wait_for_a_holder(&conn, &scratch);
                NOT_BEFORE.set(milliseconds() + 20);
                batch(&conn, begin);
                assert_eq!(answer(&conn, call), Some(1));
                let until: f64 =
                    one(&conn, &format!("SELECT until FROM main.jobs WHERE id = '{id}'"));
                let beginning = ((until - 10.0) * 1000.0).round() as i64;
                assert!(
                    beginning >= COMMITTED.get(),
                    "{call} {begin} in {journal}: {beginning}, committed {}",
                    COMMITTED.get()
                );
            }
        }
    }
}

#[test]
fn a_lease_that_ran_out_during_the_wait_for_the_lock_is_over() {
    for call in ["fence_renew('held', 'a', 1, 10)", "fence_complete('held', 'a', 1, 'late')"] {
        for journal in JOURNALS {
            let scratch = Scratch::new();
            let (conn, other) = two(&scratch, journal);
            // Long enough for the call to come to the lock while the lease is live.
            let until = milliseconds() + 100;
            batch(&conn, &format!("UPDATE jobs SET until = {until} / 1000.0 WHERE id = 'held'"));
            wait_for_a_holder(&conn, &scratch);
            NOT_BEFORE.set(until + 1);
            let before = jobs(&other);
            assert_eq!(answer(&conn, call), Some(0), "{call} in {journal}");
            assert_eq!(WAITS.get(), 1);
            assert_eq!(jobs(&other)[..2], before[..], "{call} in {journal}");
        }
    }
}
