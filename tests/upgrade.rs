//! A file that only has the job table gains everything by `fence_init()`; its fences and leases
//! stay. What others made under our names is an error and left alone.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::{error_of, python, stderr, stdout, Scratch};
use doors::{plain_shell, sql, Client, Door, DOORS};
use rusqlite::{ffi, Connection, OpenFlags};

/// The job table as the first version made it, with jobs.
const CORE: &str = "
CREATE TABLE jobs(
  id     TEXT PRIMARY KEY,
  owner  TEXT,
  until  REAL NOT NULL DEFAULT 0,
  fence  INTEGER NOT NULL DEFAULT 0,
  result TEXT,
  done   INTEGER NOT NULL DEFAULT 0
);
INSERT INTO jobs VALUES ('free', NULL, 0, 0, NULL, 0), ('held', 'A', 10, 3, NULL, 0),
    ('done', 'A', 10, 2, 'r', 1);";

const OBJECTS: [&str; 10] = [
    "table fence_floor",
    "table fence_replaced",
    "trigger fence_floor_is_kept",
    "trigger fence_floor_is_one",
    "trigger fence_floor_never_falls",
    "trigger fence_job_delete",
    "trigger fence_job_insert",
    "trigger fence_job_replace",
    "trigger fence_job_update",
    "view fence_status",
];

fn objects(conn: &Connection) -> Vec<String> {
    let mut statement = conn
        .prepare(
            "SELECT type || ' ' || name FROM sqlite_master WHERE name LIKE 'fence%' ORDER BY 1",
        )
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The schema's texts, to show that nothing changed.
fn schema(conn: &Connection) -> String {
    common::one(
        conn,
        "SELECT ifnull(group_concat(type || name || ifnull(sql, '')), '') FROM sqlite_master",
    )
}

#[test]
fn a_file_of_the_first_version_gains_everything_and_keeps_its_fences_and_leases() {
    for door in DOORS {
        for twice in [false, true] {
            let scratch = Scratch::new();
            scratch.connect().execute_batch(CORE).unwrap();
            let client = door.on(scratch.connect());
            let before = client.jobs();
            client.init();
            if twice {
                let version = client.one::<i64>("PRAGMA schema_version");
                client.init();
                assert_eq!(client.one::<i64>("PRAGMA schema_version"), version);
            }
            assert_eq!(client.jobs(), before);
            assert_eq!(objects(&client), OBJECTS);
            assert_eq!(client.floor(), 0);
            assert!(client.renew("held", "A", 3, 9.0, 10.0));
            assert_eq!(client.claim("held", "B", 18.0, 10.0), None);
            assert_eq!(client.claim("held", "B", 19.0, 10.0), Some(4));
            assert_eq!(client.claim("free", "B", 0.0, 10.0), Some(1));
            assert_eq!(client.refusal("UPDATE jobs SET fence = 3"), "jobs: a fence cannot fall");
            client.batch("DELETE FROM jobs");
            assert_eq!(client.floor(), 4);
            client.init();
            assert_eq!(client.floor(), 4, "kept");
        }
    }
}

#[test]
fn the_store_upgrades_such_a_file_too() {
    let scratch = Scratch::new();
    scratch.connect().execute_batch(CORE).unwrap();
    let store = fence::Store::open(scratch.db()).unwrap();
    assert!(store.renew("held", "A", 3, 9.0, 10.0).unwrap());
    assert_eq!(objects(&scratch.connect()), OBJECTS);
}

#[test]
fn triggers_and_views_of_another_version_are_replaced() {
    let scratch = Scratch::new();
    let client = Door::Loaded.open(&scratch);
    let whole = schema(&client);
    assert!(client.enqueue("j"));
    for other in [
        "DROP TRIGGER fence_job_update;
         CREATE TRIGGER fence_job_update BEFORE UPDATE ON jobs BEGIN SELECT 1; END;",
        "DROP TRIGGER fence_job_delete;
         CREATE TRIGGER Fence_Job_Delete BEFORE UPDATE ON fence_floor BEGIN SELECT 1; END;",
        "DROP TRIGGER fence_job_insert",
        "DROP VIEW fence_status; CREATE VIEW fence_status AS SELECT 1 AS id",
        "DROP TABLE fence_replaced",
        "DROP TABLE fence_floor; CREATE TABLE fence_floor(only INTEGER PRIMARY KEY, fence INTEGER)",
    ] {
        client.batch(other);
        let floor_differs = other.contains("CREATE TABLE");
        client.init();
        assert_eq!(objects(&client), OBJECTS, "{other}");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        let found = schema(&client);
        assert_eq!(sorted(&found).len() == sorted(&whole).len(), !floor_differs, "{other}");
        assert_eq!(client.refusal("UPDATE jobs SET fence = -1"), "jobs: a fence cannot fall");
        assert_eq!(client.floor(), 0);
        client.batch("UPDATE jobs SET fence = fence + 1; BEGIN; DELETE FROM jobs");
        assert!(client.floor() > 0, "{other}");
        client.batch("ROLLBACK");
        assert_eq!(client.one::<String>("SELECT state FROM fence_status"), "free");
    }
}

#[test]
fn a_floor_without_its_row_gets_it() {
    for door in DOORS {
        let client = door.on(Connection::open_in_memory().unwrap());
        let enforce = sql("enforce");
        client.batch(&sql("schema"));
        client.batch(&enforce[..enforce.find("CREATE TRIGGER").unwrap()]);
        client.init();
        assert_eq!(client.floor(), 0);
        let kept = enforce.split("\n\n").find(|part| part.contains("main.fence_floor_is_kept"));
        client.batch("DROP TRIGGER fence_floor_is_kept; DELETE FROM fence_floor");
        client.batch(kept.unwrap());
        client.init();
        assert_eq!((client.floor(), objects(&client)), (0, OBJECTS.map(String::from).to_vec()));
    }
}

#[test]
fn what_others_made_under_our_names_is_an_error_and_nothing_changes() {
    for (made, sentence) in [
        ("CREATE TABLE fence_status(x)", "the database has a table named fence_status"),
        ("CREATE TABLE Fence_Status(x)", "the database has a table named fence_status"),
        ("CREATE VIEW fence_floor AS SELECT 1", "the database has a view named fence_floor"),
        ("CREATE VIEW fence_replaced AS SELECT 1", "the database has a view named fence_replaced"),
        ("CREATE TABLE fence_job_update(x)", "the database has a table named fence_job_update"),
        (
            "CREATE TABLE t(x); CREATE INDEX fence_job_insert ON t(x)",
            "the database has an index named fence_job_insert",
        ),
        ("CREATE TABLE fence_floor(x)", "table main.fence_floor has no column named only"),
        ("CREATE TABLE fence_floor(fence)", "table main.fence_floor has no column named only"),
        ("CREATE TABLE fence_replaced(x)", "no such column: id"),
    ] {
        for core in ["", CORE] {
            let scratch = Scratch::new();
            let client = Door::Loaded.on(scratch.connect());
            client.batch(&format!("{core}{made};"));
            let before = schema(&client);
            let (code, found) = error_of(&client, "SELECT fence_init()");
            assert_eq!(
                (code, found),
                (ffi::SQLITE_ERROR, format!("fence_init: {sentence}")),
                "{made}"
            );
            assert!(client.is_autocommit());
            assert_eq!(schema(&client), before, "{made}");
        }
    }
}

#[test]
fn in_a_file_that_may_only_be_read_it_answers_1_if_everything_is_there() {
    let scratch = Scratch::new();
    drop(Door::Loaded.open(&scratch));
    let read_only = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        Door::Loaded.on(Connection::open_with_flags(scratch.db(), flags).unwrap())
    };
    read_only().init();
    scratch.connect().execute_batch("DROP TRIGGER fence_job_delete").unwrap();
    let refused =
        (ffi::SQLITE_READONLY, "fence_init: attempt to write a readonly database".to_string());
    assert_eq!(error_of(&read_only(), "SELECT fence_init()"), refused);
}

#[test]
fn in_a_transaction_that_is_rolled_back_nothing_stays() {
    for core in ["", CORE] {
        let scratch = Scratch::new();
        let client = Door::Loaded.on(scratch.connect());
        client.batch(core);
        let before = schema(&client);
        client.batch("BEGIN");
        client.init();
        assert!(!client.is_autocommit());
        assert_eq!(objects(&client), OBJECTS);
        client.batch("ROLLBACK");
        assert_eq!(schema(&client), before);
        client.init();
        assert_eq!(objects(&client), OBJECTS);
    }
}

#[test]
fn a_commit_that_a_reader_blocks_is_code_5_and_leaves_no_transaction_open() {
    for core in ["", CORE] {
        let scratch = Scratch::new();
        let client = Door::Loaded.on(scratch.connect());
        client.batch(&format!("CREATE TABLE other(x); {core}"));
        client.busy_timeout(std::time::Duration::ZERO).unwrap();
        let before = schema(&client);
        let reader = scratch.connect();
        reader.execute_batch("BEGIN; SELECT * FROM other").unwrap();
        let locked = (ffi::SQLITE_BUSY, "fence_init: database is locked".to_string());
        assert_eq!(error_of(&client, "SELECT fence_init()"), locked);
        assert!(client.is_autocommit(), "{core}");
        assert_eq!(schema(&client), before);
        reader.execute_batch("COMMIT").unwrap();
        client.init();
        assert_eq!(objects(&client), OBJECTS);
    }
}

#[test]
fn two_processes_that_upgrade_at_once_both_get_1() {
    const PROGRAM: &str = "
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
conn.enable_load_extension(True)
conn.load_extension(sys.argv[2])
print('ready', flush=True)
sys.stdin.readline()
print(conn.execute('SELECT fence_init()').fetchone()[0])
";
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};
    let Some(python) = python() else { return };
    for core in ["", CORE] {
        let scratch = Scratch::new();
        scratch.connect().execute_batch(core).unwrap();
        let mut children: Vec<_> = (0..2)
            .map(|_| {
                let mut command = Command::new(&python);
                command.args(["-c", PROGRAM]).arg(scratch.db()).arg(common::extension());
                let mut child =
                    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                let mut output = BufReader::new(child.stdout.take().unwrap());
                let mut line = String::new();
                output.read_line(&mut line).unwrap();
                assert_eq!(line, "ready\n");
                (child, output)
            })
            .collect();
        for (child, _) in &mut children {
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
        }
        for (mut child, mut output) in children {
            let mut answer = String::new();
            output.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "1\n");
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(objects(&scratch.connect()), OBJECTS);
    }
}

/// The text that the shell's .dump prints makes a file that is enforced as the first one.
#[test]
fn a_dump_brings_fences_floor_and_triggers_along() {
    let scratch = Scratch::new();
    let client = Door::Plain.open(&scratch);
    client.batch(
        "INSERT INTO jobs(id, owner, until, fence) VALUES ('held', 'A', 10, 3), ('gone', 'A', 10, 8);
         DELETE FROM jobs WHERE id = 'gone';
         INSERT OR IGNORE INTO jobs(id) VALUES ('held');",
    );
    let Some(dump) = plain_shell(&scratch, ".dump") else { return };
    let other = Scratch::new();
    let Some(output) = plain_shell(&other, &stdout(&dump)) else { return };
    assert_eq!((stderr(&output), stderr(&dump)), (String::new(), String::new()));
    let copy = Door::Loaded.on(other.connect());
    let before = schema(&copy);
    copy.init();
    assert_eq!(schema(&copy), before, "nothing was missing");
    assert_eq!((copy.jobs(), copy.floor()), (client.jobs(), 8));
    assert_eq!(copy.refusal("UPDATE jobs SET fence = 2"), "jobs: a fence cannot fall");
    assert!(copy.enqueue("gone"));
    assert_eq!(copy.claim("gone", "A", 0.0, 10.0), Some(10));
}

fn status(client: &Client) -> Vec<String> {
    let mut statement = client
        .prepare("SELECT id || ' ' || state || ' ' || ifnull(owner, '-') || ' ' || fence FROM fence_status")
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// A job in every state; the ends of leases are far from today.
const STATES: &str = "
INSERT INTO jobs VALUES ('a', NULL, 0, 0, NULL, 0), ('b', NULL, 9e9, 1, NULL, 0),
    ('c', 'A', 9e9, 2, NULL, 0), ('d', 'A', 100, 3, NULL, 0), ('e', 'A', 9e9, 4, 'r', 1),
    ('f', 'B', 100, 5, 'x', 2), ('g', NULL, 9e9, 6, NULL, 1);";

#[test]
fn fence_status_shows_each_job_in_one_word() {
    for door in DOORS {
        let client = door.memory();
        client.batch("PRAGMA trusted_schema = OFF");
        client.batch(STATES);
        let expected = [
            "a free - 0",
            "b delayed - 1",
            "c leased A 2",
            "d expired A 3",
            "e done A 4",
            "f failed B 5",
            "g done - 6",
        ];
        assert_eq!(status(&client), expected);
        let left: String = client.one(
            "SELECT group_concat(id || ' ' || CASE WHEN seconds_left IS NULL THEN 'NULL'
                                                   WHEN seconds_left = 0 THEN '0'
                                                   WHEN seconds_left > 1e9 THEN 'long'
                                                   ELSE seconds_left END, ', ') FROM fence_status",
        );
        assert_eq!(left, "a 0, b long, c long, d 0, e NULL, f NULL, g NULL");
    }
}

#[test]
fn seconds_left_are_those_of_the_databases_clock() {
    for door in DOORS {
        let client = door.memory();
        let clock = sql("clock");
        let clock = clock.trim();
        assert!(sql("status").contains(clock), "the same text as sql/clock.sql");
        client.batch("INSERT INTO jobs(id, owner, until) VALUES ('j', 'A', 9e9)");
        // SQLite reads the clock once in a statement.
        let same = format!(
            "SELECT abs(seconds_left - (9e9 - {clock})) < 1e-3 AND seconds_left = round(seconds_left, 3)
               FROM fence_status"
        );
        assert!(client.one::<bool>(&same));
        client.batch(&format!("UPDATE jobs SET until = {clock} - 1e-3"));
        assert_eq!(client.one::<f64>("SELECT seconds_left FROM fence_status"), 0.0);
        assert_eq!(client.one::<String>("SELECT state FROM fence_status"), "expired");
    }
    let difference = format!("SELECT abs({} - strftime('%s', 'now')) < 1.001", sql("clock").trim());
    assert!(Door::Plain.memory().one::<bool>(&difference), "Unix seconds");
}

#[test]
fn a_lease_that_ends_now_is_over_in_fence_status_as_in_a_claim() {
    let client = Door::Loaded.memory();
    // The clock has milliseconds; a job that is due at this one is free.
    client.batch(&format!("INSERT INTO jobs(id, until) VALUES ('j', {})", sql("clock").trim()));
    assert_eq!(client.one::<String>("SELECT state FROM fence_status"), "free");
    assert!(client.one::<Option<i64>>("SELECT fence_claim('j', 'A', 10)").is_some());
    assert_eq!(client.one::<String>("SELECT state FROM fence_status"), "leased");
    assert!(client.one::<bool>("SELECT seconds_left BETWEEN 0 AND 10 FROM fence_status"));
}

#[test]
fn fence_status_needs_no_extension() {
    let scratch = Scratch::new();
    Door::Loaded.open(&scratch).batch(STATES);
    let select =
        "SELECT id, state, owner, fence FROM fence_status WHERE state IN ('leased', 'failed');";
    let Some(output) = plain_shell(&scratch, select) else { return };
    assert_eq!(
        (stdout(&output).as_str(), stderr(&output).as_str()),
        ("c|leased|A|2\nf|failed|B|5\n", "")
    );
}
