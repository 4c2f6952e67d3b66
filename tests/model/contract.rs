//! What the contract says about a call of the model.

use crate::protocol::{Answer, Call, Db, Job, TTL};
use crate::reference;

type Contract = reference::Job<u8, u8>;

impl From<Job> for Contract {
    fn from(job: Job) -> Contract {
        Contract {
            owner: job.owner,
            until: job.until.into(),
            fence: job.fence.into(),
            result: job.result,
            done: job.done.into(),
        }
    }
}

impl From<Contract> for Job {
    fn from(job: Contract) -> Job {
        Job {
            owner: job.owner,
            until: job.until as u8,
            fence: job.fence as u8,
            result: job.result,
            done: job.done as u8,
        }
    }
}

/// What the contract says about a call.
pub fn contract(last: u8, before: Db, call: Call) -> (Answer, Db) {
    let mut db = before;
    let (floor, ttl) = (i64::from(before.floor), f64::from(TTL));
    let mut job: Option<Contract> = before.job.map(Into::into);
    let last = i64::from(last);
    let fresh = |floor: i64| {
        let new = Contract::new(0.0, floor);
        Contract { fence: new.fence.min(last), ..new }
    };
    let mut on = |act: &dyn Fn(&mut Contract) -> bool| job.as_mut().is_some_and(act);
    let yes = |accepted: bool| accepted.then_some(1);
    let finish = |done, owner: u8, fence: u8, now: u8, result| {
        move |job: &mut Contract| job.finish(done, &owner, fence.into(), now.into(), Some(result))
    };
    let answer = match call {
        Call::Claim { owner, now } => job
            .as_mut()
            .and_then(|job| job.claim(owner, now.into(), ttl, last))
            .map(|fence| fence as u8),
        Call::Renew { owner, fence, now } => {
            yes(on(&|job| job.renew(&owner, fence.into(), now.into(), ttl)))
        }
        Call::Complete { owner, fence, now, result } => {
            yes(on(&finish(1, owner, fence, now, result)))
        }
        Call::Fail { owner, fence, now, result } => yes(on(&finish(2, owner, fence, now, result))),
        Call::Release { owner, fence } => yes(on(&|job| job.release(&owner, fence.into(), 0.0))),
        Call::Requeue => yes(on(&|job| job.requeue(last))),
        Call::Write { fence } => {
            let lets = on(&|job| job.lets_write(fence.into()));
            db.row = if lets { fence } else { db.row };
            yes(lets)
        }
        Call::WriteAndComplete { owner, fence, now, result } => {
            let lets = on(&|job| job.lets_write(fence.into()));
            let both = lets && on(&finish(1, owner, fence, now, result));
            db.row = if both { fence } else { db.row };
            yes(both)
        }
        Call::Restore { bump } => {
            on(&|job| {
                job.restore(bump.into());
                true
            });
            db.floor += bump;
            Some(1)
        }
        Call::Delete | Call::Replace => {
            let replaced = job.take();
            if let Some(job) = &replaced {
                db.floor = reference::raised(floor, job.fence) as u8;
            }
            if call == Call::Replace {
                job = Some(fresh(db.floor.into()));
            }
            yes(replaced.is_some() || call == Call::Replace)
        }
        Call::Enqueue => {
            let new = job.is_none();
            job.get_or_insert(fresh(floor));
            yes(new)
        }
        // Only a job that is not done may be reopened; then its result is NULL already.
        Call::Reopen => yes(on(&|job| job.done == 0)),
        Call::Lower => None,
    };
    db.job = job.map(Into::into);
    (answer, db)
}
