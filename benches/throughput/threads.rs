//! Threads of one process: a shared store beside a connection for each.

use fence::{Durability, Options, Store};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::workers::{open, ByStatement, CLAIM, CLAIM_NEXT, COMPLETE};
use crate::{alternate, quantile, ratio};

/// Which job a thread takes.
#[derive(Clone, Copy)]
pub enum Take {
    /// One of its own, beside those of the others.
    Own,
    /// The next one that is due.
    Next,
}

pub fn group_commit(threads: usize, durability: Durability, take: Take) {
    let mut options = Options::default();
    options.durability = durability;
    options.busy_timeout = Duration::from_secs(60);
    let jobs = if durability == Durability::Full { 20 } else { 1_000 };
    let jobs_times = [const { Mutex::new(Vec::new()) }; 3];
    let arm = |kind: Kind| {
        let times = &jobs_times[kind as usize];
        move || run(threads, jobs, options, take, kind, times)
    };
    let totals = alternate(
        5,
        [
            &mut arm(Kind::Shared) as &mut dyn FnMut() -> Duration,
            &mut arm(Kind::Each),
            &mut arm(Kind::Plain),
        ],
    );
    let what = match take {
        Take::Own => "by id",
        Take::Next => "what is due",
    };
    println!(
        "{threads} threads, {durability:?}, {what}: jobs per second, and the time for one job"
    );
    let names = ["one Store", "a Store each", "a connection each, busy_timeout"];
    for ((name, total), times) in names.iter().zip(totals).zip(jobs_times) {
        let mut times = times.into_inner().unwrap();
        times.sort();
        println!(
            "  {name}: {:.2}, p50 {:.2} ms, p99.9 {:.1} ms",
            ratio(totals[0], total),
            quantile(&times, 0.5).as_secs_f64() * 1e3,
            quantile(&times, 0.999).as_secs_f64() * 1e3
        );
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Shared,
    Each,
    Plain,
}

fn run(
    threads: usize,
    jobs: usize,
    options: Options,
    take: Take,
    kind: Kind,
    all: &Mutex<Vec<Duration>>,
) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.db");
    let store = Store::open_with(&file, options).unwrap();
    if let Take::Next = take {
        store.init_queue().unwrap();
    }
    let id = |i: usize, thread: usize| format!("job-{i:05}-{thread:02}");
    let ids = (0..jobs).flat_map(|i| (0..threads).map(move |thread| id(i, thread)));
    store.enqueue_many(&ids.collect::<Vec<_>>()).unwrap();
    let stores: Vec<_> = (0..threads)
        .map(|_| match kind {
            Kind::Each => Store::open_with(&file, options).unwrap(),
            _ => store.clone(),
        })
        .collect();
    let connections: Vec<_> = (0..threads).map(|_| open(&file, options.durability)).collect();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (thread, (store, conn)) in stores.iter().zip(connections).enumerate() {
            scope.spawn(move || {
                let claim = match take {
                    Take::Own => CLAIM,
                    Take::Next => CLAIM_NEXT,
                };
                let mut plain = ByStatement::new(&conn, claim, COMPLETE);
                let mut times = Vec::with_capacity(jobs);
                for i in 0..jobs {
                    let asked = Instant::now();
                    match (kind, take) {
                        (Kind::Plain, Take::Own) => plain.job(&id(i, thread)),
                        (Kind::Plain, Take::Next) => plain.next(),
                        (_, take) => {
                            let lease = match take {
                                Take::Own => store.claim(&id(i, thread), "worker", 1.0, 30.0),
                                Take::Next => store.claim_next("", "worker", 1.0, 30.0),
                            };
                            assert!(lease.unwrap().unwrap().complete(2.0, "result").unwrap());
                        }
                    }
                    times.push(asked.elapsed());
                }
                all.lock().unwrap().append(&mut times);
            });
        }
    });
    started.elapsed()
}

type Answers = Vec<fence::Result<Option<i64>>>;

pub fn claim_many() {
    let owners: Vec<_> = (0..64).map(|i| format!("owner-{i}")).collect();
    for durability in [Durability::Normal, Durability::Full] {
        let mut options = Options::default();
        options.durability = durability;
        let (store, ids, _dir) = jobs(200, options);
        report(&format!("Store, {durability:?}"), &ids, |id| {
            store.claim_many(id, &owners, 1.0, 30.0).unwrap()
        });
    }
    let (_store, ids, dir) = jobs(50, Options::default());
    let file = dir.path().join("jobs.db");
    report("a thread and a connection for each", &ids, |id| open_each(&file, id, &owners));
}

fn jobs(count: usize, options: Options) -> (Store, Vec<String>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path().join("jobs.db"), options).unwrap();
    let ids: Vec<_> = (0..count).map(|i| format!("job-{i:05}")).collect();
    store.enqueue_many(&ids).unwrap();
    (store, ids, dir)
}

fn report(name: &str, ids: &[String], claim: impl Fn(&str) -> Answers) {
    let times = times(ids, claim);
    println!(
        "{name}: p50 {:.2} ms, p99 {:.2} ms",
        quantile(&times, 0.5).as_secs_f64() * 1e3,
        quantile(&times, 0.99).as_secs_f64() * 1e3
    );
}

fn open_each(file: &Path, id: &str, owners: &[String]) -> Answers {
    std::thread::scope(|scope| {
        let claims: Vec<_> = owners
            .iter()
            .map(|owner| scope.spawn(move || fence::claim(file, id, owner, 1.0, 30.0)))
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    })
}

fn times(ids: &[String], claim: impl Fn(&str) -> Answers) -> Vec<Duration> {
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
