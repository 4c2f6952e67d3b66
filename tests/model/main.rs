//! A model of the protocol, searched in full: three workers that claim, stall and crash, clocks
//! that step both ways, transactions that roll back, jobs that are deleted and come back, files
//! that are restored, clients that know nothing of fences. Every guard is taken out once, and the
//! search must miss it. Each call of a smaller search is made on a real database through the files
//! of `sql/`.
#[path = "../common/tier.rs"]
#[allow(dead_code)] // nothing here is random
mod tier;

mod contract;
mod fast;
mod faults;
mod lockstep;
mod protocol;
mod reference;
mod rules;
mod search;
mod statements;
mod symmetry;

use faults::{Seen, FAULTS};
use lockstep::Lockstep;
use protocol::{Op, Part, Protocol};
use rusqlite::types::Value;
use search::{Action, Bounds, Search};
use statements::Statements;
use std::time::Instant;

fn bounds(claims: u8, resets: u8, restores: u8) -> Bounds {
    Bounds { claims, resets, restores }
}

/// The protocol as it is, with distinct names or a shared one. Fences never come near their end.
fn whole(bounds: Bounds, shared_name: bool) -> Search {
    Search::of(Protocol { without: None, last: u8::MAX }, bounds, shared_name)
}

fn holds(search: Search) {
    let started = Instant::now();
    let found = search.run();
    println!(
        "{:?}, {}{}: {} states, {} edges, {:.1} s",
        search.bounds,
        if search.shared_name { "one shared name" } else { "distinct names" },
        if search.keeps_rolled_back { ", rolled-back numbers kept" } else { "" },
        found.states,
        found.edges,
        started.elapsed().as_secs_f64(),
    );
    assert_eq!(found.broken, None);
    assert!(found.states > 500, "the bounds leave nothing to search");
}

#[test]
fn no_order_of_events_breaks_a_rule_or_the_contract() {
    let all = tier::scale(
        vec![bounds(3, 1, 0), bounds(2, 1, 1)],
        vec![bounds(3, 1, 1)],
        vec![bounds(4, 1, 1), bounds(4, 2, 0), bounds(3, 2, 1)],
    );
    for bounds in all {
        for shared_name in [false, true] {
            holds(whole(bounds, shared_name));
        }
    }
}

#[test]
fn with_names_of_their_own_workers_may_even_keep_numbers_that_were_rolled_back() {
    let bounds = tier::scale(bounds(3, 0, 0), bounds(3, 1, 0), bounds(3, 1, 1));
    holds(Search { keeps_rolled_back: true, ..whole(bounds, false) });
}

#[test]
fn at_the_end_of_the_integers_no_rule_breaks() {
    for shared_name in [false, true] {
        let mut search = whole(bounds(3, 1, 0), shared_name);
        search.protocol.last = 2;
        holds(search);
    }
}

/// The search for a protocol without one guard: small, but with what the guard is about.
fn without(op: Op, part: Part, shared_name: bool, refinement: bool) -> Search {
    let bounds = match op {
        Op::Restore => bounds(2, 0, 1),
        Op::Requeue | Op::Enqueue | Op::Delete | Op::Replace => bounds(2, 1, 0),
        _ => bounds(3, 0, 0),
    };
    let last = if part == Part::Last { 2 } else { u8::MAX };
    let protocol = Protocol { without: Some((op, part)), last };
    let keeps_rolled_back = part == Part::Owner && !shared_name;
    Search { protocol, bounds, shared_name, keeps_rolled_back, symmetry: false, refinement }
}

fn rule_and_path(search: &Search) -> Option<(&'static str, Vec<Action>)> {
    let (rule, path) = search.run().broken?;
    Some((rule.split_once(':').expect("a rule has a name").0, path))
}

#[test]
fn without_any_one_guard_the_search_finds_a_counterexample() {
    let started = Instant::now();
    let (mut by_rule, mut by_contract) = (0, 0);
    for &(op, part, distinct, shared) in FAULTS {
        assert!((distinct, shared) != (Seen::No, Seen::No), "{op:?} {part:?} is not needed");
        for (shared_name, seen) in [(false, distinct), (true, shared)] {
            let place = format!("{op:?} without {part:?}, shared name: {shared_name}");
            let compared = rule_and_path(&without(op, part, shared_name, true));
            assert_eq!(compared.is_some(), seen != Seen::No, "{place}: {compared:?}");
            if let Seen::Rule(rule) = seen {
                let (found, path) =
                    rule_and_path(&without(op, part, shared_name, false)).expect(&place);
                assert_eq!(found, rule, "{place}: {path:?}");
                println!("{place}: {rule} after {path:?}");
            }
        }
        match (distinct, shared) {
            (Seen::Rule(_), _) | (_, Seen::Rule(_)) => by_rule += 1,
            _ => by_contract += 1,
        }
    }
    println!(
        "{} guards taken out: {by_rule} break a rule, {by_contract} the contract only, {:.1} s",
        FAULTS.len(),
        started.elapsed().as_secs_f64(),
    );
}

#[test]
fn a_statement_without_a_guard_falls_out_of_step() {
    let edges = lockstep::edges(bounds(2, 0, 0));
    for (file, guard) in [
        ("claim", "until <= ?3"),
        ("complete", "fence = ?3"),
        ("guard", "(fence = new.fence OR fence = -new.fence AND new.fence < 0)"),
        ("release", "done = 0"),
    ] {
        let broken = Statements::committed().edited(file, guard, "1");
        let lockstep = Lockstep::new(&broken).unwrap();
        let difference = edges.iter().find_map(|edge| lockstep.replay(edge).err());
        println!("{file} without {guard:?}: {}", difference.expect("it is out of step"));
    }
}

#[test]
fn the_real_statements_do_what_the_model_does() {
    let started = Instant::now();
    let edges = lockstep::edges(tier::scale(bounds(2, 1, 0), bounds(2, 1, 1), bounds(3, 1, 1)));
    let statements = Statements::committed();
    let lockstep = Lockstep::new(&statements).unwrap();
    for edge in &edges {
        lockstep.replay(edge).unwrap();
    }
    println!("lockstep: {} edges, {:.1} s", edges.len(), started.elapsed().as_secs_f64());
    assert!(edges.len() > 3000, "{} edges are too few", edges.len());
}

#[test]
fn a_reader_sees_what_was_committed_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let [writer, reader] =
        [(); 2].map(|()| rusqlite::Connection::open(directory.path().join("jobs.db")).unwrap());
    let statements = Statements::committed();
    statements.install(&writer).unwrap();
    let text = |text: &str| Value::Text(text.into());
    let number = |n: i64| Value::Integer(n);
    let run = |conn, name, arguments: &[Value]| statements.run(conn, name, arguments).unwrap();
    run(&writer, "enqueue", &[text("j")]);
    let state = || run(&reader, "state", &[text("j")]);
    for end in ["ROLLBACK", "COMMIT"] {
        let before = state();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let claim = [text("j"), text("w"), number(0), number(10)];
        assert!(run(&writer, "claim", &claim).accepted());
        let complete = [text("j"), text("w"), number(1), number(1), text("r")];
        assert!(run(&writer, "complete", &complete).accepted());
        let inside = run(&writer, "state", &[text("j")]);
        assert_eq!(state(), before);
        writer.execute_batch(end).unwrap();
        assert_eq!(state() == inside, end == "COMMIT");
    }
}
