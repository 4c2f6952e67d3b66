//! Histories made by hand that break one rule each.
use super::harness::Test;
use super::history::{Answer, Call, Event, Job};
use super::linearizable_cases::{claim, complete, completed, during, job, one_by_one, renew};
use super::rules::{check, undisturbed_winners};
use Answer::{Fence, No, Yes};

pub const TESTS: [Test; 6] = [
    ("the_rules_pass_a_good_history", good_history),
    ("fences_that_do_not_grow_by_one_break_a_rule", fences),
    ("a_claim_before_the_end_of_a_lease_breaks_a_rule", live_lease),
    ("a_completion_by_another_than_the_last_generation_breaks_a_rule", completions),
    ("a_change_after_the_completion_breaks_a_rule", after_the_end),
    ("a_claim_many_without_exactly_one_winner_breaks_a_rule", winners),
];

#[track_caller]
fn bad(events: &[Event], row: Job, sentence: &str) {
    let error = check(events, Some(row)).unwrap_err();
    assert!(error.contains(sentence), "{error}");
}

fn release(owner: u64, fence: i64) -> Call {
    Call::Release { owner, fence }
}

fn good_history() {
    let story = one_by_one(&[
        (claim(1, 0.0), Fence(1)),
        (renew(1, 1, 5.0), Yes),
        (claim(2, 15.0), Fence(2)),
        (release(2, 2), Yes),
        (claim(3, 0.0), Fence(3)),
        (complete(1, 1, 5.0), No),
        (complete(3, 3, 5.0), Yes),
        (claim(1, 99.0), No),
    ]);
    check(&story, Some(completed(3, 10.0, 3))).unwrap();
    // A shorter lease counts from its renewal on.
    let shorter = Call::Renew { owner: 1, fence: 1, now: 1.0, ttl: 1.0 };
    let story = one_by_one(&[(claim(1, 0.0), Fence(1)), (shorter, Yes), (claim(2, 2.0), Fence(2))]);
    check(&story, Some(job(2, 12.0, 2))).unwrap();
}

fn fences() {
    let twice = one_by_one(&[(claim(1, 0.0), Fence(1)), (claim(2, 10.0), Fence(1))]);
    bad(&twice, job(2, 20.0, 1), "fence 1 was issued twice");
    let gap = one_by_one(&[(claim(1, 0.0), Fence(1)), (claim(2, 10.0), Fence(3))]);
    bad(&gap, job(2, 20.0, 3), "the row has fence 3, issued were [1, 3]");
    let sunk = one_by_one(&[(claim(1, 0.0), Fence(1)), (claim(2, 10.0), Fence(2))]);
    bad(&sunk, job(1, 10.0, 1), "the row has fence 1, issued were [1, 2]");
    let from_nowhere = one_by_one(&[]);
    bad(&from_nowhere, job(1, 10.0, 1), "the row has fence 1, issued were []");
}

fn live_lease() {
    let early = one_by_one(&[(claim(1, 0.0), Fence(1)), (claim(2, 9.0), Fence(2))]);
    bad(&early, job(2, 19.0, 2), "a lease until 10 was live");
    let renewed = one_by_one(&[
        (claim(1, 0.0), Fence(1)),
        (renew(1, 1, 5.0), Yes),
        (claim(2, 14.0), Fence(2)),
    ]);
    bad(&renewed, job(2, 24.0, 2), "a lease until 15 was live");
}

fn completions() {
    let stale = one_by_one(&[
        (claim(1, 0.0), Fence(1)),
        (claim(2, 10.0), Fence(2)),
        (complete(1, 1, 5.0), Yes),
    ]);
    let row = Job { result: 1, done: true, ..job(2, 20.0, 2) };
    bad(&stale, row, "the last generation did not complete");
    let lost = one_by_one(&[(claim(1, 0.0), Fence(1)), (complete(1, 1, 5.0), Yes)]);
    bad(&lost, job(1, 10.0, 1), "after the completions [Event");
    bad(&lost, Job { result: 2, ..completed(1, 10.0, 1) }, "the last generation did not complete");
    let unknown = one_by_one(&[(claim(1, 0.0), Fence(1))]);
    bad(&unknown, completed(1, 10.0, 1), "after the completions []");
    let twice = [&lost[..], &[during(30, 31, complete(1, 1, 5.0), Yes)]].concat();
    bad(&twice, completed(1, 10.0, 1), "after the completions [Event");
}

fn after_the_end() {
    let late = [
        (release(1, 1), Yes),
        (renew(1, 1, 5.0), Yes),
        (Call::Enqueue, Yes),
        (Call::State, Answer::Found(job(1, 10.0, 1))),
    ];
    for (call, answer) in late {
        let story = one_by_one(&[
            (claim(1, 0.0), Fence(1)),
            (complete(1, 1, 5.0), Yes),
            (Call::State, Answer::Found(completed(1, 10.0, 1))),
            (call, answer),
        ]);
        bad(&story, completed(1, 10.0, 1), "came after the completion");
    }
}

fn winners() {
    let many = |answers: [Answer; 2]| {
        let mut events = one_by_one(&[]);
        for (owner, answer) in answers.into_iter().enumerate() {
            events.push(Event { many: 7, ..during(10, 20, claim(owner as u64, 0.0), answer) });
        }
        events
    };
    let (one, row) = (many([No, Fence(1)]), job(1, 10.0, 1));
    check(&one, Some(row)).unwrap();
    assert_eq!(undisturbed_winners(&one), 1);
    bad(&many([No, No]), Job::default(), "0 winners of one claim_many");
    let mut two = many([Fence(1), Fence(2)]);
    bad(&two, job(1, 10.0, 2), "2 winners of one claim_many");
    // Over before it began, this is no reason.
    two.push(during(8, 9, release(0, 1), Yes));
    bad(&two, job(1, 10.0, 2), "2 winners of one claim_many");
    // Meanwhile somebody took over by a clock that is ahead, and gave the job back.
    let mut three = many([Fence(1), Fence(3)]);
    three.push(during(12, 13, claim(9, 10.0), Fence(2)));
    three.push(during(14, 15, release(9, 2), Yes));
    check(&three, Some(job(1, 10.0, 3))).unwrap();
    // Somebody else was faster.
    let mut lost = many([No, No]);
    lost.push(during(5, 6, claim(9, 0.0), Fence(1)));
    check(&lost, Some(job(9, 10.0, 1))).unwrap();
    assert_eq!(undisturbed_winners(&lost), 0);
}
