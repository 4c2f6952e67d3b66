//! The protocol in small: a database with one job and one guarded row, and what each call does to
//! it, guard by guard. A guard can be taken out, to see whether the search misses it.
#![allow(dead_code)] // every test binary uses its own part

/// The moments that a clock may show are 0 to this. Every call reads a clock of its own, so that
/// clocks step both ways and a call that stalled comes with an old `now`.
pub const LATEST: u8 = 2;
pub const TTL: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    pub owner: Option<u8>,
    pub until: u8,
    pub fence: u8,
    /// Who wrote the result.
    pub result: Option<u8>,
    pub done: u8,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Db {
    pub job: Option<Job>,
    pub floor: u8,
    /// The guarded row: the fence that its last writer stated.
    pub row: u8,
}

/// What is asked of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Enqueue,
    Claim {
        owner: u8,
        now: u8,
    },
    Renew {
        owner: u8,
        fence: u8,
        now: u8,
    },
    Complete {
        owner: u8,
        fence: u8,
        now: u8,
        result: u8,
    },
    Fail {
        owner: u8,
        fence: u8,
        now: u8,
        result: u8,
    },
    Release {
        owner: u8,
        fence: u8,
    },
    Requeue,
    /// A write of the guarded row.
    Write {
        fence: u8,
    },
    /// The write and the completion in one transaction, both or neither.
    WriteAndComplete {
        owner: u8,
        fence: u8,
        now: u8,
        result: u8,
    },
    Restore {
        bump: u8,
    },
    // By a client that knows nothing of fences, in plain SQL:
    Delete,
    /// INSERT OR REPLACE of a fresh row.
    Replace,
    /// UPDATE .. SET done = 0, result = NULL
    Reopen,
    /// UPDATE .. SET fence = fence - 1
    Lower,
}

/// None is a refusal; a claim answers its fence, the others 1.
pub type Answer = Option<u8>;

/// Where a guard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Claim,
    Renew,
    Complete,
    Fail,
    Release,
    Requeue,
    Write,
    Restore,
    Enqueue,
    Delete,
    Replace,
    Update,
    Transaction,
    State,
}

/// What stands there: a condition, the boundary of one, an assignment, or a property of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Owner,
    Fence,
    Done,
    Until,
    Boundary,
    Last,
    SetOwner,
    SetUntil,
    SetFence,
    SetResult,
    SetDone,
    Floor,
    Exists,
    OneStatement,
    Forgotten,
    Undone,
    Committed,
}

/// The protocol, perhaps with one of its guards taken out.
#[derive(Clone, Copy)]
pub struct Protocol {
    pub without: Option<(Op, Part)>,
    /// The highest fence that can be handed out, for 2^63 - 1.
    pub last: u8,
}

impl Protocol {
    pub fn lacks(&self, op: Op, part: Part) -> bool {
        self.without == Some((op, part))
    }

    /// A condition of a statement, true where it was taken out.
    fn guard(&self, op: Op, part: Part, condition: bool) -> bool {
        condition || self.lacks(op, part)
    }

    /// An assignment of a statement.
    fn set<T>(&self, op: Op, part: Part, column: &mut T, value: T) {
        if !self.lacks(op, part) {
            *column = value;
        }
    }

    pub fn call(&self, db: &mut Db, call: Call) -> Answer {
        match call {
            Call::Enqueue => self.enqueue(db),
            Call::Claim { owner, now } => self.claim(db, owner, now),
            Call::Renew { owner, fence, now } => {
                let job = self.holder(db, Op::Renew, owner, fence, Some(now))?;
                self.set(Op::Renew, Part::SetUntil, &mut job.until, now + TTL);
                Some(1)
            }
            Call::Complete { owner, fence, now, result } => {
                self.finish(db, Op::Complete, 1, (owner, fence, now, result))
            }
            Call::Fail { owner, fence, now, result } => {
                self.finish(db, Op::Fail, 2, (owner, fence, now, result))
            }
            Call::Release { owner, fence } => {
                let job = self.holder(db, Op::Release, owner, fence, None)?;
                self.set(Op::Release, Part::SetOwner, &mut job.owner, None);
                self.set(Op::Release, Part::SetUntil, &mut job.until, 0);
                Some(1)
            }
            Call::Requeue => self.requeue(db),
            Call::Write { fence } => self.write(db, fence),
            Call::WriteAndComplete { owner, fence, now, result } => {
                let mut both = *db;
                self.write(&mut both, fence)?;
                self.finish(&mut both, Op::Complete, 1, (owner, fence, now, result))?;
                *db = both;
                Some(1)
            }
            Call::Restore { bump } => self.restore(db, bump),
            Call::Delete => {
                let job = db.job.take()?;
                if !self.lacks(Op::Delete, Part::Floor) {
                    db.floor = db.floor.max(job.fence);
                }
                Some(1)
            }
            Call::Replace => {
                if let Some(job) = db.job.take() {
                    if !self.lacks(Op::Replace, Part::Floor) {
                        db.floor = db.floor.max(job.fence);
                    }
                }
                self.enqueue(db)
            }
            Call::Reopen => {
                let job = db.job.as_mut()?;
                if !self.guard(Op::Update, Part::Done, job.done == 0) {
                    return None;
                }
                (job.done, job.result) = (0, None);
                Some(1)
            }
            Call::Lower => {
                let job = db.job.as_mut().filter(|job| job.fence > 0)?;
                if !self.lacks(Op::Update, Part::Fence) {
                    return None;
                }
                job.fence -= 1;
                Some(1)
            }
        }
    }

    fn enqueue(&self, db: &mut Db) -> Answer {
        if !self.guard(Op::Enqueue, Part::Exists, db.job.is_none()) {
            return None;
        }
        let mut fence = 0;
        if db.floor > 0 && !self.lacks(Op::Enqueue, Part::Floor) {
            fence = (db.floor + 1).min(self.last);
        }
        db.job = Some(Job { owner: None, until: 0, fence, result: None, done: 0 });
        Some(1)
    }

    fn claim(&self, db: &mut Db, owner: u8, now: u8) -> Answer {
        let job = db.job.as_mut()?;
        let over =
            if self.lacks(Op::Claim, Part::Boundary) { job.until < now } else { job.until <= now };
        let claimable = self.guard(Op::Claim, Part::Done, job.done == 0)
            && self.guard(Op::Claim, Part::Until, over)
            && self.guard(Op::Claim, Part::Last, job.fence < self.last);
        if !claimable {
            return None;
        }
        self.set(Op::Claim, Part::SetOwner, &mut job.owner, Some(owner));
        self.set(Op::Claim, Part::SetUntil, &mut job.until, now + TTL);
        let next = job.fence + 1;
        self.set(Op::Claim, Part::SetFence, &mut job.fence, next);
        Some(job.fence)
    }

    /// The job, if the guards for its holder let this one through.
    fn holder<'a>(
        &self,
        db: &'a mut Db,
        op: Op,
        owner: u8,
        fence: u8,
        now: Option<u8>,
    ) -> Option<&'a mut Job> {
        let job = db.job.as_mut()?;
        let live = now.is_none_or(|now| {
            job.until > now || self.lacks(op, Part::Boundary) && job.until == now
        });
        let held = self.guard(op, Part::Owner, job.owner == Some(owner))
            && self.guard(op, Part::Fence, job.fence == fence)
            && self.guard(op, Part::Done, job.done == 0)
            && self.guard(op, Part::Until, live);
        held.then_some(job)
    }

    fn finish(
        &self,
        db: &mut Db,
        op: Op,
        done: u8,
        (owner, fence, now, result): (u8, u8, u8, u8),
    ) -> Answer {
        let job = self.holder(db, op, owner, fence, Some(now))?;
        self.set(op, Part::SetResult, &mut job.result, Some(result));
        self.set(op, Part::SetDone, &mut job.done, done);
        Some(1)
    }

    fn requeue(&self, db: &mut Db) -> Answer {
        let job = db.job.as_mut()?;
        let dead = self.guard(Op::Requeue, Part::Done, job.done == 2)
            && self.guard(Op::Requeue, Part::Last, job.fence < self.last);
        if !dead {
            return None;
        }
        self.set(Op::Requeue, Part::SetOwner, &mut job.owner, None);
        self.set(Op::Requeue, Part::SetUntil, &mut job.until, 0);
        let next = job.fence + 1;
        self.set(Op::Requeue, Part::SetFence, &mut job.fence, next);
        self.set(Op::Requeue, Part::SetResult, &mut job.result, None);
        self.set(Op::Requeue, Part::SetDone, &mut job.done, 0);
        Some(1)
    }

    fn write(&self, db: &mut Db, fence: u8) -> Answer {
        let job = db.job?;
        let current = self.guard(Op::Write, Part::Owner, job.owner.is_some())
            && self.guard(Op::Write, Part::Fence, job.fence == fence)
            && self.guard(Op::Write, Part::Done, job.done == 0);
        if !current {
            return None;
        }
        db.row = fence;
        Some(1)
    }

    fn restore(&self, db: &mut Db, bump: u8) -> Answer {
        let floor = db.floor + bump;
        self.set(Op::Restore, Part::Floor, &mut db.floor, floor);
        if let Some(job) = &mut db.job {
            let raised = job.fence + bump;
            self.set(Op::Restore, Part::SetFence, &mut job.fence, raised);
            if job.done == 0 {
                if job.owner.is_some() {
                    self.set(Op::Restore, Part::SetUntil, &mut job.until, 0);
                }
                self.set(Op::Restore, Part::SetOwner, &mut job.owner, None);
            }
        }
        Some(1)
    }
}
