//! What a worker of the storm did, when, and what it was told: one line of text each, so that a
//! history can be kept and read.
use std::str::FromStr;

/// A clock that all processes of the machine share.
pub fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the structure it is given.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(rc, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A job as somebody saw it. Owners and results are numbers here, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Job {
    pub owner: u64,
    pub until: f64,
    pub fence: i64,
    pub result: u64,
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    Enqueue,
    State,
    Claim { owner: u64, now: f64, ttl: f64 },
    Renew { owner: u64, fence: i64, now: f64, ttl: f64 },
    Complete { owner: u64, fence: i64, now: f64, result: u64 },
    Release { owner: u64, fence: i64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Yes,
    No,
    Fence(i64),
    Found(Job),
}

/// One call that was answered. A call that met a lock, or was rolled back, must have changed
/// nothing and so is no part of a history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    pub job: u64,
    pub invoked: u64,
    pub answered: u64,
    /// The claim_many that it was part of; 0 for none.
    pub many: u64,
    pub call: Call,
    pub answer: Answer,
}

impl Event {
    pub fn write(&self) -> String {
        let call = match self.call {
            Call::Enqueue => "enqueue 0 0 0 0".into(),
            Call::State => "state 0 0 0 0".into(),
            Call::Claim { owner, now, ttl } => format!("claim {owner} 0 {now} {ttl}"),
            Call::Renew { owner, fence, now, ttl } => format!("renew {owner} {fence} {now} {ttl}"),
            Call::Complete { owner, fence, now, result } => {
                format!("complete {owner} {fence} {now} {result}")
            }
            Call::Release { owner, fence } => format!("release {owner} {fence} 0 0"),
        };
        let answer = match self.answer {
            Answer::Yes => "yes".into(),
            Answer::No => "no".into(),
            Answer::Fence(fence) => format!("fence {fence}"),
            Answer::Found(Job { owner, until, fence, result, done }) => {
                format!("found {owner} {until} {fence} {result} {done}")
            }
        };
        let Event { job, invoked, answered, many, .. } = self;
        format!("{job} {invoked} {answered} {many} {call} {answer}")
    }

    pub fn read(line: &str) -> Event {
        let words: Vec<&str> = line.split(' ').collect();
        fn at<T: FromStr>(words: &[&str], i: usize) -> T {
            words[i].parse().unwrap_or_else(|_| panic!("{words:?}"))
        }
        let (owner, fence) = (at(&words, 5), at(&words, 6));
        let (now, ttl) = (at(&words, 7), at(&words, 8));
        let call = match words[4] {
            "enqueue" => Call::Enqueue,
            "state" => Call::State,
            "claim" => Call::Claim { owner, now, ttl },
            "renew" => Call::Renew { owner, fence, now, ttl },
            "complete" => Call::Complete { owner, fence, now, result: at(&words, 8) },
            "release" => Call::Release { owner, fence },
            _ => panic!("{line}"),
        };
        let answer = match words[9] {
            "yes" => Answer::Yes,
            "no" => Answer::No,
            "fence" => Answer::Fence(at(&words, 10)),
            "found" => Answer::Found(Job {
                owner: at(&words, 10),
                until: at(&words, 11),
                fence: at(&words, 12),
                result: at(&words, 13),
                done: at(&words, 14),
            }),
            _ => panic!("{line}"),
        };
        let [job, invoked, answered, many] = [0, 1, 2, 3].map(|i| at(&words, i));
        Event { job, invoked, answered, many, call, answer }
    }
}
