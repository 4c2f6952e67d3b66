//! Stories of stalled workers, rescuers and sweeps: one of them finalises a job, and a late one
//! changes nothing, by the functions and by raw SQL.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::Scratch;
use doors::{Client, Door, DOORS};

const DONE: &str = "jobs: a job that is done stays so, and its result, while its fence stays";

#[test]
fn a_stable_owner_name_is_no_generation() {
    for door in DOORS {
        let client = door.memory();
        assert!(client.enqueue("j"));
        assert_eq!(client.claim("j", "w", 0.0, 10.0), Some(1));
        assert_eq!(client.claim("j", "w", 10.0, 10.0), Some(2));
        let before = client.jobs();
        assert!(!client.renew("j", "w", 1, 11.0, 10.0));
        assert!(!client.complete("j", "w", 1, 11.0, "old"));
        assert!(!client.release("j", "w", 1));
        assert_eq!(client.jobs(), before);
        assert!(client.complete("j", "w", 2, 11.0, "new"));
    }
}

/// Two connections, each through a door of its own.
fn pair(scratch: &Scratch) -> [(Client, Client); 2] {
    DOORS.map(|door| (door.open(scratch), Door::Plain.open(scratch)))
}

#[test]
fn whoever_finalises_first_is_the_only_one() {
    for a_first in [true, false] {
        for order in 0..2 {
            let scratch = Scratch::new();
            let pairs = pair(&scratch);
            let (a, b) = &pairs[order];
            assert!(a.enqueue("j"));
            assert_eq!(a.claim("j", "A", 0.0, 10.0), Some(1));
            // The rescuer comes when the lease is over; A either made it before or is late.
            let by_a = a_first && a.complete("j", "A", 1, 9.0, "a");
            let rescued = b.claim("j", "B", 10.0, 10.0);
            let by_b = rescued.is_some_and(|fence| b.complete("j", "B", fence, 11.0, "b"));
            let late = a.complete("j", "A", 1, 9.5, "a");
            assert_eq!((by_a, by_b, late), (a_first, !a_first, false));
            let row = if a_first { "'j' 'A' 10.0 1 'a' 1" } else { "'j' 'B' 20.0 2 'b' 1" };
            assert_eq!(b.jobs(), [row]);
        }
    }
}

#[test]
fn a_sweep_that_looks_first_and_writes_by_id_later_cannot_reopen_a_completed_job() {
    for door in DOORS {
        let scratch = Scratch::new();
        let (worker, sweeper) = (door.open(&scratch), Door::Plain.open(&scratch));
        assert!(worker.enqueue("j"));
        assert_eq!(worker.claim("j", "A", 0.0, 10.0), Some(1));
        let expired: String = sweeper.one("SELECT id FROM jobs WHERE done = 0 AND until <= 10");
        assert_eq!(worker.claim("j", "A", 10.0, 10.0), Some(2));
        assert!(!sweeper.release(&expired, "A", 1), "the sweeper saw fence 1");
        assert!(worker.complete("j", "A", 2, 11.0, "r"));
        let requeue =
            format!("UPDATE jobs SET done = 0, owner = NULL, until = 0 WHERE id = '{expired}'");
        assert_eq!(sweeper.refusal(&requeue), DONE);
        assert_eq!(worker.jobs(), ["'j' 'A' 20.0 2 'r' 1"]);
    }
}

#[test]
fn a_fence_counts_claims_and_nothing_else() {
    for door in DOORS {
        let client = door.memory();
        assert!(client.enqueue("j"));
        for turn in 1..=20 {
            assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(turn));
            assert!(client.renew("j", "A", turn, 1.0, 10.0));
            assert!(client.release("j", "A", turn));
        }
        assert_eq!(client.jobs(), ["'j' NULL 0.0 20 NULL 0"]);
    }
}
