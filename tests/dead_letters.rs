//! Dead letters: a worker gives a job up for good, and somebody puts it back. Putting it back
//! raises the fence, so that no old holder is valid.
mod common;

use common::{error_of, jobs, one, Scratch};
use fence::{Standing, Store};
use rusqlite::Connection;

/// The jobs `a`, `b` and `c`, held by `w` from 0 until 10 with fence 1.
fn prepared(scratch: &Scratch) -> Connection {
    let conn = scratch.loaded();
    conn.execute_batch("SELECT fence_init(); SELECT fence_init_queue();").unwrap();
    for id in ["a", "b", "c"] {
        conn.execute_batch(&format!("SELECT fence_enqueue('{id}')")).unwrap();
        assert_eq!(one::<i64>(&conn, &format!("SELECT fence_claim('{id}', 'w', 0, 10)")), 1);
    }
    conn
}

fn answer(conn: &Connection, call: &str) -> i64 {
    one(conn, &format!("SELECT {call}"))
}

#[test]
fn a_failure_is_kept_with_its_error_and_ends_the_job() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    assert_eq!(answer(&conn, "fence_fail('a', 'w', 1, 9, 'no such address')"), 1);
    assert_eq!(answer(&conn, "fence_fail('b', 'w', 1, 9, NULL)"), 1);
    assert_eq!(answer(&conn, "fence_fail('c', 'w', 1, 9, 404)"), 1);
    let failed =
        ["'a' 'w' 10.0 1 'no such address' 2", "'b' 'w' 10.0 1 NULL 2", "'c' 'w' 10.0 1 '404' 2"];
    assert_eq!(jobs(&conn), failed);
    for call in [
        "fence_fail('a', 'w', 1, 9, 'again')",
        "fence_complete('a', 'w', 1, 9, 'r')",
        "fence_renew('a', 'w', 1, 9, 10)",
        "fence_release('a', 'w', 1)",
        "fence_release('a', 'w', 1, 5)",
        "fence_enqueue('a')",
        "coalesce(fence_claim('a', 'w', 99, 10), 0)",
        "(SELECT count(*) FROM fence_claim_batch('w', 99, 10, 9))",
    ] {
        assert_eq!(answer(&conn, call), 0, "{call}");
    }
    assert_eq!(jobs(&conn), failed);
    let check = "SELECT fence_check('a', 'w', 1, 9)";
    assert_eq!(one::<String>(&conn, check), "done_by_you");
    assert_eq!(one::<String>(&conn, "SELECT state FROM fence_status WHERE id = 'a'"), "failed");
}

#[test]
fn who_does_not_hold_the_lease_cannot_give_the_job_up() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    assert_eq!(answer(&conn, "fence_claim('b', 'x', 10, 10)"), 2);
    assert_eq!(answer(&conn, "fence_release('c', 'w', 1)"), 1);
    let before = jobs(&conn);
    for call in [
        "fence_fail('a', 'x', 1, 9, 'e')",
        "fence_fail('a', 'w', 2, 9, 'e')",
        "fence_fail('a', 'w', 0, 9, 'e')",
        "fence_fail('a', 'w', 1, 10, 'over')",
        "fence_fail('b', 'w', 1, 10, 'taken over')",
        "fence_fail('c', 'w', 1, 9, 'released')",
        "fence_fail('missing', 'w', 1, 9, 'e')",
        // By the clock the lease ended in 1970.
        "fence_fail('a', 'w', 1, 'over')",
    ] {
        assert_eq!(answer(&conn, call), 0, "{call}");
    }
    assert_eq!(jobs(&conn), before);
    assert_eq!(answer(&conn, "fence_claim('a', 'w', 1e6)"), 2);
    assert_eq!(answer(&conn, "fence_fail('a', 'w', 2, 'by the clock')"), 1);
}

#[test]
fn a_dead_letter_put_back_is_claimable_and_no_old_holder_is_valid() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    assert_eq!(answer(&conn, "fence_fail('a', 'w', 1, 9, 'e')"), 1);
    assert_eq!(answer(&conn, "fence_requeue('a')"), 1);
    assert_eq!(jobs(&conn)[0], "'a' NULL 0.0 2 NULL 0");
    assert_eq!(answer(&conn, "fence_requeue('a')"), 0, "it is no dead letter any more");
    for call in [
        "fence_fail('a', 'w', 1, 9, 'late')",
        "fence_complete('a', 'w', 1, 9, 'late')",
        "fence_release('a', 'w', 1)",
    ] {
        assert_eq!(answer(&conn, call), 0, "{call}");
    }
    assert_eq!(one::<String>(&conn, "SELECT fence_check('a', 'w', 1, 9)"), "superseded");
    assert_eq!(jobs(&conn)[0], "'a' NULL 0.0 2 NULL 0");
    assert_eq!(
        one::<i64>(&conn, "SELECT fence FROM fence_claim_batch('w', 20, 10, 9) WHERE id = 'a'"),
        3
    );
    assert_eq!(answer(&conn, "fence_complete('a', 'w', 3, 21, 'r')"), 1);
}

#[test]
fn nothing_but_a_dead_letter_is_put_back() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    assert_eq!(answer(&conn, "fence_complete('b', 'w', 1, 9, 'r')"), 1);
    assert_eq!(answer(&conn, "fence_release('c', 'w', 1)"), 1);
    let before = jobs(&conn);
    for id in ["a", "b", "c", "missing"] {
        assert_eq!(answer(&conn, &format!("fence_requeue('{id}')")), 0, "{id}");
    }
    assert_eq!(jobs(&conn), before);
}

#[test]
fn a_dead_letter_outlives_a_purge() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    assert_eq!(answer(&conn, "fence_fail('a', 'w', 1, 9, 'e')"), 1);
    assert_eq!(answer(&conn, "fence_complete('b', 'w', 1, 9, 'r')"), 1);
    assert_eq!(answer(&conn, "fence_purge(1e9, 99)"), 1);
    assert_eq!(jobs(&conn), ["'a' 'w' 10.0 1 'e' 2", "'c' 'w' 10.0 1 NULL 0"]);
}

#[test]
fn wrong_arguments_are_named() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let before = jobs(&conn);
    for (call, sentence) in [
        ("fence_fail(NULL, 'w', 1, 'e')", "id must be text, got NULL"),
        ("fence_fail('', 'w', 1, 'e')", "id must not be empty"),
        ("fence_fail('a', 7, 1, 1, 'e')", "owner must be text, got 7"),
        ("fence_fail('a', 'w', 1.5, 1, 'e')", "fence must be an integer, got 1.5"),
        ("fence_fail('a', 'w', 1, NULL, 'e')", "now must be a number, got NULL"),
        ("fence_fail('a', 'w', 1, 'soon', 'e')", "now must be a number, got text 'soon'"),
        ("fence_fail('a', 'w', 1, -9e999, 'e')", "now must be a finite number, got -inf"),
        ("fence_fail('a', 'w', 1, 1, x'65')", "error must be text or NULL, got a BLOB"),
        ("fence_fail('a', 'w', 1, x'65')", "error must be text or NULL, got a BLOB"),
        ("fence_requeue(NULL)", "id must be text, got NULL"),
        ("fence_requeue('')", "id must not be empty"),
        ("fence_requeue('a' || char(0))", "id must not contain a NUL character, got 'a\\u{0}'"),
        ("fence_enqueue('new', NULL)", "due must be a number, got NULL"),
        ("fence_enqueue('new', 'soon')", "due must be a number, got text 'soon'"),
        ("fence_enqueue('new', 9e999)", "due must be a finite number, got inf"),
        ("fence_enqueue('', 1)", "id must not be empty"),
        ("fence_release('a', 'w', 1, NULL)", "due must be a number, got NULL"),
        ("fence_release('a', 'w', 1, x'35')", "due must be a number, got a BLOB"),
        ("fence_release('a', 'w', 1, -9e999)", "due must be a finite number, got -inf"),
        ("fence_release('a', '', 1, 5)", "owner must not be empty"),
    ] {
        let function = common::function_of(call);
        let expected = (1, format!("{function}: {sentence}"));
        assert_eq!(error_of(&conn, &format!("SELECT {call}")), expected, "{call}");
    }
    assert_eq!(jobs(&conn), before);
}

#[test]
fn the_rust_door_keeps_the_same_rules() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.db()).unwrap();
    store.init_queue().unwrap();
    assert!(store.enqueue("mail:1").unwrap());
    let first = store.claim_next("mail", "w", 0.0, 10.0).unwrap().unwrap();
    let second = store.claim_next("mail", "w", 10.0, 10.0).unwrap().unwrap();
    assert!(!first.fail(11.0, "late").unwrap());
    assert!(!store.fail("mail:1", "w", 1, 11.0, "late").unwrap());
    assert!(second.fail(11.0, "bounced").unwrap());
    let job = store.state("mail:1").unwrap().unwrap();
    assert_eq!((job.fence, job.result.as_deref(), job.done), (2, Some("bounced"), 2));
    assert_eq!(second.check(11.0).unwrap(), Standing::DoneByYou);
    assert!(!store.requeue("mail:2").unwrap());
    assert!(store.requeue("mail:1").unwrap());
    assert!(!store.requeue("mail:1").unwrap());
    assert_eq!(second.check(11.0).unwrap(), Standing::Superseded);
    let third = store.claim_next("mail", "w", 11.0, 10.0).unwrap().unwrap();
    assert_eq!(third.fence(), 4);
    assert!(third.release_at(50.0).unwrap());
    assert!(store.claim_next("mail", "w", 49.0, 10.0).unwrap().is_none());

    for (error, sentence) in [
        (store.fail("", "w", 1, 1.0, "e").map(drop), "fail: id must not be empty"),
        (store.fail("a", "", 1, 1.0, "e").map(drop), "fail: owner must not be empty"),
        (
            store.fail("a", "w", 1, f64::NAN, "e").map(drop),
            "fail: now must be a finite number, got NaN",
        ),
        (store.requeue("").map(drop), "requeue: id must not be empty"),
        (store.enqueue_at("", 1.0).map(drop), "enqueue_at: id must not be empty"),
        (
            store.enqueue_at("a", f64::NAN).map(drop),
            "enqueue_at: due must be a finite number, got NaN",
        ),
        (
            store.release_at("a", "w", 1, f64::INFINITY).map(drop),
            "release_at: due must be a finite number, got inf",
        ),
        (store.release_at("a", "", 1, 1.0).map(drop), "release_at: owner must not be empty"),
        (store.claim_next("q", "", 1.0, 1.0).map(drop), "claim_next: owner must not be empty"),
        (
            store.claim_next("q", "w", 1.0, 0.0).map(drop),
            "claim_next: ttl must be greater than 0, got 0",
        ),
        (
            store.claim_batch("q", "w", 1.0, 1.0, 0).map(drop),
            "claim_batch: limit must be greater than 0, got 0",
        ),
        (
            store.claim_batch("q", "w", f64::NAN, 1.0, 1).map(drop),
            "claim_batch: now must be a finite number, got NaN",
        ),
    ] {
        assert_eq!(error.unwrap_err().to_string(), sentence);
    }
}
