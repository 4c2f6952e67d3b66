//! A worker of the storm: calls at full speed on a few jobs that it shares with all others, by a
//! clock that is wrong in both directions, and notes each call with its answer.
use super::broken::Fault;
use super::common::tier::Random;
use super::door::{self, Answer as Told, Door, Kept, Paths, Row, Sql};
use super::history::{monotonic, Answer, Call, Event, Job};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A lease's length at most, on the clock of the workers: milliseconds.
const TTL: usize = 12;
/// How many of the jobs that are not done yet a worker works on.
const WINDOW: u64 = 6;
/// The owner name that some workers share.
const SHARED: u64 = 1_000;

/// What a worker process is told.
#[derive(Clone, Debug)]
pub struct Orders {
    pub database: PathBuf,
    pub extension: PathBuf,
    pub door: String,
    pub fault: Fault,
    pub seed: u64,
    pub first: u64,
    pub threads: u64,
    /// Where the workers' clocks stand at 0, and where they stop, by the clock of the machine.
    pub start: u64,
    pub end: u64,
}

impl Orders {
    pub fn arguments(&self) -> Vec<String> {
        let Orders { database, extension, door, fault, seed, first, threads, start, end } = self;
        let mut arguments = vec![
            database.to_str().unwrap().to_owned(),
            extension.to_str().unwrap().to_owned(),
            door.clone(),
            format!("{fault:?}"),
        ];
        arguments.extend([seed, first, threads, start, end].map(u64::to_string));
        arguments
    }

    pub fn read(arguments: &[String]) -> Orders {
        let number = |i: usize| arguments[i].parse().unwrap();
        Orders {
            database: PathBuf::from(&arguments[0]),
            extension: PathBuf::from(&arguments[1]),
            door: arguments[2].clone(),
            fault: Fault::named(&arguments[3]),
            seed: number(4),
            first: number(5),
            threads: number(6),
            start: number(7),
            end: number(8),
        }
    }
}

/// Where the worker of this number notes its history.
pub fn history_file(database: &Path, worker: u64) -> PathBuf {
    database.with_file_name(format!("history-{worker}"))
}

/// Runs the workers of one process, one thread each. Those of a store share it.
pub fn run(orders: &Orders) {
    let mut random = Random::new(orders.seed);
    let timeout = Duration::from_millis([0, 1, 50, 5_000][random.below(4)]);
    let durability = [fence::Durability::Full, fence::Durability::Normal][random.below(2)];
    let store = (orders.door == "store").then(|| Kept::open(&orders.database, timeout, durability));
    let workers: Vec<_> = (0..orders.threads)
        .map(|thread| {
            let (orders, store) = (orders.clone(), store.clone());
            std::thread::spawn(move || {
                let Orders { database, extension, fault, .. } = &orders;
                let door: Box<dyn Door> = match (&*orders.door, store) {
                    ("store", Some(store)) => Box::new(Kept::new(store)),
                    ("paths", _) => Box::new(Paths::new(database, timeout)),
                    ("extension", _) => Box::new(Sql::loaded(database, extension, timeout, *fault)),
                    other => panic!("{:?} is no door", other.0),
                };
                Worker::new(&orders, orders.first + thread, door).work(orders.end);
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("the worker's own panic says what is wrong");
    }
}

/// A lease as a worker remembers it, long after its end.
#[derive(Clone, Copy)]
struct Memory {
    job: u64,
    fence: i64,
    until: f64,
}

struct Worker {
    number: u64,
    owner: u64,
    door: Box<dyn Door>,
    random: Random,
    start: u64,
    file: BufWriter<File>,
    memory: VecDeque<Memory>,
    /// Jobs that are known to be done; all below `first`, and those in the set.
    first: u64,
    done: BTreeSet<u64>,
    results: u64,
    many: u64,
    locked: usize,
    rolled_back: usize,
}

impl Worker {
    fn new(orders: &Orders, number: u64, door: Box<dyn Door>) -> Self {
        let file = File::create(history_file(&orders.database, number)).unwrap();
        Worker {
            number,
            owner: if number.is_multiple_of(3) { SHARED } else { number },
            door,
            random: Random::new(orders.seed.wrapping_add(number + 1)),
            start: orders.start,
            file: BufWriter::new(file),
            memory: VecDeque::new(),
            first: 1,
            done: BTreeSet::new(),
            results: 0,
            many: 0,
            locked: 0,
            rolled_back: 0,
        }
    }

    fn work(mut self, end: u64) {
        while monotonic() < end {
            self.act();
        }
        let Worker { locked, rolled_back, .. } = self;
        writeln!(self.file, "locked {locked} rolled back {rolled_back}").unwrap();
        self.file.flush().unwrap();
    }

    /// Milliseconds since the start, and half of the time up to twelve more or less.
    fn now(&mut self) -> f64 {
        let now = monotonic().saturating_sub(self.start) as f64 / 1e6;
        let error = self.random.below(TTL) as f64;
        match self.random.below(4) {
            0 => now + error,
            // A new job is free from 0 on.
            1 => (now - error).max(0.0),
            _ => now,
        }
    }

    fn act(&mut self) {
        // Sometimes one that is done already.
        let job = (self.first + self.random.next() % WINDOW)
            .saturating_sub(if self.random.below(8) == 0 { WINDOW } else { 0 })
            .max(1);
        // One of the last three leases, or any: then it is over, as a rule.
        let reach = if self.random.below(4) == 0 { door::KEPT } else { 3 };
        let age = 1 + self.random.below(reach);
        let remembered = self.memory.get(self.memory.len().wrapping_sub(age)).copied();
        match (self.random.below(20), remembered) {
            (0, _) => self.call(job, Call::Enqueue),
            (1, _) => self.call(job, Call::State),
            (2, _) => self.claim_many(job),
            (3, Some(Memory { job, fence, .. })) if self.random.below(2) == 0 => {
                let now = self.now();
                self.roll_back(job, Some(fence), now);
            }
            (3, _) => {
                let now = self.now();
                self.roll_back(job, None, now);
            }
            (4..=11, _) | (_, None) => {
                let (now, ttl) = (self.now(), 1.0 + self.random.below(TTL) as f64);
                self.call(job, Call::Claim { owner: self.owner, now, ttl });
            }
            (kind, Some(memory)) => self.use_lease(kind, memory),
        }
    }

    fn use_lease(&mut self, kind: usize, Memory { job, fence, until }: Memory) {
        let owner = self.owner;
        // Close to the end of the lease, on both sides, as often as by the clock.
        let now = match self.random.below(2) {
            0 => self.now(),
            _ => until + [-1.0, 0.0, 1.0][self.random.below(3)],
        };
        // A guess may be right where several workers share a name.
        let guess = fence + if self.random.below(16) == 0 { 1 } else { 0 };
        match kind {
            12..=14 => {
                let ttl = 1.0 + self.random.below(TTL) as f64;
                self.call(job, Call::Renew { owner, fence: guess, now, ttl });
            }
            15 | 16 => self.call(job, Call::Release { owner, fence: guess }),
            _ => {
                self.results += 1;
                let result = self.number << 32 | self.results;
                let call = Call::Complete { owner, fence: guess, now, result };
                match self.random.below(2) {
                    // A write needs the lease itself.
                    0 if guess == fence => {
                        self.note(job, call, |door, id| {
                            let (owner, result) = (name(owner), format!("r{result}"));
                            door.write(id, &owner, fence, now, &result).map(yes)
                        });
                    }
                    _ => self.call(job, call),
                }
            }
        }
    }

    fn call(&mut self, job: u64, call: Call) {
        self.note(job, call, |door, id| match call {
            Call::Enqueue => door.enqueue(id).map(yes),
            Call::State => door.state(id).map(found),
            Call::Claim { owner, now, ttl } => {
                let fence = door.claim(id, &name(owner), now, ttl)?;
                Ok(fence.map_or(Answer::No, Answer::Fence))
            }
            Call::Renew { owner, fence, now, ttl } => {
                door.renew(id, &name(owner), fence, now, ttl).map(yes)
            }
            Call::Complete { owner, fence, now, result } => {
                door.complete(id, &name(owner), fence, now, &format!("r{result}")).map(yes)
            }
            Call::Release { owner, fence } => door.release(id, &name(owner), fence).map(yes),
        });
    }

    /// Notes a call and its answer, unless a lock was in the way: then it must have done nothing,
    /// and what it did would be missing in the history. False for that.
    fn note(
        &mut self,
        job: u64,
        call: Call,
        ask: impl FnOnce(&dyn Door, &str) -> Told<Answer>,
    ) -> bool {
        let invoked = monotonic();
        let answer = ask(&*self.door, &format!("job-{job}"));
        let answered = monotonic();
        match answer {
            Ok(answer) => {
                self.learn(job, call, answer);
                self.write(Event { job, invoked, answered, many: 0, call, answer });
            }
            Err(door::Busy) => self.meet_lock(),
        }
        answer.is_ok()
    }

    /// Whoever never waits for a lock would only try again and again.
    fn meet_lock(&mut self) {
        self.locked += 1;
        std::thread::sleep(Duration::from_micros(self.random.below(500) as u64));
    }

    fn learn(&mut self, job: u64, call: Call, answer: Answer) {
        match (call, answer) {
            (Call::Claim { now, ttl, .. }, Answer::Fence(fence)) => {
                self.memory.push_back(Memory { job, fence, until: now + ttl });
                if self.memory.len() > door::KEPT {
                    self.memory.pop_front();
                }
            }
            (Call::Renew { fence, now, ttl, .. }, Answer::Yes) => {
                for memory in self.memory.iter_mut().filter(|m| (m.job, m.fence) == (job, fence)) {
                    memory.until = now + ttl;
                }
            }
            // Adds the job where it is missing, and sees where it is done.
            (Call::Claim { .. }, Answer::No) if self.random.below(4) == 0 => {
                self.call(job, Call::State);
            }
            (Call::State, Answer::No) => self.call(job, Call::Enqueue),
            (Call::State, Answer::Found(Job { done: true, .. }))
            | (Call::Complete { .. }, Answer::Yes) => {
                self.done.insert(job);
                while self.done.remove(&self.first) {
                    self.first += 1;
                }
            }
            _ => {}
        }
    }

    /// Four owners at once, on a job of the window or on one that nobody has heard of.
    fn claim_many(&mut self, job: u64) {
        let job = match self.random.below(2) {
            0 => {
                self.many += 1;
                let own = (self.number + 1) << 32 | self.many;
                if !self.note(own, Call::Enqueue, |door, id| door.enqueue(id).map(yes)) {
                    return;
                }
                own
            }
            _ => job,
        };
        let owners: Vec<u64> = (0..4).map(|i| 10_000 + 10 * self.number + i).collect();
        let names: Vec<String> = owners.iter().map(|owner| name(*owner)).collect();
        let (now, ttl) = (self.now(), 1.0 + self.random.below(TTL) as f64);
        let invoked = monotonic();
        let many = invoked << 8 | self.number & 0xff;
        let Some(answers) = self.door.claim_many(&format!("job-{job}"), &names, now, ttl) else {
            return;
        };
        let answered = monotonic();
        // A claim that met a lock leaves the others without a promised winner.
        let all = answers.iter().all(Result::is_ok);
        for (owner, answer) in owners.into_iter().zip(answers) {
            let Ok(fence) = answer else {
                self.locked += 1;
                continue;
            };
            let (call, many) = (Call::Claim { owner, now, ttl }, if all { many } else { 0 });
            let answer = fence.map_or(Answer::No, Answer::Fence);
            self.write(Event { job, invoked, answered, many, call, answer });
        }
    }

    fn roll_back(&mut self, job: u64, fence: Option<i64>, now: f64) {
        let id = format!("job-{job}");
        match self.door.roll_back(&id, &name(self.owner), fence, now) {
            Ok(()) => self.rolled_back += 1,
            Err(door::Busy) => self.meet_lock(),
        }
    }

    fn write(&mut self, event: Event) {
        writeln!(self.file, "{}", event.write()).unwrap();
    }
}

fn yes(yes: bool) -> Answer {
    if yes {
        Answer::Yes
    } else {
        Answer::No
    }
}

fn found(row: Option<Row>) -> Answer {
    row.map_or(Answer::No, |row| Answer::Found(job(&row)))
}

/// A row in the numbers of a history.
pub fn job(row: &Row) -> Job {
    let number = |name: &Option<String>| name.as_ref().map_or(0, |name| name[1..].parse().unwrap());
    let (owner, result) = (number(&row.owner), number(&row.result));
    Job { owner, until: row.until, fence: row.fence, result, done: row.done == 1 }
}

fn name(owner: u64) -> String {
    format!("w{owner}")
}
