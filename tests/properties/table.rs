//! The job table as the contract sees it: many jobs, in the order in which they were enqueued, and
//! what each call does to them.

use crate::reference::{self, LAST};

pub type Job = reference::Job<String, String>;

/// A call, with the arguments that it is made with.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Enqueue {
        id: String,
        due: Option<f64>,
    },
    Claim {
        id: String,
        owner: String,
        now: f64,
        ttl: f64,
    },
    ClaimBatch {
        queue: String,
        owner: String,
        now: f64,
        ttl: f64,
        limit: i64,
    },
    /// Two owners at the same moment.
    Race {
        id: String,
        owners: [String; 2],
        now: f64,
        ttl: f64,
    },
    Renew {
        id: String,
        owner: String,
        fence: i64,
        now: f64,
        ttl: f64,
    },
    Complete {
        id: String,
        owner: String,
        fence: i64,
        now: f64,
        result: Option<String>,
    },
    Fail {
        id: String,
        owner: String,
        fence: i64,
        now: f64,
        result: Option<String>,
    },
    Release {
        id: String,
        owner: String,
        fence: i64,
        due: Option<f64>,
    },
    Requeue {
        id: String,
    },
    Check {
        id: String,
        owner: String,
        fence: i64,
        now: f64,
    },
    State {
        id: String,
    },
    Purge {
        before: f64,
        limit: i64,
    },
    Restore {
        bump: i64,
    },
    // Plain SQL of somebody else:
    Delete {
        id: String,
    },
    Replace {
        id: String,
    },
    /// The fence comes near its end.
    Lift {
        id: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Yes(bool),
    Fence(Option<i64>),
    Taken(Vec<(String, i64, f64)>),
    /// Which of two owners won, if any, and its fence.
    Winner(Option<(usize, i64)>),
    Word(String),
    Row(Option<Job>),
    Count(usize),
    Error,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub jobs: Vec<(String, Job)>,
    pub floor: i64,
}

fn queue_of(id: &str) -> &str {
    id.split_once(':').map_or("", |(queue, _)| queue)
}

impl Table {
    pub fn job(&self, id: &str) -> Option<&Job> {
        self.jobs.iter().find(|(found, _)| found == id).map(|(_, job)| job)
    }

    fn change(&mut self, id: &str, act: impl FnOnce(&mut Job) -> bool) -> Answer {
        let job = self.jobs.iter_mut().find(|(found, _)| found == id);
        Answer::Yes(job.is_some_and(|(_, job)| act(job)))
    }

    fn enqueue(&mut self, id: &str, due: f64) -> Answer {
        let new = self.job(id).is_none();
        if new {
            self.jobs.push((id.into(), Job::new(due, self.floor)));
        }
        Answer::Yes(new)
    }

    fn delete(&mut self, gone: impl Fn(&str) -> bool) -> usize {
        let before = self.jobs.len();
        for (_, job) in self.jobs.iter().filter(|(id, _)| gone(id)) {
            self.floor = reference::raised(self.floor, job.fence);
        }
        self.jobs.retain(|(id, _)| !gone(id));
        before - self.jobs.len()
    }

    /// Leases that ran out and delayed jobs that came due, by that moment; then the others.
    fn due(&self, queue: &str, now: f64) -> Vec<String> {
        let mut due: Vec<_> = self
            .jobs
            .iter()
            .filter(|(id, job)| queue_of(id) == queue && job.claimable(now, LAST))
            .collect();
        due.sort_by(|(_, a), (_, b)| {
            (a.until <= 0.0).cmp(&(b.until <= 0.0)).then(a.until.total_cmp(&b.until))
        });
        due.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// Makes the call and answers it.
    pub fn apply(&mut self, call: &Call) -> Answer {
        match call {
            Call::Enqueue { id, due } => self.enqueue(id, due.unwrap_or(0.0)),
            Call::Claim { id, owner, now, ttl } => {
                let mut fence = None;
                self.change(id, |job| {
                    fence = job.claim(owner.clone(), *now, *ttl, LAST);
                    true
                });
                Answer::Fence(fence)
            }
            Call::ClaimBatch { queue, owner, now, ttl, limit } => {
                let mut taken = Vec::new();
                for id in self.due(queue, *now).into_iter().take(*limit as usize) {
                    self.change(&id, |job| {
                        let fence = job.claim(owner.clone(), *now, *ttl, LAST).expect("it is due");
                        taken.push((id.clone(), fence, job.until));
                        true
                    });
                }
                taken.sort_by(|a, b| a.0.cmp(&b.0));
                Answer::Taken(taken)
            }
            // As if the first one had been quicker; see `race`.
            Call::Race { id, owners, now, ttl } => {
                let [owner, _] = owners.clone();
                let first = Call::Claim { id: id.clone(), owner, now: *now, ttl: *ttl };
                match self.apply(&first) {
                    Answer::Fence(fence) => Answer::Winner(fence.map(|fence| (0, fence))),
                    other => other,
                }
            }
            Call::Renew { id, owner, fence, now, ttl } => {
                self.change(id, |job| job.renew(owner, *fence, *now, *ttl))
            }
            Call::Complete { id, owner, fence, now, result } => {
                self.change(id, |job| job.finish(1, owner, *fence, *now, result.clone()))
            }
            Call::Fail { id, owner, fence, now, result } => {
                self.change(id, |job| job.finish(2, owner, *fence, *now, result.clone()))
            }
            Call::Release { id, owner, fence, due } => {
                self.change(id, |job| job.release(owner, *fence, due.unwrap_or(0.0)))
            }
            Call::Requeue { id } => self.change(id, |job| job.requeue(LAST)),
            Call::Check { id, owner, fence, now } => {
                Answer::Word(reference::standing(self.job(id), owner, *fence, *now).into())
            }
            Call::State { id } => Answer::Row(self.job(id).cloned()),
            Call::Purge { before, limit } => {
                let mut old: Vec<_> = self
                    .jobs
                    .iter()
                    .filter(|(_, job)| job.done == 1 && job.until < *before)
                    .collect();
                old.sort_by(|(_, a), (_, b)| a.until.total_cmp(&b.until));
                let old: Vec<_> =
                    old.into_iter().take(*limit as usize).map(|(id, _)| id.clone()).collect();
                Answer::Count(self.delete(|id| old.iter().any(|gone| gone == id)))
            }
            Call::Restore { bump } => {
                let fences = self.jobs.iter().map(|(_, job)| job.fence).chain([self.floor]);
                if fences.max().is_some_and(|highest| highest.checked_add(*bump).is_none()) {
                    return Answer::Error;
                }
                self.floor += bump;
                self.jobs.iter_mut().for_each(|(_, job)| job.restore(*bump));
                Answer::Yes(true)
            }
            Call::Delete { id } => Answer::Count(self.delete(|found| found == id)),
            Call::Replace { id } => {
                self.delete(|found| found == id);
                self.enqueue(id, 0.0);
                Answer::Count(1)
            }
            Call::Lift { id } => {
                self.change(id, |job| {
                    job.fence = job.fence.max(LAST - 1);
                    true
                });
                Answer::Count(usize::from(self.job(id).is_some()))
            }
        }
    }

    /// The answer to two claims at once, where `winner` was the quicker one.
    pub fn race(&mut self, call: &Call, winner: usize) -> Answer {
        let Call::Race { id, owners, now, ttl } = call else { panic!("no race: {call:?}") };
        let owner = owners[winner].clone();
        match self.apply(&Call::Claim { id: id.clone(), owner, now: *now, ttl: *ttl }) {
            Answer::Fence(fence) => Answer::Winner(fence.map(|fence| (winner, fence))),
            other => other,
        }
    }
}
