//! What a file from somebody else can do by its schema: call nothing that writes, from no place
//! that can hold an expression, whether the schema is trusted or not. SECURITY.md says so.
mod common;

use common::{add_jobs, error_of, jobs, load, one, Scratch};
use rusqlite::functions::FunctionFlags;
use rusqlite::{ffi, Connection};
use std::fs;
use std::path::Path;

/// A function as SQLite lists it.
struct Function {
    name: String,
    arguments: i32,
    direct_only: bool,
    innocuous: bool,
}

impl Function {
    fn all() -> Vec<Function> {
        let conn = Connection::open_in_memory().unwrap();
        load(&conn).unwrap();
        let mut statement = conn
            .prepare(
                "SELECT name, narg, flags & ?1 <> 0, flags & ?2 <> 0 FROM pragma_function_list
                  WHERE name LIKE 'fence\\_%' ESCAPE '\\' ORDER BY name, narg",
            )
            .unwrap();
        let flags = [ffi::SQLITE_DIRECTONLY, ffi::SQLITE_INNOCUOUS];
        let rows = statement.query_map(flags, |row| {
            Ok(Function {
                name: row.get(0)?,
                arguments: row.get(1)?,
                direct_only: row.get(2)?,
                innocuous: row.get(3)?,
            })
        });
        rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    /// Those that SECURITY.md does not name as innocuous.
    fn writing() -> Vec<Function> {
        const READING: [&str; 5] =
            ["fence_state", "fence_check", "fence_assert", "fence_version", "fence_debug"];
        let (reading, writing): (Vec<_>, Vec<_>) = Function::all()
            .into_iter()
            .partition(|function| READING.contains(&function.name.as_str()));
        assert!(reading.iter().all(|function| function.innocuous && !function.direct_only));
        assert!(writing.iter().all(|function| function.direct_only && !function.innocuous));
        assert!(writing.len() >= 29, "{}", writing.len());
        writing
    }

    fn call(&self) -> String {
        let arguments = vec!["NULL"; self.arguments as usize];
        format!("{}({})", self.name, arguments.join(", "))
    }

    fn refused(&self) -> String {
        format!("unsafe use of {}()", self.name)
    }
}

/// The connection of somebody who prepares such a file: with harmless functions of our names.
fn forger(scratch: &Scratch) -> Connection {
    let conn = scratch.connect();
    for function in Function::all() {
        let flags = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS;
        let name = function.name.as_str();
        conn.create_scalar_function(name, function.arguments, flags, |_| Ok(1)).unwrap();
    }
    conn
}

fn trust(conn: &Connection, trusted: bool) {
    conn.pragma_update(None, "trusted_schema", trusted).unwrap();
}

#[test]
fn no_view_trigger_or_default_can_call_a_function_that_writes() {
    let scratch = Scratch::new();
    add_jobs(&scratch.loaded());
    let forger = forger(&scratch);
    let writing = Function::writing();
    for (i, call) in writing.iter().map(Function::call).enumerate() {
        forger
            .execute_batch(&format!(
                "CREATE VIEW v{i} AS SELECT {call} AS x;
                 CREATE TABLE d{i}(x, y DEFAULT ({call}));
                 CREATE TABLE t{i}(x);
                 CREATE TRIGGER t{i}b AFTER INSERT ON t{i} BEGIN SELECT {call}; END;
                 CREATE TABLE w{i}(x);
                 CREATE TRIGGER w{i}w BEFORE INSERT ON w{i} WHEN {call} BEGIN SELECT 1; END;"
            ))
            .unwrap();
    }
    let before = jobs(&forger);
    for trusted in [true, false] {
        let conn = scratch.loaded();
        trust(&conn, trusted);
        for (i, function) in writing.iter().enumerate() {
            for sql in [
                format!("SELECT * FROM v{i}"),
                format!("SELECT count(*) FROM jobs WHERE (SELECT x FROM v{i}) = id"),
                format!("INSERT INTO d{i}(x) VALUES (1)"),
                format!("INSERT INTO t{i} VALUES (1)"),
                format!("INSERT INTO w{i} VALUES (1)"),
            ] {
                assert_eq!(error_of(&conn, &sql), (ffi::SQLITE_ERROR, function.refused()), "{sql}");
            }
        }
        assert_eq!(jobs(&conn), before);
    }
}

/// Places that SQLite looks at when it reads the schema.
const PARSED: [(&str, &str); 5] = [
    ("t", "CREATE TABLE t(x, CHECK (CALL IS NOT 5))"),
    ("t", "CREATE TABLE t(x, y AS (CALL))"),
    ("t", "CREATE TABLE t(x, y AS (CALL) STORED)"),
    ("i", "CREATE TABLE t(x); CREATE INDEX i ON t(CALL)"),
    ("i", "CREATE TABLE t(x); CREATE INDEX i ON t(x) WHERE CALL"),
];

#[test]
fn no_check_index_or_generated_column_can_call_a_function_that_writes() {
    let conn = Connection::open_in_memory().unwrap();
    load(&conn).unwrap();
    for function in Function::writing() {
        for (_, create) in PARSED {
            let create = create.replace("CALL", &function.call());
            conn.execute_batch("BEGIN").unwrap();
            let statements = create.split("; ").collect::<Vec<_>>();
            let (last, first) = statements.split_last().unwrap();
            first.iter().for_each(|sql| conn.execute_batch(sql).unwrap());
            assert_eq!(error_of(&conn, last), (ffi::SQLITE_ERROR, function.refused()), "{create}");
            conn.execute_batch("ROLLBACK").unwrap();
        }
    }
}

#[test]
fn a_file_forged_with_such_an_expression_loads_and_cannot_be_used() {
    for (object, create) in PARSED {
        let scratch = Scratch::new();
        add_jobs(&scratch.loaded());
        forger(&scratch)
            .execute_batch(&create.replace("CALL", "fence_claim('free', 'thief', 1, 10)"))
            .unwrap();
        let before = jobs(&scratch.connect());
        for trusted in [true, false] {
            let conn = scratch.loaded();
            trust(&conn, trusted);
            let refused =
                format!("malformed database schema ({object}) - unsafe use of fence_claim()");
            for sql in ["SELECT * FROM t", "INSERT INTO t(x) VALUES (1)", "REINDEX"] {
                assert_eq!(
                    error_of(&conn, sql),
                    (ffi::SQLITE_CORRUPT, refused.clone()),
                    "{create}"
                );
            }
            // Ours say so as well, with the code.
            let ours = (ffi::SQLITE_CORRUPT, format!("fence_state: {refused}"));
            assert_eq!(error_of(&conn, "SELECT fence_state('free')"), ours, "{create}");
        }
        assert_eq!(jobs(&scratch.connect()), before, "{create}");
    }
}

#[test]
fn what_only_reads_may_stand_wherever_a_schema_can_ask_for_something_that_changes() {
    for trusted in [true, false] {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        trust(&conn, trusted);
        add_jobs(&conn);
        conn.execute_batch(
            "CREATE VIEW v AS SELECT fence_check('held', 'a', 1, 5) AS word, fence_version() AS version;
             CREATE TABLE d(x, word DEFAULT (fence_check('held', 'a', 1, 5)));
             CREATE TABLE c(x, CHECK (json_extract(fence_state(x), '$.fence') > 0));
             CREATE TRIGGER r BEFORE INSERT ON d
             BEGIN SELECT fence_assert('held', new.x, 1, 5); END;",
        )
        .unwrap();
        assert_eq!(one::<String>(&conn, "SELECT word FROM v"), "held");
        assert_eq!(one::<String>(&conn, "SELECT version FROM v"), fence::VERSION);
        conn.execute_batch("INSERT INTO d(x) VALUES ('a'); INSERT INTO c VALUES ('held')").unwrap();
        assert_eq!(one::<String>(&conn, "SELECT word FROM d"), "held");
        let check = "CHECK constraint failed: json_extract(fence_state(x), '$.fence') > 0";
        let refused = (ffi::SQLITE_CONSTRAINT_CHECK, check.into());
        assert_eq!(error_of(&conn, "INSERT INTO c VALUES ('free')"), refused);
        let sentence = "fence_assert: the lease on job 'held' is not held: not_owner";
        let (code, found) = error_of(&conn, "INSERT INTO d(x) VALUES ('b')");
        assert_eq!((code, found.as_str()), (ffi::SQLITE_CONSTRAINT, sentence));
        // Their answers change, so nothing that is stored may depend on them.
        for (create, place) in [
            ("CREATE TABLE g(x, y AS (fence_state(x)))", "generated columns"),
            ("CREATE INDEX i ON c(fence_state(x))", "index expressions"),
        ] {
            let sentence = format!("non-deterministic functions prohibited in {place}");
            assert_eq!(error_of(&conn, create), (ffi::SQLITE_ERROR, sentence));
        }
    }
}

#[test]
fn a_view_with_fence_assert_takes_the_write_lock_of_a_transaction_and_nothing_more() {
    let scratch = Scratch::new();
    let (conn, other) = (scratch.loaded(), scratch.loaded());
    add_jobs(&conn);
    conn.execute_batch("CREATE VIEW v AS SELECT fence_assert('held', 'a', 1, 5) AS held").unwrap();
    let before = jobs(&conn);
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    let alone = "fence_assert: needs a transaction, begin one with BEGIN IMMEDIATE";
    assert_eq!(error_of(&conn, "SELECT * FROM v"), (ffi::SQLITE_ERROR, alone.into()));
    assert_eq!(one::<i64>(&other, "SELECT fence_enqueue('x')"), 1);

    conn.execute_batch("BEGIN").unwrap();
    assert_eq!(one::<i64>(&conn, "SELECT held FROM v"), 1);
    let busy = (ffi::SQLITE_BUSY, "fence_enqueue: database is locked".into());
    assert_eq!(error_of(&other, "SELECT fence_enqueue('y')"), busy);
    conn.execute_batch("COMMIT; DELETE FROM jobs WHERE id = 'x'").unwrap();
    assert_eq!(jobs(&conn), before);
}

#[test]
fn loading_reads_nothing_so_that_it_succeeds_on_any_file() {
    let scratch = Scratch::new();
    fs::write(scratch.db(), "this is no database, whatever its name says. ".repeat(200)).unwrap();
    let conn = scratch.loaded();
    // SQLite reads the schema for the first statement, whatever it calls.
    for sql in ["SELECT fence_version()", "SELECT fence_init()", "SELECT 1 FROM jobs"] {
        let refused = (ffi::SQLITE_NOTADB, "file is not a database".into());
        assert_eq!(error_of(&conn, sql), refused, "{sql}");
    }
    conn.close().unwrap();
    assert_eq!(scratch.files(), ["jobs.db"]);
}

/// Every place in which SECURITY.md says that there is some.
const UNSAFE: [&str; 6] =
    ["call.rs", "claim_batch.rs", "extension.rs", "host.rs", "session.rs", "statements.rs"];

#[test]
fn unsafe_code_is_where_the_page_says_and_each_block_says_why_it_is_sound() {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { &mut folders } else { &mut files }.push(path);
        }
    }
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let code = |line: &&str| !line.starts_with("//") && line.contains("unsafe ");
        for (i, line) in lines.iter().enumerate().filter(|(_, line)| code(line)) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // A function that is unsafe to call tells its callers; its body has blocks of its own.
            let word = if line.contains("unsafe fn") || line.contains("unsafe extern") {
                continue;
            } else {
                "SAFETY:"
            };
            let near = &lines[i.saturating_sub(5)..=i];
            assert!(near.iter().any(|line| line.contains(word)), "{name}:{}", i + 1);
            found.push(name);
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, UNSAFE);
}
