//! Memory runs out while a store is opened, and while its callers share a transaction.
use fence::Store;
use rusqlite::ffi;
use std::time::Instant;

use crate::allocator::{self, Plan};
use crate::bench::memory_backed;
use crate::calls::plans;
use crate::common::tier::{self, Random};
use crate::operations::{connect, integrity, options, outside, template};
use crate::together::{store, Claims};

#[test]
fn a_store_that_could_not_be_opened_for_want_of_memory_can_be_opened_later() {
    allocator::install();
    let (begun, mut total, mut failed) = (Instant::now(), 0, 0);
    let seed = tier::seed();
    for existing in [false, true] {
        let scratch = memory_backed();
        let open = || Store::open_with(scratch.db(), options());
        let fresh = || {
            for name in scratch.files() {
                std::fs::remove_file(scratch.dir.path().join(name)).unwrap();
            }
            if existing {
                let conn = connect(&scratch.db()).unwrap();
                fence::register(&conn).unwrap();
                template(&conn);
            }
        };
        fresh();
        allocator::arm(None);
        drop(open().unwrap());
        let one_in = tier::scale(101, 3, 1);
        let first = Random::new(seed).below(one_in);
        for plan in plans(allocator::disarm().0).into_iter().skip(first).step_by(one_in) {
            total += 1;
            fresh();
            allocator::arm(Some(plan));
            let opened = open().and_then(|store| store.enqueue("a"));
            allocator::disarm();
            if let Err(e) = opened {
                failed += 1;
                assert_eq!(e.extended_code(), ffi::SQLITE_NOMEM, "{plan:?}: {e:?}");
            }
            let store = open().unwrap_or_else(|e| panic!("{plan:?}: {e:?}"));
            assert!(store.enqueue("b").unwrap(), "{plan:?}");
            drop(store);
            assert_eq!(integrity(&outside(&scratch.db())), "ok", "{plan:?}");
        }
    }
    eprintln!(
        "opening a store: {total} faults tried (FENCE_SEED={seed}), {failed} failed; {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    assert!(failed > 0);
}

#[test]
fn no_memory_during_a_common_transaction_is_told_to_each_caller_whose_claim_it_took() {
    allocator::install();
    let (begun, seed) = (Instant::now(), tier::seed());
    let mut random = Random::new(seed);
    let mut claims = Claims::default();
    let runs = tier::scale(60, 500, 20_000);
    for _ in 0..runs {
        let scratch = memory_backed();
        let store = store(&scratch.db());
        // Whoever leads, the allocations of its thread fail.
        let plan = Plan { at: random.below(300), sticky: random.below(2) == 0 };
        claims.add(
            &store,
            &scratch.db(),
            |_| allocator::arm(Some(plan)),
            || {
                allocator::disarm();
            },
            |code| code == ffi::SQLITE_NOMEM,
        );
        drop(store);
        assert_eq!(integrity(&outside(&scratch.db())), "ok");
    }
    eprintln!(
        "common transactions: {runs} runs (FENCE_SEED={seed}), {} claims stored, {} failed; {:.1} s",
        claims.stored,
        claims.failed,
        begun.elapsed().as_secs_f64()
    );
    assert!(claims.failed > 0 && claims.stored > 0);
}
