//! Several owners claim one job at once: one of them wins at most, and each has an answer of its
//! own, in the order in which they were named.
mod common;

use common::{jobs, one, Scratch};
use fence::{Error, Options, Store};
use std::time::Duration;

fn owners(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("w{i}")).collect()
}

/// The answers, errors as their sentences.
fn answers(
    store: &Store,
    id: &str,
    owners: &[impl AsRef<str>],
    now: f64,
) -> Vec<Result<Option<i64>, String>> {
    let answers = store.claim_many(id, owners, now, 10.0).unwrap();
    answers.into_iter().map(|answer| answer.map_err(|e| e.to_string())).collect()
}

/// The place of the one winner; all the others must have lost.
fn winner(answers: &[Result<Option<i64>, String>], fence: i64) -> usize {
    let won: Vec<usize> = (0..answers.len()).filter(|i| answers[*i] == Ok(Some(fence))).collect();
    let lost = answers.iter().filter(|answer| **answer == Ok(None)).count();
    assert_eq!((won.len(), lost), (1, answers.len() - 1), "{answers:?}");
    won[0]
}

fn stores(scratch: &Scratch) -> [Store; 2] {
    [scratch.db(), ":memory:".into()].map(|path| Store::open(path).unwrap())
}

#[test]
fn a_new_job_has_one_winner_whose_answer_stands_in_its_place() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        for round in 0..5 {
            let id = format!("job{round}");
            assert!(store.enqueue(&id).unwrap());
            let owners = owners(64);
            let found = answers(&store, &id, &owners, 0.0);
            assert_eq!(found.len(), 64);
            let job = store.state(&id).unwrap().unwrap();
            assert_eq!(job.owner.as_ref(), Some(&owners[winner(&found, 1)]), "{store:?}");
            assert_eq!((job.fence, job.until, job.done), (1, 10.0, 0));
        }
    }
}

#[test]
fn a_lease_that_ran_out_has_one_winner_with_the_next_fence() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        assert!(store.enqueue("a").unwrap());
        assert!(store.claim("a", "w3", 0.0, 10.0).unwrap().is_some());
        assert_eq!(answers(&store, "a", &owners(8), 9.9), vec![Ok(None); 8], "live");
        winner(&answers(&store, "a", &owners(8), 10.0), 2);
        assert_eq!(answers(&store, "a", &owners(8), 10.0), vec![Ok(None); 8], "live again");
    }
}

#[test]
fn a_job_that_is_done_or_missing_has_no_winner() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        for id in ["done", "failed"] {
            assert!(store.enqueue(id).unwrap());
            assert!(store.claim(id, "x", 0.0, 10.0).unwrap().is_some());
        }
        assert!(store.complete("done", "x", 1, 1.0, "r").unwrap());
        assert!(store.fail("failed", "x", 1, 1.0, "e").unwrap());
        for id in ["done", "failed", "missing"] {
            assert_eq!(answers(&store, id, &owners(8), 50.0), vec![Ok(None); 8], "{id}");
        }
        assert_eq!(store.state("done").unwrap().unwrap().result.as_deref(), Some("r"));
    }
}

#[test]
fn nobody_asks_and_nobody_wins() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        assert!(store.enqueue("a").unwrap());
        assert_eq!(answers(&store, "a", &[""; 0], 0.0), []);
        assert_eq!(store.state("a").unwrap().unwrap().fence, 0);
    }
}

#[test]
fn the_same_owner_twice_wins_once() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        assert!(store.enqueue("a").unwrap());
        winner(&answers(&store, "a", &["w"; 8], 0.0), 1);
    }
}

#[test]
fn an_error_of_one_owner_does_not_hide_who_won() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        assert!(store.enqueue("a").unwrap());
        let found = answers(&store, "a", &["", "w1", "w\0", "w3"], 0.0);
        assert_eq!(found[0], Err("claim_many: owner must not be empty".into()));
        let sentence = "claim_many: owner must not contain a NUL character, got 'w\\u{0}'";
        assert_eq!(found[2], Err(sentence.into()));
        winner(&[found[1].clone(), found[3].clone()], 1);
    }
}

#[test]
fn wrong_arguments_are_an_error_before_anybody_claims() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        assert!(store.enqueue("a").unwrap());
        for (id, now, ttl, sentence) in [
            ("", 0.0, 1.0, "claim_many: id must not be empty"),
            ("a", f64::NAN, 1.0, "claim_many: now must be a finite number, got NaN"),
            ("a", 0.0, 0.0, "claim_many: ttl must be greater than 0, got 0"),
            ("a", 0.0, f64::NAN, "claim_many: ttl must be greater than 0, got NaN"),
        ] {
            let error = store.claim_many(id, &owners(4), now, ttl).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
            assert_eq!(error.to_string(), sentence);
        }
        assert_eq!(store.state("a").unwrap().unwrap().fence, 0);
    }
}

#[test]
fn by_the_database_clock_too_there_is_one_winner() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        assert!(store.enqueue("a").unwrap());
        let found = store.claim_many("a", &owners(8), None, 1e6).unwrap();
        assert_eq!(found.len(), 8);
        assert_eq!(found.into_iter().filter_map(Result::unwrap).collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn who_cannot_win_is_answered_without_waiting_for_the_lock() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.busy_timeout = Duration::ZERO;
    let store = Store::open_with(scratch.db(), options).unwrap();
    assert!(store.enqueue("held").unwrap() && store.enqueue("free").unwrap());
    assert!(store.claim("held", "x", 0.0, 10.0).unwrap().is_some());
    let other = scratch.connect();
    let before = jobs(&other);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(answers(&store, "held", &owners(8), 1.0), vec![Ok(None); 8]);
    let locked = vec![Err("database is locked".to_string()); 8];
    assert_eq!(answers(&store, "free", &owners(8), 1.0), locked);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(jobs(&other), before);
    // Its own threads may find each other's lock.
    let found = answers(&store, "free", &owners(8), 1.0);
    assert_eq!(found.iter().filter(|answer| matches!(answer, Ok(Some(1)))).count(), 1);
}

#[test]
fn many_calls_at_once_share_the_jobs_out() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.db()).unwrap();
    for i in 0..20 {
        assert!(store.enqueue(&format!("{i}")).unwrap());
    }
    let won = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let owners: Vec<_> = (0..4).map(|i| format!("{thread}-{i}")).collect();
                    let all = (0..20).flat_map(|i| answers(store, &format!("{i}"), &owners, 0.0));
                    all.filter(|answer| *answer == Ok(Some(1))).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(won, 20);
    assert_eq!(one::<i64>(&scratch.connect(), "SELECT sum(fence) FROM jobs"), 20);
}

#[test]
fn the_path_function_leaves_nothing_open() {
    let scratch = Scratch::new();
    fence::init_db(scratch.db()).unwrap();
    for round in 0..20 {
        assert!(fence::enqueue(scratch.db(), &format!("{round}")).unwrap());
        let found =
            fence::claim_many(scratch.db(), &format!("{round}"), &owners(8), 0.0, 10.0).unwrap();
        assert_eq!(found.len(), 8);
        assert_eq!(found.into_iter().filter_map(Result::unwrap).collect::<Vec<_>>(), [1]);
        // The last connection that closes takes the log along.
        assert_eq!(scratch.files(), ["jobs.db"], "round {round}");
    }
}

#[test]
fn the_connections_of_the_pool_are_opened_by_the_same_uri() {
    let scratch = Scratch::new();
    // Locks of this kind are not seen by who opens the file under its name alone.
    let uri = format!("file:{}?vfs=unix-dotfile", scratch.db().display());
    let mut options = Options::default();
    options.busy_timeout = Duration::ZERO;
    let store = Store::open_with(&uri, options).unwrap();
    assert!(store.enqueue("a").unwrap());
    let other = rusqlite::Connection::open(&uri).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = "database is locked".to_string();
    assert_eq!(answers(&store, "a", &owners(4), 0.0), vec![Err(error); 4]);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(answers(&store, "a", &owners(1), 0.0), [Ok(Some(1))]);
}
