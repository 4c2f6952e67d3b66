//! What a file from somebody else can be: its jobs a view, or a table with triggers, and its triggers
//! look-alikes of ours. It can lie about what is in it, and nothing more.
mod common;

use common::{add_jobs, all, batch, error_of, integer, jobs, one, Scratch, SCHEMA};
use rusqlite::{ffi, Connection};

/// A view that looks like a job table with one job.
fn view(owner: &str) -> String {
    format!(
        "CREATE VIEW jobs AS SELECT 'j' AS id, {owner} AS owner, 0.0 AS until, 7 AS fence,
                NULL AS result, 0 AS done;"
    )
}

const INSTEAD: &str = "
    CREATE TABLE log(entry);
    CREATE TRIGGER i INSTEAD OF INSERT ON jobs BEGIN INSERT INTO log VALUES ('insert'); END;
    CREATE TRIGGER u INSTEAD OF UPDATE ON jobs BEGIN INSERT INTO log VALUES (new.fence); END;
    CREATE TRIGGER d INSTEAD OF DELETE ON jobs BEGIN INSERT INTO log VALUES ('delete'); END;";

#[test]
fn a_view_named_jobs_that_calls_what_reads_it_is_an_error_and_no_recursion() {
    let within = |name: &str| format!("{name}: {name}: called from within itself");
    let alone = "fence_assert: needs a transaction, begin one with BEGIN IMMEDIATE";
    let calls = [
        "fence_state('j')",
        "fence_check('j', 'a', 7, 1)",
        "fence_check('j', 'a', 7)",
        "fence_assert('j', 'a', 7, 1)",
        "fence_assert('j', 'a', 7)",
    ];
    for call in calls {
        let name = common::function_of(call);
        for begin in ["", "BEGIN"] {
            let scratch = Scratch::new();
            let conn = scratch.loaded();
            batch(&conn, &(view(call) + INSTEAD + begin));
            let expected = match (name, begin) {
                ("fence_assert", "") => alone.into(),
                _ => within(name),
            };
            let refused = (ffi::SQLITE_ERROR, expected);
            for sql in [format!("SELECT {call}"), "SELECT * FROM jobs".into()] {
                assert_eq!(error_of(&conn, &sql), refused, "{sql} {begin}");
            }
            // The connection goes on.
            batch(&conn, if begin.is_empty() { "" } else { "ROLLBACK" });
            batch(&conn, "DROP VIEW jobs; SELECT fence_init(); SELECT fence_enqueue('j')");
            assert_eq!(one::<String>(&conn, "SELECT fence_check('j', 'a', 1, 1)"), "never_issued");
        }
    }
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    batch(&conn, &view(&calls[..3].join(" || ")));
    for sql in ["SELECT * FROM jobs", "SELECT fence_check('j', 'a', 7)"] {
        let (code, sentence) = error_of(&conn, sql);
        assert_eq!(code, ffi::SQLITE_ERROR);
        assert!(sentence.ends_with(": called from within itself"), "{sentence}");
    }
}

#[test]
fn a_view_named_jobs_can_answer_what_it_likes_and_nothing_is_written_but_by_its_triggers() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    batch(&conn, &(view("'a'") + INSTEAD));
    let before = all(&conn, SCHEMA);
    assert_eq!(integer(&conn, "fence_enqueue('x')"), Some(0));
    assert_eq!(integer(&conn, "fence_claim('j', 'b', 1, 10)"), Some(8));
    assert_eq!(integer(&conn, "fence_complete('j', 'a', 7, -1, 'r')"), Some(0));
    assert_eq!(all(&conn, "SELECT CAST(entry AS TEXT) FROM log"), ["insert", "8", "7"]);
    let index = (ffi::SQLITE_ERROR, "views may not be indexed");
    for (call, (code, sentence)) in [
        (
            "fence_init()",
            (ffi::SQLITE_ERROR, "the database has a view named jobs, a table is needed"),
        ),
        ("fence_init_queue()", index),
        ("fence_purge(10, 1)", index),
        (
            "fence_claim_batch('b', 1, 10, 1)",
            (ffi::SQLITE_ERROR, "no such index: fence_queue (fence_init_queue() makes it)"),
        ),
        ("fence_restore(5)", (ffi::SQLITE_ERROR, "no such table: main.fence_floor")),
    ] {
        let sentence = format!("{}: {sentence}", common::function_of(call));
        assert_eq!(error_of(&conn, &format!("SELECT {call}")), (code, sentence), "{call}");
    }
    assert!(conn.is_autocommit());
    assert_eq!(all(&conn, SCHEMA), before);
}

/// A file whose owner added a trigger to jobs, before or after `fence_init()`.
fn with_trigger(trigger: &str) -> Vec<(Scratch, Connection)> {
    let schema = include_str!("../sql/schema.sql");
    ["before", "after"]
        .map(|when| {
            let scratch = Scratch::new();
            let conn = scratch.loaded();
            batch(&conn, "CREATE TABLE log(entry)");
            if when == "before" {
                batch(&conn, &format!("{schema}{trigger}"));
                add_jobs(&conn);
            } else {
                add_jobs(&conn);
                batch(&conn, trigger);
            }
            (scratch, conn)
        })
        .into()
}

#[test]
fn triggers_of_the_file_run_with_a_call_and_what_it_answers_is_stored() {
    let trigger = "CREATE TRIGGER own AFTER UPDATE ON jobs
        BEGIN INSERT INTO log VALUES (new.id || ' ' || new.fence || ' ' || fence_state(new.id)); END;";
    for (_scratch, conn) in with_trigger(trigger) {
        batch(&conn, "DELETE FROM log");
        assert_eq!(integer(&conn, "fence_claim('free', 'b', 1, 10)"), Some(1));
        let state = r#"{"id":"free","owner":"b","until":11.0,"fence":1,"result":null,"done":0}"#;
        assert_eq!(all(&conn, "SELECT entry FROM log"), [format!("free 1 {state}")]);
        assert_eq!(jobs(&conn)[0], "'free' 'b' 11.0 1 NULL 0");
    }
}

#[test]
fn triggers_of_the_file_cannot_take_a_fence_back() {
    for (body, sentence) in [
        ("UPDATE jobs SET fence = fence - 1 WHERE id = new.id", "jobs: a fence cannot fall"),
        (
            "INSERT OR REPLACE INTO jobs(id, owner, fence) VALUES (new.id, 'thief', 0)",
            "jobs: a row that replaces a job must be a fresh one or have a higher fence",
        ),
        ("UPDATE fence_floor SET fence = -1", "fence_floor: the floor cannot fall"),
        ("DELETE FROM fence_floor", "fence_floor: the floor cannot be deleted"),
    ] {
        let trigger = format!(
            "CREATE TRIGGER own AFTER UPDATE OF fence ON jobs WHEN new.id = 'free' BEGIN {body}; END;"
        );
        for (_scratch, conn) in with_trigger(&trigger) {
            let before = jobs(&conn);
            let (_, found) = error_of(&conn, "SELECT fence_claim('free', 'b', 1, 10)");
            assert_eq!(found, format!("fence_claim: {sentence}"));
            assert_eq!(jobs(&conn), before, "{body}");
        }
    }
}

#[test]
fn a_trigger_of_the_file_that_calls_a_function_that_writes_stops_the_call() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);
    batch(
        &conn,
        "CREATE TRIGGER own AFTER UPDATE ON jobs
         BEGIN SELECT fence_release(new.id, new.owner, new.fence); END;",
    );
    let before = jobs(&conn);
    let refused = |name| (ffi::SQLITE_ERROR, format!("{name}: unsafe use of fence_release()"));
    let found = error_of(&conn, "SELECT fence_claim('free', 'b', 1, 10)");
    assert_eq!(found, refused("fence_claim"));
    let found = error_of(&conn, "SELECT fence_restore(1)");
    assert_eq!(found, refused("fence_restore"));
    assert_eq!(jobs(&conn), before);
}

#[test]
fn a_holder_whose_row_a_trigger_of_the_file_changed_is_refused() {
    for (body, standing, stored) in [
        ("fence = fence + 5", "superseded", "'free' 'b' 11.0 6 NULL 0"),
        ("owner = 'thief'", "not_owner", "'free' 'thief' 11.0 1 NULL 0"),
        ("until = 0", "expired", "'free' 'b' 0.0 1 NULL 0"),
        ("done = 1", "done_by_you", "'free' 'b' 11.0 1 NULL 1"),
    ] {
        let trigger = format!(
            "CREATE TRIGGER own AFTER UPDATE OF fence ON jobs WHEN new.id = 'free'
             BEGIN UPDATE jobs SET {body} WHERE id = new.id; END;"
        );
        for (_scratch, conn) in with_trigger(&trigger) {
            assert_eq!(integer(&conn, "fence_claim('free', 'b', 1, 10)"), Some(1), "{body}");
            let word: String = one(&conn, "SELECT fence_check('free', 'b', 1, 2)");
            assert_eq!(word, standing);
            assert_eq!(integer(&conn, "fence_complete('free', 'b', 1, 2, 'r')"), Some(0), "{body}");
            assert_eq!(jobs(&conn)[0], stored);
        }
    }
}

#[test]
fn a_trigger_of_the_file_can_make_a_claim_do_nothing() {
    let trigger = "CREATE TRIGGER own BEFORE UPDATE ON jobs WHEN new.id = 'free'
                   BEGIN SELECT RAISE(IGNORE); END;";
    for (_scratch, conn) in with_trigger(trigger) {
        let before = jobs(&conn);
        assert_eq!(integer(&conn, "fence_claim('free', 'b', 1, 10)"), None);
        assert_eq!(jobs(&conn), before);
    }
}

/// The limit of what the file itself can refuse: who may write triggers may also undo ours.
#[test]
fn a_trigger_of_the_file_on_the_floor_can_make_a_deleted_jobs_fence_come_again() {
    let trigger =
        "CREATE TRIGGER own BEFORE UPDATE ON fence_floor BEGIN SELECT RAISE(IGNORE); END;";
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);
    batch(&conn, trigger);
    assert_eq!(integer(&conn, "fence_claim('free', 'b', 1, 10)"), Some(1));
    batch(&conn, "DELETE FROM jobs WHERE id = 'free'; SELECT fence_enqueue('free')");
    assert_eq!(integer(&conn, "fence_claim('free', 'c', 1, 10)"), Some(1));
}

/// Replaces an object by one that ends with the same text, in a comment and after it.
fn disguise(conn: &Connection, kind: &str, name: &str, start: &str) {
    let stored: String =
        one(conn, &format!("SELECT sql FROM main.sqlite_master WHERE name = '{name}'"));
    let text = stored.split_once(&format!("CREATE {kind} ")).unwrap().1;
    let look_alike = format!("CREATE {kind} {name} {start} -- {text}");
    batch(conn, &format!("DROP {kind} {name}; {look_alike}"));
    assert!(one::<String>(
        conn,
        &format!("SELECT sql FROM main.sqlite_master WHERE name = '{name}'")
    )
    .ends_with(text));
}

#[test]
fn fence_init_is_not_deceived_by_a_trigger_that_ends_like_ours() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);
    let before = all(&conn, SCHEMA);
    // The text of this one begins with WHEN on a line of its own.
    disguise(&conn, "TRIGGER", "fence_job_delete", "BEFORE INSERT ON fence_replaced");
    let deceived = all(&conn, SCHEMA);
    assert_ne!(deceived, before);
    assert_eq!(integer(&conn, "fence_init()"), Some(1));
    assert_eq!(all(&conn, SCHEMA), before);
    batch(&conn, "DELETE FROM jobs WHERE id = 'held'");
    assert_eq!(one::<i64>(&conn, "SELECT fence FROM fence_floor"), 1);
}

#[test]
fn fence_guard_is_not_deceived_by_a_trigger_that_ends_like_ours() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);
    batch(&conn, "CREATE TABLE orders(job TEXT)");
    assert_eq!(integer(&conn, "fence_guard('orders', 'job')"), Some(1));
    let before = all(&conn, SCHEMA);
    let (name, start) = ("fence_guard_orders_insert", "BEFORE UPDATE OF fence ON orders WHEN 0");
    disguise(&conn, "TRIGGER", name, start);
    batch(&conn, "INSERT INTO orders(job) VALUES ('held')");
    assert_eq!(integer(&conn, "fence_guard('orders', 'job')"), Some(1));
    assert_eq!(all(&conn, SCHEMA), before);
    let sentence = "orders: state the current fence of the row's job in the column fence";
    let refused = (ffi::SQLITE_CONSTRAINT_TRIGGER, sentence.into());
    assert_eq!(error_of(&conn, "INSERT INTO orders(job) VALUES ('held')"), refused);
}
