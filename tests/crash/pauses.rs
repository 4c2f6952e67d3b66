//! SIGSTOP and SIGCONT: the worker that stalled, lost its lease and woke up again.
use super::broken::Fault;
use super::child::{clock, Orders};
use super::common::tier::{scale, seed, Random};
use super::common::{extension, one, Scratch};
use super::door::{self, Busy, Door, Kept, Sql};
use super::harness::Test;
use super::{Line, Process};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

pub const TESTS: [Test; 2] = [
    ("a_worker_that_slept_past_its_lease_is_refused", pauses),
    ("a_sleeper_that_completes_without_fence_is_found_out", found_out),
];

/// How many pauses one sleeper and its file see.
const PER_SLEEPER: usize = 50;

#[derive(Default)]
struct Totals {
    pauses: usize,
    /// Stopped between the claim and everything else, with its clock standing still.
    after_claim: usize,
    /// The same by the clock of the machine, until the lease ran out.
    by_clock: usize,
    /// Stopped anywhere, and another took over.
    anywhere: usize,
    /// Stopped anywhere, when the job was done already.
    too_late: usize,
    /// Stopped inside a transaction: nobody else can write until it wakes up.
    in_transaction: usize,
}

fn pauses() {
    let wanted = scale(10, 300, 10_000);
    let seed = seed();
    let mut random = Random::new(seed);
    let (start, mut totals, mut sleepers) = (Instant::now(), Totals::default(), 0);
    while totals.pauses < wanted {
        // In the fast tier too each journal mode and each door has its turn.
        let number = (wanted / 4 + 1).min(PER_SLEEPER).min(wanted - totals.pauses);
        let mut story = Story::begin(random.next(), sleepers, Fault::None);
        for _ in 0..number {
            if let Err(e) = story.pause(&mut totals) {
                panic!("seed {seed}, sleeper {sleepers}, pause {}: {e}", totals.pauses);
            }
        }
        sleepers += 1;
    }
    let Totals { pauses, after_claim, by_clock, anywhere, too_late, in_transaction } = totals;
    println!(
        "pauses: seed {seed}, {pauses} pauses of {sleepers} sleepers in {:.1} s; taken over after \
         the claim {after_claim}, by the clock of the machine {by_clock}, anywhere {anywhere}; \
         done before the pause {too_late}, stopped in a transaction {in_transaction}",
        start.elapsed().as_secs_f64()
    );
    assert!(after_claim > 0 && by_clock > 0, "every way of losing a lease has its turn");
}

fn found_out() {
    let mut story = Story::begin(seed(), 0, Fault::CompletesWithoutFence);
    let mut totals = Totals::default();
    let sentence = loop {
        assert!(totals.pauses < 10, "the story passes a sleeper without a fence");
        if let Err(sentence) = story.pause(&mut totals) {
            break sentence;
        }
    };
    assert_eq!(sentence, "the sleeper was told 1 to its completion");
}

/// A sleeper, its file, and the worker that takes over through another door.
struct Story {
    // Before the file that it works on.
    sleeper: Process,
    lines: Receiver<Line>,
    successor: Box<dyn Door>,
    scratch: Scratch,
    random: Random,
    jobs: usize,
}

impl Story {
    fn begin(seed: u64, number: usize, fault: Fault) -> Story {
        let scratch = door::scratch();
        let (wal, by_sql) = (number.is_multiple_of(2), (number / 2).is_multiple_of(2));
        let conn = scratch.loaded();
        let mode: String = one(
            &conn,
            if wal { "PRAGMA journal_mode = WAL" } else { "PRAGMA journal_mode = DELETE" },
        );
        assert_eq!(mode, if wal { "wal" } else { "delete" });
        conn.execute_batch("SELECT fence_init();").unwrap();
        conn.execute_batch(door::EFFECTS).unwrap();

        let rust = if wal { "store" } else { "paths" };
        let orders = Orders {
            database: scratch.db(),
            extension: extension().to_owned(),
            door: if by_sql { "extension" } else { rust }.into(),
            fault,
            timeout: Duration::from_secs(5),
            seed,
        };
        // Who meets the lock of a sleeper waits in vain, and so not for long.
        let (db, patience) = (scratch.db(), Duration::from_millis(20));
        let successor: Box<dyn Door> = match (by_sql, wal) {
            (false, _) => Box::new(Sql::loaded(&db, extension(), patience, Fault::None)),
            (true, true) => {
                Box::new(Kept::new(Kept::open(&db, patience, fence::Durability::Normal)))
            }
            (true, false) => Box::new(Sql::registered(&db, patience)),
        };
        let (sender, lines) = channel();
        let sleeper = Process::start("sleeper", &orders, 0, sender);
        Story { sleeper, lines, successor, scratch, random: Random::new(seed), jobs: 0 }
    }

    fn tell(&mut self, line: &str) {
        use std::io::Write;
        let input = self.sleeper.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let (_, line) = self.lines.recv_timeout(Duration::from_secs(120)).expect("no answer");
        line.expect("the sleeper ended, its sentence stands above")
    }

    /// One pause, of one of three kinds.
    fn pause(&mut self, totals: &mut Totals) -> Result<(), String> {
        let id = format!("j{}", self.jobs);
        self.jobs += 1;
        assert!(self.patiently(|door| door.enqueue(&id)));
        let kind = totals.pauses % 5;
        totals.pauses += 1;
        match kind {
            0 | 2 => {
                totals.after_claim += 1;
                self.tell(&format!("{id} 0 0"));
                self.after_claim(&id, || 10.0, kind == 0)
            }
            4 => {
                totals.by_clock += 1;
                self.tell(&format!("{id} 0.03 0"));
                self.after_claim(&id, clock, self.jobs.is_multiple_of(2))
            }
            _ => {
                let renewals = 20 + self.random.below(200);
                self.tell(&format!("{id} 0 {renewals}"));
                self.anywhere(&id, totals)
            }
        }
    }

    /// The sleeper is stopped when it has claimed, and wakes up when its successor has claimed, or
    /// is done.
    fn after_claim(&mut self, id: &str, now: impl Fn() -> f64, done: bool) -> Result<(), String> {
        assert_eq!(self.hear(), "claim 1");
        self.sleeper.stop();
        // It finds this when it wakes up.
        self.tell("go on");
        let fence = loop {
            // By the clock of the machine the lease has to run out first.
            if let Some(fence) = self.successor.claim(id, "successor", now(), 60.0).unwrap() {
                break fence;
            }
        };
        assert_eq!(fence, 2);
        if done {
            self.finish(id, now());
        }
        self.sleeper.signal(libc::SIGCONT);
        self.refused()?;
        if !done {
            self.finish(id, now());
        }
        self.as_the_successor_left_it(id)
    }

    fn finish(&self, id: &str, now: f64) {
        assert!(self.patiently(|door| door.complete(id, "successor", 2, now, "successor")));
    }

    /// The sleeper is stopped at a random moment of its work.
    fn anywhere(&mut self, id: &str, totals: &mut Totals) -> Result<(), String> {
        assert_eq!(self.hear(), "claim 1");
        std::thread::sleep(Duration::from_micros(self.random.below(2_000) as u64));
        self.sleeper.stop();
        let claimed = self.successor.claim(id, "successor", 10.0, 10.0);
        if let Ok(Some(fence)) = claimed {
            assert_eq!(fence, 2);
            self.finish(id, 10.0);
            totals.anywhere += 1;
            self.sleeper.signal(libc::SIGCONT);
            self.refused()?;
            return self.as_the_successor_left_it(id);
        }
        match claimed {
            Err(Busy) => totals.in_transaction += 1,
            _ => totals.too_late += 1,
        }
        self.sleeper.signal(libc::SIGCONT);
        // Nobody took over: it completed by its write, and once.
        let answers = self.hear();
        let row = self.patiently(|door| door.state(id)).expect("enqueued");
        if answers != "1 0 0 0" || (row.fence, row.done) != (1, 1) {
            return Err(format!("undisturbed, the sleeper was told {answers}: {row:?}"));
        }
        Ok(())
    }

    /// The sleeper was told no to everything.
    fn refused(&mut self) -> Result<(), String> {
        let answers = self.hear();
        for (answer, name) in answers.split(' ').zip(["write", "completion", "renewal", "release"])
        {
            if answer != "0" {
                return Err(format!("the sleeper was told {answer} to its {name}"));
            }
        }
        Ok(())
    }

    /// And nothing of it is in the file.
    fn as_the_successor_left_it(&self, id: &str) -> Result<(), String> {
        let row = self.patiently(|door| door.state(id)).expect("enqueued");
        let found = (row.owner.as_deref(), row.fence, row.result.as_deref(), row.done);
        if found != (Some("successor"), 2, Some("successor"), 1) {
            return Err(format!("not as the successor left it: {row:?}"));
        }
        let conn = door::connect(&self.scratch.db(), Duration::from_secs(5));
        let effects = "SELECT count(*) FROM effects WHERE job = ?1";
        match conn.query_row(effects, [id], |row| row.get::<_, i64>(0)).unwrap() {
            0 => Ok(()),
            _ => Err(format!("the sleeper's write is in the file: {row:?}")),
        }
    }

    /// Tries until no lock is in the way: the sleeper is awake.
    fn patiently<T>(&self, ask: impl Fn(&dyn Door) -> door::Answer<T>) -> T {
        loop {
            if let Ok(answer) = ask(&*self.successor) {
                return answer;
            }
        }
    }
}
