//! A fence survives the deletion of its job: whoever claims that id later gets a higher one than
//! ever before, however the job was deleted and whatever the client.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::Scratch;
use doors::{plain_python, plain_shell, Client, DOORS};

const FRESH: &str = "INSERT OR REPLACE INTO jobs(id) VALUES ('j')";

/// Ways in which a job `j` loses its row, and whether a new one stands in its place already.
const DELETIONS: [(&str, bool); 10] = [
    ("DELETE FROM jobs WHERE id = 'j'", false),
    ("DELETE FROM jobs", false),
    ("DELETE FROM jobs WHERE rowid IN (SELECT rowid FROM jobs)", false),
    (FRESH, true),
    ("REPLACE INTO jobs(id) VALUES ('j')", true),
    ("INSERT OR REPLACE INTO jobs(id, owner, fence) VALUES ('j', NULL, 1)", true),
    ("INSERT OR REPLACE INTO jobs(rowid, id) SELECT rowid, 'in its place' FROM jobs", false),
    ("INSERT OR REPLACE INTO jobs(rowid, id) SELECT rowid, NULL FROM jobs", false),
    ("INSERT OR REPLACE INTO jobs(rowid, id) SELECT rowid, id FROM jobs", true),
    ("INSERT OR REPLACE INTO jobs(id) VALUES ('j'), ('j'), ('j')", true),
];

/// The job `j`, claimed three times, in the hands of A until 10.
fn held(client: &Client) {
    assert!(client.enqueue("j"));
    for fence in 1..=3 {
        assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(fence));
        assert!(fence == 3 || client.release("j", "A", fence));
    }
}

fn rows(client: &Client, table: &str) -> i64 {
    client.one(&format!("SELECT count(*) FROM {table}"))
}

#[test]
fn after_any_deletion_the_next_claim_has_a_higher_fence_and_the_old_holder_is_refused() {
    for door in DOORS {
        for recursive in ["OFF", "ON"] {
            for (deletion, replaced) in DELETIONS {
                let place = format!("{door:?} {recursive}: {deletion}");
                let client = door.memory();
                client.batch(&format!("PRAGMA recursive_triggers = {recursive}"));
                held(&client);
                client.batch(deletion);
                assert_eq!(client.enqueue("j"), !replaced, "{place}");
                let refused = |client: &Client| {
                    let before = client.jobs();
                    assert!(!client.renew("j", "A", 3, 1.0, 10.0), "{place}");
                    assert!(!client.complete("j", "A", 3, 1.0, "old"), "{place}");
                    assert!(!client.release("j", "A", 3), "{place}");
                    assert_eq!(client.jobs(), before, "{place}");
                    assert_eq!(client.check("j", "A", 3, 1.0), "superseded", "{place}");
                };
                refused(&client);
                let fence = client.claim("j", "A", 0.0, 10.0).expect(&place);
                assert!(fence > 3, "{place}: {fence}");
                refused(&client);
                assert!(client.complete("j", "A", fence, 1.0, "new"), "{place}");
            }
        }
    }
}

#[test]
fn a_purged_job_that_comes_back_has_a_higher_fence() {
    for door in DOORS {
        let client = door.memory();
        held(&client);
        assert!(client.complete("j", "A", 3, 1.0, "r"));
        assert_eq!(client.purge(11.0, 9), 1);
        assert!(!client.complete("j", "A", 3, 1.0, "late"));
        assert!(client.enqueue("j"));
        assert!(!client.complete("j", "A", 3, 1.0, "late"));
        assert_eq!(client.claim("j", "A", 20.0, 10.0), Some(5));
    }
}

#[test]
fn after_a_mass_deletion_every_id_starts_above_the_highest_fence() {
    for door in DOORS {
        let client = door.memory();
        held(&client);
        client.batch("INSERT INTO jobs(id, fence) VALUES ('high', 40), ('low', 2)");
        assert_eq!(client.execute("DELETE FROM jobs", []), Ok(3));
        assert_eq!(client.floor(), 40);
        for id in ["j", "low", "unrelated"] {
            assert!(client.enqueue(id));
            assert_eq!(client.fence(id), 41, "{id}");
        }
        client.batch(
            "DELETE FROM jobs WHERE id <> 'j'; UPDATE jobs SET fence = 50; DELETE FROM jobs",
        );
        assert_eq!(client.floor(), 50);
    }
}

#[test]
fn the_jobs_that_stay_keep_their_fences() {
    for door in DOORS {
        let client = door.memory();
        held(&client);
        assert!(client.enqueue("stays"));
        client.batch("DELETE FROM jobs WHERE id = 'j'");
        assert!(client.enqueue("new"));
        assert_eq!(client.jobs(), ["'stays' NULL 0.0 0 NULL 0", "'new' NULL 0.0 4 NULL 0"]);
        assert_eq!(client.claim("stays", "B", 0.0, 10.0), Some(1));
    }
}

#[test]
fn rows_that_are_written_back_after_their_deletion_get_a_higher_fence_too() {
    for door in DOORS {
        let client = door.memory();
        held(&client);
        client.batch(
            "CREATE TABLE saved AS SELECT * FROM jobs;
             DELETE FROM jobs;
             INSERT INTO jobs SELECT * FROM saved;",
        );
        assert_eq!(client.jobs(), ["'j' 'A' 10.0 4 NULL 0"]);
        assert!(!client.complete("j", "A", 3, 1.0, "old"));
    }
}

#[test]
fn while_nothing_was_deleted_new_jobs_start_at_0_whatever_is_enqueued_twice() {
    for door in DOORS {
        for recursive in ["OFF", "ON"] {
            let client = door.memory();
            client.batch(&format!("PRAGMA recursive_triggers = {recursive}"));
            held(&client);
            assert!(!client.enqueue("j"));
            for duplicate in [
                "INSERT OR IGNORE INTO jobs(id) VALUES ('j')",
                "INSERT OR IGNORE INTO jobs VALUES ('j', 'A', 9, 3, 'late', 1)",
                "INSERT INTO jobs(id) VALUES ('j') ON CONFLICT DO NOTHING",
                "INSERT INTO jobs(id) VALUES ('j') ON CONFLICT(id) DO UPDATE SET until = until",
                // Ignored for the place of `j`, before it is enqueued in a place of its own.
                "INSERT OR IGNORE INTO jobs(rowid, id) SELECT rowid, 'new' FROM jobs",
                "INSERT OR IGNORE INTO jobs(rowid, id) SELECT rowid, NULL FROM jobs",
                "INSERT OR IGNORE INTO jobs(id) SELECT 'j' UNION ALL SELECT 'j'",
            ] {
                client.batch(duplicate);
            }
            let (code, _) = common::error_of(&client, "INSERT INTO jobs(id) VALUES ('j')");
            assert_eq!(code, rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY);
            assert_eq!(client.jobs(), ["'j' 'A' 10.0 3 NULL 0"]);
            assert!(client.enqueue("new"));
            client.batch("INSERT INTO jobs(id) VALUES (NULL)");
            client
                .batch("INSERT OR IGNORE INTO jobs(id) VALUES ('j'), ('newer'), ('j'), ('newest')");
            // A job that nobody ever claimed has no fence to keep.
            client.batch("INSERT OR REPLACE INTO jobs(id) VALUES ('new')");
            for id in ["new", "newer", "newest"] {
                assert_eq!(client.fence(id), 0, "{door:?} {recursive}: {id}");
                assert_eq!(client.claim(id, "B", 0.0, 10.0), Some(1));
            }
            assert_eq!(client.floor(), 0);
        }
    }
}

/// What an ignored insert left behind says nothing about a later one.
#[test]
fn a_row_that_was_ignored_once_is_no_replacement_the_next_time() {
    for door in DOORS {
        let client = door.memory();
        held(&client);
        client.batch(
            "INSERT INTO jobs(id, fence) VALUES ('low', 1);
             DELETE FROM jobs WHERE id = 'low';
             INSERT OR IGNORE INTO jobs(id) VALUES ('j');
             INSERT INTO jobs(id, owner, fence) VALUES ('imported', 'B', 1);",
        );
        assert_eq!(client.fence("imported"), 2);
        client.batch("DELETE FROM jobs; INSERT INTO jobs(id, owner, fence) VALUES ('j', 'A', 3)");
        assert_eq!(client.jobs(), ["'j' 'A' 0.0 4 NULL 0"]);
    }
}

#[test]
fn a_row_that_takes_the_place_of_two_jobs_keeps_the_higher_fence_of_both() {
    for (fence_of_id, fence_of_rowid) in [(3, 8), (8, 3)] {
        for door in DOORS {
            let client = door.memory();
            client.batch(&format!(
                "INSERT INTO jobs(rowid, id, fence) VALUES (1, 'j', {fence_of_id});
                 INSERT INTO jobs(rowid, id, fence) VALUES (2, 'k', {fence_of_rowid});
                 INSERT OR REPLACE INTO jobs(rowid, id) VALUES (2, 'j');"
            ));
            assert_eq!((client.floor(), client.fence("j"), rows(&client, "jobs")), (8, 9, 1));
        }
    }
}

#[test]
fn a_replacement_with_a_higher_fence_keeps_it() {
    for door in DOORS {
        let client = door.memory();
        held(&client);
        client
            .batch("INSERT OR REPLACE INTO jobs(id, owner, until, fence) VALUES ('j', 'B', 9, 7)");
        assert!(!client.complete("j", "A", 3, 1.0, "old"));
        assert!(client.complete("j", "B", 7, 1.0, "new"));
        assert_eq!(client.floor(), 3, "the highest fence that was deleted");
    }
}

/// Between our trigger before an insert and the one after it.
#[test]
fn a_trigger_of_the_users_own_that_adds_jobs_does_not_hide_a_replacement() {
    for when in ["BEFORE", "AFTER"] {
        for door in DOORS {
            let client = door.memory();
            held(&client);
            client.batch(&format!(
                "INSERT INTO jobs(id) VALUES ('j: next');
                 CREATE TRIGGER next {when} INSERT ON jobs WHEN new.id = 'j' BEGIN
                   INSERT OR IGNORE INTO jobs(id) VALUES ('j: next');
                   INSERT OR REPLACE INTO jobs(id) VALUES ('j: next');
                   INSERT OR IGNORE INTO jobs(id) VALUES ('j: log');
                 END;
                 {FRESH};"
            ));
            assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(5), "{door:?} {when}");
            client.batch("INSERT OR IGNORE INTO jobs(id) VALUES ('j')");
            assert_eq!(rows(&client, "jobs"), 3);
        }
    }
}

#[test]
fn at_the_end_of_the_integers_no_fence_is_handed_out_any_more() {
    const LAST: i64 = i64::MAX;
    for door in DOORS {
        let client = door.memory();
        client.batch(&format!("INSERT INTO jobs(id, fence) VALUES ('j', {})", LAST - 1));
        assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(LAST));
        client.batch("DELETE FROM jobs");
        for id in ["j", "k"] {
            assert!(client.enqueue(id));
            assert_eq!(client.fence(id), LAST);
            assert_eq!(client.claim(id, "B", 20.0, 10.0), None);
        }
        client.batch("INSERT OR REPLACE INTO jobs(id) VALUES ('j')");
        assert_eq!((client.fence("j"), client.floor()), (LAST, LAST));
        client.batch("DELETE FROM jobs");
        assert_eq!(client.floor(), LAST);
    }
}

#[test]
fn a_thousand_deletions_take_constant_space() {
    for door in DOORS {
        let client = door.memory();
        for n in 0..1000 {
            let id = format!("j{n}");
            assert!(client.enqueue(&id));
            assert!(client.claim(&id, "A", 0.0, 10.0).is_some());
            client.batch(&format!(
                "INSERT OR IGNORE INTO jobs(id) VALUES ('{id}');
                 INSERT OR REPLACE INTO jobs(id) VALUES ('{id}');
                 DELETE FROM jobs;"
            ));
        }
        assert_eq!(rows(&client, "fence_floor"), 1);
        assert!(rows(&client, "fence_replaced") <= 9);
        assert_eq!(
            rows(&client, "sqlite_master"),
            door.memory().one("SELECT count(*) FROM sqlite_master")
        );
    }
}

#[test]
fn a_rolled_back_deletion_leaves_the_floor_where_it_was() {
    for door in DOORS {
        let client = door.memory();
        held(&client);
        client.batch("BEGIN; DELETE FROM jobs; ROLLBACK");
        client.batch(&format!("BEGIN; {FRESH}; ROLLBACK"));
        assert_eq!((client.floor(), client.fence("j")), (0, 3));
    }
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn in_a_thousand_random_steps_no_fence_of_an_id_is_handed_out_twice() {
    const IDS: [&str; 4] = ["a", "b", "c", "d"];
    for door in DOORS {
        for recursive in ["OFF", "ON"] {
            let client = door.memory();
            client.batch(&format!("PRAGMA recursive_triggers = {recursive}"));
            let mut random = Random(2026);
            // The highest fence that was handed out for each id, and all of them.
            let mut highest = [0; 4];
            let mut tokens: Vec<(usize, i64)> = Vec::new();
            let mut claims = 0;
            for step in 0..1000 {
                let n = random.below(4) as usize;
                let (id, now) = (IDS[n], f64::from(step));
                match random.below(12) {
                    0 | 1 => drop(client.enqueue(id)),
                    2 => client.batch(&format!("INSERT OR IGNORE INTO jobs(id) VALUES ('{id}')")),
                    3 => client.batch(&format!("DELETE FROM jobs WHERE id = '{id}'")),
                    4 => client.batch(&format!("INSERT OR REPLACE INTO jobs(id) VALUES ('{id}')")),
                    5 => client.batch(&format!(
                        "INSERT OR REPLACE INTO jobs(rowid, id) VALUES ({}, '{id}')",
                        random.below(6)
                    )),
                    6 if random.below(5) == 0 => client.batch("DELETE FROM jobs"),
                    6 => drop(client.purge(now, 2)),
                    7 if !tokens.is_empty() => {
                        let (n, fence) = tokens[random.below(tokens.len() as u64) as usize];
                        let stale = fence < highest[n];
                        let accepted = match random.below(3) {
                            0 => client.complete(IDS[n], "w", fence, now, "r"),
                            1 => client.renew(IDS[n], "w", fence, now, 5.0),
                            _ => client.release(IDS[n], "w", fence),
                        };
                        assert!(!(stale && accepted), "step {step}: {} {fence}", IDS[n]);
                    }
                    _ => {
                        if let Some(fence) = client.claim(id, "w", now, 3.0) {
                            assert!(fence > highest[n], "step {step}: {id} {fence} {highest:?}");
                            highest[n] = fence;
                            tokens.push((n, fence));
                            claims += 1;
                        }
                    }
                }
                let known = client.one::<i64>(
                    "SELECT max(fence, (SELECT ifnull(max(fence), 0) FROM jobs)) FROM fence_floor",
                );
                assert!(known >= *highest.iter().max().unwrap(), "step {step}");
            }
            assert!(claims > 100, "too few claims to mean anything: {claims}");
            assert!(rows(&client, "fence_replaced") <= 9);
        }
    }
}

#[test]
fn a_deletion_by_the_sqlite3_shell_or_python_counts_as_well() {
    for door in DOORS {
        let scratch = Scratch::new();
        let client = door.open(&scratch);
        held(&client);
        let Some(output) = plain_shell(&scratch, "DELETE FROM jobs;") else { return };
        assert!(output.status.success(), "{}", common::stderr(&output));
        assert!(client.enqueue("j"));
        assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(5));
        let Some(lines) = plain_python(&scratch, &[FRESH]) else { return };
        assert_eq!(lines, ["ok"]);
        assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(7));
    }
}
