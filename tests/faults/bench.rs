//! One operation with one fault: what the client is told, what is in the file, and what the next
//! try does.
use rusqlite::Connection;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cases::{Case, File, Journal, PERSIST, TRUNCATE};
use crate::common::tier::{self, Random};
use crate::common::Scratch;
use crate::operations::{dump, integrity, outside, Door, Kind, Operation};

/// Lets something fail that SQLite needs.
pub trait Faults {
    type Plan: Copy + Debug;
    type Failure: Debug;

    /// For the files of a directory.
    fn new(dir: &Path) -> Self;
    /// Counts points from here on, and fails as planned.
    fn arm(&self, plan: Option<Self::Plan>);
    /// Nothing fails any more: every plan for the points that there were, and what failed.
    fn disarm(&self) -> (Vec<Self::Plan>, Option<Self::Failure>);
    /// Whether the client may be told this code.
    fn is_right(failure: &Self::Failure, code: i32) -> bool;
}

/// A file as it is before the operation, and what is expected of it.
pub struct Bench<F: Faults> {
    scratch: Scratch,
    faults: F,
    files: Vec<(String, Vec<u8>)>,
    kind: Kind,
    journal: Journal,
    case: Case,
    plans: Vec<F::Plan>,
    before: String,
    after: String,
    /// With one more job, that the next try adds where the operation itself has counted.
    after_probe: String,
}

fn probe() -> Operation {
    Operation::Enqueue("probe".into())
}

impl<F: Faults> Bench<F> {
    pub fn new(kind: Kind, journal: Journal, case: Case) -> Self {
        let scratch = memory_backed();
        let conn = Connection::open(scratch.db()).unwrap();
        case.file.make(&conn, journal);
        conn.close().unwrap();
        let mut bench = Bench {
            files: files(scratch.dir.path()),
            faults: F::new(scratch.dir.path()),
            scratch,
            kind,
            journal,
            case,
            plans: Vec::new(),
            before: String::new(),
            after: String::new(),
            after_probe: String::new(),
        };
        let mut door = bench.fresh();
        bench.before = bench.dump();
        bench.faults.arm(None);
        let answer = door.run(&bench.case.operation);
        bench.plans = bench.faults.disarm().0;
        assert_eq!(answer.as_deref(), Ok(bench.case.answer), "{bench:?}");
        bench.after = bench.dump();
        let changed = bench.after != bench.before;
        assert_eq!(changed, !bench.case.operation.reads(), "{bench:?}");
        if bench.case.file != File::Empty {
            assert_eq!(door.run(&probe()), Ok("1".into()));
        }
        bench.after_probe = bench.dump();
        door.close();
        bench
    }

    fn fresh(&self) -> Door {
        let dir = self.scratch.dir.path();
        for entry in std::fs::read_dir(dir).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (name, bytes) in &self.files {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
        let mut door = Door::open(self.kind, &self.db());
        if let Door::Sql(conn) | Door::OneStep(conn) = &door {
            // These two are not kept in the file.
            if self.journal == TRUNCATE || self.journal == PERSIST {
                conn.pragma_update(None, "journal_mode", self.journal.0).unwrap();
            }
            conn.execute_batch(self.journal.1).unwrap();
        }
        for operation in &self.case.before {
            door.run(operation).unwrap();
        }
        door
    }

    fn db(&self) -> PathBuf {
        self.scratch.db()
    }

    /// What another process sees.
    fn dump(&self) -> String {
        dump(&outside(&self.db()))
    }

    /// One run with a fault: how it went, or what is wrong.
    fn run(&self, plan: F::Plan) -> Result<Outcome, String> {
        let mut door = self.fresh();
        self.faults.arm(Some(plan));
        let answer = door.run(&self.case.operation);
        let (_, failure) = self.faults.disarm();
        let Some(failure) = failure else { return Err("the point was not reached".into()) };
        if let Err((code, sentence)) = &answer {
            if !F::is_right(&failure, *code) {
                return Err(format!("{failure:?} became {code}: {sentence}"));
            }
        } else if answer.as_deref() != Ok(self.case.answer) {
            return Err(format!("answered {answer:?}"));
        }
        if door.in_transaction() {
            return Err(format!("left a transaction open after {answer:?}"));
        }
        let found = self.dump();
        let counted = found == self.after;
        if !counted && found != self.before {
            return Err(format!("half done after {answer:?}:\n{found}"));
        }
        if answer.is_ok() && !counted {
            return Err(format!("answered {answer:?}, which is not in the file"));
        }
        let (next, next_answer, last) = match counted {
            // A file that has just been made has no jobs to add to yet.
            true if self.case.file == File::Empty => (Operation::Init, "1", &self.after),
            true => (probe(), "1", &self.after_probe),
            false => (self.case.operation.clone(), self.case.answer, &self.after),
        };
        let again = door.run(&next);
        if again.as_deref() != Ok(next_answer) {
            return Err(format!("after {answer:?}, {next:?} answered {again:?}"));
        }
        door.close();
        let conn = outside(&self.db());
        let (check, found) = (integrity(&conn), dump(&conn));
        if check != "ok" || found != *last {
            return Err(format!("after the next try: {check}\n{found}"));
        }
        Ok(match (answer, counted) {
            (Ok(_), _) => Outcome::Survived,
            (Err(_), true) if self.before != self.after => Outcome::Counted,
            (Err(_), _) => Outcome::Failed,
        })
    }
}

impl<F: Faults> Debug for Bench<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Bench { case, kind, journal, .. } = self;
        write!(f, "{:?} by {kind:?} on {:?} in {journal:?}", case.operation, case.file)
    }
}

pub enum Outcome {
    /// An error, and nothing happened.
    Failed,
    /// An error after the commit: for the client, unknown until it looks.
    Counted,
    /// Answered: the fault did not matter.
    Survived,
}

/// The files of a directory; the shared memory of the log does not outlive its connections.
pub fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named
        .filter(|(name, _)| !name.ends_with("-shm"))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect()
}

/// A directory whose files need no disk, where there is such a thing.
pub fn memory_backed() -> Scratch {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        Scratch { dir: tempfile::tempdir_in(shared).unwrap() }
    } else {
        Scratch::new()
    }
}

/// How many runs went how.
pub struct Tally {
    seed: u64,
    random: Random,
    begun: Instant,
    plans: usize,
    pub runs: usize,
    failed: usize,
    counted: usize,
    survived: usize,
    pub wrong: Vec<String>,
}

impl Tally {
    pub fn new() -> Self {
        let seed = tier::seed();
        Tally {
            seed,
            random: Random::new(seed),
            begun: Instant::now(),
            plans: 0,
            runs: 0,
            failed: 0,
            counted: 0,
            survived: 0,
            wrong: Vec::new(),
        }
    }

    /// One in `one_in` of all faults at all points, another one in each run.
    pub fn add<F: Faults>(&mut self, bench: &Bench<F>, one_in: usize) {
        self.plans += bench.plans.len();
        let first = self.random.below(one_in).min(bench.plans.len() - 1);
        for &plan in bench.plans.iter().skip(first).step_by(one_in) {
            self.runs += 1;
            match bench.run(plan) {
                Ok(Outcome::Failed) => self.failed += 1,
                Ok(Outcome::Counted) => self.counted += 1,
                Ok(Outcome::Survived) => self.survived += 1,
                Err(wrong) => self.wrong.push(format!("{bench:?}, {plan:?}: {wrong}")),
            }
        }
    }

    pub fn print(&self, what: &str) {
        eprintln!(
            "{what}: {} faults, {} tried (FENCE_SEED={}): {} failed, {} failed after the commit, {} \
             did not matter; {:.1} s",
            self.plans,
            self.runs,
            self.seed,
            self.failed,
            self.counted,
            self.survived,
            self.begun.elapsed().as_secs_f64()
        );
    }

    pub fn nothing_is_wrong(&self) {
        let shown = self.wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.wrong.is_empty(), "{} wrong:\n{shown}", self.wrong.len());
        assert!(self.failed > 0, "no fault mattered");
    }
}
