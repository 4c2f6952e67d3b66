//! What a worker in Rust does between two claims: it waits for the next due job, and it keeps a
//! lease alive while it works. Nothing here depends on how quick the machine is.
mod common;

use common::{one, Scratch};
use fence::{Durability, Error, KeepAlive, Lease, Options, Renewal, Standing, Store};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn open(scratch: &Scratch) -> Store {
    let mut options = Options::default();
    options.busy_timeout = Duration::ZERO;
    options.durability = Durability::Normal;
    let store = Store::open_with(scratch.db(), options).unwrap();
    store.init_queue().unwrap();
    store
}

fn clock() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// What a worker in another thread answers that waits for the queue `q`, with `meanwhile` done
/// when it has, in all likelihood, looked once in vain.
fn wait_while(store: &Store, meanwhile: impl FnOnce()) -> bool {
    let waiting = store.clone();
    let (sender, answer) = mpsc::channel();
    let (started, starts) = mpsc::channel();
    thread::spawn(move || {
        started.send(()).unwrap();
        sender.send(waiting.wait("q", Duration::MAX).unwrap())
    });
    starts.recv().unwrap();
    thread::sleep(Duration::from_millis(30)); // the answer is the same without
    meanwhile();
    answer.recv_timeout(PATIENCE).expect("woken up")
}

#[test]
fn a_job_that_is_due_is_no_reason_to_wait() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    assert!(store.enqueue("q:1").unwrap());
    assert!(store.wait("q", Duration::ZERO).unwrap());
    assert!(store.wait("q", Duration::MAX).unwrap());
    // It claims nothing.
    assert_eq!(store.state("q:1").unwrap().unwrap().fence, 0);
    for due in [-5.0, 1.0, clock() - 0.002] {
        assert!(store.claim_next("q", "w", None, 1e6).unwrap().is_some());
        assert!(!store.wait("q", Duration::ZERO).unwrap());
        assert!(store.enqueue_at(&format!("q:due {due}"), due).unwrap());
        assert!(store.wait("q", Duration::ZERO).unwrap());
    }
}

#[test]
fn where_nothing_comes_due_the_timeout_ends_the_wait() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    assert!(store.enqueue("other:1").unwrap());
    assert!(store.enqueue_at("q:later", clock() + 1e6).unwrap());
    for id in ["q:done", "q:failed", "q:held", "q:used up"] {
        assert!(store.enqueue(id).unwrap());
        assert!(store.claim(id, "w", 0.0, 1e12).unwrap().is_some());
    }
    assert!(store.complete("q:done", "w", 1, 1.0, "r").unwrap());
    assert!(store.fail("q:failed", "w", 1, 1.0, "e").unwrap());
    let used_up = "UPDATE jobs SET fence = 9223372036854775807, until = 0 WHERE id = 'q:used up'";
    assert_eq!(scratch.connect().execute(used_up, []).unwrap(), 1);
    assert!(!store.wait("q", Duration::ZERO).unwrap());
    let (begun, timeout) = (Instant::now(), Duration::from_millis(150));
    assert!(!store.wait("q", timeout).unwrap());
    assert!(begun.elapsed() >= timeout);
}

#[test]
fn a_commit_of_another_connection_ends_the_wait() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let other = scratch.connect();
    assert!(wait_while(&store, || {
        other.execute("INSERT INTO jobs(id) VALUES ('q:1')", []).unwrap();
    }));
}

#[test]
fn a_commit_of_another_process_ends_the_wait() {
    let Some(shell) = common::client("sqlite3") else { return };
    let scratch = Scratch::new();
    let store = open(&scratch);
    assert!(wait_while(&store, || {
        let mut command = std::process::Command::new(shell);
        let output =
            common::pipe(command.arg(scratch.db()), "INSERT INTO jobs(id) VALUES ('q:1');");
        assert!(output.status.success(), "{}", common::stderr(&output));
    }));
}

#[test]
fn a_commit_of_the_same_store_ends_the_wait() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    assert!(store.enqueue("q:1").unwrap());
    let lease = store.claim_next("q", "w", None, 1e6).unwrap().unwrap();
    assert!(wait_while(&store, || assert!(lease.release().unwrap())));
}

#[test]
fn the_wait_ends_with_the_moment_of_a_delayed_job_and_not_before() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    for round in 0..15 {
        let due = clock() + 0.02;
        assert!(store.enqueue_at(&format!("q:{round}"), due).unwrap());
        assert!(store.wait("q", PATIENCE).unwrap());
        assert!(clock() >= due - 0.001, "SQLite's clock has milliseconds");
        // By that clock the job is due, so whoever waited alone gets it.
        let lease = store.claim_next("q", "w", None, 1e6).unwrap().expect("due");
        assert_eq!(lease.id(), format!("q:{round}"));
    }
}

#[test]
fn the_wait_ends_with_a_lease_that_runs_out() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    assert!(store.enqueue("q:1").unwrap());
    let lost = store.claim_next("q", "lost", None, 0.2).unwrap().unwrap();
    assert!(store.wait("q", PATIENCE).unwrap());
    let lease = store.claim_next("q", "w", None, 1e6).unwrap().expect("due");
    assert_eq!(lease.fence(), 2);
    assert!(!lost.complete(None, "late").unwrap());
}

#[test]
fn to_wait_needs_the_queue_index() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.db()).unwrap();
    let sentence = "no such index: fence_queue (fence_init_queue() makes it)";
    for error in [
        store.wait("q", Duration::ZERO).map(drop),
        store.claim_next("q", "w", None, 1.0).map(drop),
        store.claim_batch("q", "w", 1.0, 1.0, 9).map(drop),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::NotInitialised(_)), "{error:?}");
        assert_eq!(error.to_string(), sentence);
    }
    store.init_queue().unwrap();
    assert!(!store.wait("q", Duration::ZERO).unwrap());
}

/// A job leased for a long time, by the database's clock.
fn leased(store: &Store) -> Lease {
    assert!(store.enqueue("job").unwrap());
    store.claim("job", "w", None, 1e6).unwrap().unwrap()
}

fn kept(lease: &Lease, ttl: f64) -> (KeepAlive, Receiver<Renewal>) {
    let (sender, events) = mpsc::channel();
    // Who drops the receiver wants no more news.
    let keep = lease.keep_alive(ttl, move |renewal| drop(sender.send(renewal))).unwrap();
    (keep, events)
}

fn next(events: &Receiver<Renewal>) -> Renewal {
    events.recv_timeout(PATIENCE).expect("news")
}

#[test]
fn the_lease_is_renewed_at_once_and_again_and_again() {
    const TTL: f64 = 9.0;
    let scratch = Scratch::new();
    let store = open(&scratch);
    let lease = leased(&store);
    let began = clock();
    let (keep, events) = kept(&lease, TTL);
    let mut last = 0.0;
    for _ in 0..2 {
        let renewal = next(&events);
        assert!(matches!(renewal, Renewal::Renewed), "{renewal:?}");
        let latest = Instant::now() + Duration::from_secs_f64(TTL * 0.9);
        assert!(keep.deadline() <= latest, "a tenth before the end of the lease");
        let until = store.state("job").unwrap().unwrap().until;
        assert!(until >= began - 0.001 + TTL && until <= clock() + TTL, "{until}");
        assert!(until > last, "{until} {last}");
        last = until;
    }
    assert!(keep.is_held());
    drop(keep);
    assert!(lease.complete(None, "r").unwrap());
}

/// Why a lease is lost, and what makes it so.
const LOSSES: [(Standing, &str); 7] = [
    (Standing::Superseded, "UPDATE jobs SET owner = 'x', fence = 2"),
    (Standing::NotOwner, "UPDATE jobs SET owner = 'x'"),
    (Standing::Released, "UPDATE jobs SET owner = NULL, until = 0"),
    (Standing::Expired, "UPDATE jobs SET until = 5"),
    (Standing::DoneByYou, "UPDATE jobs SET done = 1, result = 'r'"),
    (Standing::Done, "UPDATE jobs SET owner = 'x', fence = 2, done = 1"),
    (Standing::Missing, "DELETE FROM jobs"),
];

#[test]
fn a_lost_lease_is_told_with_its_reason_and_nothing_follows() {
    for (why, sql) in LOSSES {
        let scratch = Scratch::new();
        let store = open(&scratch);
        let lease = leased(&store);
        let other = scratch.connect();
        assert_eq!(other.execute(sql, []).unwrap(), 1);
        let before = common::jobs(&other);
        let (keep, events) = kept(&lease, 1e5);
        match next(&events) {
            Renewal::Lost(standing) => assert_eq!(standing, why),
            other => panic!("{why}: {other:?}"),
        }
        assert!(!keep.is_held(), "{why}");
        // Its thread has ended by itself.
        assert_eq!(events.recv_timeout(PATIENCE).unwrap_err(), RecvTimeoutError::Disconnected);
        assert_eq!(common::jobs(&other), before, "{why}");
    }
}

#[test]
fn a_lease_taken_over_later_is_lost_at_the_next_renewal() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let lease = leased(&store);
    let (keep, events) = kept(&lease, 6.0);
    assert!(matches!(next(&events), Renewal::Renewed));
    let taken = "UPDATE jobs SET owner = 'x', fence = fence + 1";
    assert_eq!(scratch.connect().execute(taken, []).unwrap(), 1);
    loop {
        match next(&events) {
            Renewal::Lost(standing) => break assert_eq!(standing, Standing::Superseded),
            renewal => println!("{renewal:?}"),
        }
    }
    assert!(!keep.is_held());
}

#[test]
fn a_busy_database_is_no_lost_lease() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let lease = leased(&store);
    let other = scratch.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = common::jobs(&other);
    let (keep, events) = kept(&lease, 2.0);
    let deadline = keep.deadline();
    for _ in 0..3 {
        match next(&events) {
            Renewal::TryAgain(Error::Busy(e)) => assert_eq!(e.to_string(), "database is locked"),
            other => panic!("{other:?}"),
        }
        assert_eq!(keep.deadline(), deadline, "what failed extends nothing");
    }
    assert_eq!(common::jobs(&other), before);
    other.execute_batch("COMMIT").unwrap();
    loop {
        match next(&events) {
            Renewal::Renewed => break,
            Renewal::TryAgain(_) => {}
            lost => panic!("{lost:?}"),
        }
    }
    assert!(keep.deadline() > deadline);
}

#[test]
fn past_its_deadline_a_lease_is_not_held_whatever_the_database_says() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let other = scratch.connect();
    let lease = leased(&store);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (keep, events) = kept(&lease, 0.2);
    let begun = Instant::now();
    while keep.is_held() {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
    assert!(Instant::now() >= keep.deadline());
    assert!(keep.deadline() <= begun + Duration::from_millis(180));
    drop(keep);
    assert!(events.iter().all(|renewal| matches!(renewal, Renewal::TryAgain(_))));
}

#[test]
fn until_the_first_renewal_the_claim_sets_the_deadline() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let other = scratch.connect();
    assert!(store.enqueue("job").unwrap());
    let lease = store.claim("job", "w", None, 50.0).unwrap().unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (keep, _events) = kept(&lease, 1000.0);
    let left = keep.deadline() - Instant::now();
    assert!((30.0..=45.0).contains(&left.as_secs_f64()), "nine tenths of 50 s, not {left:?}");
    let over = store.clone();
    drop(keep);
    // A lease on another clock, long over by this one.
    other.execute_batch("COMMIT").unwrap();
    assert!(over.enqueue("old").unwrap());
    let lease = over.claim("old", "w", 0.0, 50.0).unwrap().unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (keep, _events) = kept(&lease, 1000.0);
    assert!(!keep.is_held());
}

#[test]
fn dropping_the_handle_ends_the_renewals() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let lease = leased(&store);
    // The pause between two renewals is longer than the test may take.
    let (keep, events) = kept(&lease, 1e5);
    assert!(matches!(next(&events), Renewal::Renewed));
    drop(keep);
    // The thread is gone, and with it the other end.
    assert_eq!(events.try_recv().unwrap_err(), mpsc::TryRecvError::Disconnected);
    assert_eq!(store.check("job", "w", 1, None).unwrap(), Standing::Held);
}

#[test]
fn the_callback_may_call_the_store_and_drop_the_handle() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let lease = leased(&store);
    let place: Arc<Mutex<Option<KeepAlive>>> = Arc::default();
    let (sender, events) = mpsc::channel();
    let mut held = place.lock().unwrap();
    let (in_callback, of_callback) = (Arc::clone(&place), lease.clone());
    let keep = lease.keep_alive(1e5, move |_| {
        let completed = of_callback.complete(None, "r").unwrap();
        drop(in_callback.lock().unwrap().take());
        sender.send(completed).unwrap();
    });
    *held = Some(keep.unwrap());
    drop(held);
    assert!(events.recv_timeout(PATIENCE).unwrap());
    assert_eq!(events.recv_timeout(PATIENCE).unwrap_err(), RecvTimeoutError::Disconnected);
    assert!(place.lock().unwrap().is_none());
    let done = "SELECT done FROM jobs";
    assert_eq!(one::<i64>(&scratch.connect(), done), 1);
}

#[test]
fn a_ttl_that_is_none_is_an_error_at_once() {
    let scratch = Scratch::new();
    let lease = leased(&open(&scratch));
    let before = common::jobs(&scratch.connect());
    for (ttl, sentence) in [
        (0.0, "keep_alive: ttl must be greater than 0, got 0"),
        (f64::NAN, "keep_alive: ttl must be greater than 0, got NaN"),
        (f64::INFINITY, "keep_alive: ttl must be a finite number, got inf"),
        (1e19, "keep_alive: ttl is too long, got 1e19"),
        (1e300, "keep_alive: ttl is too long, got 1e300"),
    ] {
        let error = lease.keep_alive(ttl, |_| ()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        assert_eq!(error.to_string(), sentence);
    }
    assert_eq!(common::jobs(&scratch.connect()), before);
}
