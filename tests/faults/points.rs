//! Each I/O point of each operation fails, once or from then on. The client gets the right code,
//! nothing is half done, what was answered is in the file, and the next try works.
use rusqlite::ffi;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bench::{Bench, Faults, Tally};
use crate::cases::{cases, Journal, CHECKPOINTED, DELETE, PERSIST, TRUNCATE, WAL};
use crate::common::tier;
use crate::disk::{Disk, Fault, Io, Plan};
use crate::operations::{Kind, Operation};

struct Failing {
    dir: PathBuf,
    disk: Arc<Disk>,
}

impl Faults for Failing {
    type Plan = Plan;
    type Failure = (Io, Fault);

    fn new(dir: &Path) -> Self {
        Failing { dir: dir.into(), disk: Disk::of(dir) }
    }

    fn arm(&self, plan: Option<Plan>) {
        self.disk.arm(plan);
    }

    fn disarm(&self) -> (Vec<Plan>, Option<(Io, Fault)>) {
        let (points, failure) = self.disk.disarm();
        (plans(&points), failure)
    }

    fn is_right(&(io, fault): &(Io, Fault), code: i32) -> bool {
        is_right(io, fault, code)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        Disk::forget(&self.dir);
    }
}

/// Every fault at every point, once and from then on.
pub fn plans(points: &[Io]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (at, io) in points.iter().enumerate() {
        for &fault in io.faults() {
            plans.extend([false, true].map(|sticky| Plan { at, fault, sticky }));
        }
    }
    plans
}

/// The code is that of the fault. For a lock of the log SQLite has codes of its own: while
/// somebody recovers it, and after many attempts.
pub fn is_right(io: Io, fault: Fault, code: i32) -> bool {
    const LOCKED: [i32; 2] = [ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_PROTOCOL];
    let of_the_log = io == Io::MapLock && fault == Fault::Busy && LOCKED.contains(&code);
    code == io.code(fault) || of_the_log
}

fn every_point(kind: Kind, journals: &[Journal]) {
    let mut tally = Tally::new();
    for &journal in journals {
        for case in cases(kind) {
            tally.add(&Bench::<Failing>::new(kind, journal, case), tier::scale(9, 1, 1));
        }
    }
    tally.print(&format!("faults of the disk, {kind:?}"));
    tally.nothing_is_wrong();
}

const ALL: [Journal; 5] = [DELETE, WAL, CHECKPOINTED, TRUNCATE, PERSIST];

#[test]
fn every_fault_of_the_disk_during_a_function_is_told_and_leaves_nothing_half_done() {
    every_point(Kind::Registered, &ALL[..tier::scale(2, 5, 5)]);
}

#[test]
fn every_fault_of_the_disk_during_a_function_of_the_loaded_extension_likewise() {
    every_point(Kind::Loaded, tier::scale(&[CHECKPOINTED][..], &ALL, &ALL));
}

#[test]
fn every_fault_of_the_disk_during_a_call_of_a_store_likewise() {
    every_point(Kind::Store, &[WAL]);
}

#[test]
fn a_claim_that_steps_once_is_found_to_answer_what_is_not_stored() {
    for journal in [DELETE, WAL] {
        let bench = |kind| {
            let claims = |operation: &Operation| matches!(operation, Operation::Claim(..));
            let claim = cases(kind).into_iter().find(|case| claims(&case.operation)).unwrap();
            Bench::<Failing>::new(kind, journal, claim)
        };
        let mut broken = Tally::new();
        broken.add(&bench(Kind::OneStep), 1);
        let lies = broken.wrong.iter().filter(|w| w.contains("which is not in the file")).count();
        eprintln!("{journal:?}: {lies} of {} faults answered what is not stored", broken.runs);
        assert!(lies > 0);
        let mut sound = Tally::new();
        sound.add(&bench(Kind::Registered), 1);
        sound.nothing_is_wrong();
    }
}
