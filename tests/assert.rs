//! `fence_assert` is 1 while a lease is held and an error otherwise, so that the caller's
//! transaction fails with it.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::{error_of, Scratch};
use doors::{Client, Door};
use rusqlite::{ffi, Connection, OpenFlags};
use std::time::Duration;

const ASSERT: &str = "SELECT fence_assert('j', 'A', 1, 1)";
const NEEDS: &str = "fence_assert: needs a transaction, begin one with BEGIN IMMEDIATE";

/// `j` is A's from 0 to 10, and there is a table of the user's own.
fn claimed(scratch: &Scratch) -> Client {
    let client = Door::Loaded.open(scratch);
    assert!(client.enqueue("j"));
    assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(1));
    client.batch("CREATE TABLE orders(total); INSERT INTO orders VALUES (0)");
    client
}

fn total(client: &Client) -> i64 {
    client.one("SELECT total FROM orders")
}

/// The extended code as the C interface tells it, and the sentence.
fn refused(client: &Client, text: &str) -> (i32, String) {
    let (_, sentence) = error_of(client, text);
    // SAFETY: the connection is open.
    (unsafe { ffi::sqlite3_extended_errcode(client.handle()) }, sentence)
}

#[test]
fn it_is_1_while_the_lease_is_held_and_an_error_with_the_word_otherwise() {
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"] {
        for (story, arguments, id, word) in [
            ("SELECT 1", "'k', 'A', 1, 1", "k", "missing"),
            ("SELECT 1", "'j', 'A', 2, 1", "j", "never_issued"),
            ("SELECT 1", "'j', 'B', 1, 1", "j", "not_owner"),
            ("SELECT 1", "'j', 'A', 1, 10", "j", "expired"),
            ("SELECT 1", "'j', 'A', 1", "j", "expired"),
            ("SELECT fence_release('j', 'A', 1)", "'j', 'A', 1, 1", "j", "released"),
            ("SELECT fence_claim('j', 'B', 10, 9)", "'j', 'A', 1, 1", "j", "superseded"),
            ("SELECT fence_complete('j', 'A', 1, 1, 'r')", "'j', 'A', 1, 1", "j", "done_by_you"),
            ("SELECT fence_complete('j', 'A', 1, 1, 'r')", "'j', 'B', 1, 1", "j", "done"),
        ] {
            let scratch = Scratch::new();
            let client = claimed(&scratch);
            client.batch(begin);
            assert_eq!(client.one::<i64>(ASSERT), 1);
            client.batch(&format!("ROLLBACK; {story}; {begin}; UPDATE orders SET total = 9"));
            // An earlier error of a trigger has another extended code.
            client.refusal("UPDATE jobs SET fence = 0");
            let before = client.jobs();
            let sentence = format!("fence_assert: the lease on job '{id}' is not held: {word}");
            let text = format!("SELECT fence_assert({arguments})");
            assert_eq!(refused(&client, &text), (ffi::SQLITE_CONSTRAINT, sentence), "{begin}");
            assert!(!client.is_autocommit(), "the transaction is the caller's to end");
            assert_eq!(client.jobs(), before);
            client.batch("ROLLBACK");
            assert_eq!(total(&client), 0);
        }
    }
}

#[test]
fn in_autocommit_it_is_an_error_whatever_the_lease() {
    let scratch = Scratch::new();
    let client = claimed(&scratch);
    for arguments in ["'j', 'A', 1, 1", "'j', 'A', 1", "'k', 'A', 1, 1"] {
        let text = format!("SELECT fence_assert({arguments})");
        assert_eq!(refused(&client, &text), (ffi::SQLITE_ERROR, NEEDS.into()), "{arguments}");
    }
    let reads = "SELECT total, fence_assert('j', 'A', 1, 1) FROM orders";
    assert_eq!(error_of(&client, reads).1, NEEDS);
}

#[test]
fn in_a_deferred_transaction_it_takes_the_write_lock() {
    for journal in ["delete", "wal"] {
        for begin in ["BEGIN", "BEGIN IMMEDIATE"] {
            let scratch = Scratch::new();
            let client = claimed(&scratch);
            client.pragma_update(None, "journal_mode", journal).unwrap();
            let other = Door::Loaded.open(&scratch);
            other.busy_timeout(Duration::ZERO).unwrap();
            client.batch(begin);
            assert_eq!(client.one::<i64>(ASSERT), 1);
            let claim = "SELECT fence_claim('j', 'B', 10, 10)";
            assert_eq!(refused(&other, claim).0, ffi::SQLITE_BUSY, "{journal} {begin}");
            client.batch("UPDATE orders SET total = 9; COMMIT");
            assert_eq!(total(&other), 9);
            assert_eq!(other.claim("j", "B", 10.0, 10.0), Some(2));
        }
    }
}

#[test]
fn after_a_read_that_a_takeover_made_stale_it_fails_with_code_517() {
    let scratch = Scratch::new();
    let client = claimed(&scratch);
    client.pragma_update(None, "journal_mode", "wal").unwrap();
    let other = Door::Loaded.open(&scratch);
    client.batch("BEGIN; SELECT * FROM jobs");
    assert_eq!(other.claim("j", "B", 10.0, 10.0), Some(2));
    let locked = (ffi::SQLITE_BUSY_SNAPSHOT, "fence_assert: database is locked".into());
    assert_eq!(refused(&client, ASSERT), locked);
    client.batch("ROLLBACK; BEGIN IMMEDIATE");
    let sentence = "fence_assert: the lease on job 'j' is not held: superseded".into();
    assert_eq!(refused(&client, ASSERT), (ffi::SQLITE_CONSTRAINT, sentence));
}

#[test]
fn on_a_connection_that_may_only_read_it_is_code_8() {
    let scratch = Scratch::new();
    drop(claimed(&scratch));
    let reader =
        Connection::open_with_flags(scratch.db(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let reader = Door::Loaded.on(reader);
    reader.batch("BEGIN");
    let sentence = "fence_assert: attempt to write a readonly database".into();
    assert_eq!(refused(&reader, ASSERT), (ffi::SQLITE_READONLY, sentence));
}

#[test]
fn in_a_trigger_a_lost_lease_undoes_the_outer_statement() {
    for trusted in ["ON", "OFF"] {
        for begin in ["", "BEGIN"] {
            let scratch = Scratch::new();
            let client = claimed(&scratch);
            client.batch(&format!(
                "PRAGMA trusted_schema = {trusted};
                 CREATE TRIGGER only_a AFTER UPDATE ON orders BEGIN
                   SELECT fence_assert('j', 'A', 1, 1);
                 END;
                 {begin};"
            ));
            client.batch("UPDATE orders SET total = 1");
            assert_eq!(total(&client), 1);
            assert_eq!(client.claim("j", "B", 10.0, 10.0), Some(2));
            let sentence = "fence_assert: the lease on job 'j' is not held: superseded".into();
            let lost = (ffi::SQLITE_CONSTRAINT, sentence);
            assert_eq!(refused(&client, "UPDATE orders SET total = 2"), lost, "{begin}");
            assert_eq!(total(&client), 1, "{begin}");
            assert_eq!(client.is_autocommit(), begin.is_empty());
        }
    }
}

#[test]
fn in_a_chain_of_triggers_the_last_assert_undoes_the_first_write() {
    let scratch = Scratch::new();
    let client = claimed(&scratch);
    client.batch(
        "PRAGMA recursive_triggers = ON;
         CREATE TABLE countdown(n);
         CREATE TRIGGER down AFTER INSERT ON countdown BEGIN
           SELECT fence_assert('j', 'A', 1, 5 + 10 * (new.n = 0 AND (SELECT total FROM orders) = 7));
           INSERT INTO countdown SELECT new.n - 1 WHERE new.n > 0;
         END;",
    );
    client.batch("INSERT INTO countdown VALUES (3)");
    assert_eq!(client.one::<i64>("SELECT count(*) FROM countdown"), 4);
    client.batch("UPDATE orders SET total = 7");
    let sentence = "fence_assert: the lease on job 'j' is not held: expired".into();
    let lost = (ffi::SQLITE_CONSTRAINT, sentence);
    assert_eq!(refused(&client, "INSERT INTO countdown VALUES (3)"), lost);
    assert_eq!(client.one::<i64>("SELECT count(*) FROM countdown"), 4);
}

/// The same by the plain files: take the lock, look, write.
#[test]
fn without_the_extension_the_lock_and_the_check_do_the_same() {
    let scratch = Scratch::new();
    let (client, other) = (Door::Plain.open(&scratch), Door::Plain.open(&scratch));
    other.busy_timeout(Duration::ZERO).unwrap();
    assert!(client.enqueue("j"));
    assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(1));
    let before = client.jobs();
    client.batch("BEGIN");
    client.run("lock", &[]).unwrap();
    assert_eq!(client.check("j", "A", 1, 1.0), "held");
    let claim = other.run("claim", &[&"j", &"B", &10.0, &10.0]);
    let code = claim.unwrap_err().sqlite_error().map(|e| e.extended_code);
    assert_eq!(code, Some(ffi::SQLITE_BUSY));
    client.batch("COMMIT");
    assert_eq!(client.jobs(), before);
    assert_eq!(other.claim("j", "B", 10.0, 10.0), Some(2));
}
