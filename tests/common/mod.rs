//! What the tests share: the built extension, the clients of this machine, a database to use up.
#![allow(dead_code)] // every test binary uses its own part

pub mod docs;
pub mod tier;

use rusqlite::{ffi, Connection};
use std::ffi::{c_char, CStr, CString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The loadable extension, built once by the command that the README names, into a target
/// directory of its own.
pub fn extension() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = root.join("target/extension");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--no-default-features"])
            .args(["--features", "loadable", "--target-dir"])
            .arg(&target)
            .current_dir(root)
            .output()
            .expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        target.join("release/libfence.so")
    })
}

/// Loads the extension as a C program would: by its path alone, so that SQLite finds the entry
/// point by itself.
pub fn load(conn: &Connection) -> Result<(), String> {
    load_file(conn, extension())
}

pub fn load_file(conn: &Connection, file: &Path) -> Result<(), String> {
    let file = CString::new(file.to_str().unwrap()).unwrap();
    let mut message: *mut c_char = std::ptr::null_mut();
    // SAFETY: the connection is open; SQLite allocates the message and we free it.
    unsafe {
        let db = conn.handle();
        ffi::sqlite3_db_config(
            db,
            ffi::SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION,
            1,
            std::ptr::null_mut::<i32>(),
        );
        let rc = ffi::sqlite3_load_extension(db, file.as_ptr(), std::ptr::null(), &mut message);
        if rc == ffi::SQLITE_OK {
            return Ok(());
        }
        let text = if message.is_null() {
            format!("code {rc}")
        } else {
            CStr::from_ptr(message).to_string_lossy().into_owned()
        };
        ffi::sqlite3_free(message.cast());
        Err(text)
    }
}

/// A directory with a database in it that nobody has created yet.
pub struct Scratch {
    pub dir: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Scratch { dir: tempfile::tempdir().unwrap() }
    }

    pub fn db(&self) -> PathBuf {
        self.dir.path().join("jobs.db")
    }

    /// A plain connection, without the extension.
    pub fn connect(&self) -> Connection {
        let conn = Connection::open(self.db()).unwrap();
        conn.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        conn
    }

    /// A connection with the loaded extension.
    pub fn loaded(&self) -> Connection {
        let conn = self.connect();
        load(&conn).unwrap();
        conn
    }

    /// The names of the files beside the database that start like it.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("jobs.db"))
            .collect();
        names.sort();
        names
    }
}

/// A program that a test drives. Where it is missing the test says so and passes on a person's
/// machine, but fails in CI.
pub fn client(program: &str) -> Option<PathBuf> {
    let path = if program.contains('/') {
        Some(PathBuf::from(program)).filter(|path| path.exists())
    } else {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|dir| dir.join(program))
            .find(|path| path.exists())
    };
    if path.is_none() {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "{program} is missing and CI must not skip what needs it");
        eprintln!("NOT TESTED: {program} is missing on this machine");
    }
    path
}

/// Debian's Python: builds by pyenv and for macOS lack enable_load_extension.
pub fn python() -> Option<PathBuf> {
    client("/usr/bin/python3")
}

/// Runs SQL in the sqlite3 shell on `db`, with the extension loaded. In list mode: one line a
/// row, columns separated by '|', NULL as the word NULL.
pub fn shell(db: &Path, sql: &str) -> Option<Output> {
    let program = client("sqlite3")?;
    let script = format!(".load {}\n.nullvalue NULL\n{sql}\n", extension().display());
    Some(pipe(Command::new(program).arg("-batch").arg(db), &script))
}

/// Runs a command with `input` as its standard input.
pub fn pipe(command: &mut Command, input: &str) -> Output {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One value of a query.
pub fn one<T: rusqlite::types::FromSql>(conn: &Connection, sql: &str) -> T {
    conn.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// What a call answers.
pub fn integer(conn: &Connection, call: &str) -> Option<i64> {
    one(conn, &format!("SELECT {call}"))
}

/// The column of a query.
pub fn all(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// Statements that must succeed.
pub fn batch(conn: &Connection, sql: &str) {
    conn.execute_batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// Makes all that the functions make, where they are there, and leaves it empty.
pub const EVERYTHING: &str =
    "SELECT fence_init(); SELECT fence_init_queue(); SELECT fence_purge(0, 1);
     SELECT fence_pass('made', 1); DELETE FROM fence_gate;";

/// The whole schema of a file, for [`all`].
pub const SCHEMA: &str =
    "SELECT name || ' ' || coalesce(sql, '') FROM main.sqlite_master ORDER BY 1";

/// The text of `sql/<name>.sql`.
pub fn file(name: &str) -> String {
    let path = format!("{}/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// The extended code and the sentence of a statement that must fail.
pub fn error_of(conn: &Connection, sql: &str) -> (i32, String) {
    let outcome = conn.prepare(sql).and_then(|mut statement| {
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    });
    match outcome {
        Err(rusqlite::Error::SqliteFailure(e, message)) => {
            (e.extended_code, message.unwrap_or_default())
        }
        Err(rusqlite::Error::SqlInputError { error, msg, .. }) => (error.extended_code, msg),
        Err(other) => panic!("{sql}: {other}"),
        Ok(()) => panic!("{sql}: no error"),
    }
}

/// Everything in the job table, to show that nothing changed.
pub fn jobs(conn: &Connection) -> Vec<String> {
    let mut statement = conn
        .prepare(
            "SELECT quote(id), quote(owner), quote(until), quote(fence), quote(result), quote(done)
               FROM main.jobs ORDER BY rowid",
        )
        .unwrap();
    let rows = statement
        .query_map([], |row| {
            (0..6).map(|i| row.get::<_, String>(i)).collect::<rusqlite::Result<Vec<_>>>()
        })
        .unwrap();
    rows.map(|row| row.unwrap().join(" ")).collect()
}

/// One call of each function that writes, with and without `now`. On the jobs of `add_jobs` each
/// changes something and answers 1.
pub const WRITES: [&str; 8] = [
    "fence_enqueue('new')",
    "fence_claim('free', 'b', 1, 10)",
    "fence_claim('free', 'b', 10)",
    "fence_renew('held', 'a', 1, 1, 10)",
    "fence_renew('held', 'a', 1, 10)",
    "fence_complete('held', 'a', 1, 1, 'r')",
    "fence_complete('held', 'a', 1, 'r')",
    "fence_release('held', 'a', 1)",
];

/// The other functions that write, on the jobs of `add_jobs` and a table `t` with a column `id`.
pub const ALSO_WRITES: [&str; 11] = [
    "fence_enqueue_batch('[\"new\"]')",
    "fence_claim_batch('b', 1, 10, 1)",
    "fence_renew_batch('a', 1, 10, '[[\"held\", 1]]')",
    "fence_complete_batch('a', 1, '[[\"held\", 1, \"r\"]]')",
    "fence_fail('held', 'a', 1, 1, 'e')",
    "fence_requeue('held')",
    "fence_purge(1e10, 1)",
    "fence_restore(5)",
    "fence_guard('t', 'id')",
    "fence_unguard('t')",
    "fence_pass('r', 1)",
];

/// The job `free`, and the job `held` by `a` until long after today.
pub fn add_jobs(conn: &Connection) {
    conn.execute_batch(
        "SELECT fence_init();
         SELECT fence_init_queue();
         SELECT fence_enqueue('free');
         SELECT fence_enqueue('held');
         SELECT fence_claim('held', 'a', 0, 9e9);",
    )
    .unwrap();
}

/// The name of the function that a piece of SQL calls.
pub fn function_of(call: &str) -> &str {
    call.split('(').next().unwrap()
}
