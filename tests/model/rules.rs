//! What must hold: after each committed call, and in each state. The numbers are those of the
//! invariants in docs/testing.md.

use crate::protocol::{Call, Db, LATEST, TTL};
use crate::search::{Ghost, Hand, Search, State};

impl Search {
    pub fn check_call(
        &self,
        ghost: &Ghost,
        before: Db,
        worker: Option<u8>,
        call: Call,
        value: u8,
        after: Db,
    ) -> Result<(), &'static str> {
        let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
        let (old, new) = (before.job, after.job);
        if let Call::Claim { now, .. } = call {
            let old = old.expect("claimed");
            rule(value > ghost.highest, "I1: fences of one id strictly grow")?;
            rule(old.done == 0 && old.until <= now, "I7: a claim takes what nobody holds")?;
        }
        let current = ghost.current.is_some() && ghost.current == worker;
        match call {
            Call::Renew { fence, now, .. }
            | Call::Complete { fence, now, .. }
            | Call::Fail { fence, now, .. }
            | Call::WriteAndComplete { fence, now, .. } => {
                let job = old.expect("held");
                rule(current && fence == ghost.highest, "I3: only the current generation acts")?;
                rule(job.until > now, "I8: nothing counts after the end of the lease")?;
            }
            Call::Release { fence, .. } => {
                rule(current && fence == ghost.highest, "I3: only the current generation acts")?;
            }
            _ => {}
        }
        if let Call::Write { fence } | Call::WriteAndComplete { fence, .. } = call {
            rule(fence >= before.row, "I5: guarded writes come in the order of their fences")?;
            rule(fence == ghost.highest, "I3: only the current generation acts")?;
        }
        let in_place = !matches!(call, Call::Delete | Call::Replace | Call::Restore { .. });
        if let (Some(old), Some(new), true) = (old, new, in_place) {
            rule(new.fence >= old.fence, "I1: a fence never falls")?;
            let grows = matches!(call, Call::Claim { .. } | Call::Requeue);
            rule(grows || new.fence == old.fence, "I6: only a claim changes the fence")?;
            let same = new.done == old.done && new.result == old.result;
            let stays = old.done == 0 || new.fence > old.fence || same;
            rule(stays, "I4: what is done stays, and its result")?;
        }
        if let Some(new) = new {
            rule(new.fence <= self.protocol.last, "I9: the fence is an integer below 2^63")?;
            let end = LATEST + TTL;
            rule(new.until <= end, "I10: every lease ends")?;
        }
        Ok(())
    }

    pub fn check_state(&self, state: &State) -> Option<&'static str> {
        let job = state.db.job?;
        let valid = (0..).zip(state.hands).filter(|(worker, hand)| {
            *hand == Hand::Fence(job.fence)
                && job.owner == Some(self.name(*worker))
                && job.done == 0
        });
        if valid.count() > 1 {
            return Some("I2: one owner and fence at most are valid at any instant");
        }
        let due = |now| job.done == 0 && job.until <= now && job.fence < self.protocol.last;
        let stuck = state.open.is_none()
            && (0..=LATEST).any(|now| {
                due(now) && self.call_on(state.db, Call::Claim { owner: 0, now }).is_none()
            });
        stuck.then_some("L1: what is due can be claimed")
    }
}
