//! What the file itself refuses in jobs, whoever writes: a program with the extension, one that
//! never loads it, the sqlite3 shell, Python. And what raw SQL may still do.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::{error_of, stderr, stdout, Scratch};
use doors::{plain_python, plain_shell, Client, Door, DOORS};
use rusqlite::ffi;

const FALL: &str = "jobs: a fence cannot fall";
const INTEGER: &str = "jobs: a fence must be an integer below 2^63";
const MOVED: &str = "jobs: a job cannot be renamed or moved";
const DONE: &str = "jobs: a job that is done stays so, and its result, while its fence stays";
const INSERTED: &str = "jobs: a fence must be an integer from 0 to 2^63 - 1";
const STALE: &str = "jobs: a row that replaces a job must be a fresh one or have a higher fence";

/// Jobs of every kind.
const JOBS: &str = "
    INSERT INTO jobs(rowid, id) VALUES (1, 'free');
    INSERT INTO jobs(rowid, id, owner, until, fence) VALUES (2, 'held', 'A', 1e10, 3);
    INSERT INTO jobs(rowid, id, owner, until, fence) VALUES (3, 'over', 'A', 5, 2);
    INSERT INTO jobs(rowid, id, owner, until, fence, result, done)
    VALUES (4, 'done', 'A', 5, 4, 'r', 1), (5, 'dead', 'A', 5, 2, 'e', 2);";

/// Statements and the sentence that refuses them.
const REFUSED: &[(&str, &str)] = &[
    // A fence never falls ..
    ("UPDATE jobs SET fence = 2 WHERE id = 'held'", FALL),
    ("UPDATE jobs SET fence = 0 WHERE id = 'held'", FALL),
    ("UPDATE jobs SET fence = fence - 1", FALL),
    ("UPDATE jobs SET fence = -1 WHERE id = 'free'", FALL),
    ("UPDATE jobs SET fence = 2.5 WHERE id = 'held'", FALL),
    ("UPDATE jobs SET fence = '2' WHERE id = 'held'", FALL),
    ("UPDATE jobs SET (owner, fence) = (SELECT 'B', 1) WHERE id = 'held'", FALL),
    ("UPDATE jobs SET FENCE = v.f FROM (SELECT 'held' AS i, 2 AS f) AS v WHERE id = v.i", FALL),
    ("UPDATE jobs SET fence = fence + 1 - 2 * (id = 'over')", FALL),
    ("UPDATE OR IGNORE jobs SET fence = 2 WHERE id = 'held'", FALL),
    ("UPDATE OR REPLACE jobs SET fence = 2 WHERE id = 'held'", FALL),
    ("UPDATE OR FAIL jobs SET fence = fence - (id = 'over')", FALL),
    ("UPDATE OR ROLLBACK jobs SET fence = 2 WHERE id = 'held'", FALL),
    ("UPDATE jobs SET done = 0, fence = 1 WHERE id = 'done'", FALL),
    (
        "INSERT INTO jobs(id, fence) VALUES ('held', 1)
             ON CONFLICT(id) DO UPDATE SET fence = excluded.fence",
        FALL,
    ),
    // .. and stays an integer.
    ("UPDATE jobs SET fence = 9223372036854775807 + 1 WHERE id = 'held'", INTEGER),
    ("UPDATE jobs SET fence = 3.5 WHERE id = 'held'", INTEGER),
    ("UPDATE jobs SET fence = 9e999 WHERE id = 'held'", INTEGER),
    ("UPDATE jobs SET fence = 'more' WHERE id = 'held'", INTEGER),
    ("UPDATE jobs SET fence = x'33' WHERE id = 'held'", INTEGER),
    ("UPDATE jobs SET fence = NULL WHERE id = 'held'", INTEGER),
    ("UPDATE OR IGNORE jobs SET fence = NULL WHERE id = 'held'", INTEGER),
    ("UPDATE OR REPLACE jobs SET fence = NULL WHERE id = 'held'", INTEGER),
    // A job keeps its id and its place.
    ("UPDATE jobs SET id = 'other' WHERE id = 'held'", MOVED),
    ("UPDATE jobs SET id = 'HELD' WHERE id = 'held'", MOVED),
    ("UPDATE jobs SET id = NULL WHERE id = 'held'", MOVED),
    ("UPDATE jobs SET id = x'68656c64' WHERE id = 'held'", MOVED),
    ("UPDATE jobs SET id = 'other', fence = fence + 1 WHERE id = 'held'", MOVED),
    ("UPDATE OR REPLACE jobs SET id = 'free' WHERE id = 'held'", MOVED),
    ("UPDATE OR IGNORE jobs SET id = 'free' WHERE id = 'held'", MOVED),
    ("UPDATE jobs SET rowid = 9 WHERE id = 'held'", MOVED),
    ("UPDATE jobs SET _rowid_ = 9 WHERE id = 'held'", MOVED),
    ("UPDATE jobs SET oid = 9 WHERE id = 'held'", MOVED),
    ("UPDATE OR REPLACE jobs SET rowid = 2 WHERE id = 'free'", MOVED),
    ("UPDATE OR REPLACE jobs SET OID = 2 WHERE id = 'free'", MOVED),
    // What is done stays so, and its result.
    ("UPDATE jobs SET done = 0 WHERE id = 'done'", DONE),
    ("UPDATE jobs SET done = 2 WHERE id = 'done'", DONE),
    ("UPDATE jobs SET done = 0 WHERE id = 'dead'", DONE),
    ("UPDATE jobs SET done = 1 WHERE id = 'dead'", DONE),
    ("UPDATE jobs SET done = NULL WHERE id = 'done'", DONE),
    ("UPDATE OR IGNORE jobs SET done = 0 WHERE id = 'done'", DONE),
    // OR REPLACE would put the default in the place of NULL, and that is 0.
    ("UPDATE OR REPLACE jobs SET done = NULL WHERE id = 'done'", DONE),
    ("UPDATE jobs SET result = 'late' WHERE id = 'done'", DONE),
    ("UPDATE jobs SET result = NULL WHERE id = 'done'", DONE),
    ("UPDATE jobs SET result = 'R' WHERE id = 'done'", DONE),
    ("UPDATE jobs SET result = 'all right' WHERE id = 'dead'", DONE),
    ("UPDATE jobs SET result = 'same for all'", DONE),
    ("UPDATE jobs SET owner = 'B', until = 1e10, fence = 4, result = NULL, done = 0", DONE),
    (
        "INSERT INTO jobs(id) VALUES ('done') ON CONFLICT(id) DO UPDATE SET done = 0, owner = NULL",
        DONE,
    ),
    // New rows.
    ("INSERT INTO jobs(id, fence) VALUES ('n', -1)", INSERTED),
    ("INSERT INTO jobs(id, fence) VALUES ('n', 1.5)", INSERTED),
    ("INSERT INTO jobs(id, fence) VALUES ('n', 9223372036854775808)", INSERTED),
    ("INSERT INTO jobs(id, fence) VALUES ('n', 'many')", INSERTED),
    ("INSERT INTO jobs(id, fence) VALUES ('n', x'31')", INSERTED),
    ("INSERT OR IGNORE INTO jobs(id, fence) VALUES ('n', -1)", INSERTED),
    ("INSERT OR REPLACE INTO jobs(id, fence) VALUES ('held', -1)", INSERTED),
    ("INSERT INTO jobs(id, fence) VALUES ('n', 1), ('m', -1)", INSERTED),
    // A stale worker's whole row, by the id of a job or in its place.
    ("INSERT OR REPLACE INTO jobs(id, owner, fence) VALUES ('held', 'A', 2)", STALE),
    ("INSERT OR REPLACE INTO jobs(id, owner, fence) VALUES ('held', 'A', 3)", STALE),
    ("INSERT OR REPLACE INTO jobs(id, result, fence) VALUES ('held', 'late', 3)", STALE),
    ("INSERT OR REPLACE INTO jobs(id, done, fence) VALUES ('held', 1, 3)", STALE),
    ("INSERT OR REPLACE INTO jobs(id, owner, until) VALUES ('held', 'B', 1e10)", STALE),
    ("REPLACE INTO jobs(id, owner, fence) VALUES ('done', 'A', 4)", STALE),
    ("INSERT OR REPLACE INTO jobs(rowid, id, owner) VALUES (2, 'held', 'B')", STALE),
    ("INSERT OR REPLACE INTO jobs(rowid, id, owner, fence) VALUES (2, 'n', 'B', 1)", STALE),
    ("INSERT OR REPLACE INTO jobs(rowid, id, owner, fence) VALUES (2, NULL, 'B', 1)", STALE),
    (
        "INSERT OR REPLACE INTO jobs SELECT id, owner, until + 9, fence, result, done FROM jobs",
        STALE,
    ),
];

fn prepared(door: Door) -> Client {
    let client = door.memory();
    client.batch(JOBS);
    client
}

#[test]
fn what_would_undo_a_fence_or_a_result_is_refused_and_the_whole_statement_undone() {
    for door in DOORS {
        for pragma in
            ["recursive_triggers = OFF", "recursive_triggers = ON", "trusted_schema = OFF"]
        {
            let client = prepared(door);
            client.batch(&format!("PRAGMA {pragma}"));
            for (statement, sentence) in REFUSED {
                assert_eq!(client.refusal(statement), *sentence, "{door:?} {pragma}: {statement}");
            }
        }
    }
}

#[test]
fn after_a_refused_statement_the_transaction_goes_on() {
    for door in DOORS {
        for (statement, sentence) in REFUSED {
            let client = prepared(door);
            client.batch("BEGIN; UPDATE jobs SET until = 6 WHERE id = 'over'");
            assert_eq!(client.refusal(statement), *sentence, "{statement}");
            assert!(!client.is_autocommit(), "{statement}");
            client.batch("UPDATE jobs SET owner = 'B' WHERE id = 'over'; COMMIT");
            assert_eq!(client.jobs()[2], "'over' 'B' 6.0 2 NULL 0", "{statement}");
        }
    }
}

#[test]
fn a_fence_of_null_is_sqlites_own_error() {
    for door in DOORS {
        let client = prepared(door);
        let refused =
            (ffi::SQLITE_CONSTRAINT_NOTNULL, "NOT NULL constraint failed: jobs.fence".into());
        assert_eq!(error_of(&client, "INSERT INTO jobs(id, fence) VALUES ('n', NULL)"), refused);
        // OR REPLACE puts the default there.
        client.batch("INSERT OR REPLACE INTO jobs(id, fence) VALUES ('n', NULL)");
        assert_eq!(client.fence("n"), 0);
    }
}

#[test]
fn everything_else_stays_possible_for_raw_sql() {
    for (statement, id, row) in [
        ("UPDATE jobs SET owner = NULL, until = 0 WHERE id = 'held'", "held", "NULL 0.0 3 NULL 0"),
        ("UPDATE jobs SET owner = 'B' WHERE id = 'done'", "done", "'B' 5.0 4 'r' 1"),
        (
            "UPDATE jobs SET result = '50 %' WHERE id = 'held'",
            "held",
            "'A' 10000000000.0 3 '50 %' 0",
        ),
        ("UPDATE jobs SET done = 1, result = 'x' WHERE id = 'over'", "over", "'A' 5.0 2 'x' 1"),
        ("UPDATE jobs SET done = 2 WHERE id = 'free'", "free", "NULL 0.0 0 NULL 2"),
        (
            "UPDATE jobs SET fence = 3, result = NULL, done = 0 WHERE id = 'dead'",
            "dead",
            "'A' 5.0 3 NULL 0",
        ),
        (
            "UPDATE jobs SET fence = 5, result = 'other' WHERE id = 'done'",
            "done",
            "'A' 5.0 5 'other' 1",
        ),
        ("UPDATE jobs SET fence = '7' WHERE id = 'held'", "held", "'A' 10000000000.0 7 NULL 0"),
        ("UPDATE jobs SET fence = 7.0 WHERE id = 'free'", "free", "NULL 0.0 7 NULL 0"),
        (
            "UPDATE jobs SET fence = 9223372036854775807 WHERE id = 'free'",
            "free",
            "NULL 0.0 9223372036854775807 NULL 0",
        ),
        (
            "UPDATE jobs SET id = id, rowid = rowid, fence = fence, result = result, done = done",
            "done",
            "'A' 5.0 4 'r' 1",
        ),
        (
            "INSERT INTO jobs(id) VALUES ('held') ON CONFLICT(id) DO UPDATE SET until = 9",
            "held",
            "'A' 9.0 3 NULL 0",
        ),
        (
            "INSERT OR IGNORE INTO jobs VALUES ('held', 'B', 9, 1, 'x', 1)",
            "held",
            "'A' 10000000000.0 3 NULL 0",
        ),
        ("INSERT INTO jobs VALUES ('imported', 'C', 9, 6, 'x', 1)", "imported", "'C' 9.0 6 'x' 1"),
        (
            "INSERT OR REPLACE INTO jobs VALUES ('held', 'C', 9, 4, 'x', 1)",
            "held",
            "'C' 9.0 4 'x' 1",
        ),
        ("INSERT OR REPLACE INTO jobs(id) VALUES ('free')", "free", "NULL 0.0 0 NULL 0"),
    ] {
        for door in DOORS {
            for recursive in ["OFF", "ON"] {
                let client = prepared(door);
                client.batch(&format!("PRAGMA recursive_triggers = {recursive}; {statement}"));
                let job = client
                    .jobs()
                    .into_iter()
                    .find_map(|job| job.strip_prefix(&format!("'{id}' ")).map(String::from));
                assert_eq!(job.as_deref(), Some(row), "{door:?}: {statement}");
            }
        }
    }
    for door in DOORS {
        let client = prepared(door);
        assert_eq!(client.execute("DELETE FROM jobs WHERE id <> 'free'", []), Ok(4));
        assert_eq!(client.jobs(), ["'free' NULL 0.0 0 NULL 0"]);
    }
}

#[test]
fn the_floor_is_one_row_that_never_falls() {
    const ONE: &str = "fence_floor: there is one floor";
    const KEPT: &str = "fence_floor: the floor cannot be deleted";
    for door in DOORS {
        let client = prepared(door);
        client.batch("DELETE FROM jobs WHERE id = 'done'");
        assert_eq!(client.floor(), 4);
        for recursive in ["OFF", "ON"] {
            client.batch(&format!("PRAGMA recursive_triggers = {recursive}"));
            for (statement, sentence) in [
                ("DELETE FROM fence_floor", KEPT),
                ("DELETE FROM fence_floor WHERE only = 1", KEPT),
                ("UPDATE fence_floor SET fence = 3", "fence_floor: the floor cannot fall"),
                (
                    "UPDATE OR REPLACE fence_floor SET fence = 0",
                    "fence_floor: the floor cannot fall",
                ),
                ("INSERT INTO fence_floor VALUES (1, 9)", ONE),
                ("INSERT INTO fence_floor VALUES (2, 9)", ONE),
                ("INSERT OR REPLACE INTO fence_floor VALUES (1, 0)", ONE),
                ("INSERT OR IGNORE INTO fence_floor VALUES (NULL, 0)", ONE),
            ] {
                assert_eq!(client.refusal(statement), sentence, "{statement}");
            }
            for (statement, code) in [
                ("UPDATE fence_floor SET fence = 4.5", ffi::SQLITE_CONSTRAINT_CHECK),
                ("UPDATE fence_floor SET fence = 'many'", ffi::SQLITE_CONSTRAINT_CHECK),
                (
                    "UPDATE fence_floor SET fence = 9223372036854775807 + 1",
                    ffi::SQLITE_CONSTRAINT_CHECK,
                ),
                ("UPDATE fence_floor SET only = 2", ffi::SQLITE_CONSTRAINT_CHECK),
                ("UPDATE OR REPLACE fence_floor SET fence = NULL", ffi::SQLITE_CONSTRAINT_NOTNULL),
            ] {
                assert_eq!(error_of(&client, statement).0, code, "{statement}");
            }
            assert_eq!(client.one::<String>("SELECT only || ' ' || fence FROM fence_floor"), "1 4");
        }
    }
}

/// A first row cannot be a wrong one either.
#[test]
fn the_floor_begins_as_a_natural_number() {
    for (row, good) in [("1, 0", true), ("1, -1", false), ("1, 'x'", false), ("2, 0", false)] {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        let enforce = doors::sql("enforce");
        let (table, _) = enforce.split_once("\n\nCREATE TRIGGER").unwrap();
        conn.execute_batch(table).unwrap();
        let inserted = conn.execute(&format!("INSERT INTO fence_floor VALUES ({row})"), []);
        assert_eq!(inserted.is_ok(), good, "{row}");
    }
}

#[test]
fn other_schemas_tables_do_not_stand_in_for_the_files_own() {
    for door in DOORS {
        let client = prepared(door);
        client.batch(
            "CREATE TEMP TABLE jobs AS SELECT * FROM main.jobs WHERE 0;
             CREATE TEMP TABLE fence_floor(only, fence);
             CREATE TEMP TABLE fence_replaced(id, fence);",
        );
        client.init();
        assert_eq!(client.refusal("UPDATE main.jobs SET fence = 0"), FALL);
        let stale = "INSERT OR REPLACE INTO main.jobs(id, owner) VALUES ('held', 'B')";
        assert_eq!(client.refusal(stale), STALE);
        client.batch("DELETE FROM main.jobs WHERE id = 'done'");
        assert_eq!(client.floor(), 4);
        assert!(client.enqueue("done"));
        assert_eq!(client.claim("done", "B", 0.0, 10.0), Some(6));
        assert_eq!(client.one::<i64>("SELECT count(*) FROM temp.fence_floor"), 0);
    }
}

/// The names that a trigger depends on are looked at whenever a table is altered.
#[test]
fn the_users_own_tables_can_still_be_altered_and_the_file_vacuumed() {
    for door in DOORS {
        let client = prepared(door);
        client.batch(
            "CREATE TABLE orders(id, total);
             ALTER TABLE orders RENAME COLUMN total TO sum;
             ALTER TABLE orders RENAME TO sales;
             ALTER TABLE sales ADD COLUMN at;
             ALTER TABLE sales DROP COLUMN sum;
             VACUUM;",
        );
        assert_eq!(client.refusal("UPDATE jobs SET fence = 0"), FALL);
    }
}

#[test]
fn the_sqlite3_shell_and_python_are_refused_like_anybody() {
    let scratch = Scratch::new();
    let client = Door::Loaded.open(&scratch);
    client.batch(JOBS);
    let before = client.jobs();
    let statements: Vec<&str> = REFUSED.iter().map(|(statement, _)| *statement).collect();
    let sentences: Vec<&str> = REFUSED.iter().map(|(_, sentence)| *sentence).collect();
    if let Some(lines) = plain_python(&scratch, &statements) {
        assert_eq!(lines, sentences);
        assert_eq!(client.jobs(), before);
    }
    let script = statements.join(";\n") + ";\nSELECT count(*) FROM jobs;\n";
    if let Some(output) = plain_shell(&scratch, &script) {
        assert_eq!(stdout(&output), "5\n");
        let errors = stderr(&output);
        let found: Vec<&str> = errors.lines().filter(|line| line.contains("near line")).collect();
        assert_eq!(found.len(), sentences.len(), "{errors}");
        for (line, sentence) in found.iter().zip(sentences) {
            assert!(line.contains(sentence), "{line}");
        }
        assert_eq!(client.jobs(), before);
    }
}
