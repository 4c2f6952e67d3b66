//! Files made by hand that break one rule each.
use super::acks::{check, Acks, Row, Snapshot};
use super::harness::Test;

pub const TESTS: [Test; 5] = [
    ("the_rules_pass_a_file_that_has_all_that_was_acknowledged", good_file),
    ("an_acknowledged_fence_that_is_gone_breaks_a_rule", fences),
    ("an_acknowledged_lease_of_somebody_else_breaks_a_rule", leases),
    ("an_acknowledged_result_that_is_gone_breaks_a_rule", results),
    ("half_of_a_transaction_breaks_a_rule", halves),
];

/// Job `a` was completed with an effect and purged, and is there again, held by `w`; job `b` is
/// done.
fn good() -> (Acks, Snapshot) {
    let mut acks = Acks::default();
    for line in [
        "enqueue a",
        "claim a 1 v 10",
        "claim a 2 w 20",
        "renew a 2 25",
        "complete a 2 effect 1",
        "purge 1",
        "enqueue a",
        "claim a 4 w 30",
        "enqueue b",
        "claim b 1 v 10",
        "complete b 1 plain",
    ] {
        acks.add(line);
    }
    let row = |id: &str, owner: &str, until, fence, result: Option<&str>| Row {
        id: id.into(),
        owner: Some(owner.into()),
        until,
        fence,
        result: result.map(str::to_owned),
        done: result.is_some().into(),
    };
    let issued = [("a", 1, "v"), ("a", 2, "w"), ("a", 4, "w"), ("b", 1, "v")];
    let file = Snapshot {
        integrity: "ok".into(),
        floor: 2,
        jobs: vec![row("a", "w", 30.0, 4, None), row("b", "v", 10.0, 1, Some("plain"))],
        purged: vec![row("a", "w", 25.0, 2, Some("effect 1"))],
        issued: issued.map(|(id, fence, owner)| (id.into(), fence, owner.into())).into(),
        effects: vec![("a".into(), 2, "effect 1".into())],
    };
    (acks, file)
}

#[track_caller]
fn bad(change: impl FnOnce(&mut Acks, &mut Snapshot), sentence: &str) {
    let (mut acks, mut file) = good();
    change(&mut acks, &mut file);
    let error = check(&acks, &file).unwrap_err();
    assert!(error.starts_with(sentence), "{error}");
}

fn good_file() {
    let (acks, mut file) = good();
    check(&acks, &file).unwrap();
    // What was done but not acknowledged may be there: a renewal, then a claim, a release.
    file.jobs[0].until = 31.0;
    check(&acks, &file).unwrap();
    file.jobs[0] = Row { owner: None, until: 0.0, fence: 5, ..file.jobs[0].clone() };
    file.issued.push(("a".into(), 5, "v".into()));
    check(&acks, &file).unwrap();
}

fn fences() {
    bad(|_, file| file.integrity = "row 1 missing".into(), "integrity_check: row 1 missing");
    bad(|acks, _| acks.add("claim a 4 v 40"), "fence 4 of a was acknowledged twice");
    bad(|_, file| file.issued.push(file.issued[1].clone()), "fence 2 of a was issued twice");
    bad(|_, file| drop(file.issued.remove(1)), "the acknowledged fence 2 of a was never stored");
    bad(|_, file| file.issued[1].2 = "v".into(), "the acknowledged fence 2 of a was never stored");
    bad(|_, file| file.jobs[0].fence = 3, "the acknowledged fence 4 of a sank to 3");
    let lost = |_: &mut Acks, file: &mut Snapshot| drop(file.jobs.remove(0));
    bad(lost, "the acknowledged fence 4 of a sank to 2");
}

fn leases() {
    let sentence = "the lease of w until 30 was acknowledged";
    bad(|_, file| file.jobs[0].owner = Some("v".into()), sentence);
    bad(|_, file| file.jobs[0].until = 29.0, sentence);
}

fn results() {
    let sentence = "the acknowledged result 'plain' of b (1) is gone";
    bad(|_, file| file.jobs[1].result = Some("other".into()), sentence);
    bad(|_, file| file.jobs[1].done = 0, sentence);
    bad(|_, file| file.jobs[1].fence = 2, sentence);
    let sentence = "the acknowledged result 'effect 1' of a (2) is gone";
    bad(|_, file| file.purged.clear(), sentence);
    bad(|_, file| file.purged[0].done = 0, "an unfinished job was purged");
}

fn halves() {
    let without = "an effect without its completion";
    bad(|_, file| file.effects.push(("a".into(), 4, "effect 2".into())), without);
    bad(|_, file| file.effects[0].1 = 1, without);
    bad(|_, file| file.effects.push(file.effects[0].clone()), "an effect is there twice");
    bad(|_, file| file.effects.clear(), "a completion without its effect");
}
