//! How evenly processes get their turn: the store's jittered busy handler beside SQLite's own.

use fence::Store;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::quantile;
use crate::workers::{normal, open, ByStatement, CLAIM_NEXT, COMPLETE};

const PROCESSES: usize = 8;
const LENGTH: Duration = Duration::from_secs(3);

pub fn compare() {
    for (kind, name) in [("store", "Store"), ("plain", "busy_timeout")] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("jobs.db");
        let store = Store::open_with(&file, normal()).unwrap();
        store.init_queue().unwrap();
        store
            .enqueue_many(&(0..200_000).map(|i| format!("job-{i:07}")).collect::<Vec<_>>())
            .unwrap();
        let this_program = std::env::current_exe().unwrap();
        let children: Vec<_> = (0..PROCESSES)
            .map(|_| {
                Command::new(&this_program)
                    .args(["fair", kind])
                    .arg(&file)
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut counts = Vec::new();
        let mut times = Vec::new();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            let lines = String::from_utf8(output.stdout).unwrap();
            let micros: Vec<u64> = lines.lines().map(|line| line.parse().unwrap()).collect();
            counts.push(micros.len() as f64);
            times.extend(micros.into_iter().map(Duration::from_micros));
        }
        times.sort();
        println!(
            "{name}: {} jobs, Jain fairness {:.3}, p50 {:.2} ms, p99.9 {:.1} ms, longest {:.0} ms",
            times.len(),
            jain(&counts),
            quantile(&times, 0.5).as_secs_f64() * 1e3,
            quantile(&times, 0.999).as_secs_f64() * 1e3,
            times[times.len() - 1].as_secs_f64() * 1e3
        );
    }
}

/// 1 where all get the same, 1/n where one gets all.
fn jain(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    sum * sum / (counts.len() as f64 * squares)
}

/// Prints the time of each claim and completion, in microseconds.
pub fn child(arguments: &[&str]) {
    let [kind, file] = arguments else { panic!("{arguments:?}") };
    let conn = open(file.as_ref(), fence::Durability::Normal);
    let mut job: Box<dyn FnMut() + '_> = if *kind == "store" {
        let store = Store::open_with(file, normal()).unwrap();
        Box::new(move || {
            let lease = store.claim_next("", "worker", 1.0, 30.0).unwrap().unwrap();
            assert!(lease.complete(2.0, "result").unwrap());
        })
    } else {
        let mut statements = ByStatement::new(&conn, CLAIM_NEXT, COMPLETE);
        Box::new(move || statements.next())
    };
    let started = Instant::now();
    let mut times = Vec::new();
    while started.elapsed() < LENGTH {
        let asked = Instant::now();
        job();
        times.push(asked.elapsed().as_micros());
    }
    for time in times {
        println!("{time}");
    }
}
