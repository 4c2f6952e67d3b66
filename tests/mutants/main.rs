//! Every guard is needed: each condition, comparison, assignment, constraint and trigger of `sql/`
//! is taken out or turned, one at a time, and some test must fail. What survives makes this test
//! fail, unless `explained.txt` says why it changes nothing that anybody could see.
#[path = "../properties/arguments.rs"]
mod arguments;
#[path = "../common/mod.rs"]
mod common;
#[path = "../model/contract.rs"]
mod contract;
#[path = "../properties/doors.rs"]
mod doors;
#[path = "../model/fast.rs"]
mod fast;
#[path = "../model/lockstep.rs"]
mod lockstep;
#[path = "../properties/play.rs"]
mod play;
#[path = "../model/protocol.rs"]
mod protocol;
#[path = "../model/reference.rs"]
mod reference;
#[path = "../model/rules.rs"]
mod rules;
#[path = "../model/search.rs"]
mod search;
#[path = "../model/statements.rs"]
mod statements;
#[path = "../properties/steps.rs"]
mod steps;
#[path = "../model/symmetry.rs"]
mod symmetry;
#[path = "../properties/table.rs"]
mod table;

mod mutate;
mod oracles;
mod stories;

use common::tier;
use oracles::{Oracles, ORACLES};
use rusqlite::Connection;
use statements::Statements;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

/// In memory, with the functions of the crate and everything made.
fn extended() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    fence::register(&conn).unwrap();
    common::batch(&conn, common::EVERYTHING);
    conn
}

/// Survivors that change nothing, and why: blocks of changes under the reason.
fn explained() -> BTreeMap<&'static str, &'static str> {
    let mut reason = "";
    let mut explained = BTreeMap::new();
    for line in include_str!("explained.txt").lines() {
        match line.strip_prefix("  ") {
            _ if line.is_empty() || line.starts_with('#') => {}
            Some(change) => {
                assert!(!reason.is_empty(), "a reason comes first: {line}");
                assert!(explained.insert(change, reason).is_none(), "explained twice: {change}");
            }
            None => reason = line,
        }
    }
    explained
}

#[test]
fn the_scenarios_hold_for_the_statements_as_they_are() {
    let statements = Statements::committed();
    for scenario in stories::scenarios().iter().chain(&stories::vectors()) {
        stories::play(&statements, scenario).unwrap();
    }
}

#[test]
fn every_oracle_alone_notices_a_broken_claim_and_a_broken_completion() {
    let statements = Statements::committed();
    let oracles = Oracles::new(&extended());
    for (file, guard) in [("claim", "AND until <= ?3"), ("complete", "AND fence = ?3")] {
        let broken = statements.edited(file, guard, "");
        for (name, oracle) in ORACLES {
            oracle(&oracles, &statements, file).unwrap_or_else(|e| panic!("{name}: {e}"));
            let why = oracle(&oracles, &broken, file).expect_err(name);
            println!("{name}, {file} without {guard:?}: {why}");
        }
    }
}

#[test]
fn every_guard_is_needed() {
    let started = Instant::now();
    let statements = Statements::committed();
    let oracles = Oracles::new(&extended());
    let prepared = started.elapsed();
    oracles.judge(&statements, "enforce").unwrap();
    let (seed, thin) = (tier::seed(), tier::scale(8, 1, 1));
    let mut random = tier::Random::new(seed);
    let explained = explained();
    let mut killed = BTreeMap::<&str, usize>::new();
    let (mut tried, mut survivors, mut missing) = (0, Vec::new(), Vec::new());
    // A changed text may break what an oracle takes for granted; that is an answer, too.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for name in statements.names() {
        for mutant in mutate::mutants(name, statements.text(name)) {
            if random.below(thin) != 0 {
                continue;
            }
            tried += 1;
            if thin > 1 && explained.contains_key(mutant.change.as_str()) {
                continue; // the full run looks whether it is still so
            }
            let changed = statements.with(&mutant.file, mutant.text);
            let judged = catch_unwind(AssertUnwindSafe(|| oracles.judge(&changed, name)));
            match judged.unwrap_or(Err(("panic", String::new()))) {
                Err((oracle, why)) => {
                    *killed.entry(oracle).or_default() += 1;
                    if explained.contains_key(mutant.change.as_str()) {
                        missing.push(format!("{}: {why}", mutant.change));
                    }
                }
                Ok(()) if explained.contains_key(mutant.change.as_str()) => {
                    *killed.entry("explained").or_default() += 1;
                }
                Ok(()) => survivors.push(mutant.change),
            }
        }
    }
    std::panic::set_hook(hook);
    println!(
        "mutants: seed {seed}, {tried} tried, {killed:?}, {} not explained, {:.1} s of which {:.1} s \
         to prepare",
        survivors.len(),
        started.elapsed().as_secs_f64(),
        prepared.as_secs_f64()
    );
    if thin == 1 {
        assert_eq!(killed.get("explained"), Some(&explained.len()), "some are not made any more");
    }
    assert!(missing.is_empty(), "explained, but found by a test:\n{}", missing.join("\n"));
    assert!(survivors.is_empty(), "no test misses these:\n{}", survivors.join("\n"));
}
