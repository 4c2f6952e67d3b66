//! SIGKILL at random moments.
use super::acks::{check, Acks, Snapshot, RECORDS};
use super::broken::Fault;
use super::child::{Orders, JOBS};
use super::common::tier::{scale, seed, Random};
use super::common::{extension, one, Scratch};
use super::door::{self, Door, Sql};
use super::harness::Test;
use super::{Line, Process};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

pub const TESTS: [Test; 4] = [
    ("what_a_killed_worker_was_told_stands", kills),
    ("a_completion_without_fence_is_found_out", || found_out(Fault::CompletesWithoutFence)),
    ("a_fence_from_the_first_step_is_found_out", || found_out(Fault::ClaimStepsOnce)),
    ("a_write_in_another_transaction_is_found_out", || found_out(Fault::WritesThenCompletes)),
];

/// How many children work on a file at once.
const CHILDREN: usize = 3;
/// How many die on one file, before it has grown too much to be read after each.
const PER_FILE: usize = 24;

#[derive(Default)]
struct Totals {
    kills: usize,
    files: usize,
    acknowledged: usize,
    claims: usize,
    renewals: usize,
    completions: usize,
    effects: usize,
    purges: usize,
    /// Claims and completions that were committed and never acknowledged.
    unacknowledged: usize,
    /// Files that their dead writers left with a journal to be rolled back or a log to be read.
    recovered: usize,
}

fn kills() {
    let wanted = scale(60, 3_000, 100_000);
    let seed = seed();
    let mut random = Random::new(seed);
    let (start, mut totals) = (Instant::now(), Totals::default());
    while totals.kills < wanted {
        let journal = if totals.files % 2 == 0 { "WAL" } else { "DELETE" };
        let number = PER_FILE.min(wanted - totals.kills);
        if let Err(e) = file(random.next(), journal, number, Fault::None, &mut totals) {
            panic!("seed {seed}, file {}, {journal}: {e}", totals.files);
        }
        // A long run tells how far it is.
        if totals.files.is_multiple_of(400) {
            totals.print(seed, start);
        }
    }
    totals.print(seed, start);
    let Totals { claims, renewals, completions, effects, purges, recovered, .. } = totals;
    for (what, n) in [
        ("claim", claims),
        ("renewal", renewals),
        ("completion", completions),
        ("write with a completion", effects),
        ("purge", purges),
        ("recovery", recovered),
    ] {
        assert!(n > 0, "no {what} in the whole run");
    }
}

impl Totals {
    fn print(&self, seed: u64, start: Instant) {
        let Totals { kills, files, acknowledged, claims, renewals, completions, .. } = self;
        let Totals { effects, purges, unacknowledged, recovered, .. } = self;
        println!(
            "kills: seed {seed}, {kills} kills on {files} files in {:.1} s; {acknowledged} answers \
             acknowledged: {claims} claims, {renewals} renewals, {completions} completions, \
             {effects} of them with a write of their own, {purges} purges; {unacknowledged} claims \
             and completions committed without being acknowledged, {recovered} times a file to \
             recover",
            start.elapsed().as_secs_f64()
        );
    }
}

/// Children that are broken on purpose: the rules find it out, soon.
fn found_out(fault: Fault) {
    let seed = seed();
    let mut random = Random::new(seed);
    let (start, mut totals) = (Instant::now(), Totals::default());
    let sentence = loop {
        assert!(totals.files < 20, "the rules pass {fault:?}, seed {seed}");
        // A commit that is left to the reset fails where a reader is in the way.
        if let Err(e) = file(random.next(), "DELETE", PER_FILE, fault, &mut totals) {
            break e;
        }
    };
    let (kills, seconds) = (totals.kills, start.elapsed().as_secs_f64());
    println!("{fault:?}: seed {seed}, after {kills} kills, {seconds:.1} s: {sentence}");
    let expected: &[&str] = match fault {
        Fault::ClaimStepsOnce => &["was acknowledged twice", "was never stored"],
        Fault::CompletesWithoutFence => &["is gone"],
        _ => &["an effect without its completion"],
    };
    assert!(expected.iter().any(|expected| sentence.contains(expected)), "{sentence}");
}

/// One file and its children.
struct File {
    // Before the file that they work on, when all goes out of scope.
    children: Vec<(usize, Process)>,
    scratch: Scratch,
    journal: &'static str,
    fault: Fault,
    random: Random,
    lines: (Sender<Line>, Receiver<Line>),
    /// Of each child that ever was: whether it has said all.
    said: Vec<bool>,
    acks: Acks,
}

/// Kills `number` children on a new file and checks it after each.
fn file(
    seed: u64,
    journal: &'static str,
    number: usize,
    fault: Fault,
    totals: &mut Totals,
) -> Result<(), String> {
    let scratch = door::scratch();
    let conn = scratch.loaded();
    let mode: String = one(&conn, &format!("PRAGMA journal_mode = {journal}"));
    assert_eq!(mode, journal.to_lowercase());
    conn.execute_batch("SELECT fence_init(); SELECT fence_purge(0, 1);").unwrap();
    conn.execute_batch(door::EFFECTS).unwrap();
    conn.execute_batch(RECORDS).unwrap();
    drop(conn);

    let mut file = File {
        scratch,
        journal,
        fault,
        random: Random::new(seed),
        children: Vec::new(),
        lines: channel(),
        said: Vec::new(),
        acks: Acks::default(),
    };
    totals.files += 1;
    let mut killed = 0;
    while killed < number {
        while file.children.len() < CHILDREN {
            file.start();
        }
        // One of them, the others go on; or all, and the next to open the file has to recover it.
        let victims = if file.random.below(4) == 0 { CHILDREN } else { 1 };
        for _ in 0..victims.min(number - killed) {
            file.kill();
            killed += 1;
            totals.kills += 1;
        }
        totals.recovered += usize::from(file.children.is_empty() && file.to_recover());
        file.look()?;
    }
    while !file.children.is_empty() {
        file.kill();
        totals.kills += 1;
    }
    totals.recovered += usize::from(file.to_recover());
    let last = file.look()?;

    let Acks { lines, leases, results, renewed, purged, .. } = &file.acks;
    totals.acknowledged += lines;
    totals.claims += leases.len();
    totals.completions += results.len();
    totals.renewals += renewed;
    totals.purges += purged;
    totals.effects += last.effects.len();
    let done = last.jobs.iter().chain(&last.purged).filter(|row| row.done == 1).count();
    totals.unacknowledged += last.issued.len() + done - leases.len() - results.len();
    file.finish()
}

impl File {
    fn start(&mut self) {
        let number = self.said.len();
        // The children of a broken kind all go through SQL, which is where they can be broken; a
        // store would change the file to WAL.
        let door = match (number.is_multiple_of(2) || self.fault != Fault::None, self.journal) {
            (true, _) => "extension",
            (false, "WAL") => "store",
            (false, _) => "paths",
        };
        let patient = self.fault != Fault::ClaimStepsOnce && self.random.below(2) == 0;
        let orders = Orders {
            database: self.scratch.db(),
            extension: extension().to_owned(),
            door: door.into(),
            fault: self.fault,
            timeout: Duration::from_secs(if patient { 5 } else { 0 }),
            seed: self.random.next(),
        };
        let process = Process::start("worker", &orders, number, self.lines.0.clone());
        self.children.push((number, process));
        self.said.push(false);
    }

    /// Takes the next line that any child says, and tells which.
    fn hear(&mut self) -> usize {
        let line = self.lines.1.recv_timeout(Duration::from_secs(120));
        self.take(line.expect("no child gets on"))
    }

    fn take(&mut self, (number, line): Line) -> usize {
        match line {
            Some(line) => self.acks.add(&line),
            None => self.said[number] = true,
        }
        number
    }

    /// Kills a child some answers and microseconds from now: whoever said the last thing, in the
    /// middle of the next, or any, that may be waiting or starting.
    fn kill(&mut self) {
        let mut last = self.children[self.random.below(self.children.len())].0;
        // With a rollback journal they come slowly.
        let answers = if self.journal == "WAL" { 20 } else { 8 };
        for _ in 0..self.random.below(answers) {
            last = self.hear();
            assert!(!self.said[last], "a child ended by itself, its sentence stands above");
        }
        let found = self.children.iter().position(|(number, _)| *number == last);
        let victim = match found {
            Some(victim) if self.random.below(8) > 0 => victim,
            _ => self.random.below(self.children.len()),
        };
        let (number, mut process) = self.children.swap_remove(victim);
        std::thread::sleep(Duration::from_micros(self.random.below(800) as u64));
        process.kill();
        while !self.said[number] {
            self.hear();
        }
    }

    /// Whether the dead left a transaction to roll back, or a log that nobody has read back.
    fn to_recover(&self) -> bool {
        ["jobs.db-journal", "jobs.db-wal"].iter().any(|name| {
            let file = std::fs::metadata(self.scratch.dir.path().join(name));
            file.is_ok_and(|file| file.len() > 0)
        })
    }

    /// Opens the file anew and checks it against all that was acknowledged before.
    fn look(&mut self) -> Result<Snapshot, String> {
        while let Ok(line) = self.lines.1.try_recv() {
            self.take(line);
        }
        let conn = door::connect(&self.scratch.db(), Duration::from_secs(60));
        let snapshot = Snapshot::read(&conn).map_err(|e| e.to_string())?;
        check(&self.acks, &snapshot)?;
        Ok(snapshot)
    }

    /// The survivors can go on: each job is claimed, completed, purged and added again, each time
    /// with a higher fence than any before.
    fn finish(&mut self) -> Result<(), String> {
        let timeout = Duration::from_secs(5);
        let door = Sql::loaded(&self.scratch.db(), extension(), timeout, Fault::None);
        for id in (0..JOBS).map(|job| format!("j{job}")) {
            for life in 0..2 {
                door.enqueue(&id).unwrap();
                let job = door.state(&id).unwrap().expect("enqueued");
                if job.done == 0 {
                    let claimed = door.claim(&id, "last", job.until, 10.0).unwrap();
                    let fence = claimed.ok_or(format!("{id} cannot be claimed: {job:?}"))?;
                    self.acks.add(&format!("claim {id} {fence} last {}", job.until + 10.0));
                    let highest = self.acks.leases.keys().rfind(|(of, _)| *of == id);
                    if highest != Some(&(id.clone(), fence)) {
                        return Err(format!("fence {fence} of {id} comes after {highest:?}"));
                    }
                    let result = format!("life {life}");
                    if !door.complete(&id, "last", fence, job.until, &result).unwrap() {
                        return Err(format!("{id} cannot be completed: {job:?}"));
                    }
                    self.acks.add(&format!("complete {id} {fence} {result}"));
                }
                door.purge(1e12, 100).unwrap();
            }
        }
        self.look().map(drop)
    }
}
