//! Lease::write: the caller's own writes are committed only while the lease is held, together with
//! the completion or not at all.
use fence::{Error, Lease, Options, Standing, Store};
use rusqlite::Connection;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::time::Duration;

/// A database with a table `orders`, guarded, and a store that waits for nobody.
struct Shop {
    dir: tempfile::TempDir,
    store: Store,
}

fn impatient() -> Options {
    let mut options = Options::default();
    options.busy_timeout = Duration::ZERO;
    options.durability = fence::Durability::Normal;
    options
}

impl Shop {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_with(dir.path().join("jobs.db"), impatient()).unwrap();
        let shop = Shop { dir, store };
        shop.other()
            .execute_batch(
                "CREATE TABLE orders(id INTEGER PRIMARY KEY, job TEXT, total INTEGER);
                 INSERT INTO orders VALUES (1, 'j', 10), (2, 'other', 20);",
            )
            .unwrap();
        assert!(shop.store.guard("orders", "job").unwrap());
        shop.store.enqueue("j").unwrap();
        shop
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("jobs.db")
    }

    /// Somebody else's connection, without any of our functions.
    fn other(&self) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        conn
    }

    /// The lease [now, now + 10).
    fn claim(&self, now: f64) -> Lease {
        self.store.claim("j", "w", now, 10.0).unwrap().expect("claimable")
    }

    /// What others see, and that they could write: nothing is left open.
    fn orders(&self) -> String {
        let conn = self.other();
        conn.execute_batch("BEGIN IMMEDIATE; ROLLBACK").expect("the write lock is free");
        conn.query_row("SELECT group_concat(total) FROM orders", [], |row| row.get(0)).unwrap()
    }

    fn done(&self) -> (i64, Option<String>) {
        let job = self.store.state("j").unwrap().unwrap();
        (job.done, job.result)
    }
}

#[test]
fn own_writes_and_the_completion_are_committed_together() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    let answer = lease.write(1.0, |tx| {
        assert_eq!(tx.fence(), lease.fence());
        tx.execute("UPDATE orders SET total = 11, fence = ?1 WHERE id = 1", [tx.fence()])?;
        tx.complete("sold")?;
        let seen: String =
            shop.other()
                .query_row("SELECT group_concat(total) FROM orders", [], |row| row.get(0))?;
        assert_eq!(seen, "10,20", "nobody sees it before the commit");
        Ok("answer")
    });
    assert_eq!(answer.unwrap(), "answer");
    assert_eq!(shop.orders(), "11,20");
    assert_eq!(shop.done(), (1, Some("sold".into())));
    assert_eq!(lease.check(1.0).unwrap(), Standing::DoneByYou);
}

#[test]
fn a_write_without_completion_leaves_the_lease_held() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    for total in [11, 12] {
        lease
            .write(1.0, |tx| {
                let update = "UPDATE orders SET total = ?1, fence = ?2 WHERE id = 1";
                Ok(tx.execute(update, [total, tx.fence()])?)
            })
            .unwrap();
    }
    assert_eq!(shop.orders(), "12,20");
    assert_eq!(lease.check(1.0).unwrap(), Standing::Held);
    assert_eq!(shop.done(), (0, None));
}

#[test]
fn without_a_time_the_clock_is_read() {
    let shop = Shop::new();
    let lease = shop.store.claim("j", "w", None, 3600.0).unwrap().unwrap();
    lease.write(None, |tx| tx.complete(None)).unwrap();
    assert_eq!(shop.done(), (1, None));

    shop.store.enqueue("old").unwrap();
    let old = shop.store.claim("old", "w", 0.0, 10.0).unwrap().unwrap();
    let error = old.write(None, |_| Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "the lease on job 'old' is not held: expired");
    for now in [f64::NAN, f64::INFINITY] {
        let error =
            old.write(now, |_| -> fence::Result<()> { panic!("must not run") }).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        let shown = if now.is_nan() { "NaN" } else { "inf" };
        assert_eq!(error.to_string(), format!("write: now must be a finite number, got {shown}"));
    }
}

#[test]
fn an_error_of_the_body_rolls_everything_back_and_reaches_the_caller() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    let write = |tx: &fence::Transaction<'_>| -> fence::Result<()> {
        tx.execute("UPDATE orders SET total = 11, fence = ?1 WHERE id = 1", [tx.fence()])?;
        tx.complete("sold")
    };
    let error = lease.write(1.0, |tx| {
        write(tx)?;
        Err::<(), _>(Error::Caller("no card".into()))
    });
    match error.unwrap_err() {
        Error::Caller(e) => assert_eq!(e.to_string(), "no card"),
        other => panic!("{other:?}"),
    }
    let error = lease.write(1.0, |tx| {
        write(tx)?;
        Ok(tx.execute("UPDATE orders SET missing = 1", [])?)
    });
    assert_eq!(error.unwrap_err().to_string(), "no such column: missing");
    assert_eq!(shop.orders(), "10,20");
    assert_eq!(shop.done(), (0, None));
    lease.write(1.0, write).unwrap();
    assert_eq!(shop.orders(), "11,20");
}

#[test]
fn a_panic_in_the_body_rolls_everything_back_and_the_store_goes_on() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        lease.write(1.0, |tx| -> fence::Result<()> {
            tx.execute("UPDATE orders SET total = 11, fence = ?1 WHERE id = 1", [tx.fence()])?;
            tx.complete("sold")?;
            panic!("in the body")
        })
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"in the body"));
    assert_eq!(shop.orders(), "10,20");
    assert_eq!(shop.done(), (0, None));
    lease.write(1.0, |tx| tx.complete("later")).unwrap();
    assert_eq!(shop.done(), (1, Some("later".into())));
}

#[test]
fn a_commit_that_fails_rolls_everything_back() {
    let shop = Shop::new();
    shop.other()
        .execute_batch(
            "CREATE TABLE child(parent INTEGER
                 REFERENCES orders(id) DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    let lease = shop.claim(0.0);
    let error = lease.write(1.0, |tx| {
        tx.pragma_query_value(None, "foreign_keys", |row| {
            assert_eq!(row.get::<_, i64>(0)?, 1, "rusqlite's SQLite has them on");
            Ok(())
        })?;
        tx.execute("INSERT INTO child VALUES (99)", [])?;
        tx.complete("sold")
    });
    assert_eq!(error.unwrap_err().to_string(), "FOREIGN KEY constraint failed");
    let children = "SELECT count(*) FROM child";
    assert_eq!(shop.other().query_row(children, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    assert_eq!(shop.orders(), "10,20");
    assert_eq!(shop.done(), (0, None));
    lease.write(1.0, |tx| tx.complete("sold")).unwrap();
}

#[test]
fn a_lease_that_is_not_held_runs_no_body_and_says_why() {
    for (standing, word) in [
        (Standing::Missing, "missing"),
        (Standing::DoneByYou, "done_by_you"),
        (Standing::Done, "done"),
        (Standing::NeverIssued, "never_issued"),
        (Standing::Superseded, "superseded"),
        (Standing::NotOwner, "not_owner"),
        (Standing::Released, "released"),
        (Standing::Expired, "expired"),
    ] {
        let shop = Shop::new();
        let lease = shop.claim(0.0);
        let (raw, now) = match standing {
            Standing::Missing => ("DELETE FROM jobs", 1.0),
            Standing::DoneByYou => ("UPDATE jobs SET done = 1", 1.0),
            Standing::Done => ("UPDATE jobs SET done = 1, fence = fence + 1", 1.0),
            // A copy of the file from before the claim, put in place.
            Standing::NeverIssued => {
                ("DROP TRIGGER fence_job_update; UPDATE jobs SET fence = 0, owner = NULL", 1.0)
            }
            Standing::Superseded => ("UPDATE jobs SET owner = 'b', fence = fence + 1", 1.0),
            Standing::NotOwner => ("UPDATE jobs SET owner = 'b'", 1.0),
            Standing::Released => ("UPDATE jobs SET owner = NULL, until = 0", 1.0),
            Standing::Expired => ("SELECT 1", 10.0),
            other => panic!("{other}"),
        };
        shop.other().execute_batch(raw).unwrap_or_else(|e| panic!("{standing}: {e}"));
        let error = lease.write(now, |_| -> fence::Result<()> { panic!("must not run") });
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), format!("the lease on job 'j' is not held: {word}"));
        assert_eq!(error.extended_code(), rusqlite::ffi::SQLITE_CONSTRAINT);
        match error {
            Error::NotHeld { id, standing: why } => assert_eq!((&*id, why), ("j", standing)),
            other => panic!("{other:?}"),
        }
        assert_eq!(shop.orders(), "10,20", "{standing}");
    }
}

#[test]
fn a_completion_that_fails_inside_rolls_the_writes_back() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    let error = lease.write(1.0, |tx| {
        tx.execute("UPDATE orders SET total = 11, fence = ?1 WHERE id = 1", [tx.fence()])?;
        tx.complete("first")?;
        tx.complete("second")
    });
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "the lease on job 'j' is not held: done_by_you");
    assert_eq!(shop.orders(), "10,20");
    assert_eq!(shop.done(), (0, None));
}

#[test]
fn a_guarded_table_takes_the_stamp_of_the_lease_and_no_other() {
    let shop = Shop::new();
    let stale = shop.claim(0.0);
    let lease = shop.claim(10.0);
    let sentence = "orders: state the current fence of the row's job in the column fence";
    lease
        .write(11.0, |tx| {
            // A refusal undoes its statement only; the body decides whether to go on.
            for fence in [None, Some(stale.fence()), Some(99)] {
                let update = "UPDATE orders SET total = 9, fence = ?1 WHERE id = 1";
                assert_eq!(tx.execute(update, [fence]).unwrap_err().to_string(), sentence);
            }
            let foreign = tx.execute("UPDATE orders SET total = 9, fence = ?1", [tx.fence()]);
            assert_eq!(foreign.unwrap_err().to_string(), sentence);
            tx.execute("UPDATE orders SET total = 12, fence = ?1 WHERE id = 1", [tx.fence()])?;
            tx.execute("INSERT INTO orders VALUES (3, 'j', 30, ?1)", [tx.fence()])?;
            tx.execute("UPDATE orders SET fence = -?1 WHERE id = 1", [tx.fence()])
                .map_err(Error::from)
        })
        .unwrap();
    assert_eq!(shop.orders(), "20,30");
    let error = stale.write(11.0, |_| Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "the lease on job 'j' is not held: superseded");
}

#[test]
fn a_call_of_the_store_inside_is_an_error_and_no_deadlock() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    let sentence = "the store was called inside Lease::write, use its transaction";
    let inside = |result: fence::Result<()>| match result {
        Err(Error::InvalidArgument(e)) => assert_eq!(e, sentence),
        other => panic!("{other:?}"),
    };
    let clone = shop.store.clone();
    lease
        .write(1.0, |tx| {
            inside(shop.store.enqueue("k").map(drop));
            inside(clone.state("j").map(drop));
            inside(shop.store.claim("j", "w", 1.0, 1.0).map(drop));
            inside(clone.claim_many("j", &["w"], 1.0, 1.0).map(drop));
            inside(lease.complete(1.0, "x").map(drop));
            inside(lease.release().map(drop));
            inside(lease.clone().renew(1.0, 1.0).map(drop));
            inside(lease.check(1.0).map(drop));
            inside(lease.write(1.0, |_| Ok(())));
            inside(shop.store.unguard("orders").map(drop));
            tx.complete("mine")
        })
        .unwrap();
    assert_eq!(shop.done(), (1, Some("mine".into())));
    assert!(shop.store.enqueue("k").unwrap(), "after the write it works again");
}

#[test]
fn two_stores_may_be_used_one_inside_the_other() {
    let (shop, other) = (Shop::new(), Shop::new());
    let lease = shop.claim(0.0);
    lease
        .write(1.0, |tx| {
            other.claim(0.0).write(1.0, |tx| tx.complete("other"))?;
            tx.complete("mine")
        })
        .unwrap();
    assert_eq!(shop.done(), (1, Some("mine".into())));
    assert_eq!(other.done(), (1, Some("other".into())));
}

#[test]
fn where_somebody_else_writes_the_body_does_not_run() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    let other = shop.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = lease.write(1.0, |_| -> fence::Result<()> { panic!("must not run") }).unwrap_err();
    assert!(matches!(error, Error::Busy(_)), "{error:?}");
    assert_eq!(error.extended_code(), rusqlite::ffi::SQLITE_BUSY);
    assert_eq!(error.to_string(), "database is locked");
    other.execute_batch("ROLLBACK").unwrap();
    lease.write(1.0, |tx| tx.complete("mine")).unwrap();
}

/// The check and the writes are one: a lease that runs out meanwhile is taken over only after the
/// commit.
#[test]
fn nobody_takes_the_job_over_between_the_check_and_the_commit() {
    let shop = Shop::new();
    let lease = shop.claim(0.0);
    let rival = Store::open_with(shop.path(), impatient()).unwrap();
    lease
        .write(9.0, |tx| {
            let error = rival.claim("j", "b", 100.0, 10.0).unwrap_err();
            assert!(matches!(error, Error::Busy(_)), "{error:?}");
            tx.execute("UPDATE orders SET total = 11, fence = ?1 WHERE id = 1", [tx.fence()])?;
            let error = rival.claim("j", "b", 100.0, 10.0).unwrap_err();
            assert!(matches!(error, Error::Busy(_)), "{error:?}");
            Ok(())
        })
        .unwrap();
    assert_eq!(shop.orders(), "11,20");
    let taken = rival.claim("j", "b", 100.0, 10.0).unwrap().expect("the lease is over");
    assert_eq!(taken.fence(), lease.fence() + 1);
    let error = lease.write(9.0, |_| -> fence::Result<()> { panic!("must not run") }).unwrap_err();
    assert_eq!(error.to_string(), "the lease on job 'j' is not held: superseded");
    let late = "UPDATE orders SET total = 12, fence = 1 WHERE id = 1";
    assert!(shop.other().execute(late, []).is_err());
    assert_eq!(shop.orders(), "11,20");
}
