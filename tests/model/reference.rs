//! The contract, transcribed: what each operation answers and leaves behind, as plain functions
//! over rows. No guard is written here as SQL has it; this is what the SQL is measured against.
#![allow(dead_code)] // every test binary uses its own part

/// Fences are at most this.
pub const LAST: i64 = i64::MAX;

/// One row, with names of type `N` and results of type `R`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job<N, R> {
    pub owner: Option<N>,
    pub until: f64,
    pub fence: i64,
    pub result: Option<R>,
    pub done: i64,
}

impl<N: PartialEq, R> Job<N, R> {
    /// A job that anybody may claim from the moment `due` on. `floor` is the highest fence of any
    /// job that was deleted.
    pub fn new(due: f64, floor: i64) -> Self {
        let fence = match floor {
            0 => 0,
            LAST => LAST,
            floor => floor + 1,
        };
        Job { owner: None, until: due, fence, result: None, done: 0 }
    }

    pub fn claimable(&self, now: f64, last: i64) -> bool {
        self.done == 0 && self.until <= now && self.fence < last
    }

    /// `last` is the highest fence that may be handed out.
    pub fn claim(&mut self, owner: N, now: f64, ttl: f64, last: i64) -> Option<i64> {
        if !self.claimable(now, last) {
            return None;
        }
        self.owner = Some(owner);
        self.until = now + ttl;
        self.fence += 1;
        Some(self.fence)
    }

    /// The pair that a worker shows is that of the current generation, and the job unfinished.
    pub fn current(&self, owner: &N, fence: i64) -> bool {
        self.owner.as_ref() == Some(owner) && self.fence == fence && self.done == 0
    }

    pub fn held(&self, owner: &N, fence: i64, now: f64) -> bool {
        self.current(owner, fence) && now < self.until
    }

    pub fn renew(&mut self, owner: &N, fence: i64, now: f64, ttl: f64) -> bool {
        let held = self.held(owner, fence, now);
        if held {
            self.until = now + ttl;
        }
        held
    }

    /// `done` is 1 for a completion and 2 for a failure.
    pub fn finish(
        &mut self,
        done: i64,
        owner: &N,
        fence: i64,
        now: f64,
        result: Option<R>,
    ) -> bool {
        let held = self.held(owner, fence, now);
        if held {
            self.result = result;
            self.done = done;
        }
        held
    }

    pub fn release(&mut self, owner: &N, fence: i64, due: f64) -> bool {
        let current = self.current(owner, fence);
        if current {
            self.owner = None;
            self.until = due;
        }
        current
    }

    pub fn requeue(&mut self, last: i64) -> bool {
        let dead = self.done == 2 && self.fence < last;
        if dead {
            *self = Job { owner: None, until: 0.0, fence: self.fence + 1, result: None, done: 0 };
        }
        dead
    }

    /// After a restore from a backup.
    pub fn restore(&mut self, bump: i64) {
        self.fence += bump;
        if self.done == 0 {
            if self.owner.is_some() {
                self.until = 0.0;
            }
            self.owner = None;
        }
    }

    /// A guarded row of this job may be written with the stamp `fence`.
    pub fn lets_write(&self, fence: i64) -> bool {
        self.owner.is_some() && self.done == 0 && self.fence == fence
    }
}

/// The floor after a job with this fence was deleted.
pub fn raised(floor: i64, fence: i64) -> i64 {
    floor.max(fence)
}

/// The word for how a lease stands.
pub fn standing<N: PartialEq, R>(
    job: Option<&Job<N, R>>,
    owner: &N,
    fence: i64,
    now: f64,
) -> &'static str {
    let Some(job) = job else { return "missing" };
    let mine = job.owner.as_ref() == Some(owner);
    match job.done {
        0 if fence < 1 || fence > job.fence => "never_issued",
        0 if fence < job.fence => "superseded",
        0 if job.owner.is_none() => "released",
        0 if !mine => "not_owner",
        0 if now < job.until => "held",
        0 => "expired",
        _ if mine && fence == job.fence => "done_by_you",
        _ => "done",
    }
}
