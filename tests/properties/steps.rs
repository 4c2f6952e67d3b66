//! What is tried: steps that say whose fence they show and at which side of the lease's end they
//! come, so that completions that count and stale ones are both frequent. The arguments follow
//! from the state that the step meets, so that a sequence stays meaningful when it is shortened.

use proptest::prelude::*;

use crate::table::{Call, Job, Table};

/// Whose owner and fence a call shows.
#[derive(Clone, Copy, Debug)]
pub enum As {
    Holder,
    /// The holder's name with the fence of the claim before.
    Before,
    Colleague,
    Guess,
}

/// When a call comes: relative to the end of the lease.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Before,
    At,
    After,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Enqueue,
    EnqueueAt,
    Claim,
    ClaimBatch,
    Race,
    Renew,
    Complete,
    Fail,
    Release,
    ReleaseAt,
    Requeue,
    Check,
    State,
    Purge,
    Restore,
    Delete,
    Replace,
    Lift,
}

#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub kind: Kind,
    pub job: usize,
    pub worker: usize,
    pub who: As,
    pub when: When,
    pub amount: i64,
    /// Any job, also one that is missing or done, instead of one that the step can act on.
    pub any_job: bool,
    /// The commit of this call fails.
    pub commit_fails: bool,
}

const JOBS: [&str; 5] = ["a", "b", "mail:a", "mail:b", "mail:c"];
const OWNERS: [&str; 3] = ["w1", "w2", "W1"];

pub fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    use Kind::*;
    let kind = prop_oneof![
        24 => Just(Enqueue),
        12 => Just(EnqueueAt),
        28 => Just(Claim),
        12 => Just(ClaimBatch),
        10 => Just(Race),
        18 => Just(Renew),
        28 => Just(Complete),
        26 => Just(Fail),
        16 => Just(Release),
        16 => Just(ReleaseAt),
        12 => Just(Requeue),
        18 => Just(Check),
        4 => Just(State),
        7 => Just(Purge),
        2 => Just(Restore),
        4 => Just(Delete),
        5 => Just(Replace),
        2 => Just(Lift),
    ];
    let who = prop_oneof![
        6 => Just(As::Holder),
        3 => Just(As::Before),
        2 => Just(As::Colleague),
        1 => Just(As::Guess),
    ];
    let when = prop_oneof![5 => Just(When::Before), 2 => Just(When::At), 2 => Just(When::After)];
    let step = (kind, 0..JOBS.len(), 0..OWNERS.len(), who, when, 1..5_i64, 0..16).prop_map(
        |(kind, job, worker, who, when, amount, chance)| {
            let (any_job, commit_fails) = (chance >= 12, (9..12).contains(&chance));
            Step { kind, job, worker, who, when, amount, any_job, commit_fails }
        },
    );
    proptest::collection::vec(step, 1..longest)
}

impl Step {
    fn job(&self, table: &Table) -> String {
        let fits = |job: &Job| match self.kind {
            Kind::Enqueue | Kind::EnqueueAt => false,
            Kind::Claim | Kind::ClaimBatch => job.done == 0,
            Kind::Requeue => job.done == 2,
            Kind::Purge => job.done == 1,
            Kind::Race | Kind::State | Kind::Restore => true,
            Kind::Delete | Kind::Replace | Kind::Lift => true,
            _ => job.done == 0 && job.owner.is_some(),
        };
        let mut fitting: Vec<_> = table.jobs.iter().filter(|(_, job)| fits(job)).collect();
        if fitting.is_empty() && !matches!(self.kind, Kind::Enqueue | Kind::EnqueueAt) {
            fitting = table.jobs.iter().collect();
        }
        match fitting.len() {
            n if n > 0 && !self.any_job => fitting[self.job % n].0.clone(),
            _ => JOBS[self.job].to_owned(),
        }
    }

    /// The call that this step is, on the table as it stands.
    pub fn call(&self, table: &Table) -> Call {
        let id = self.job(table);
        let job = table.job(&id);
        let until = job.map_or(0.0, |job| job.until);
        let amount = self.amount as f64;
        let moment = |when| match when {
            When::Before => until - amount,
            When::At => until,
            When::After => until + amount,
        };
        let now = moment(self.when);
        let worker = || OWNERS[self.worker].to_owned();
        let holder = || job.and_then(|job| job.owner.clone()).unwrap_or_else(worker);
        let current = job.map_or(1, |job| job.fence);
        let (owner, fence) = match self.who {
            As::Holder => (holder(), current),
            As::Before => (holder(), current - 1),
            As::Colleague => (worker(), current),
            As::Guess => (holder(), current.saturating_add(self.amount)),
        };
        let result = (self.amount > 1).then(|| format!("{owner} {fence}"));
        // A claim succeeds after the end, what a holder does before it.
        let claimed = moment(match self.when {
            When::Before => When::After,
            When::At => When::At,
            When::After => When::Before,
        });
        let due = Some(now);
        match self.kind {
            Kind::Enqueue => Call::Enqueue { id, due: None },
            Kind::EnqueueAt => Call::Enqueue { id, due },
            Kind::Claim => Call::Claim { id, owner: worker(), now: claimed, ttl: amount },
            Kind::ClaimBatch => {
                let queue = id.split_once(':').map_or("", |(queue, _)| queue).to_owned();
                let limit = self.amount;
                Call::ClaimBatch { queue, owner: worker(), now: claimed, ttl: amount, limit }
            }
            Kind::Race => {
                let other = OWNERS[(self.worker + 1) % OWNERS.len()].to_owned();
                Call::Race { id, owners: [worker(), other], now: claimed, ttl: amount }
            }
            Kind::Renew => Call::Renew { id, owner, fence, now, ttl: 5.0 - amount },
            Kind::Complete => Call::Complete { id, owner, fence, now, result },
            Kind::Fail => Call::Fail { id, owner, fence, now, result },
            Kind::Release => Call::Release { id, owner, fence, due: None },
            Kind::ReleaseAt => Call::Release { id, owner, fence, due },
            Kind::Requeue => Call::Requeue { id },
            Kind::Check => Call::Check { id, owner, fence, now },
            Kind::State => Call::State { id },
            Kind::Purge => {
                let ends = table.jobs.iter().filter(|(_, job)| job.done == 1);
                let last = ends.map(|(_, job)| job.until).fold(claimed, f64::max);
                let before = if self.any_job { claimed } else { last + 1.0 };
                Call::Purge { before, limit: self.amount }
            }
            Kind::Restore => Call::Restore { bump: self.amount * 100 },
            Kind::Delete => Call::Delete { id },
            Kind::Replace => Call::Replace { id },
            Kind::Lift => Call::Lift { id },
        }
    }
}
