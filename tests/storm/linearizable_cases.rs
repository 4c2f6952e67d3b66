//! Histories made by hand, good and bad, for the search for an order.
use super::harness::Test;
use super::history::{Answer, Call, Event, Job};
use super::linearizable::{check, step};
use Answer::{Fence, Found, No, Yes};

pub const TESTS: [Test; 13] = [
    ("the_reference_claims_at_the_end_of_a_lease_and_not_before", reference_claims),
    ("the_reference_refuses_whoever_is_not_the_holder", reference_refuses),
    ("a_history_without_overlap_is_linearizable", in_turn),
    ("overlapping_calls_may_count_in_either_order", overlap),
    ("the_search_comes_back_from_a_wrong_start", comes_back),
    ("an_answer_from_the_past_is_not_linearizable", past),
    ("one_fence_for_two_claims_is_not_linearizable", one_fence),
    ("a_claim_of_a_live_lease_is_not_linearizable", live_lease),
    ("a_refusal_without_reason_is_not_linearizable", needless_refusal),
    ("a_stale_completion_is_not_linearizable", stale_completion),
    ("a_call_without_trace_must_have_left_none", hidden_call),
    ("the_row_at_the_end_is_part_of_the_history", last_row),
    ("overlapping_refusals_do_not_make_the_search_endless", many_refusals),
];

/// A call from one moment to another.
pub fn during(invoked: u64, answered: u64, call: Call, answer: Answer) -> Event {
    Event { job: 1, invoked, answered, many: 0, call, answer }
}

pub fn claim(owner: u64, now: f64) -> Call {
    Call::Claim { owner, now, ttl: 10.0 }
}

pub fn renew(owner: u64, fence: i64, now: f64) -> Call {
    Call::Renew { owner, fence, now, ttl: 10.0 }
}

pub fn complete(owner: u64, fence: i64, now: f64) -> Call {
    Call::Complete { owner, fence, now, result: owner }
}

pub fn job(owner: u64, until: f64, fence: i64) -> Job {
    Job { owner, until, fence, result: 0, done: false }
}

pub fn completed(owner: u64, until: f64, fence: i64) -> Job {
    Job { result: owner, done: true, ..job(owner, until, fence) }
}

/// The job is added, then the calls come one after the other.
pub fn one_by_one(calls: &[(Call, Answer)]) -> Vec<Event> {
    let mut events = vec![during(0, 1, Call::Enqueue, Yes)];
    for (i, (call, answer)) in calls.iter().enumerate() {
        let invoked = 10 * (i as u64 + 1);
        events.push(during(invoked, invoked + 1, *call, *answer));
    }
    events
}

#[track_caller]
fn good(events: &[Event], row: Job) {
    check(events, Some(row)).unwrap();
}

#[track_caller]
fn bad(events: &[Event], row: Job) {
    let error = check(events, Some(row)).unwrap_err();
    assert!(error.starts_with("no order explains the "), "{error}");
}

fn reference_claims() {
    let held = Some(job(1, 10.0, 1));
    assert_eq!(step(held, &claim(2, 9.9)), (No, held));
    assert_eq!(step(held, &claim(1, 9.9)), (No, held));
    assert_eq!(step(held, &claim(2, 10.0)), (Fence(2), Some(job(2, 20.0, 2))));
    let done = Some(completed(1, 10.0, 1));
    assert_eq!(step(done, &claim(2, 10.0)), (No, done));
    assert_eq!(step(None, &claim(2, 10.0)), (No, None));
    assert_eq!(step(None, &Call::Enqueue), (Yes, Some(Job::default())));
    assert_eq!(step(held, &Call::Enqueue), (No, held));
}

fn reference_refuses() {
    let held = Some(job(1, 10.0, 2));
    let release = |owner, fence| Call::Release { owner, fence };
    for call in [renew(2, 2, 5.0), renew(1, 1, 5.0), renew(1, 3, 5.0), renew(1, 2, 10.0)] {
        assert_eq!(step(held, &call), (No, held), "{call:?}");
    }
    for call in [complete(2, 2, 5.0), complete(1, 1, 5.0), complete(1, 2, 10.0)] {
        assert_eq!(step(held, &call), (No, held), "{call:?}");
    }
    for call in [release(2, 2), release(1, 1)] {
        assert_eq!(step(held, &call), (No, held), "{call:?}");
    }
    assert_eq!(step(held, &renew(1, 2, 9.0)), (Yes, Some(job(1, 19.0, 2))));
    assert_eq!(step(held, &complete(1, 2, 9.0)), (Yes, Some(completed(1, 10.0, 2))));
    assert_eq!(step(held, &release(1, 2)), (Yes, Some(job(0, 0.0, 2))));
    let done = Some(completed(1, 10.0, 2));
    for call in [renew(1, 2, 5.0), complete(1, 2, 5.0), release(1, 2)] {
        assert_eq!(step(done, &call), (No, done), "{call:?}");
    }
}

fn in_turn() {
    let story = one_by_one(&[
        (claim(1, 0.0), Fence(1)),
        (claim(2, 5.0), No),
        (renew(1, 1, 9.0), Yes),
        (claim(2, 19.0), Fence(2)),
        (complete(1, 1, 15.0), No),
        (Call::State, Found(job(2, 29.0, 2))),
        (complete(2, 2, 20.0), Yes),
        (claim(1, 50.0), No),
    ]);
    good(&story, completed(2, 29.0, 2));
}

fn overlap() {
    for (first, second) in [(1, 2), (2, 1)] {
        let mut events = one_by_one(&[]);
        // Both claims are under way at once; the later lease is the one that is left.
        events.push(during(10, 20, claim(1, 0.0), Fence(first)));
        events.push(during(11, 19, claim(2, 10.0), Fence(second)));
        let row = job(2, 20.0, 2);
        match first {
            1 => good(&events, row),
            // Worker 2 first would be a lease until 20, which a claim at 0 cannot take.
            _ => bad(&events, row),
        }
    }
}

fn comes_back() {
    // The renewal must count before the claims that see its end, although it was invoked last.
    let mut events = one_by_one(&[(claim(1, 0.0), Fence(1))]);
    events.push(during(20, 30, claim(2, 10.0), No));
    events.push(during(21, 31, claim(3, 11.0), No));
    events.push(during(22, 32, renew(1, 1, 9.0), Yes));
    good(&events, job(1, 19.0, 1));
    // Answered before the renewal was invoked, the first of them had no reason.
    events[2].answered = 21;
    bad(&events, job(1, 19.0, 1));
}

fn past() {
    let story = one_by_one(&[
        (claim(1, 0.0), Fence(1)),
        (claim(2, 10.0), Fence(2)),
        (Call::State, Found(job(1, 10.0, 1))),
    ]);
    bad(&story, job(2, 20.0, 2));
}

fn one_fence() {
    let mut events = one_by_one(&[]);
    events.push(during(10, 20, claim(1, 0.0), Fence(1)));
    events.push(during(11, 19, claim(2, 0.0), Fence(1)));
    bad(&events, job(1, 10.0, 1));
    bad(&events, job(2, 10.0, 1));
}

fn live_lease() {
    let story = one_by_one(&[(claim(1, 0.0), Fence(1)), (claim(2, 9.0), Fence(2))]);
    bad(&story, job(2, 19.0, 2));
}

fn needless_refusal() {
    bad(&one_by_one(&[(claim(1, 0.0), No)]), Job::default());
    bad(&one_by_one(&[(claim(1, 0.0), Fence(1)), (complete(1, 1, 5.0), No)]), job(1, 10.0, 1));
}

fn stale_completion() {
    let story = one_by_one(&[
        (claim(1, 0.0), Fence(1)),
        (claim(2, 10.0), Fence(2)),
        (complete(1, 1, 5.0), Yes),
    ]);
    bad(&story, Job { result: 1, done: true, ..job(2, 20.0, 2) });
}

fn hidden_call() {
    // Somebody was told that a lock stood in the way, and had claimed all the same.
    let story = one_by_one(&[(claim(2, 10.0), Fence(2))]);
    bad(&story, job(2, 20.0, 2));
}

fn last_row() {
    let story = one_by_one(&[(claim(1, 0.0), Fence(1))]);
    good(&story, job(1, 10.0, 1));
    bad(&story, job(1, 11.0, 1));
    bad(&story, job(2, 10.0, 1));
    bad(&story, Job::default());
    assert!(check(&story, None).is_err(), "the row is lost");
    assert!(check(&[], None).is_ok());
}

fn many_refusals() {
    // Without the memo of what was tried, the search would go through all their orders.
    let mut events = one_by_one(&[(claim(1, 0.0), Fence(1))]);
    events.extend((0..30).map(|i| during(20 + i, 2_000 + i, claim(2, 5.0), No)));
    events.push(during(100, 2_100, renew(1, 1, 9.0), Yes));
    good(&events, job(1, 19.0, 1));
    events.push(during(3_000, 3_001, claim(3, 18.0), Fence(2)));
    bad(&events, job(3, 28.0, 2));
}
