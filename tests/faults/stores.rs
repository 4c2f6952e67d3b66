//! Faults while a store is opened, and while its callers share a transaction.
use fence::Store;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use crate::bench::memory_backed;
use crate::common::one;
use crate::common::tier::{self, Random};
use crate::disk::{Disk, Fault, Io, Plan};
use crate::operations::{connect, integrity, options, outside, template};
use crate::points::{is_right, plans};
use crate::together::{store, works, Claims, CALLERS};

#[test]
fn every_fault_while_a_store_is_opened_is_told_and_the_next_opening_works() {
    let begun = Instant::now();
    let one_in = tier::scale(9, 1, 1);
    let seed = tier::seed();
    let first = Random::new(seed).below(one_in);
    let (mut points, mut runs, mut failed) = (0, 0, 0);
    for existing in [false, true] {
        let scratch = memory_backed();
        let db = scratch.db();
        let disk = Disk::of(scratch.dir.path());
        let open = || Store::open_with(&db, options());
        let fresh = || {
            for name in scratch.files() {
                std::fs::remove_file(scratch.dir.path().join(name)).unwrap();
            }
            if existing {
                let conn = connect(&db).unwrap();
                fence::register(&conn).unwrap();
                template(&conn);
            }
        };
        fresh();
        disk.arm(None);
        drop(open().unwrap());
        let all = disk.disarm().0;
        points += all.len();
        for plan in plans(&all).into_iter().skip(first).step_by(one_in) {
            fresh();
            disk.arm(Some(plan));
            let opened = open();
            let failure = disk.disarm().1;
            runs += 1;
            match opened {
                Ok(store) => {
                    let mode: String = one(&outside(&db), "PRAGMA journal_mode");
                    assert_eq!(mode, "wal", "{plan:?}");
                    works(&store, "a");
                }
                Err(e) => {
                    failed += 1;
                    let (io, fault) = failure.expect("an error has a cause");
                    assert!(is_right(io, fault, e.extended_code()), "{plan:?} {io:?}: {e:?}");
                }
            }
            let store = open().unwrap_or_else(|e| panic!("{plan:?}: {e:?}"));
            works(&store, "b");
            drop(store);
            assert_eq!(integrity(&outside(&db)), "ok", "{plan:?}");
        }
        Disk::forget(scratch.dir.path());
    }
    eprintln!(
        "opening a store: {points} points, {runs} faults tried (FENCE_SEED={seed}), {failed} failed; \
         {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    assert!(failed > 0);
}

#[test]
fn a_fault_during_a_common_transaction_is_told_to_each_caller_whose_claim_it_took() {
    let begun = Instant::now();
    let seed = tier::seed();
    let mut random = Random::new(seed);
    let (mut claims, mut syncs) = (Claims::default(), 0);
    let runs = tier::scale(60, 500, 20_000);
    for _ in 0..runs {
        let scratch = memory_backed();
        let disk = Disk::of(scratch.dir.path());
        let store = store(&scratch.db());
        let fault = [Fault::Full, Fault::Error][random.below(2)];
        let plan = Plan { at: random.below(40), fault, sticky: random.below(2) == 0 };
        disk.arm(Some(plan));
        let (last, ended) = (AtomicUsize::new(0), Mutex::new(None));
        // The last caller to end mends the disk.
        let end = || {
            if last.fetch_add(1, Ordering::SeqCst) + 1 == CALLERS {
                *ended.lock().unwrap() = Some(disk.disarm());
            }
        };
        let told = |code| {
            let ended = ended.lock().unwrap();
            let (io, fault) = ended.as_ref().unwrap().1.expect("an error has a cause");
            is_right(io, fault, code)
        };
        claims.add(&store, &scratch.db(), |_| (), end, told);
        let points = ended.into_inner().unwrap().unwrap().0;
        syncs += points.into_iter().filter(|io| *io == Io::Sync).count();
        drop(store);
        assert_eq!(integrity(&outside(&scratch.db())), "ok");
        Disk::forget(scratch.dir.path());
    }
    eprintln!(
        "common transactions: {runs} runs (FENCE_SEED={seed}), {} claims stored by {syncs} syncs, {} \
         failed; {:.1} s",
        claims.stored,
        claims.failed,
        begun.elapsed().as_secs_f64()
    );
    assert!(claims.failed > 0 && syncs < claims.stored, "no claims shared a transaction");
}
