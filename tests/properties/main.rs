//! Random sequences of calls, and arguments that nobody should give: through the functions of the
//! loaded extension, through the Rust API and through the plain statement files, against one
//! reference. The generator is biased, so that completions that count, take-overs and stale
//! writes are all frequent; each run prints how often each outcome of each operation was met, and
//! fails where one was too rare.
#[path = "../common/mod.rs"]
mod common;
#[path = "../model/reference.rs"]
mod reference;
#[path = "../model/statements.rs"]
mod statements;

mod arguments;
mod doors;
mod play;
mod rust_door;
mod steps;
mod table;

use arguments::Verdict;
use common::tier;
use doors::{Door, Functions, Mistake, Plain};
use play::{play, Coverage};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rusqlite::Connection;
use rust_door::Rust;
use statements::Statements;
use std::cell::RefCell;
use std::time::Instant;
use steps::Step;

/// Plays random sequences; the shortest one that fails, if any, and what was covered.
fn sequences<'a>(
    seed: u64,
    cases: u32,
    open: impl Fn() -> Box<dyn Door + 'a>,
) -> (Option<(String, Vec<Step>)>, Coverage) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let coverage = RefCell::new(Coverage::new());
    let outcome = runner.run(&steps::steps(200), |steps| {
        play(&*open(), &steps, &mut coverage.borrow_mut()).map_err(TestCaseError::fail)
    });
    let failed = match outcome {
        Ok(()) => None,
        Err(TestError::Fail(why, steps)) => Some((why.message().to_owned(), steps)),
        Err(other) => panic!("{other}"),
    };
    (failed, coverage.into_inner())
}

/// Every outcome that there is, for each operation.
const OUTCOMES: &[(&str, &[&str])] = &[
    ("enqueue", &["yes", "no"]),
    ("enqueue at", &["yes", "no"]),
    ("claim", &["takes", "takes over", "not due", "done", "missing", "used up", "commit fails"]),
    ("claim batch", &["none", "one", "several", "commit fails"]),
    ("race", &["takes", "takes over", "not due", "done", "missing", "used up"]),
    ("renew", HELD),
    ("complete", HELD),
    ("fail", HELD),
    ("release", GIVEN),
    ("release at", GIVEN),
    ("requeue", &["yes", "no", "commit fails"]),
    ("check", STANDINGS),
    ("state", &["found", "missing"]),
    ("purge", &["none", "one", "several"]),
    ("restore", &["yes", "error"]),
    ("delete", &["none", "one"]),
    ("replace", &["one"]),
    ("lift", &["none", "one"]),
];

const HELD: &[&str] = &[
    "held",
    "expired",
    "superseded",
    "never_issued",
    "not_owner",
    "released",
    "done",
    "done_by_you",
    "missing",
    "commit fails",
];

const STANDINGS: &[&str] = &[
    "held",
    "expired",
    "superseded",
    "never_issued",
    "not_owner",
    "released",
    "done",
    "done_by_you",
    "missing",
];

/// A release takes no time, so that its lease is not over.
const GIVEN: &[&str] = &[
    "held",
    "superseded",
    "never_issued",
    "not_owner",
    "released",
    "done",
    "done_by_you",
    "missing",
    "commit fails",
];

/// What the whole is about, and must not be rare.
const FREQUENT: &[(&str, &str)] = &[
    ("claim", "takes over"),
    ("renew", "held"),
    ("renew", "superseded"),
    ("complete", "held"),
    ("complete", "superseded"),
    ("complete", "expired"),
    ("fail", "held"),
    ("release", "held"),
];

fn agrees<'a>(name: &str, cases: u32, open: impl Fn() -> Box<dyn Door + 'a>) {
    let (seed, started) = (tier::seed(), Instant::now());
    let (failed, coverage) = sequences(seed, cases, open);
    let steps: usize = coverage.values().sum();
    println!(
        "{name}: seed {seed}, {cases} sequences, {steps} steps, {:.1} s",
        started.elapsed().as_secs_f64()
    );
    if let Some((why, steps)) = failed {
        panic!("{name}, FENCE_SEED={seed}: {why}\nafter {steps:#?}");
    }
    for (operation, outcomes) in OUTCOMES {
        let count = |outcome| coverage.get(&(*operation, outcome)).copied().unwrap_or(0);
        let line: Vec<_> =
            outcomes.iter().map(|outcome| format!("{outcome} {}", count(outcome))).collect();
        println!("  {operation}: {}", line.join(", "));
        for outcome in *outcomes {
            let frequent = FREQUENT.contains(&(*operation, *outcome));
            let minimum = cases as usize / if frequent { 3 } else { 80 };
            assert!(count(outcome) >= minimum, "{name}: {operation}, {outcome} was too rare");
        }
    }
    let cells = OUTCOMES.iter().map(|(_, outcomes)| outcomes.len()).sum::<usize>();
    assert_eq!(coverage.len(), cells, "an outcome that is in no list: {coverage:?}");
}

#[test]
fn the_functions_agree_with_the_contract() {
    let load = |conn: &Connection| common::load(conn).unwrap();
    let cases = tier::scale(150, 3_000, 50_000);
    agrees("functions", cases, || Box::new(Functions::new(load)));
}

#[test]
fn the_rust_api_agrees_with_the_contract() {
    let cases = tier::scale(80, 1_000, 10_000);
    agrees("Rust", cases, || Box::new(Rust::new()));
}

#[test]
fn the_plain_files_agree_with_the_contract() {
    let statements = Statements::committed();
    let cases = tier::scale(150, 3_000, 50_000);
    agrees("plain files", cases, || Box::new(Plain::new(&statements, Mistake::None).unwrap()));
}

/// What is said of a door that is broken on purpose.
fn caught(statements: &Statements, mistake: Mistake) -> String {
    let open = || Box::new(Plain::new(statements, mistake).unwrap()) as Box<dyn Door + '_>;
    let (failed, _) = sequences(tier::seed(), 300, open);
    let (why, steps) = failed.expect("a broken door must be noticed");
    println!("{mistake:?}: {why}\n  found with {} steps", steps.len());
    why
}

#[test]
fn a_claim_in_two_statements_is_noticed() {
    let why = caught(&Statements::committed(), Mistake::TwoStatements);
    assert!(why.contains("Race"), "{why}");
}

#[test]
fn a_claim_that_is_stepped_once_is_noticed() {
    let why = caught(&Statements::committed(), Mistake::OneStep);
    assert!(why.contains("the commit fails, but the answer is Ok(Fence(Some("), "{why}");
}

#[test]
fn a_claim_without_its_guard_on_until_is_noticed() {
    let broken = Statements::committed().edited("claim", "AND until <= ?3", "");
    let why = caught(&broken, Mistake::None);
    assert!(why.contains("Claim") || why.contains("Race"), "{why}");
}

#[test]
fn a_completion_without_its_guard_on_the_fence_is_noticed() {
    let broken = Statements::committed().edited("complete", "AND fence = ?3", "");
    let why = caught(&broken, Mistake::None);
    assert!(why.contains("Complete"), "{why}");
}

/// In memory, with the extension and everything made.
fn extended() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    common::load(&conn).unwrap();
    common::batch(&conn, common::EVERYTHING);
    conn
}

#[test]
fn no_pair_of_arguments_does_through_a_file_what_its_function_refuses() {
    let started = Instant::now();
    let cases = arguments::cases(tier::scale(2, 1, 1));
    let verdicts = arguments::by_functions(&extended(), &cases);
    let broken = verdicts.iter().position(|v| matches!(v, Verdict::Broken(_)));
    assert_eq!(broken.map(|i| (&cases[i].arguments, &verdicts[i])), None);
    let errors = verdicts.iter().filter(|v| matches!(v, Verdict::Error(_))).count();
    let compared =
        arguments::plain_agrees(&Statements::committed(), cases.iter().zip(&verdicts)).unwrap();
    let calls = cases.len();
    println!(
        "arguments: {calls} calls of functions, {errors} of them errors, {compared} compared with \
         their files, {:.1} s",
        started.elapsed().as_secs_f64()
    );
    assert!(errors > calls / 2 && errors < calls * 9 / 10, "too one-sided to tell anything");
}

#[test]
fn a_file_without_a_guard_disagrees_with_its_function() {
    let cases = arguments::cases(3);
    let verdicts = arguments::by_functions(&extended(), &cases);
    for (file, guard) in [
        ("claim", "AND until <= ?3"),
        ("claim", "AND CAST(?3 AS DOUBLE PRECISION) = ?3"),
        ("claim", "AND instr(?2, char(0)) = 0"),
        ("complete", "AND fence = ?3"),
        ("complete", "AND CAST(?4 AS DOUBLE PRECISION) > -9e999"),
        ("renew", "AND CAST(?4 AS DOUBLE PRECISION) + ?5 < 9e999"),
        ("pass", "CAST(?2 AS INTEGER) = ?2 AND"),
    ] {
        let broken = Statements::committed().edited(file, guard, "");
        let operations = arguments::operations();
        let own =
            cases.iter().zip(&verdicts).filter(|(case, _)| operations[case.operation].file == file);
        let disagreement = arguments::plain_agrees(&broken, own).expect_err(guard);
        println!("{file} without {guard:?}: {disagreement}");
    }
}
