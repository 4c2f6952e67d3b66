//! A `Store` that many threads share: calls gather in common transactions, and yet each has an
//! answer of its own, after the commit. What happens inside a group, in which order, is tested
//! beside its code.
mod common;

use common::{jobs, one, Scratch};
use fence::{Durability, Error, Options, Store};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;
const ROUNDS: usize = 25;

fn options(busy_timeout: Duration) -> Options {
    let mut options = Options::default();
    options.busy_timeout = busy_timeout;
    options.durability = Durability::Normal;
    options
}

fn open(scratch: &Scratch) -> Store {
    let store = Store::open_with(scratch.db(), options(Duration::from_secs(60))).unwrap();
    store.init_queue().unwrap();
    store
}

/// Runs `body` in eight threads at once.
fn in_threads<T: Send>(body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|i| {
                let (barrier, body) = (&barrier, &body);
                scope.spawn(move || {
                    barrier.wait();
                    body(i)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs `body`, which must end: a test that waits for ever says nothing.
fn must_end<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(body()));
    answer.recv_timeout(Duration::from_secs(120)).expect("an answer")
}

#[test]
fn each_call_is_answered_after_its_commit() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    in_threads(|worker| {
        let other = scratch.connect();
        for round in 0..ROUNDS {
            let id = format!("{worker}-{round}");
            let state = format!("SELECT owner || fence || done FROM jobs WHERE id = '{id}'");
            assert!(store.enqueue(&id).unwrap());
            assert!(!store.enqueue(&id).unwrap());
            let lease = store.claim(&id, &format!("w{worker}"), 0.0, 10.0).unwrap().unwrap();
            assert_eq!((lease.id(), lease.fence(), lease.until()), (&id[..], 1, 10.0));
            assert_eq!(one::<String>(&other, &state), format!("w{worker}10"));
            assert!(store.claim(&id, "late", 0.0, 10.0).unwrap().is_none());
            assert!(!store.complete(&id, "late", 1, 1.0, "r").unwrap());
            assert!(lease.complete(1.0, &id[..]).unwrap());
            assert_eq!(one::<String>(&other, &state), format!("w{worker}11"));
        }
    });
    let wrong = "SELECT count(*) FROM jobs WHERE done <> 1 OR result <> id OR fence <> 1";
    let conn = scratch.connect();
    assert_eq!(one::<i64>(&conn, wrong), 0);
    assert_eq!(jobs(&conn).len(), THREADS * ROUNDS);
}

#[test]
fn each_caller_takes_jobs_that_nobody_else_has() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let ids: Vec<String> = (0..300).map(|i| format!("q:{i}")).collect();
    assert_eq!(store.enqueue_many(&ids).unwrap(), 300);
    let taken = in_threads(|worker| {
        let owner = format!("w{worker}");
        let mut taken = Vec::new();
        loop {
            let leases = store.claim_batch("q", &owner, 1.0, 10.0, 3).unwrap();
            if leases.is_empty() {
                return taken;
            }
            for lease in leases {
                assert_eq!((lease.owner(), lease.fence()), (&owner[..], 1));
                taken.push(lease.id().to_string());
            }
        }
    });
    let mut taken = taken.concat();
    taken.sort();
    let mut ids = ids;
    ids.sort();
    assert_eq!(taken, ids);
}

#[test]
fn an_error_of_one_call_does_not_fail_the_others() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    scratch
        .connect()
        .execute_batch(
            "CREATE TRIGGER a AFTER INSERT ON jobs WHEN new.id LIKE 'abort%'
             BEGIN SELECT RAISE(ABORT, 'this one alone'); END;
             CREATE TRIGGER b AFTER INSERT ON jobs WHEN new.id LIKE 'rollback%'
             BEGIN SELECT RAISE(ROLLBACK, 'all that is uncommitted'); END;",
        )
        .unwrap();
    in_threads(|worker| {
        for round in 0..ROUNDS {
            match worker {
                0 => {
                    let error = store.enqueue(&format!("abort{round}")).unwrap_err();
                    assert_eq!(error.to_string(), "this one alone");
                }
                1 => {
                    let error = store.enqueue(&format!("rollback{round}")).unwrap_err();
                    assert_eq!(error.to_string(), "all that is uncommitted");
                }
                _ => assert!(store.enqueue(&format!("{worker}-{round}")).unwrap()),
            }
        }
    });
    let conn = scratch.connect();
    assert_eq!(jobs(&conn).len(), (THREADS - 2) * ROUNDS);
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM jobs WHERE id LIKE '%o%'"), 0);
}

#[test]
fn a_commit_that_fails_is_an_error_for_all_that_it_took_along() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    // The promise is looked at when the transaction commits.
    scratch
        .connect()
        .execute_batch(
            "CREATE TABLE promise(id TEXT REFERENCES jobs(id) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER p AFTER INSERT ON jobs WHEN new.id LIKE 'broken%'
             BEGIN INSERT INTO promise VALUES ('never'); END;",
        )
        .unwrap();
    let accepted = in_threads(|worker| {
        let other = scratch.connect();
        let mut accepted = 0;
        for round in 0..ROUNDS {
            let id =
                if worker == 0 { format!("broken{round}") } else { format!("{worker}-{round}") };
            let outcome = store.enqueue(&id);
            let there = format!("SELECT count(*) FROM jobs WHERE id = '{id}'");
            let there = one::<i64>(&other, &there) == 1;
            match outcome {
                Ok(new) => assert!(new && there && worker > 0, "{id}"),
                Err(e) => {
                    assert_eq!(e.to_string(), "FOREIGN KEY constraint failed");
                    assert!(!there, "{id}");
                    // Alone it does not depend on anybody else.
                    continue;
                }
            }
            accepted += 1;
        }
        accepted
    });
    let conn = scratch.connect();
    assert_eq!(jobs(&conn).len(), accepted.iter().sum::<usize>());
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM promise"), 0);
    assert!(store.enqueue("afterwards").unwrap());
}

#[test]
fn a_call_inside_a_write_is_refused_also_while_others_wait() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    assert!(store.enqueue("a").unwrap());
    let lease = store.claim("a", "w", 0.0, 10.0).unwrap().unwrap();
    let inside = store.clone();
    let refused = must_end(move || {
        let (calling, called) = mpsc::channel();
        let waiting = inside.clone();
        let waiter = thread::spawn(move || {
            calling.send(()).unwrap();
            waiting.enqueue("b").unwrap()
        });
        let refused = lease
            .write(1.0, |_| {
                called.recv().unwrap();
                // The other thread gets to where it waits for this one, sooner or later.
                let tries = (0..2000).map(|_| {
                    thread::yield_now();
                    inside.enqueue("c").unwrap_err().to_string()
                });
                Ok(tries.collect::<std::collections::BTreeSet<_>>())
            })
            .unwrap();
        assert!(waiter.join().unwrap());
        refused
    });
    let sentence = "the store was called inside Lease::write, use its transaction";
    assert_eq!(refused.into_iter().collect::<Vec<_>>(), [sentence]);
    assert!(store.state("c").unwrap().is_none());
}

#[test]
fn a_panic_inside_a_write_rolls_back_and_leaves_the_store_usable() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    assert!(store.enqueue("a").unwrap());
    let lease = store.claim("a", "w", 0.0, 10.0).unwrap().unwrap();
    let panicking = lease.clone();
    let thread = thread::spawn(move || {
        panicking.write(1.0, |tx| {
            tx.complete("half done")?;
            panic!("as asked");
            #[allow(unreachable_code)]
            Ok(())
        })
    });
    assert!(thread.join().is_err());
    assert_eq!(jobs(&scratch.connect()), ["'a' 'w' 10.0 1 NULL 0"]);
    must_end(move || {
        in_threads(|worker| assert!(store.enqueue(&format!("{worker}")).unwrap()));
        assert!(lease.complete(2.0, "r").unwrap());
    });
}

#[test]
fn a_lock_of_another_connection_is_waited_for() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let other = scratch.connect();
    let (start, starts) = mpsc::channel::<usize>();
    let (called, calls) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    thread::spawn(move || {
        for round in starts {
            called.send(()).unwrap();
            answer.send(store.enqueue(&format!("{round}")).unwrap()).unwrap();
        }
    });
    for round in 0..50 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        start.send(round).unwrap();
        calls.recv().unwrap();
        (0..200).for_each(|_| thread::yield_now());
        other.execute_batch("COMMIT").unwrap();
        assert!(answers.recv_timeout(Duration::from_secs(60)).unwrap());
    }
}

#[test]
fn without_a_timeout_a_lock_is_an_error_at_once() {
    let scratch = Scratch::new();
    open(&scratch);
    let store = Store::open_with(scratch.db(), options(Duration::ZERO)).unwrap();
    assert!(store.enqueue("a").unwrap());
    let other = scratch.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = jobs(&other);
    let outcomes = in_threads(|worker| store.enqueue(&format!("{worker}")).unwrap_err());
    for error in outcomes {
        assert!(matches!(error, Error::Busy(_)), "{error:?}");
        assert_eq!(error.to_string(), "database is locked");
    }
    // What only reads waits for nobody.
    assert_eq!(store.state("a").unwrap().unwrap().fence, 0);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(jobs(&other), before);
    assert!(store.enqueue("b").unwrap());
}

#[test]
fn a_store_in_memory_is_shared_by_its_clones() {
    let store = Store::open(":memory:").unwrap();
    let new = in_threads(|_| store.clone().enqueue("a").unwrap());
    assert_eq!(new.iter().filter(|new| **new).count(), 1);
    let leases = in_threads(|worker| store.claim("a", &format!("w{worker}"), 0.0, 10.0).unwrap());
    assert_eq!(leases.iter().flatten().count(), 1);
    assert!(Store::open(":memory:").unwrap().state("a").unwrap().is_none());
}
