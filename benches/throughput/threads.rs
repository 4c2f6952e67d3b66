//! Threads of one process: a shared store beside a connection for each.

use fence::{Durability, Options, Store};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{alternate, quantile, ratio};

pub fn group_commit(threads: usize, durability: Durability) {
    let mut options = Options::default();
    options.durability = durability;
    options.busy_timeout = Duration::from_secs(60);
    let jobs = if durability == Durability::Full { 20 } else { 250 };
    let [each, shared] = alternate(
        3,
        [&mut || run(threads, jobs, options, false) as Duration, &mut || {
            run(threads, jobs, options, true)
        }],
    );
    println!(
        "{threads} threads, {durability:?}: a connection each 1.00, one Store {:.2}",
        ratio(each, shared)
    );
}

fn run(threads: usize, jobs: usize, options: Options, shared: bool) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.db");
    let store = Store::open_with(&file, options).unwrap();
    let ids = |thread: usize| (0..jobs).map(move |i| format!("job-{thread:02}-{i:05}"));
    store.enqueue_many(&(0..threads).flat_map(ids).collect::<Vec<_>>()).unwrap();
    let stores: Vec<_> = (0..threads)
        .map(|_| if shared { store.clone() } else { Store::open_with(&file, options).unwrap() })
        .collect();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (thread, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for id in ids(thread) {
                    let lease = store.claim(&id, "worker", 1.0, 30.0).unwrap().unwrap();
                    assert!(lease.complete(2.0, "result").unwrap());
                }
            });
        }
    });
    started.elapsed()
}

pub fn claim_many() {
    const CALLS: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.db");
    let store = Store::open(&file).unwrap();
    let owners: Vec<_> = (0..64).map(|i| format!("owner-{i}")).collect();
    let ids: Vec<_> = (0..2 * CALLS).map(|i| format!("job-{i:05}")).collect();
    store.enqueue_many(&ids).unwrap();
    let (kept, opened) = ids.split_at(CALLS);
    let kept = times(kept, |id| store.claim_many(id, &owners, 1.0, 30.0).unwrap());
    let opened = times(&opened[..CALLS / 4], |id| open_each(&file, id, &owners));
    for (name, times) in [("Store", kept), ("a thread and a connection for each", opened)] {
        println!(
            "{name}: p50 {:.2} ms, p99 {:.2} ms",
            quantile(&times, 0.5).as_secs_f64() * 1e3,
            quantile(&times, 0.99).as_secs_f64() * 1e3
        );
    }
}

fn open_each(file: &Path, id: &str, owners: &[String]) -> Vec<fence::Result<Option<i64>>> {
    std::thread::scope(|scope| {
        let claims: Vec<_> = owners
            .iter()
            .map(|owner| scope.spawn(move || fence::claim(file, id, owner, 1.0, 30.0)))
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    })
}

fn times(ids: &[String], claim: impl Fn(&str) -> Vec<fence::Result<Option<i64>>>) -> Vec<Duration> {
    let mut times: Vec<_> = ids
        .iter()
        .map(|id| {
            let started = Instant::now();
            let answers = claim(id);
            let time = started.elapsed();
            let won = answers.into_iter().filter(|answer| matches!(answer, Ok(Some(1)))).count();
            assert_eq!(won, 1);
            time
        })
        .collect();
    times.sort();
    times
}
