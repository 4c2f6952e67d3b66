//! Eight processes, half of them Python with the loaded extension and half with the Rust API,
//! work off the same jobs. Some fall asleep over a job, lose it and wake up again.
//!
//! The rules of a worker: it passes over all jobs again and again and claims what is due by its
//! own clock, in the first pass also what is not; no two clocks agree. Over certain generations
//! of certain jobs it falls asleep; it leaves such a job to the others and, when somebody took it
//! over, tries to renew, complete and release it all the same. Any other job it completes at
//! once, and once more. After a pass in which it could claim nothing it sets its clock to the end
//! of the next lease, so that it also takes jobs from workers that are awake.
//!
//! The workers are this program with other arguments, so it does without the usual harness.
mod common;

use fence::{Error, Store};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

const WORKERS: usize = 8;
const JOBS: usize = 200;
const TTL: f64 = 10.0;

/// Whether whoever has this generation of the job falls asleep over it: one to three generations
/// of every fourth job.
fn falls_asleep(job: usize, fence: i64) -> bool {
    job.is_multiple_of(4) && fence <= 1 + (job as i64 / 4) % 3
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, database, worker, owner] = &arguments[..] {
        if word == "worker" {
            work(Path::new(database), worker.parse().unwrap(), owner);
            return ExitCode::SUCCESS;
        }
    }
    let name = "eight_processes_complete_each_job_once_and_by_its_last_generation";
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{name}: test");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
    println!("\nrunning 1 test");
    eight_processes(); // a panic is a failure by its exit code
    println!("test {name} ... ok\n");
    ExitCode::SUCCESS
}

/// What one worker said it did.
#[derive(Debug)]
enum Did {
    Claim { fence: i64, now: f64 },
    Complete { fence: i64, accepted: bool, again: bool },
    Late { fence: i64, accepted: [bool; 3] },
}

fn eight_processes() {
    let scratch = common::Scratch::new();
    fence::init_db(scratch.db()).unwrap();
    let conn = scratch.loaded();
    for job in 0..JOBS {
        assert_eq!(common::one::<i64>(&conn, &format!("SELECT fence_enqueue('job-{job}')")), 1);
    }

    let python = common::python();
    let mut workers: Vec<Child> = (0..WORKERS)
        .map(|worker| {
            // Half of the workers of each kind go by the same name: the fence tells them apart.
            let owner =
                if worker % 2 == 0 { "worker".to_string() } else { format!("worker-{worker}") };
            let mut command = match &python {
                Some(python) if worker < WORKERS / 2 => {
                    by_python(python, &scratch.db(), worker, &owner)
                }
                _ => by_rust(&scratch.db(), worker, &owner),
            };
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut outputs: Vec<_> =
        workers.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for output in &mut outputs {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
    for worker in &mut workers {
        worker.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    // One reader for each, or a full pipe would stop the worker.
    let readers: Vec<_> = outputs
        .into_iter()
        .map(|mut output| {
            std::thread::spawn(move || {
                let mut text = String::new();
                output.read_to_string(&mut text).unwrap();
                text
            })
        })
        .collect();

    let mut history: BTreeMap<String, Vec<(usize, Did)>> = BTreeMap::new();
    let mut busy = 0;
    for (worker, (mut child, reader)) in workers.into_iter().zip(readers).enumerate() {
        let text = reader.join().unwrap();
        assert!(child.wait().unwrap().success(), "worker {worker} failed: {text}");
        for line in text.lines() {
            match parse(line) {
                Some((job, did)) => history.entry(job).or_default().push((worker, did)),
                None => busy += 1,
            }
        }
    }
    let claims: usize = history
        .values()
        .map(|job| job.iter().filter(|(_, did)| matches!(did, Did::Claim { .. })).count())
        .sum();
    println!("{JOBS} jobs, {claims} claims, {busy} times busy");

    for job in 0..JOBS {
        let id = format!("job-{job}");
        let (fence, done, result): (i64, i64, String) = conn
            .query_row("SELECT fence, done, result FROM jobs WHERE id = ?", [&id], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .unwrap();
        assert_eq!(done, 1, "{id}");
        check(job, &history[&id], fence, result);
    }
    assert_eq!(history.len(), JOBS);
}

fn by_python(python: &Path, database: &Path, worker: usize, owner: &str) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/worker.py");
    let mut command = Command::new(python);
    command.arg(script).args([common::extension(), database]);
    command.args([&worker.to_string(), owner, &JOBS.to_string(), &TTL.to_string()]);
    command
}

fn by_rust(database: &Path, worker: usize, owner: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("worker").arg(database).args([&worker.to_string(), owner]);
    command
}

fn parse(line: &str) -> Option<(String, Did)> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |i: usize| words[i].parse::<i64>().unwrap_or_else(|_| panic!("{line}"));
    let yes = |i: usize| number(i) == 1;
    let did = match words[0] {
        "busy" => return None,
        "claim" => Did::Claim { fence: number(2), now: words[3].parse().unwrap() },
        "complete" => Did::Complete { fence: number(2), accepted: yes(3), again: yes(4) },
        "late" => Did::Late { fence: number(2), accepted: [yes(3), yes(4), yes(5)] },
        _ => panic!("{line}"),
    };
    Some((words[1].into(), did))
}

/// Checks what all workers did with one job against what the database has in the end.
fn check(job: usize, history: &[(usize, Did)], last: i64, result: String) {
    let story = || format!("job-{job}, {result}: {history:?}");

    // Who got which generation: each was handed out once, without a gap.
    let mut claims: Vec<(i64, usize)> = Vec::new();
    let mut moments: Vec<(i64, f64)> = Vec::new();
    for (worker, did) in history {
        if let Did::Claim { fence, now } = did {
            claims.push((*fence, *worker));
            moments.push((*fence, *now));
        }
    }
    claims.sort();
    let fences: Vec<i64> = claims.iter().map(|(fence, _)| *fence).collect();
    assert_eq!(fences, (1..=last).collect::<Vec<_>>(), "{}", story());

    // Nobody renewed, so none began before the one before it was over.
    moments.sort_by_key(|(fence, _)| *fence);
    assert!(moments.windows(2).all(|two| two[1].1 >= two[0].1 + TTL), "{}", story());

    // One completion counted: that of the last generation, whose result is stored.
    let mut accepted = Vec::new();
    for (worker, did) in history {
        if let Did::Complete { fence, accepted: true, .. } = did {
            accepted.push((*fence, *worker));
        }
        assert!(!matches!(did, Did::Complete { again: true, .. }), "{}", story());
    }
    assert_eq!(accepted, [claims[claims.len() - 1]], "{}", story());
    assert_eq!(result, format!("{}/{last}", accepted[0].1), "{}", story());

    // Who fell asleep lost the job to somebody else, and woke up to three refusals.
    for (fence, worker) in &claims {
        if !falls_asleep(job, *fence) {
            continue;
        }
        let successor = claims[*fence as usize].1;
        assert_ne!(successor, *worker, "{}", story());
        let wakes: Vec<_> = history
            .iter()
            .filter_map(|(who, did)| match did {
                Did::Late { fence: f, accepted } if (f, who) == (fence, worker) => Some(accepted),
                _ => None,
            })
            .collect();
        assert_eq!(wakes, [&[false; 3]], "{}", story());
    }
    let late = history.iter().filter(|(_, did)| matches!(did, Did::Late { .. })).count();
    let asleep = fences.iter().filter(|fence| falls_asleep(job, **fence)).count();
    assert_eq!(late, asleep, "{}", story());
}

/// Asks again as long as the database is busy; any other error ends the worker.
fn retry<T: Debug>(mut call: impl FnMut() -> fence::Result<T>) -> T {
    loop {
        match call() {
            Err(Error::Busy(_)) => println!("busy"),
            answer => return answer.unwrap(),
        }
    }
}

/// A worker with the Rust API. The one in Python goes by the same rules.
fn work(database: &Path, worker: usize, owner: &str) {
    let store = Store::open(database).unwrap();
    let mut asleep: BTreeMap<String, (i64, f64)> = BTreeMap::new();
    let mut now = 4.0 * worker as f64;
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for pass in 0..10_000 {
        let (mut claimed, mut unfinished, mut next_end) = (0, 0, f64::INFINITY);
        for job in 0..JOBS {
            let id = format!("job-{job}");
            let state = retry(|| store.state(&id)).expect("the job is there");
            if asleep.get(&id).is_some_and(|(fence, _)| state.fence > *fence) {
                let (fence, then) = asleep.remove(&id).unwrap();
                let payload = format!("{worker}/{fence}");
                let renewed = retry(|| store.renew(&id, owner, fence, then, TTL));
                let completed = retry(|| store.complete(&id, owner, fence, then, payload.as_str()));
                let released = retry(|| store.release(&id, owner, fence));
                let answers = [renewed, completed, released].map(i64::from);
                println!("late {id} {fence} {} {} {}", answers[0], answers[1], answers[2]);
            }
            if state.done == 1 {
                continue;
            }
            unfinished += 1;
            if asleep.contains_key(&id) {
                continue;
            }
            if state.until > now {
                next_end = state.until.min(next_end);
                if pass > 0 {
                    continue;
                }
            }
            let Some(lease) = retry(|| store.claim(&id, owner, now, TTL)) else { continue };
            claimed += 1;
            let fence = lease.fence();
            println!("claim {id} {fence} {now}");
            if falls_asleep(job, fence) {
                asleep.insert(id, (fence, now));
            } else {
                let payload = format!("{worker}/{fence}");
                let completed = retry(|| lease.complete(now, payload.as_str()));
                let again = retry(|| lease.complete(now, "again"));
                println!("complete {id} {fence} {} {}", i64::from(completed), i64::from(again));
            }
        }
        if unfinished == 0 && asleep.is_empty() {
            return;
        }
        if claimed == 0 && next_end.is_finite() {
            now = next_end;
        }
    }
    panic!("no progress in 10,000 passes");
}
