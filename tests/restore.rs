//! `fence_restore` lets a file that was restored from a backup never hand out a fence again that
//! the original had handed out.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::{error_of, Scratch};
use doors::{sql, Client, Door, DOORS};
use rusqlite::ffi;
use rusqlite::types::Value as Sql;

/// Jobs in every state, at 20: leased, expired, free, delayed, done, dead.
fn every_state(client: &Client) {
    client.batch(
        "INSERT INTO jobs VALUES ('leased', 'A', 30, 3, 'half', 0), ('expired', 'A', 10, 2, NULL, 0),
             ('free', NULL, 0, 0, NULL, 0), ('delayed', NULL, 99, 1, NULL, 0),
             ('done', 'A', 30, 5, 'r', 1), ('dead', 'A', 30, 4, 'e', 2);",
    );
}

#[test]
fn a_restore_raises_every_fence_and_clears_every_lease() {
    for door in DOORS {
        let client = door.memory();
        every_state(&client);
        client.restore(100).unwrap();
        assert_eq!(
            client.jobs(),
            [
                "'leased' NULL 0.0 103 'half' 0",
                "'expired' NULL 0.0 102 NULL 0",
                "'free' NULL 0.0 100 NULL 0",
                "'delayed' NULL 99.0 101 NULL 0",
                "'done' 'A' 30.0 105 'r' 1",
                "'dead' 'A' 30.0 104 'e' 2",
            ]
        );
        assert_eq!(client.floor(), 100);
        assert!(client.enqueue("unknown to the copy"));
        assert_eq!(client.claim("unknown to the copy", "A", 0.0, 10.0), Some(102));
        assert!(!client.renew("leased", "A", 3, 20.0, 10.0));
        assert!(!client.complete("leased", "A", 103, 20.0, "r"), "nobody has it");
        assert_eq!(client.check("leased", "A", 3, 20.0), "superseded");
        assert_eq!(client.claim("delayed", "A", 98.0, 10.0), None);
    }
}

#[test]
fn without_an_argument_a_restore_raises_by_a_thousand_millions() {
    let client = Door::Loaded.memory();
    every_state(&client);
    assert_eq!(client.one::<i64>("SELECT fence_restore()"), 1);
    assert_eq!((client.fence("leased"), client.floor()), (1_000_000_003, 1_000_000_000));
}

#[test]
fn a_restore_that_would_overflow_changes_nothing() {
    for (highest, door) in [
        ("job", Door::Loaded),
        ("floor", Door::Loaded),
        ("job", Door::Plain),
        ("floor", Door::Plain),
    ] {
        let client = door.memory();
        every_state(&client);
        let last = i64::MAX;
        client.batch(&format!("INSERT INTO jobs(id, fence) VALUES ('high', {})", last - 5));
        if highest == "floor" {
            client.batch("DELETE FROM jobs WHERE id = 'high'");
        }
        let before = (client.jobs(), client.floor());
        let error = client.restore(6).unwrap_err();
        if door == Door::Loaded {
            let sentence = format!("bump 6 is too much for the highest fence, {}", last - 5);
            let refused = (ffi::SQLITE_ERROR, format!("fence_restore: {sentence}"));
            assert_eq!(error_of(&client, "SELECT fence_restore(6)"), refused);
        } else {
            let sentence = match highest {
                "job" => "jobs: a fence must be an integer below 2^63",
                _ => "CHECK constraint failed: typeof(fence) = 'integer' AND fence >= 0",
            };
            assert!(error.to_string().starts_with(sentence), "{error}");
        }
        assert_eq!((client.jobs(), client.floor()), before, "{highest}");
        client.restore(5).unwrap();
        let reached = if highest == "job" { client.fence("high") } else { client.floor() };
        assert_eq!(reached, last);
    }
}

#[test]
fn a_wrong_bump_changes_nothing() {
    let text = |word: &str| Sql::Text(word.into());
    for (bump, sentence) in [
        (Sql::Integer(0), "bump must be greater than 0, got 0"),
        (Sql::Integer(-1), "bump must be greater than 0, got -1"),
        (text("-1"), "bump must be greater than 0, got -1"),
        (Sql::Real(1.5), "bump must be an integer, got 1.5"),
        (Sql::Real(f64::INFINITY), "bump must be an integer, got inf"),
        (text("much"), "bump must be an integer, got text 'much'"),
        (Sql::Null, "bump must be an integer, got NULL"),
        (Sql::Blob(vec![0x39]), "bump must be an integer, got a BLOB"),
    ] {
        for door in DOORS {
            let client = door.memory();
            every_state(&client);
            let before = (client.jobs(), client.floor());
            match door {
                Door::Loaded => {
                    let error = client.run("restore", &[&bump]).unwrap_err().to_string();
                    assert_eq!(error, format!("fence_restore: {sentence}"));
                }
                Door::Plain => {
                    for statement in sql("restore").split("\n\n") {
                        assert_eq!(client.execute(statement, [&bump]), Ok(0), "{sentence}");
                    }
                }
            }
            assert_eq!((client.jobs(), client.floor()), before, "{door:?}: {sentence}");
        }
    }
}

/// A copy at fence 3; the original goes on to 5; the copy takes its place.
#[test]
fn a_restored_copy_hands_out_old_fences_again_unless_it_is_told() {
    for door in DOORS {
        for told in [false, true] {
            let scratch = Scratch::new();
            let original = door.open(&scratch);
            let gate = door.memory();
            assert!(original.enqueue("j"));
            let turn = |client: &Client| {
                let fence = client.claim("j", "A", 0.0, 10.0).unwrap();
                assert!(client.release("j", "A", fence));
                fence
            };
            (1..=3).for_each(|fence| assert_eq!(turn(&original), fence));
            let copy = scratch.dir.path().join("copy.db");
            original.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
            (4..=5).for_each(|fence| assert_eq!(turn(&original), fence));
            assert!(gate.pass("disk", 5));

            let copy = door.on(rusqlite::Connection::open(copy).unwrap());
            copy.init();
            if told {
                copy.restore(1_000_000_000).unwrap();
            }
            let fence = turn(&copy);
            if told {
                assert_eq!(fence, 1_000_000_004);
                assert!(gate.pass("disk", fence));
            } else {
                assert_eq!(fence, 4, "the number that the original handed out");
                assert!(!gate.pass("disk", fence), "only the gate notices");
            }
        }
    }
}

#[test]
fn a_restore_belongs_to_the_callers_transaction() {
    for door in DOORS {
        let client = door.memory();
        every_state(&client);
        let before = (client.jobs(), client.floor());
        client.batch("BEGIN");
        client.restore(7).unwrap();
        assert!(!client.is_autocommit());
        client.batch("ROLLBACK");
        assert_eq!((client.jobs(), client.floor()), before);
    }
}
