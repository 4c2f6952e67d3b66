//! Workers are interchangeable, so of the states that differ only in who is who the search keeps
//! one: the one in which the workers are sorted by what they know and by what names them.

use crate::protocol::{Call, Job};
use crate::search::{State, WORKERS};

/// The state with its workers sorted. With one shared name, `owner` names nobody.
pub fn sorted(mut state: State, shared_name: bool) -> State {
    let mut order: [u8; WORKERS] = std::array::from_fn(|worker| worker as u8);
    // Two workers with the same key are named nowhere, so that their order does not matter.
    order.sort_by_key(|&worker| key(&state, worker, shared_name));
    if order.is_sorted() {
        return state;
    }
    state.hands = order.map(|worker| state.hands[usize::from(worker)]);
    let mut place = [0; WORKERS];
    for (new, old) in (0..).zip(order) {
        place[usize::from(old)] = new;
    }
    let renamed = |worker: &mut u8| *worker = place[usize::from(*worker)];
    for job in jobs(&mut state) {
        job.result.as_mut().map(renamed);
        if !shared_name {
            job.owner.as_mut().map(renamed);
        }
    }
    if let Some((worker, _, call, _)) = &mut state.open {
        renamed(worker);
        match call {
            Call::Claim { owner, .. } if !shared_name => renamed(owner),
            Call::WriteAndComplete { owner, result, .. } => {
                renamed(result);
                if !shared_name {
                    renamed(owner);
                }
            }
            _ => {}
        }
    }
    state.ghost.current.as_mut().map(renamed);
    state
}

fn jobs(state: &mut State) -> impl Iterator<Item = &mut Job> {
    let State { db, copy, open, .. } = state;
    let copy = copy.as_mut().and_then(|db| db.job.as_mut());
    let open = open.as_mut().and_then(|(_, db, ..)| db.job.as_mut());
    db.job.as_mut().into_iter().chain(copy).chain(open)
}

fn key(state: &State, worker: u8, shared_name: bool) -> u64 {
    let hand = match state.hands[usize::from(worker)] {
        crate::search::Hand::Nothing => 0,
        crate::search::Hand::Fence(fence) => 0x100 | u64::from(fence),
        crate::search::Hand::SawClaimable { fence, now } => {
            0x200 | u64::from(fence) | u64::from(now) << 12
        }
        crate::search::Hand::MayWrite(fence) => 0x300 | u64::from(fence),
    };
    let mut key = hand;
    let mut note = |named: bool| key = key << 1 | u64::from(named);
    let open = state.open.map(|(_, db, ..)| db);
    for db in [Some(state.db), state.copy, open] {
        let job = db.and_then(|db| db.job);
        note(!shared_name && job.is_some_and(|job| job.owner == Some(worker)));
        note(job.is_some_and(|job| job.result == Some(worker)));
    }
    note(state.open.is_some_and(|(whose, ..)| whose == worker));
    note(state.ghost.current == Some(worker));
    key
}
