//! Several processes drain a queue while some of them are killed (SIGKILL) with jobs in their
//! hands; others take their place. In the end the file itself proves that every job was completed
//! exactly once.
//!
//! `cargo run --release --example drain` drains 100,000 jobs. `.. -- --jobs 2000 --workers 3
//! --kills 2` for other numbers, `.. -- FILE` keeps the database, in a new file, and
//! `.. -- --check FILE` looks at it again.
//!
//! The proof: a worker writes a row into `effect` in the transaction that completes the job. That
//! table has no constraint, so it would show every job that was done twice, and by whom.
use fence::{Durability, Error, Options, Store};
use indicatif::{ProgressBar, ProgressStyle};
use rusqlite::{Connection, OpenFlags};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const QUEUE: &str = "drain";
/// Jobs that a worker takes at once. Those of a killed one wait for the end of their leases.
const BATCH: i64 = 50;
const TTL: f64 = 2.0;
/// A run in which nothing was completed for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

struct Plan {
    jobs: u32,
    workers: u32,
    kills: u32,
    file: Option<PathBuf>,
    check: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", file, owner] => work(file.as_ref(), owner).map(|()| true),
        _ => plan(arguments).and_then(|plan| match &plan.file {
            Some(file) if plan.check => prove(file, None),
            Some(file) if file.exists() => {
                Err("this file is there already; choose a new one, or --check it".into())
            }
            Some(file) => drain(&plan, file),
            None if plan.check => Err("--check needs a file".into()),
            None => drain(&plan, &tempfile::tempdir()?.path().join("jobs.db")),
        }),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("drain: {e}");
            ExitCode::from(2)
        }
    }
}

fn plan(arguments: Vec<String>) -> Result<Plan> {
    let mut plan = Plan { jobs: 100_000, workers: 4, kills: 6, file: None, check: false };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let number = arguments.next().and_then(|text| text.parse().ok());
            number.ok_or_else(|| format!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--jobs" => plan.jobs = number()?,
            "--workers" => plan.workers = number()?,
            "--kills" => plan.kills = number()?,
            "--check" => plan.check = true,
            file if !file.starts_with('-') && plan.file.is_none() => plan.file = Some(file.into()),
            _ => {
                let usage = "usage: drain [--jobs N] [--workers N] [--kills N] [--check] [FILE]";
                return Err(usage.into());
            }
        }
    }
    if plan.workers == 0 {
        return Err("nobody would do the work".into());
    }
    Ok(plan)
}

fn store(file: &Path) -> Result<Store> {
    let mut options = Options::default();
    // A killed process loses nothing that was committed; only a power cut could.
    options.durability = Durability::Normal;
    options.busy_timeout = Duration::from_secs(30);
    Ok(Store::open_with(file, options)?)
}

/// Takes jobs and completes them until it is killed, or its parent closes its standard input.
fn work(file: &Path, owner: &str) -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let store = store(file)?;
    loop {
        let leases = store.claim_batch(QUEUE, owner, None, TTL, BATCH)?;
        if leases.is_empty() {
            store.wait(QUEUE, Duration::from_secs(1))?;
        }
        for lease in leases {
            let written = lease.write(None, |tx| {
                tx.execute(
                    "INSERT INTO effect(job, fence, worker) VALUES (?1, ?2, ?3)",
                    (lease.id(), tx.fence(), owner),
                )?;
                tx.complete(owner)
            });
            match written {
                // Too slow: another worker has the job now.
                Ok(()) | Err(Error::NotHeld { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// A worker process; it ends with this value.
struct Worker {
    owner: String,
    process: Child,
}

impl Worker {
    fn start(file: &Path, number: u32) -> Result<Worker> {
        let owner = format!("worker-{number}");
        let process = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(file)
            .arg(&owner)
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Worker { owner, process })
    }

    fn kill(&mut self) -> Result<()> {
        self.process.kill()?; // SIGKILL: it can do nothing any more
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn drain(plan: &Plan, file: &Path) -> Result<bool> {
    let store = store(file)?;
    store.init_queue()?;
    let conn = Connection::open(file)?;
    conn.execute_batch("CREATE TABLE effect(job TEXT, fence INTEGER, worker TEXT)")?;
    let ids: Vec<String> = (1..=plan.jobs).map(|i| format!("{QUEUE}:{i}")).collect();
    if store.enqueue_many(&ids)? != ids.len() {
        return Err("not all jobs are new".into());
    }
    println!("{} jobs, {} workers, {} of them to be killed", plan.jobs, plan.workers, plan.kills);

    let begun = Instant::now();
    let bar = ProgressBar::new(plan.jobs.into());
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} {pos}/{len} jobs, {per_sec}, {eta} to go, {msg}",
    )?);
    let mut workers = Vec::new();
    for number in 1..=plan.workers {
        workers.push(Worker::start(file, number)?);
    }
    let (mut started, mut killed, mut in_hand) = (plan.workers, 0, 0);
    let mut progress = (0, Instant::now());
    loop {
        let done: u32 =
            conn.query_row("SELECT coalesce(max(rowid), 0) FROM effect", [], |row| row.get(0))?;
        bar.set_position(done.into());
        bar.set_message(format!("{killed} killed"));
        if done > progress.0 {
            progress = (done, Instant::now());
        } else if progress.1.elapsed() > PATIENCE {
            bar.abandon();
            return Err(format!("stuck after {done} jobs").into());
        }
        let open = "SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY fence_queue WHERE done = 0)";
        if !conn.query_row(open, [], |row| row.get::<_, bool>(0))? {
            break;
        }
        for worker in &mut workers {
            if let Some(status) = worker.process.try_wait()? {
                bar.abandon();
                return Err(format!("{} ended by itself: {status}", worker.owner).into());
            }
        }
        // The kills are spread over the work.
        if killed < plan.kills && done >= plan.jobs * (killed + 1) / (plan.kills + 1) {
            let mut victim = workers.remove(0);
            victim.kill()?;
            let left: u32 = conn.query_row(
                "SELECT count(*) FROM jobs INDEXED BY fence_queue WHERE done = 0 AND owner = ?1
                    AND substr(id, 1, max(instr(id, ':') - 1, 0)) = ?2",
                (&victim.owner, QUEUE),
                |row| row.get(0),
            )?;
            started += 1;
            let next = Worker::start(file, started)?;
            let line = format!(
                "killed {} at {done} jobs done with {left} in its hands, started {}",
                victim.owner, next.owner
            );
            bar.suspend(|| println!("{line}"));
            workers.push(next);
            // One that had nothing in its hands proves nothing: it is not counted.
            if left > 0 {
                killed += 1;
                in_hand += left;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(workers);
    bar.finish_and_clear();
    let seconds = begun.elapsed().as_secs_f64();
    println!("drained in {seconds:.1} s, {:.0} jobs/s", f64::from(plan.jobs) / seconds);
    println!("{killed} workers were killed with {in_hand} jobs in their hands");
    if killed < plan.kills {
        println!("WRONG: the jobs were done before {} workers could be killed", plan.kills);
        return Ok(false);
    }
    prove(file, Some(plan.jobs))
}

/// Everything that must be true of the file at the end, and how many rows say otherwise.
const CLAIMS: [(&str, &str); 6] = [
    ("every job is completed", "SELECT count(*) FROM jobs WHERE done <> 1"),
    (
        "every job has its effect",
        "SELECT count(*) FROM jobs WHERE id NOT IN (SELECT job FROM effect)",
    ),
    (
        "no job has two effects",
        "SELECT count(*) FROM (SELECT job FROM effect GROUP BY job HAVING count(*) > 1)",
    ),
    (
        "no effect is without a job",
        "SELECT count(*) FROM effect WHERE job NOT IN (SELECT id FROM jobs)",
    ),
    (
        "every effect is by the last claim of its job",
        "SELECT count(*) FROM effect JOIN jobs ON id = job
          WHERE effect.fence <> jobs.fence OR worker <> owner OR worker <> result",
    ),
    (
        "the file is sound",
        "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    ),
];

/// Looks at nothing but the file.
fn prove(file: &Path, jobs: Option<u32>) -> Result<bool> {
    let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let (count, again): (u32, u32) =
        conn.query_row("SELECT count(*), sum(fence > 1) FROM jobs", [], |row| {
            Ok((row.get(0)?, row.get::<_, Option<u32>>(1)?.unwrap_or(0)))
        })?;
    println!("{count} jobs, {again} of them were claimed more than once");
    let mut holds = jobs.is_none_or(|jobs| jobs == count);
    if !holds {
        println!("WRONG: {} jobs were enqueued", jobs.unwrap_or(0));
    }
    for (claim, counterexamples) in CLAIMS {
        match conn.query_row(counterexamples, [], |row| row.get(0))? {
            0_u32 => println!("{claim}"),
            wrong => {
                println!("WRONG: it is not true that {claim}, see {wrong} of them");
                holds = false;
            }
        }
    }
    Ok(holds)
}
