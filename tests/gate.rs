//! The gate of a second store lets a write through whose fence is the highest so far.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::{error_of, python, stderr, stdout, Scratch};
use doors::{sql, Door, DOORS};
use rusqlite::types::Value as Sql;
use rusqlite::{ffi, Connection};

fn highest(conn: &Connection) -> String {
    let sql = "SELECT group_concat(resource || ' ' || quote(fence), '; ')
                 FROM (SELECT * FROM fence_gate ORDER BY resource)";
    common::one::<Option<String>>(conn, sql).unwrap_or_default()
}

#[test]
fn a_fence_passes_unless_a_higher_one_did() {
    for door in DOORS {
        // The second store has no jobs.
        let gate = door.on(Connection::open_in_memory().unwrap());
        for (resource, fence, passes) in [
            ("disk", 3, true),
            ("disk", 3, true),
            ("disk", 2, false),
            ("disk", 10, true),
            ("disk", 9, false),
            ("tape", 1, true),
            ("Disk", 1, true),
            ("disk", i64::MAX, true),
            ("disk", i64::MAX - 1, false),
            ("disk", i64::MAX, true),
        ] {
            assert_eq!(gate.pass(resource, fence), passes, "{door:?} {resource} {fence}");
        }
        assert_eq!(highest(&gate), "Disk 1; disk 9223372036854775807; tape 1");
    }
}

#[test]
fn what_sqlite_takes_for_a_number_is_one() {
    for door in DOORS {
        let gate = door.on(Connection::open_in_memory().unwrap());
        assert!(gate.pass("disk", 9));
        let pass = |fence: Sql| gate.run("pass", &[&"disk", &fence]).unwrap();
        for (fence, passes) in [
            (Sql::Text("8".into()), 0),
            (Sql::Text("10".into()), 1),
            (Sql::Text("9".into()), 0),
            (Sql::Real(11.0), 1),
            (Sql::Real(10.0), 0),
        ] {
            assert_eq!(pass(fence.clone()), Sql::Integer(passes), "{door:?} {fence:?}");
        }
        assert_eq!(highest(&gate), "disk 11");
    }
}

#[test]
fn a_wrong_argument_is_refused_and_changes_nothing() {
    let text = |word: &str| Sql::Text(word.into());
    let (disk, one) = (text("disk"), Sql::Integer(1));
    for (resource, fence, sentence) in [
        (Sql::Null, one.clone(), "resource must be text, got NULL"),
        (Sql::Integer(5), one.clone(), "resource must be text, got 5"),
        (Sql::Blob(b"disk".into()), one.clone(), "resource must be text, got a BLOB"),
        (text(""), one.clone(), "resource must not be empty"),
        (text("a\0b"), one, "resource must not contain a NUL character, got 'a\\u{0}b'"),
        (disk.clone(), Sql::Null, "fence must be an integer, got NULL"),
        (disk.clone(), text("high"), "fence must be an integer, got text 'high'"),
        (disk.clone(), Sql::Blob(b"9".into()), "fence must be an integer, got a BLOB"),
        (disk.clone(), Sql::Real(4.5), "fence must be an integer, got 4.5"),
        (disk.clone(), Sql::Real(f64::INFINITY), "fence must be an integer, got inf"),
        (disk.clone(), Sql::Real(1e19), "fence must be an integer, got 1e19"),
        (disk.clone(), Sql::Integer(0), "fence must be greater than 0, got 0"),
        (disk.clone(), Sql::Integer(-4), "fence must be greater than 0, got -4"),
        (disk, text("-4"), "fence must be greater than 0, got -4"),
    ] {
        for door in DOORS {
            let gate = door.on(Connection::open_in_memory().unwrap());
            assert!(gate.pass("tape", 3));
            let answer = gate.run("pass", &[&resource, &fence]);
            match door {
                Door::Loaded => {
                    let error = answer.unwrap_err().to_string();
                    assert_eq!(error, format!("fence_pass: {sentence}"));
                }
                Door::Plain => assert_eq!(answer, Ok(Sql::Integer(0)), "{resource:?} {fence:?}"),
            }
            assert_eq!(highest(&gate), "tape 3", "{resource:?} {fence:?}");
        }
    }
}

#[test]
fn it_belongs_to_the_transaction_of_the_effect() {
    for door in DOORS {
        let gate = door.on(Connection::open_in_memory().unwrap());
        gate.batch("CREATE TABLE effect(by)");
        gate.batch("BEGIN");
        assert!(gate.pass("disk", 7));
        gate.batch("INSERT INTO effect VALUES (7); ROLLBACK");
        gate.batch("BEGIN");
        assert!(gate.pass("disk", 5), "nothing happened at 7");
        gate.batch("INSERT INTO effect VALUES (5); COMMIT");
        assert!(!gate.pass("disk", 4));
        assert_eq!(highest(&gate), "disk 5");
        assert_eq!(gate.one::<i64>("SELECT max(by) FROM effect"), 5);
    }
}

#[test]
fn the_table_is_made_at_the_first_call_and_only_then() {
    let scratch = Scratch::new();
    let gate = Door::Loaded.on(scratch.connect());
    let (code, sentence) = error_of(&gate, "SELECT fence_pass('disk', 0)");
    assert_eq!((code, sentence.as_str()), (1, "fence_pass: fence must be greater than 0, got 0"));
    assert_eq!(gate.one::<i64>("PRAGMA schema_version"), 0);
    assert!(gate.pass("disk", 1));
    let version = gate.one::<i64>("PRAGMA schema_version");
    assert!(gate.pass("disk", 2));
    assert_eq!(gate.one::<i64>("PRAGMA schema_version"), version);
    assert_eq!(
        gate.one::<String>("SELECT group_concat(tbl_name) FROM sqlite_master WHERE type = 'table'"),
        "fence_gate"
    );
}

#[test]
fn a_foreign_table_under_the_gates_name_is_an_error() {
    let gate = Door::Loaded.on(Connection::open_in_memory().unwrap());
    gate.batch("CREATE TABLE fence_gate(x)");
    let sentence = "fence_pass: table main.fence_gate has no column named resource".into();
    assert_eq!(error_of(&gate, "SELECT fence_pass('disk', 1)"), (ffi::SQLITE_ERROR, sentence));
}

#[test]
fn the_crates_pass_is_the_same_gate() {
    let conn = Connection::open_in_memory().unwrap();
    assert!(fence::pass(&conn, "disk", 3).unwrap());
    assert!(!fence::pass(&conn, "disk", 2).unwrap());
    assert!(Door::Loaded.on(conn).pass("disk", 4));
    let conn = Connection::open_in_memory().unwrap();
    for (resource, fence, sentence) in [
        ("", 1, "pass: resource must not be empty"),
        ("disk", 0, "pass: fence must be greater than 0, got 0"),
    ] {
        let error = fence::pass(&conn, resource, fence).unwrap_err();
        assert_eq!(error.to_string(), sentence);
    }
    conn.execute_batch("BEGIN").unwrap();
    assert!(fence::pass(&conn, "disk", 3).unwrap());
    assert!(!conn.is_autocommit());
    conn.execute_batch("ROLLBACK").unwrap();
    assert!(fence::pass(&conn, "disk", 1).unwrap());
}

/// Each process writes its fences in an order of its own, by the plain file and in the transaction
/// of the effect.
#[test]
fn the_effects_of_two_processes_at_once_come_in_the_order_of_their_fences() {
    const PROGRAM: &str = "
import sqlite3, sys
path, statement, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
conn = sqlite3.connect(path, isolation_level=None, timeout=30)
conn.execute('PRAGMA synchronous = OFF')
for n in range(100):
    fence = 1 + (first + n * 37) % 200
    conn.execute('BEGIN IMMEDIATE')
    if conn.execute(statement, ('disk', fence)).rowcount == 1:
        conn.execute('INSERT INTO effect(by) VALUES (?)', (fence,))
    conn.execute('COMMIT')
";
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    let conn = scratch.connect();
    conn.execute_batch(&(sql("gate") + "CREATE TABLE effect(n INTEGER PRIMARY KEY, by)")).unwrap();
    let children: Vec<_> = ["1", "2"]
        .into_iter()
        .map(|first| {
            let mut command = std::process::Command::new(&python);
            command.args(["-c", PROGRAM]).arg(scratch.db()).args([&sql("pass"), first]);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    }
    let sql = "SELECT by FROM effect ORDER BY n";
    let mut statement = conn.prepare(sql).unwrap();
    let effects: Vec<i64> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(effects.is_sorted(), "{effects:?}");
    assert_eq!(highest(&conn), format!("disk {}", effects.last().unwrap()));
    assert!((2..200).contains(&effects.len()), "{effects:?}");
}
