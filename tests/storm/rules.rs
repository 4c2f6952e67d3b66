//! Rules that every history of one job keeps, said without a search: plainer than
//! linearizability, so that a fault of the one check is seen by the other.
use super::history::{Answer, Call, Event, Job};
use std::collections::BTreeMap;

/// Checks all rules on the calls on one job and the row that they left behind.
pub fn check(events: &[Event], last: Option<Job>) -> Result<(), String> {
    let fence = last.map_or(0, |job| job.fence);
    let claims = fences_grow_by_one(events, fence)?;
    claim_many_has_one_winner(events)?;
    no_live_lease_is_taken(events, &claims)?;
    let completion = one_completion(events, last.unwrap_or_default())?;
    nothing_succeeds_after(events, completion)
}

/// The successful claims by their fences, which are 1, 2, .. up to the one in the row.
fn fences_grow_by_one(events: &[Event], last: i64) -> Result<BTreeMap<i64, &Event>, String> {
    let mut claims = BTreeMap::new();
    for event in events {
        if let (Call::Claim { .. }, Answer::Fence(fence)) = (&event.call, event.answer) {
            if let Some(other) = claims.insert(fence, event) {
                return Err(format!("fence {fence} was issued twice: {other:?} and {event:?}"));
            }
        }
    }
    if !claims.keys().copied().eq(1..=last) {
        let fences: Vec<i64> = claims.keys().copied().collect();
        return Err(format!("the row has fence {last}, issued were {fences:?}"));
    }
    Ok(claims)
}

/// A claim comes at or after the end of the lease before it, or after its release.
fn no_live_lease_is_taken(events: &[Event], claims: &BTreeMap<i64, &Event>) -> Result<(), String> {
    for (fence, claim) in claims {
        let Some(before) = claims.get(&(fence - 1)) else { continue };
        let of_before = |event: &&Event| match event.call {
            Call::Claim { .. } => event == before,
            Call::Renew { fence: f, .. } | Call::Release { fence: f, .. } => {
                f == fence - 1 && event.answer == Answer::Yes
            }
            _ => false,
        };
        let grants: Vec<&Event> = events.iter().filter(of_before).collect();
        if grants.iter().any(|event| matches!(event.call, Call::Release { .. })) {
            continue;
        }
        // Of grants that overlapped any may have been the last one.
        let until = grants
            .iter()
            .filter(|grant| !grants.iter().any(|later| later.invoked > grant.answered))
            .filter_map(|grant| match grant.call {
                Call::Claim { now, ttl, .. } | Call::Renew { now, ttl, .. } => Some(now + ttl),
                _ => None,
            })
            .fold(f64::INFINITY, f64::min);
        match claim.call {
            Call::Claim { now, .. } if now >= until => {}
            _ => return Err(format!("a lease until {until} was live: {before:?} then {claim:?}")),
        }
    }
    Ok(())
}

/// A job that is done was completed once, by its last generation, and has that result.
fn one_completion(events: &[Event], last: Job) -> Result<Option<&Event>, String> {
    let completions: Vec<&Event> = events
        .iter()
        .filter(|e| matches!(e.call, Call::Complete { .. }) && e.answer == Answer::Yes)
        .collect();
    match completions[..] {
        [] if !last.done => Ok(None),
        [one] if last.done => match one.call {
            Call::Complete { owner, fence, result, .. }
                if (owner, fence, result) == (last.owner, last.fence, last.result) =>
            {
                Ok(Some(one))
            }
            _ => Err(format!("the last generation did not complete: {one:?}, row {last:?}")),
        },
        _ => Err(format!("row {last:?} after the completions {completions:?}")),
    }
}

/// Nothing changes a job whose completion was answered.
fn nothing_succeeds_after(events: &[Event], completion: Option<&Event>) -> Result<(), String> {
    let Some(completion) = completion else { return Ok(()) };
    for event in events.iter().filter(|event| event.invoked > completion.answered) {
        let changed = event.call != Call::State && event.answer != Answer::No;
        let unfinished = matches!(event.answer, Answer::Found(job) if !job.done);
        if changed || unfinished {
            return Err(format!("{event:?} came after the completion {completion:?}"));
        }
    }
    Ok(())
}

/// Of the owners of one claim_many at most one wins, unless somebody else ends its lease meanwhile,
/// and one does where nobody else could.
fn claim_many_has_one_winner(events: &[Event]) -> Result<(), String> {
    let mut calls: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.many != 0) {
        calls.entry(event.many).or_default().push(event);
    }
    for (many, claims) in calls {
        let winners = claims.iter().filter(|e| matches!(e.answer, Answer::Fence(_))).count();
        let (invoked, answered) = (claims[0].invoked, claims[0].answered);
        let there = events.iter().any(|event| {
            event.call == Call::Enqueue && event.answer == Answer::Yes && event.answered < invoked
        });
        let mut others = events.iter().filter(|event| {
            let changed = event.answer != Answer::No;
            let kind = !matches!(event.call, Call::Enqueue | Call::State);
            changed && kind && event.many != many && event.invoked < answered
        });
        let too_many = winners > 1 && !others.clone().any(|event| event.answered > invoked);
        if too_many || winners == 0 && there && others.next().is_none() {
            return Err(format!("{winners} winners of one claim_many: {claims:#?}"));
        }
    }
    Ok(())
}

/// How many claim_many calls had to have a winner because nobody else had claimed.
pub fn undisturbed_winners(events: &[Event]) -> usize {
    events
        .iter()
        .filter(|event| event.many != 0 && event.answer == Answer::Fence(1))
        .filter(|event| events.iter().all(|e| e.many == event.many || e.answer != Answer::Fence(1)))
        .count()
}
