//! A worker that is killed or stopped. What it was told it says on its standard output before it
//! asks for the next thing.
use super::acks::WITH_EFFECT;
use super::broken::Fault;
use super::common::tier::Random;
use super::door::{Busy, Door, Kept, Paths, Sql};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a child process is told.
#[derive(Clone, Debug)]
pub struct Orders {
    pub database: PathBuf,
    pub extension: PathBuf,
    pub door: String,
    pub fault: Fault,
    pub timeout: Duration,
    /// For the names and numbers of this child alone.
    pub seed: u64,
}

impl Orders {
    pub fn arguments(&self) -> Vec<String> {
        let Orders { database, extension, door, fault, timeout, seed } = self;
        vec![
            database.to_str().unwrap().to_owned(),
            extension.to_str().unwrap().to_owned(),
            door.clone(),
            format!("{fault:?}"),
            timeout.as_millis().to_string(),
            seed.to_string(),
        ]
    }

    pub fn read(arguments: &[String]) -> Orders {
        Orders {
            database: PathBuf::from(&arguments[0]),
            extension: PathBuf::from(&arguments[1]),
            door: arguments[2].clone(),
            fault: Fault::named(&arguments[3]),
            timeout: Duration::from_millis(arguments[4].parse().unwrap()),
            seed: arguments[5].parse().unwrap(),
        }
    }

    pub fn door(&self) -> Box<dyn Door> {
        let (database, timeout): (&Path, _) = (&self.database, self.timeout);
        match &*self.door {
            "extension" => Box::new(Sql::loaded(database, &self.extension, timeout, self.fault)),
            "store" => {
                let durability = [fence::Durability::Full, fence::Durability::Normal];
                let durability = durability[(self.seed % 2) as usize];
                Box::new(Kept::new(Kept::open(database, timeout, durability)))
            }
            "paths" => Box::new(Paths::new(database, timeout)),
            other => panic!("{other} is no door"),
        }
    }
}

/// Says a line in one piece, or ends with whoever listened.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The jobs that all children of a file share.
pub const JOBS: usize = 4;

struct Held {
    id: String,
    fence: i64,
    until: f64,
}

/// Does everything that a worker can do, at random and for ever.
pub fn run(orders: &Orders) {
    let door = orders.door();
    let mut random = Random::new(orders.seed);
    // Some names are those of several children, dead ones included.
    let owner = format!("w{}", orders.seed % 7);
    let mut child = Worker { door, owner, held: Vec::new(), now: 0.0, results: 0, orders };
    loop {
        if child.act(&mut random).is_err() {
            // Whoever never waits for a lock would only try again and again.
            std::thread::sleep(Duration::from_micros(random.below(300) as u64));
        }
    }
}

struct Worker<'a> {
    door: Box<dyn Door>,
    owner: String,
    held: Vec<Held>,
    now: f64,
    results: usize,
    orders: &'a Orders,
}

impl Worker<'_> {
    fn act(&mut self, random: &mut Random) -> Result<(), Busy> {
        let id = format!("j{}", random.below(JOBS));
        // The latest lease, as a rule.
        let held = match random.below(4) {
            0 => self.held.len().checked_sub(2),
            _ => self.held.len().checked_sub(1),
        };
        match (random.below(20), held) {
            (0, _) => self.purge(1 + random.below(2) as i64),
            (1, Some(held)) if random.below(2) == 0 => {
                let Held { id, fence, until } = &self.held[held];
                self.door.roll_back(id, &self.owner, Some(*fence), *until - 5.0)
            }
            (1, _) => self.door.roll_back(&id, &self.owner, None, self.now),
            (2..=9, _) | (_, None) => self.claim(&id, random.below(2) == 0),
            (10..=13, Some(held)) => self.renew(held),
            (14, Some(held)) => self.release(held),
            (kind, Some(held)) => self.complete(held, kind >= 17),
        }
    }

    /// Claims, or adds the job. What somebody else holds is left to him or, by a clock that is
    /// ahead, taken over.
    fn claim(&mut self, id: &str, take_over: bool) -> Result<(), Busy> {
        let Some(job) = self.door.state(id)? else {
            if self.door.enqueue(id)? {
                say(&format!("enqueue {id}"));
            }
            return Ok(());
        };
        if job.done == 1 || job.until > self.now && !take_over {
            return Ok(());
        }
        self.now = self.now.max(job.until);
        if let Some(fence) = self.door.claim(id, &self.owner, self.now, 10.0)? {
            let until = self.now + 10.0;
            say(&format!("claim {id} {fence} {} {until}", self.owner));
            self.held.push(Held { id: id.into(), fence, until });
            if self.held.len() > 8 {
                self.held.remove(0);
            }
        }
        Ok(())
    }

    fn renew(&mut self, held: usize) -> Result<(), Busy> {
        let Held { id, fence, until } = &mut self.held[held];
        if self.door.renew(id, &self.owner, *fence, *until - 5.0, 6.0)? {
            *until += 1.0;
            say(&format!("renew {id} {fence} {until}"));
        }
        Ok(())
    }

    fn release(&mut self, held: usize) -> Result<(), Busy> {
        let Held { id, fence, .. } = &self.held[held];
        if self.door.release(id, &self.owner, *fence)? {
            say(&format!("release {id} {fence}"));
        }
        self.held.remove(held);
        Ok(())
    }

    fn complete(&mut self, held: usize, with_effect: bool) -> Result<(), Busy> {
        let Held { id, fence, until } = &self.held[held];
        self.results += 1;
        let kind = if with_effect { WITH_EFFECT } else { "plain " };
        let result = format!("{kind}{}/{}", self.orders.seed, self.results);
        let now = *until - 5.0;
        let completed = match with_effect {
            true => self.door.write(id, &self.owner, *fence, now, &result)?,
            false => self.door.complete(id, &self.owner, *fence, now, &result)?,
        };
        if completed {
            say(&format!("complete {id} {fence} {result}"));
        }
        self.held.remove(held);
        Ok(())
    }

    fn purge(&mut self, limit: i64) -> Result<(), Busy> {
        let purged = self.door.purge(1e12, limit)?;
        if purged > 0 {
            say(&format!("purge {purged}"));
        }
        Ok(())
    }
}

/// Seconds on the clock of the machine.
pub fn clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Claims the job that each line of the input names, `<job> <ttl> <renewals>`, renews it so often,
/// and completes it; without renewals, when the next line says so. A ttl of 0 is a lease from 0
/// to 10 of a worker whose clock stands at 0 for ever: only the fence can refuse it.
pub fn sleep(orders: &Orders) {
    let door = orders.door();
    let mut lines = std::io::stdin().lock().lines();
    while let Some(line) = lines.next() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let (id, ttl): (_, f64) = (words[0], words[1].parse().unwrap());
        let renewals: usize = words[2].parse().unwrap();
        let by_clock = ttl > 0.0;
        let ttl = if by_clock { ttl } else { 10.0 };
        let now = || if by_clock { clock() } else { 0.0 };
        let fence = door.claim(id, "sleeper", now(), ttl).unwrap().expect("a new job");
        say(&format!("claim {fence}"));
        if renewals == 0 {
            lines.next().unwrap().unwrap(); // until it is woken
        }
        for _ in 0..renewals {
            if !door.renew(id, "sleeper", fence, now(), ttl).unwrap() {
                break;
            }
        }
        let result = format!("{WITH_EFFECT}{id}");
        let written = door.write(id, "sleeper", fence, now(), &result).unwrap();
        let completed = door.complete(id, "sleeper", fence, now(), "asleep").unwrap();
        let renewed = door.renew(id, "sleeper", fence, now(), ttl).unwrap();
        let released = door.release(id, "sleeper", fence).unwrap();
        let answers = [written, completed, renewed, released].map(|yes| u8::from(yes).to_string());
        say(&answers.join(" "));
    }
}
