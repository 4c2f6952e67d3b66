//! Another connection changes the schema so that our kept statements no longer compile: a call says
//! so, keeps no lock and no view of the file, and works again once the schema fits again.
mod common;

use common::{add_jobs, batch, error_of, function_of, jobs, one, Scratch, ALSO_WRITES, WRITES};
use rusqlite::{ffi, Connection};

const READS: [&str; 3] =
    ["fence_state('held')", "fence_check('held', 'a', 1, 1)", "fence_check('held', 'a', 1)"];

/// Makes a call in a transaction that is rolled back, so that its statement is kept.
fn keep(conn: &Connection, call: &str) {
    batch(conn, &format!("BEGIN; SELECT {call}; ROLLBACK"));
}

fn two(journal: &str) -> (Scratch, Connection, Connection) {
    let scratch = Scratch::new();
    let (conn, other) = (scratch.loaded(), scratch.connect());
    batch(&conn, "PRAGMA synchronous = OFF");
    assert_eq!(one::<String>(&conn, &format!("PRAGMA journal_mode = {journal}")), journal);
    add_jobs(&conn);
    batch(&conn, "CREATE TABLE t(id); SELECT fence_purge(0, 1); SELECT fence_pass('r', 1)");
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    (scratch, conn, other)
}

#[test]
fn a_call_that_no_longer_fits_the_schema_keeps_no_lock() {
    for journal in ["delete", "wal"] {
        let others = ALSO_WRITES.into_iter().chain(READS).filter(|_| journal == "wal");
        for call in WRITES.into_iter().chain(others) {
            let (_scratch, conn, other) = two(journal);
            keep(&conn, call);
            batch(&other, "ALTER TABLE jobs RENAME TO away; DROP TABLE fence_gate");
            let missing = match function_of(call) {
                // These need no jobs, and make their own table.
                "fence_pass" | "fence_unguard" => continue,
                name => format!("{name}: no such table: main.jobs (fence_init() makes it)"),
            };
            for _ in 0..2 {
                let found = error_of(&conn, &format!("SELECT {call}"));
                assert_eq!(found, (ffi::SQLITE_ERROR, missing.clone()), "{call}");
                // SAFETY: the connection is open.
                let state = unsafe { ffi::sqlite3_txn_state(conn.handle(), std::ptr::null()) };
                assert_eq!(state, ffi::SQLITE_TXN_NONE, "{call} in {journal}");
            }
            // With its lock kept, this would be busy; so would the whole checkpoint.
            batch(&other, "INSERT INTO t VALUES (1)");
            let busy: i64 = one(&other, "PRAGMA wal_checkpoint(TRUNCATE)");
            assert_eq!(busy, 0, "{call} in {journal}");
            batch(&other, "ALTER TABLE away RENAME TO jobs");
            keep(&conn, call);
        }
    }
}

#[test]
fn a_trigger_with_a_function_that_only_its_maker_has_stops_the_others_and_blocks_nobody() {
    let (_scratch, conn, other) = two("wal");
    batch(&conn, "SELECT fence_claim('free', 'b', 1, 10)");
    batch(&other, "CREATE TRIGGER own AFTER UPDATE ON jobs BEGIN SELECT theirs(new.id); END");
    let before = jobs(&other);
    for call in ["fence_claim('free', 'c', 20, 10)", "fence_release('held', 'a', 1)"] {
        let sentence = format!("{}: no such function: theirs", function_of(call));
        let found = error_of(&conn, &format!("SELECT {call}"));
        assert_eq!(found, (ffi::SQLITE_ERROR, sentence), "{call}");
    }
    assert_eq!(jobs(&conn), before);
    batch(&other, "DROP TRIGGER own");
    // SQLite does not look for a newer schema where a function is missing; the failure makes it.
    error_of(&conn, "SELECT fence_claim('free', 'c', 20, 10)");
    assert_eq!(one::<i64>(&conn, "SELECT fence_claim('free', 'c', 20, 10)"), 2);
}

#[test]
fn the_callers_own_reading_goes_on_after_such_a_failure() {
    let (_scratch, conn, other) = two("wal");
    batch(&conn, "INSERT INTO t VALUES (1), (2), (3)");
    keep(&conn, "fence_check('held', 'a', 1, 1)");
    let mut statement = conn.prepare("SELECT id FROM t ORDER BY id").unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut next = || rows.next().unwrap().map(|row| row.get::<_, i64>(0).unwrap());
    assert_eq!(next(), Some(1));
    batch(&other, "INSERT INTO t VALUES (4)");
    // In a snapshot that is not the latest one no writing is possible.
    let (code, _) = error_of(&conn, "SELECT fence_claim('free', 'b', 1, 10)");
    assert_eq!(code & 0xff, ffi::SQLITE_BUSY);
    assert_eq!((next(), next(), next()), (Some(2), Some(3), None));
    assert_eq!(one::<i64>(&conn, "SELECT fence_claim('free', 'b', 1, 10)"), 1);
}
