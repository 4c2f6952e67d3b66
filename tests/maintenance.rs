//! `fence_purge` deletes old completed jobs in small steps, so that other workers wait little.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::{batch, error_of, one, Scratch};
use doors::{sql, Client, Door, DOORS};
use rusqlite::types::Value as Sql;
use rusqlite::{ffi, StatementStatus};
use std::cell::Cell;

/// A job that was claimed at `until - 10` and completed.
fn completed(client: &Client, id: &str, until: f64) {
    assert!(client.enqueue(id));
    let fence = client.claim(id, "A", until - 10.0, 10.0).unwrap();
    assert!(client.complete(id, "A", fence, until - 1.0, "r"));
}

fn ids(client: &Client) -> String {
    client.one("SELECT ifnull(group_concat(id, ' '), '') FROM (SELECT id FROM jobs ORDER BY rowid)")
}

#[test]
fn a_purge_deletes_the_oldest_completed_jobs_up_to_its_limit() {
    for door in DOORS {
        let client = door.memory();
        // So that no order comes about by chance.
        client.batch("PRAGMA reverse_unordered_selects = ON");
        for (id, until) in [("c", 30.0), ("a", 10.0), ("d", 40.0), ("b", 20.0)] {
            completed(&client, id, until);
        }
        assert_eq!(client.purge(10.0, 9), 0, "the lease ended at 10, not before");
        assert_eq!(client.purge(35.0, 2), 2);
        assert_eq!(ids(&client), "c d");
        assert_eq!(client.purge(35.0, 2), 1);
        assert_eq!(client.purge(35.0, 2), 0);
        assert_eq!(ids(&client), "d");
    }
}

#[test]
fn a_purge_never_touches_what_is_live_unfinished_or_a_dead_letter() {
    for door in DOORS {
        let client = door.memory();
        completed(&client, "old", 10.0);
        completed(&client, "just finished", 1e6);
        for id in ["live", "expired", "free"] {
            assert!(client.enqueue(id));
        }
        assert_eq!(client.claim("live", "A", 0.0, 1e7), Some(1));
        assert_eq!(client.claim("expired", "A", 0.0, 1.0), Some(1));
        client.batch("INSERT INTO jobs(id, owner, until, done) VALUES ('dead', 'A', 5, 2)");
        let before = client.jobs();
        assert_eq!(client.purge(1e5, 99), 1);
        assert_eq!(client.jobs(), before[1..]);
        assert!(client.complete("live", "A", 1, 1.0, "r"));
    }
}

#[test]
fn a_late_completion_of_a_purged_job_is_refused() {
    for door in DOORS {
        let scratch = Scratch::new();
        let (worker, purger) = (door.open(&scratch), door.open(&scratch));
        assert!(worker.enqueue("j"));
        assert_eq!(worker.claim("j", "A", 0.0, 10.0), Some(1));
        assert_eq!(purger.purge(1e9, 9), 0, "unfinished, though its lease is over");
        assert!(worker.complete("j", "A", 1, 9.0, "r"));
        assert_eq!(purger.purge(1e9, 9), 1);
        assert!(!worker.complete("j", "A", 1, 9.0, "again"));
        assert_eq!(worker.check("j", "A", 1, 9.0), "missing");
    }
}

#[test]
fn the_index_is_made_once_and_used() {
    for door in DOORS {
        let client = door.memory();
        let indexes = "SELECT count(*) FROM sqlite_master WHERE name = 'fence_done'";
        assert_eq!(client.one::<i64>(indexes), 0, "only those who purge pay for it");
        if door == Door::Plain {
            let missing = client.run("purge", &[&20.0, &9]).unwrap_err().to_string();
            assert!(missing.starts_with("no such index: fence_done"), "{missing}");
        }
        completed(&client, "a", 10.0);
        assert_eq!(client.purge(20.0, 9), 1);
        let version = client.one::<i64>("PRAGMA schema_version");
        assert_eq!(client.purge(20.0, 9), 0);
        assert_eq!(client.one::<i64>("PRAGMA schema_version"), version);
        assert_eq!(client.one::<i64>(indexes), 1);
        let mut plan = client.prepare(&format!("EXPLAIN QUERY PLAN {}", sql("purge"))).unwrap();
        let rows = plan.query_map((1.0, 9), |row| row.get::<_, String>(3)).unwrap();
        let plan = rows.map(Result::unwrap).collect::<Vec<_>>().join("; ");
        assert!(plan.contains("INDEX fence_done (until<?)"), "{plan}");
        assert!(!plan.contains("SCAN jobs") && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}

#[test]
fn a_purge_belongs_to_the_callers_transaction() {
    for door in DOORS {
        let client = door.memory();
        completed(&client, "a", 10.0);
        client.batch("BEGIN");
        assert_eq!(client.purge(20.0, 9), 1);
        assert!(!client.is_autocommit());
        client.batch("ROLLBACK");
        assert_eq!((ids(&client).as_str(), client.floor()), ("a", 0));
        assert_eq!(client.purge(20.0, 9), 1);
        assert_eq!(client.floor(), 1);
    }
}

#[test]
fn a_wrong_argument_of_a_purge_is_refused() {
    let client = Door::Loaded.memory();
    completed(&client, "a", 10.0);
    for (arguments, sentence) in [
        ("'soon', 9", "before must be a number, got text 'soon'"),
        ("NULL, 9", "before must be a number, got NULL"),
        ("x'39', 9", "before must be a number, got a BLOB"),
        ("9e999, 9", "before must be a finite number, got inf"),
        ("-9e999, 9", "before must be a finite number, got -inf"),
        ("20, 0", "limit must be greater than 0, got 0"),
        ("20, -1", "limit must be greater than 0, got -1"),
        ("20, 1.5", "limit must be an integer, got 1.5"),
        ("20, 'all'", "limit must be an integer, got text 'all'"),
        ("20, NULL", "limit must be an integer, got NULL"),
        ("20, 9e999", "limit must be an integer, got inf"),
    ] {
        let refused = (ffi::SQLITE_ERROR, format!("fence_purge: {sentence}"));
        assert_eq!(error_of(&client, &format!("SELECT fence_purge({arguments})")), refused);
        assert_eq!(ids(&client), "a", "{arguments}");
    }
    assert_eq!(client.one::<i64>("SELECT fence_purge('20', 9.0)"), 1);
}

#[test]
fn a_wrong_argument_in_the_plain_file_deletes_nothing() {
    let client = Door::Plain.memory();
    completed(&client, "a", 10.0);
    client.batch(&sql("purge_index"));
    let (nine, twenty) = (Sql::Integer(9), Sql::Integer(20));
    let text = |word: &str| Sql::Text(word.into());
    for (before, limit) in [
        (text("soon"), nine.clone()),
        (Sql::Blob(vec![0x39]), nine.clone()),
        (Sql::Null, nine.clone()),
        (Sql::Real(f64::INFINITY), nine.clone()),
        (text("9e999"), nine.clone()),
        (Sql::Real(f64::NEG_INFINITY), nine.clone()),
        (twenty.clone(), Sql::Integer(0)),
        (twenty.clone(), Sql::Integer(-1)),
        (twenty.clone(), text("-1")),
        (twenty.clone(), text("all")),
        (twenty.clone(), Sql::Blob(vec![0x39])),
        (twenty.clone(), Sql::Real(1.5)),
        (twenty.clone(), Sql::Real(f64::INFINITY)),
        (twenty.clone(), Sql::Null),
    ] {
        assert_eq!(
            client.run("purge", &[&before, &limit]),
            Ok(Sql::Integer(0)),
            "{before:?} {limit:?}"
        );
        assert_eq!(ids(&client), "a", "{before:?} {limit:?}");
    }
    assert_eq!(client.run("purge", &[&text("20"), &text("9")]), Ok(Sql::Integer(1)));
}

#[test]
fn between_the_steps_of_a_purge_other_workers_claim() {
    for door in DOORS {
        let scratch = Scratch::new();
        let (purger, worker) = (door.open(&scratch), door.open(&scratch));
        // Whoever finds the lock held fails instead of waiting.
        worker.busy_timeout(std::time::Duration::ZERO).unwrap();
        purger.batch(
            "PRAGMA synchronous = OFF;
             WITH n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 95)
             INSERT INTO jobs(id, owner, until, fence, done) SELECT 'd' || n, 'A', n, 1, 1 FROM n;",
        );
        let mut steps = 0;
        loop {
            let deleted = purger.purge(1e9, 10);
            assert!((0..=10).contains(&deleted));
            if deleted == 0 {
                break;
            }
            steps += 1;
            let id = format!("w{steps}");
            assert!(worker.enqueue(&id));
            assert!(worker.claim(&id, "B", 0.0, 10.0).is_some());
        }
        assert_eq!(steps, 10);
        assert_eq!(worker.one::<i64>("SELECT count(*) FROM jobs WHERE owner = 'B'"), 10);
        assert_eq!(worker.one::<i64>("SELECT count(*) FROM jobs"), 10);
    }
}

#[test]
fn the_cost_of_a_purge_does_not_depend_on_the_jobs_that_stay() {
    let steps = |kept: i64| {
        let client = Door::Plain.memory();
        client.batch(&sql("purge_index"));
        client.batch(&format!(
            "WITH n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {kept})
             INSERT INTO jobs(id, owner, until, fence, done)
             SELECT 'kept' || n, 'A', 100 * (n % 2) , 1, n % 2 FROM n;
             WITH n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10)
             INSERT INTO jobs(id, owner, until, fence, done) SELECT 'old' || n, 'A', n, 1, 1 FROM n;"
        ));
        let mut purge = client.prepare(&sql("purge")).unwrap();
        assert_eq!(purge.execute((50, 99)), Ok(10));
        purge.get_status(StatementStatus::VmStep)
    };
    let (few, many) = (steps(1_000), steps(20_000));
    assert!(many * 10 <= few * 12, "{few} steps with 1,000 jobs kept, {many} with 20,000");
}

#[test]
fn the_store_purges_and_restores() {
    let scratch = Scratch::new();
    let store = fence::Store::open(scratch.db()).unwrap();
    assert!(store.enqueue("j").unwrap());
    let lease = store.claim("j", "A", 0.0, 10.0).unwrap().unwrap();
    store.restore(9).unwrap();
    assert!(!lease.complete(1.0, "old").unwrap());
    let lease = store.claim("j", "A", 0.0, 10.0).unwrap().unwrap();
    assert_eq!(lease.fence(), 11);
    assert!(lease.complete(1.0, "r").unwrap());
    assert_eq!(store.purge(10.5, 9).unwrap(), 1);
    for (error, sentence) in [
        (store.purge(f64::NAN, 1).unwrap_err(), "purge: before must be a finite number, got NaN"),
        (store.purge(1.0, 0).unwrap_err(), "purge: limit must be greater than 0, got 0"),
        (store.restore(0).unwrap_err(), "restore: bump must be greater than 0, got 0"),
        (
            store.restore(i64::MAX).unwrap_err(),
            "restore: bump 9223372036854775807 is too much for the highest fence, 11",
        ),
    ] {
        assert_eq!(error.to_string(), sentence);
    }
}

/// Only a missing index makes it try again, and nothing is looked up after the lock was not had:
/// whoever gave up waiting does not wait twice.
#[test]
fn a_lock_in_the_way_of_a_purge_is_waited_for_once() {
    thread_local!(static ASKED: Cell<u32> = const { Cell::new(0) });
    let scratch = Scratch::new();
    let (conn, other) = (scratch.loaded(), scratch.connect());
    batch(&conn, "SELECT fence_init()");
    conn.busy_handler(Some(|_| {
        ASKED.set(ASKED.get() + 1);
        false
    }))
    .unwrap();
    let purge = "SELECT fence_purge(0, 1)";
    assert_eq!(one::<i64>(&conn, purge), 0, "the index is there now");
    for (times, lock) in [(1, "IMMEDIATE"), (2, "EXCLUSIVE")] {
        batch(&other, &format!("BEGIN {lock}"));
        assert_eq!(error_of(&conn, purge).0, ffi::SQLITE_BUSY);
        assert_eq!(ASKED.get(), times, "{lock}");
        batch(&other, "ROLLBACK");
    }
}
