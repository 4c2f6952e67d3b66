//! Callers of one store whose claims share transactions while something fails.
use fence::Store;
use std::path::Path;
use std::sync::Barrier;

use crate::operations::outside;

pub const CALLERS: usize = 4;
const ROUNDS: usize = 3;

#[derive(Default)]
pub struct Claims {
    pub stored: usize,
    pub failed: usize,
}

impl Claims {
    /// Each caller claims a job of its own, again and again. What is answered is in the file, and
    /// an error has a code that `is_right`. `begin` runs in each caller's thread before its first
    /// claim, `end` after its last one.
    pub fn add(
        &mut self,
        store: &Store,
        db: &Path,
        begin: impl Fn(usize) + Sync,
        end: impl Fn() + Sync,
        is_right: impl Fn(i32) -> bool,
    ) {
        let ids: Vec<String> = (0..CALLERS).map(|i| i.to_string()).collect();
        // The first one waits for this, and the others gather behind it.
        let outside = outside(db);
        outside.execute_batch("BEGIN IMMEDIATE").unwrap();
        let start = Barrier::new(CALLERS + 1);
        let answers: Vec<Vec<_>> = std::thread::scope(|scope| {
            let claim = |i: usize, id: String| {
                let (start, begin, end) = (&start, &begin, &end);
                scope.spawn(move || {
                    start.wait();
                    begin(i);
                    let claim = |round| store.claim(&id, "A", round as f64 * 10.0, 10.0);
                    let answers = (0..ROUNDS).map(claim).collect();
                    end();
                    answers
                })
            };
            let threads: Vec<_> =
                ids.iter().enumerate().map(|(i, id)| claim(i, id.clone())).collect();
            start.wait();
            outside.execute_batch("COMMIT").unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (id, answers) in ids.iter().zip(answers) {
            let mut highest = 0;
            for answer in answers {
                match answer {
                    Ok(lease) => {
                        self.stored += 1;
                        let fence = lease.expect("the lease before it was over").fence();
                        assert!(fence > highest, "{id}: {fence} after {highest}");
                        highest = fence;
                    }
                    Err(e) => {
                        self.failed += 1;
                        assert!(is_right(e.extended_code()), "{e:?}");
                    }
                }
            }
            let sql = "SELECT fence FROM jobs WHERE id = ?1";
            let stored: i64 = outside.query_row(sql, [id], |row| row.get(0)).unwrap();
            assert!(stored >= highest, "{id}: answered {highest}, stored {stored}");
        }
        works(store, "next");
        let sql = "SELECT done FROM jobs WHERE id = 'next'";
        assert_eq!(outside.query_row(sql, [], |row| row.get(0)), Ok(1), "stored");
    }
}

/// A store with the callers' jobs, which waits for locks.
pub fn store(db: &Path) -> Store {
    let store = Store::open(db).unwrap();
    store.enqueue_many(&(0..CALLERS).map(|i| i.to_string()).collect::<Vec<_>>()).unwrap();
    store
}

/// Whether the store can be used for what a worker does.
pub fn works(store: &Store, id: &str) {
    assert!(store.enqueue(id).unwrap());
    let lease = store.claim(id, "A", 0.0, 10.0).unwrap().unwrap();
    assert!(lease.complete(1.0, "r").unwrap());
}
