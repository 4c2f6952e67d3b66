//! `fence_init()` makes the job table once, whoever else does so at the same time, and leaves a
//! table of somebody else's alone. `fence_version()` and `fence_debug()` say what was loaded.
mod common;

use common::{add_jobs, error_of, jobs, one, Scratch};
use rusqlite::Connection;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

fn init(conn: &Connection) -> i64 {
    one(conn, "SELECT fence_init()")
}

/// The schema, and how often another connection changed the file.
fn look(conn: &Connection) -> (Option<String>, i64) {
    let sql = "SELECT group_concat(type || name || sql) FROM main.sqlite_master";
    (one(conn, sql), one(conn, "PRAGMA data_version"))
}

#[test]
fn the_table_has_the_documented_columns() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    assert_eq!(init(&conn), 1);
    let columns: String = one(
        &conn,
        r#"SELECT group_concat(name || ' ' || type || ' ' || "notnull" || ' '
                               || coalesce(dflt_value, '-') || ' ' || pk, ', ')
             FROM pragma_table_xinfo('jobs', 'main')"#,
    );
    assert_eq!(
        columns,
        "id TEXT 0 - 1, owner TEXT 0 - 0, until REAL 1 0 0, fence INTEGER 1 0 0, \
         result TEXT 0 - 0, done INTEGER 1 0 0"
    );
}

#[test]
fn a_second_call_changes_nothing() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (scratch.loaded(), scratch.connect());
    add_jobs(&conn);
    let before = (jobs(&onlooker), look(&onlooker));
    assert_eq!(init(&conn), 1);
    assert_eq!(init(&scratch.loaded()), 1);
    assert_eq!((jobs(&onlooker), look(&onlooker)), before);
}

const NEEDS: &str = "fence_init: the table jobs has other columns: needs (id TEXT PRIMARY KEY, \
     owner TEXT, until REAL NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0, result TEXT, \
     done INTEGER NOT NULL DEFAULT 0), found";

#[test]
fn a_foreign_table_is_refused_and_left_alone() {
    const MIDDLE: &str = "owner TEXT, until REAL NOT NULL DEFAULT 0, \
         fence INTEGER NOT NULL DEFAULT 0, result TEXT";
    const DONE: &str = "done INTEGER NOT NULL DEFAULT 0";
    let same = |columns: String| (columns.clone(), columns);
    for (columns, found) in [
        same("id INTEGER PRIMARY KEY, payload TEXT".into()),
        same(format!("id TEXT PRIMARY KEY, {MIDDLE}")), // one is missing
        same(format!("id TEXT PRIMARY KEY, {MIDDLE}, {DONE}, tries INTEGER")),
        same(format!("id TEXT PRIMARY KEY, {DONE}, {MIDDLE}")),
        same(format!("id BLOB PRIMARY KEY, {MIDDLE}, {DONE}")),
        same(format!("id TEXT PRIMARY KEY, {MIDDLE}, finished INTEGER NOT NULL DEFAULT 0")),
        same(format!("id TEXT, {MIDDLE}, {DONE}")),
        same(format!("id TEXT PRIMARY KEY, {MIDDLE}, done INTEGER NOT NULL DEFAULT 1")),
        same(format!("id TEXT PRIMARY KEY, {MIDDLE}, done INTEGER DEFAULT 0")),
        same(format!("id TEXT PRIMARY KEY, {MIDDLE}, done INTEGER NOT NULL")),
        (
            format!("id TEXT, {MIDDLE}, {DONE}, PRIMARY KEY (id, owner)"),
            format!("id TEXT PRIMARY KEY, {MIDDLE}, {DONE}")
                .replace("owner TEXT", "owner TEXT PRIMARY KEY"),
        ),
        (
            format!("id TEXT PRIMARY KEY, {MIDDLE}, {DONE}, more AS (1)"),
            format!("id TEXT PRIMARY KEY, {MIDDLE}, {DONE}, more  GENERATED"),
        ),
    ] {
        for name in ["jobs", "Jobs"] {
            let scratch = Scratch::new();
            let (conn, onlooker) = (scratch.loaded(), scratch.connect());
            conn.execute_batch(&format!("CREATE TABLE {name}({columns})")).unwrap();
            let before = look(&onlooker);
            let sentence = format!("{NEEDS} ({found})");
            assert_eq!(error_of(&conn, "SELECT fence_init()"), (1, sentence), "{name}({columns})");
            assert_eq!(look(&onlooker), before, "{name}({columns})");
        }
    }
}

#[test]
fn a_table_without_rowid_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (scratch.loaded(), scratch.connect());
    let ours = include_str!("../sql/schema.sql").replace(");", ") WITHOUT ROWID;");
    conn.execute_batch(&ours).unwrap();
    let before = look(&onlooker);
    let (code, sentence) = error_of(&conn, "SELECT fence_init()");
    assert_eq!(code, 1);
    assert!(sentence.starts_with(&format!("{NEEDS} (id TEXT PRIMARY KEY NOT NULL,")), "{sentence}");
    assert_eq!(look(&onlooker), before);
}

#[test]
fn anything_else_named_jobs_is_refused_and_left_alone() {
    for (create, sentence) in [
        ("CREATE VIEW jobs AS SELECT 1", "the database has a view named jobs, a table is needed"),
        ("CREATE VIEW JOBS AS SELECT 1", "the database has a view named jobs, a table is needed"),
        ("CREATE INDEX jobs ON t(x)", "the database has an index named jobs, a table is needed"),
    ] {
        let scratch = Scratch::new();
        let (conn, onlooker) = (scratch.loaded(), scratch.connect());
        conn.execute_batch(&format!("CREATE TABLE t(x); {create}")).unwrap();
        let before = look(&onlooker);
        let refused = (1, format!("fence_init: {sentence}"));
        assert_eq!(error_of(&conn, "SELECT fence_init()"), refused, "{create}");
        assert_eq!(look(&onlooker), before, "{create}");
    }
}

/// SQLite does not tell upper from lower case in names.
#[test]
fn a_table_with_our_columns_is_ours_in_any_case() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    let schema: String = one(&conn, "SELECT sql FROM fence_statements WHERE name = 'schema'");
    conn.execute_batch(&schema.replace("main.jobs", "JOBS")).unwrap();
    assert_eq!(init(&conn), 1);
    add_jobs(&conn);
    assert_eq!(jobs(&conn), ["'free' NULL 0.0 0 NULL 0", "'held' 'a' 9000000000.0 1 NULL 0"]);
}

#[test]
fn it_belongs_to_the_callers_transaction() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (scratch.loaded(), scratch.connect());
    let before = look(&onlooker);
    conn.execute_batch("BEGIN").unwrap();
    assert_eq!(init(&conn), 1);
    assert!(!conn.is_autocommit());
    conn.execute_batch("ROLLBACK").unwrap();
    assert_eq!(look(&onlooker), before);
    assert_eq!(init(&conn), 1);
    assert!(jobs(&onlooker).is_empty());
}

thread_local! {
    /// A connection with an open transaction.
    static FIRST: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// A busy handler: who waits lets the first one finish.
fn let_the_first_one_commit(_: i32) -> bool {
    let Some(first) = FIRST.take() else { return false };
    first.execute_batch("COMMIT").unwrap();
    true
}

#[test]
fn who_waits_while_another_one_makes_the_table_finds_it_made() {
    for (by_first, expected) in [
        ("SELECT fence_init(); SELECT fence_enqueue('first')", Ok(1)),
        ("CREATE TABLE jobs(id TEXT, x TEXT)", Err((1, format!("{NEEDS} (id TEXT, x TEXT)")))),
    ] {
        for journal in ["delete", "wal"] {
            let scratch = Scratch::new();
            let (first, second) = (scratch.loaded(), scratch.loaded());
            first.pragma_update(None, "journal_mode", journal).unwrap();
            // The second one has read a schema in which there is no table jobs.
            assert_eq!(one::<i64>(&second, "SELECT count(*) FROM sqlite_master"), 0);
            first.execute_batch(&format!("BEGIN IMMEDIATE; {by_first}")).unwrap();
            FIRST.set(Some(first));
            second.busy_handler(Some(let_the_first_one_commit)).unwrap();
            match &expected {
                Ok(answer) => {
                    assert_eq!(init(&second), *answer, "{journal}");
                    assert_eq!(jobs(&second), ["'first' NULL 0.0 0 NULL 0"], "{journal}");
                }
                Err(refused) => {
                    assert_eq!(&error_of(&second, "SELECT fence_init()"), refused, "{journal}");
                }
            }
            assert!(FIRST.take().is_none(), "nobody waited");
        }
    }
}

#[test]
fn two_shells_at_once_both_get_1() {
    let Some(program) = common::client("sqlite3") else { return };
    for _ in 0..5 {
        let scratch = Scratch::new();
        let mut shells: Vec<_> = (0..2)
            .map(|_| {
                let mut shell = Command::new(&program)
                    .arg("-batch")
                    .arg(scratch.db())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let input = shell.stdin.as_mut().unwrap();
                let load = format!(".load {}", common::extension().display());
                writeln!(input, "{load}\n.timeout 10000\nSELECT 'ready';").unwrap();
                let output = BufReader::new(shell.stdout.take().unwrap());
                (shell, output)
            })
            .collect();
        let line = |output: &mut BufReader<_>| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line
        };
        for (_, output) in &mut shells {
            assert_eq!(line(output), "ready\n");
        }
        for (shell, _) in &mut shells {
            writeln!(shell.stdin.as_mut().unwrap(), "SELECT fence_init();").unwrap();
        }
        for (shell, output) in &mut shells {
            assert_eq!(line(output), "1\n");
            drop(shell.stdin.take());
            assert!(shell.wait().unwrap().success());
        }
        assert!(jobs(&scratch.connect()).is_empty());
    }
}

#[test]
fn fence_version_is_the_crates() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    let version: String = one(&conn, "SELECT fence_version()");
    assert_eq!(version, format!("v{}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn fence_debug_names_version_commit_and_both_sqlite_versions() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    let debug: String = one(&conn, "SELECT fence_debug()");
    let lines: Vec<&str> = debug.lines().collect();
    let [version, commit, built_with, running_on] = lines[..] else { panic!("{debug}") };
    assert_eq!(version, format!("sqlite-fence v{}", env!("CARGO_PKG_VERSION")));
    let commit = commit.strip_prefix("commit ").expect(&debug);
    let hexadecimal = commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit());
    assert!(hexadecimal || commit == "unknown", "{debug}");
    let built_with = built_with.strip_prefix("built with SQLite 3.").expect(&debug);
    assert!(built_with.starts_with(|c: char| c.is_ascii_digit()), "{debug}");
    let running: String = one(&conn, "SELECT sqlite_version()");
    assert_eq!(running_on, format!("running on SQLite {running}"));
}
