//! Breadth-first search over everything that three workers, their crashes and stalls, their clocks
//! and the file's other users can do, in every order, within the bounds.
#![allow(dead_code)] // every test binary uses its own part

use crate::contract::contract;
use crate::fast::FastMap;
use crate::protocol::{Answer, Call, Db, Op, Part, Protocol, LATEST};
use crate::symmetry::sorted;

pub const WORKERS: usize = 3;

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Claims that succeed and are committed.
    pub claims: u8,
    /// Deletions, replacements and requeues, after each of which the job is fresh.
    pub resets: u8,
    /// Copies of the file that may be restored.
    pub restores: u8,
}

/// What a worker knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hand {
    #[default]
    Nothing,
    /// It was given this fence. It may act on it at any later time: that is a stall.
    Fence(u8),
    /// Of a broken client: it saw a job that it may claim, or a row that it may write.
    SawClaimable {
        fence: u8,
        now: u8,
    },
    MayWrite(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub db: Db,
    /// A transaction under way: whose, what it will commit, and what it answered.
    pub open: Option<(u8, Db, Call, u8)>,
    pub hands: [Hand; WORKERS],
    pub copy: Option<Db>,
    pub ghost: Ghost,
}

/// What no participant sees, for the invariants only. Counters are capped by the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    claims: u8,
    resets: u8,
    restores: u8,
    /// The highest fence that a committed claim answered.
    pub highest: u8,
    /// The worker of the current generation.
    pub current: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A call of a worker, in autocommit.
    Do(u8, Call),
    /// A call of a worker in a transaction that it leaves open.
    Begin(u8, Call),
    Commit,
    Rollback,
    /// The worker forgets everything; its transaction is rolled back.
    Crash(u8),
    /// A call of somebody who is no worker.
    Other(Call),
    /// Somebody reads the job.
    Look,
    Copy,
    // Of broken clients: a look, and later a write that believes it.
    See(u8, u8),
    Trust(u8),
}

/// What the search found out.
pub struct Found {
    pub states: usize,
    pub edges: usize,
    /// The broken rule, and how it came to it.
    pub broken: Option<(&'static str, Vec<Action>)>,
}

pub struct Search {
    pub protocol: Protocol,
    pub bounds: Bounds,
    /// All workers use one owner name, as containers of one image may.
    pub shared_name: bool,
    /// A worker keeps the number of a claim that was rolled back, though nobody gave it to it.
    pub keeps_rolled_back: bool,
    /// Keep one of the states that differ only in who is who. Paths are easier to read without.
    pub symmetry: bool,
    /// Compare each answer and each row with the contract.
    pub refinement: bool,
}

impl Search {
    /// With every check, and without the flaws that a test may add.
    pub fn of(protocol: Protocol, bounds: Bounds, shared_name: bool) -> Search {
        Search {
            protocol,
            bounds,
            shared_name,
            keeps_rolled_back: false,
            symmetry: true,
            refinement: true,
        }
    }

    pub fn run(&self) -> Found {
        self.run_and(|_, _, _| ())
    }

    /// Tells `edge` each call with the database before it and the protocol's answer.
    pub fn run_and(&self, mut edge: impl FnMut(Db, Call, (Answer, Db))) -> Found {
        let mut seen: FastMap<State, u32> = FastMap::default();
        let mut states = vec![(State::default(), 0_u32, None)];
        seen.insert(State::default(), 0);
        let mut edges = 0;
        let mut actions = Vec::new();
        let mut next = 0;
        while next < states.len() {
            let state = states[next].0;
            actions.clear();
            self.actions(&state, &mut actions);
            let broken = self.check_state(&state);
            let mut broken = broken.map(|rule| (rule, None));
            for &action in &actions {
                edges += 1;
                match self.step(&state, action, &mut edge) {
                    Ok(after) => {
                        let after =
                            if self.symmetry { sorted(after, self.shared_name) } else { after };
                        seen.entry(after).or_insert_with(|| {
                            states.push((after, next as u32, Some(action)));
                            0
                        });
                    }
                    Err(rule) => broken = broken.or(Some((rule, Some(action)))),
                }
            }
            if let Some((rule, last)) = broken {
                let mut path: Vec<Action> = last.into_iter().collect();
                let mut at = next;
                while let (_, parent, Some(action)) = states[at] {
                    path.push(action);
                    at = parent as usize;
                }
                path.reverse();
                return Found { states: states.len(), edges, broken: Some((rule, path)) };
            }
            next += 1;
        }
        Found { states: states.len(), edges, broken: None }
    }

    pub fn name(&self, worker: u8) -> u8 {
        if self.shared_name {
            0
        } else {
            worker
        }
    }

    fn bump(&self) -> u8 {
        // As much as fences can grow within the bounds.
        self.bounds.claims + self.bounds.resets
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Look);
        if let Some((worker, ..)) = state.open {
            // The others meet the lock.
            actions.extend([Action::Commit, Action::Rollback, Action::Crash(worker)]);
            return;
        }
        for (worker, hand) in (0..).zip(state.hands) {
            let owner = self.name(worker);
            let mut act = |call| {
                actions.push(Action::Do(worker, call));
                if matches!(call, Call::Claim { .. } | Call::WriteAndComplete { .. }) {
                    actions.push(Action::Begin(worker, call));
                }
            };
            for now in 0..=LATEST {
                if state.ghost.claims < self.bounds.claims {
                    act(Call::Claim { owner, now });
                }
                if let Hand::Fence(fence) = hand {
                    act(Call::Renew { owner, fence, now });
                    act(Call::Complete { owner, fence, now, result: worker });
                    act(Call::Fail { owner, fence, now, result: worker });
                    act(Call::WriteAndComplete { owner, fence, now, result: worker });
                }
            }
            if let Hand::Fence(fence) = hand {
                act(Call::Release { owner, fence });
                act(Call::Write { fence });
            }
            if hand != Hand::Nothing {
                actions.push(Action::Crash(worker));
            }
            self.broken_actions(worker, hand, state, actions);
        }
        actions.extend([Call::Enqueue, Call::Reopen, Call::Lower].map(Action::Other));
        if state.ghost.resets < self.bounds.resets {
            actions.extend([Call::Delete, Call::Replace, Call::Requeue].map(Action::Other));
        }
        if state.ghost.restores < self.bounds.restores {
            match state.copy {
                None => actions.push(Action::Copy),
                Some(_) => actions.push(Action::Other(Call::Restore { bump: self.bump() })),
            }
        }
    }

    fn broken_actions(&self, worker: u8, hand: Hand, state: &State, actions: &mut Vec<Action>) {
        match hand {
            Hand::SawClaimable { .. } | Hand::MayWrite(_) => actions.push(Action::Trust(worker)),
            Hand::Fence(_) if self.protocol.lacks(Op::Write, Part::OneStatement) => {
                actions.push(Action::See(worker, 0));
            }
            Hand::Nothing
                if self.protocol.lacks(Op::Claim, Part::OneStatement)
                    && state.ghost.claims < self.bounds.claims =>
            {
                actions.extend((0..=LATEST).map(|now| Action::See(worker, now)));
            }
            _ => {}
        }
    }

    fn step(
        &self,
        before: &State,
        action: Action,
        edge: &mut impl FnMut(Db, Call, (Answer, Db)),
    ) -> Result<State, &'static str> {
        let mut state = *before;
        match action {
            Action::Do(worker, call) => {
                let (answer, db) = self.call(before.db, call, edge)?;
                return self.committed(state, Some(worker), call, answer, db);
            }
            Action::Other(call) => {
                let on = match call {
                    Call::Restore { .. } => before.copy.expect("restored from a copy"),
                    _ => before.db,
                };
                let (answer, db) = self.call(on, call, edge)?;
                return self.committed(state, None, call, answer, db);
            }
            Action::Begin(worker, call) => {
                let (answer, db) = self.call(before.db, call, edge)?;
                if let Some(answer) = answer {
                    state.open = Some((worker, db, call, answer));
                }
            }
            Action::Commit => {
                let (worker, db, call, answer) = state.open.take().expect("a transaction");
                return self.committed(state, Some(worker), call, Some(answer), db);
            }
            Action::Rollback => {
                let (worker, db, call, answer) = state.open.take().expect("a transaction");
                let kept =
                    self.keeps_rolled_back || self.protocol.lacks(Op::Transaction, Part::Forgotten);
                if let (Call::Claim { .. }, true) = (call, kept) {
                    state.hands[usize::from(worker)] = Hand::Fence(answer);
                }
                if self.protocol.lacks(Op::Transaction, Part::Undone) {
                    if let (Some(kept), Some(job)) = (&mut state.db.job, db.job) {
                        kept.until = job.until;
                    }
                }
                if state.db != before.db {
                    return Err("L3: a rollback leaves the job as it was");
                }
            }
            Action::Crash(worker) => {
                state.open = None;
                state.hands[usize::from(worker)] = Hand::Nothing;
            }
            Action::Look => {
                let seen = match before.open {
                    Some((_, db, ..)) if self.protocol.lacks(Op::State, Part::Committed) => db,
                    _ => before.db,
                };
                if seen != before.db {
                    return Err("I11: what is read was committed");
                }
            }
            Action::Copy => state.copy = Some(before.db),
            Action::See(worker, now) => {
                let hand = &mut state.hands[usize::from(worker)];
                let Some(job) = before.db.job else { return Ok(state) };
                match *hand {
                    Hand::Fence(fence)
                        if self.call_on(before.db, Call::Write { fence }).is_some() =>
                    {
                        *hand = Hand::MayWrite(fence);
                    }
                    Hand::Nothing if job.done == 0 && job.until <= now => {
                        *hand = Hand::SawClaimable { fence: job.fence, now };
                    }
                    _ => {}
                }
            }
            Action::Trust(worker) => return self.trust(state, worker),
        }
        Ok(state)
    }

    pub fn call_on(&self, mut db: Db, call: Call) -> Answer {
        self.protocol.call(&mut db, call)
    }

    /// The second half of what ought to be one statement.
    fn trust(&self, state: State, worker: u8) -> Result<State, &'static str> {
        let mut db = state.db;
        let hand = state.hands[usize::from(worker)];
        match (hand, &mut db.job) {
            (Hand::SawClaimable { fence, now }, Some(job)) => {
                let owner = self.name(worker);
                job.owner = Some(owner);
                job.until = now + crate::protocol::TTL;
                job.fence = fence + 1;
                self.committed(state, Some(worker), Call::Claim { owner, now }, Some(job.fence), db)
            }
            (Hand::MayWrite(fence), _) => {
                db.row = fence;
                self.committed(state, Some(worker), Call::Write { fence }, Some(1), db)
            }
            _ => Ok(state),
        }
    }

    fn call(
        &self,
        before: Db,
        call: Call,
        edge: &mut impl FnMut(Db, Call, (Answer, Db)),
    ) -> Result<(Answer, Db), &'static str> {
        let mut db = before;
        let answer = self.protocol.call(&mut db, call);
        edge(before, call, (answer, db));
        if self.refinement && (answer, db) != contract(self.protocol.last, before, call) {
            return Err("refinement: answers and leaves behind what the contract says");
        }
        Ok((answer, db))
    }

    /// A call that was committed: what the worker learns, and whether the rules held.
    fn committed(
        &self,
        mut state: State,
        worker: Option<u8>,
        call: Call,
        answer: Answer,
        db: Db,
    ) -> Result<State, &'static str> {
        let before = state.db;
        state.db = db;
        let Some(value) = answer else {
            let kept = db == before || matches!(call, Call::Restore { .. });
            return if kept { Ok(state) } else { Err("I6: a refusal changes nothing") };
        };
        self.check_call(&state.ghost, before, worker, call, value, db)?;
        let ghost = &mut state.ghost;
        let hand = worker.map(|worker| &mut state.hands[usize::from(worker)]);
        match call {
            Call::Claim { .. } => {
                ghost.claims += 1;
                ghost.highest = value;
                ghost.current = worker;
                *hand.expect("a worker claims") = Hand::Fence(value);
            }
            Call::Release { .. } => ghost.current = None,
            Call::Delete | Call::Replace | Call::Requeue => {
                ghost.resets += 1;
                ghost.current = None;
            }
            Call::Restore { .. } => {
                ghost.restores += 1;
                ghost.current = None;
                state.copy = None;
            }
            Call::Write { fence } => {
                // A broken client has used up what it saw.
                *hand.expect("a worker writes") = Hand::Fence(fence);
            }
            _ => {}
        }
        Ok(state)
    }
}
