//! Memory runs out during a call: it succeeds or says so, nothing is half done, and the next try
//! works.
use rusqlite::ffi;
use std::path::Path;

use crate::allocator::{self, Plan};
use crate::bench::{Bench, Faults, Tally};
use crate::cases::{cases, Case, File, DELETE, WAL};
use crate::common::tier;
use crate::operations::Kind;

struct Exhausted;

impl Faults for Exhausted {
    type Plan = Plan;
    type Failure = ();

    fn new(_: &Path) -> Self {
        Exhausted
    }

    fn arm(&self, plan: Option<Plan>) {
        allocator::arm(plan);
    }

    fn disarm(&self) -> (Vec<Plan>, Option<()>) {
        let (count, failed) = allocator::disarm();
        (plans(count), failed.then_some(()))
    }

    fn is_right(_: &(), code: i32) -> bool {
        code == ffi::SQLITE_NOMEM
    }
}

/// Each allocation fails once, or it and all later ones.
pub fn plans(count: usize) -> Vec<Plan> {
    (0..count).flat_map(|at| [false, true].map(|sticky| Plan { at, sticky })).collect()
}

fn every_allocation(kind: Kind, one_in: usize) {
    allocator::install();
    let mut tally = Tally::new();
    let store = kind == Kind::Store;
    for &journal in if store { &[WAL][..] } else { &[WAL, DELETE] } {
        for case in cases(kind) {
            if case.file == File::Full {
                let utf16 = Case { file: File::Utf16, ..case.clone() };
                tally.add(&Bench::<Exhausted>::new(kind, journal, utf16), one_in);
            }
            tally.add(&Bench::<Exhausted>::new(kind, journal, case), one_in);
        }
    }
    tally.print(&format!("allocations, {kind:?}"));
    tally.nothing_is_wrong();
}

#[test]
fn no_memory_during_a_function_is_told_and_leaves_nothing_half_done() {
    every_allocation(Kind::Registered, tier::scale(499, 15, 1));
}

#[test]
fn no_memory_during_a_function_of_the_loaded_extension_likewise() {
    every_allocation(Kind::Loaded, tier::scale(499, 15, 1));
}

#[test]
fn no_memory_during_a_call_of_a_store_likewise() {
    every_allocation(Kind::Store, tier::scale(61, 3, 1));
}
