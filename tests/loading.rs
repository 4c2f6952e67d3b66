//! Loading and closing: the library brings the functions and nothing else, may be loaded often
//! and by many at once, and leaves neither an open statement nor a file behind.
mod common;

use common::{add_jobs, error_of, jobs, one, Scratch, ALSO_WRITES, WRITES};
use rusqlite::{ffi, Connection};
use std::ffi::CString;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

/// Runs a program of the binary utilities over the extension.
fn inspect(program: &str, arguments: &[&str]) -> Option<String> {
    let program = common::client(program)?;
    let output = Command::new(program).args(arguments).arg(common::extension()).output().unwrap();
    assert!(output.status.success(), "{}", common::stderr(&output));
    Some(common::stdout(&output))
}

#[test]
fn the_library_exports_its_entry_point_and_nothing_else() {
    let Some(symbols) = inspect("nm", &["-D", "--defined-only"]) else { return };
    let exported: Vec<&str> =
        symbols.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
    assert_eq!(exported, ["sqlite3_fence_init"]);
}

#[test]
fn the_library_takes_every_sqlite_function_from_its_host() {
    let Some(symbols) = inspect("nm", &["-D", "--undefined-only"]) else { return };
    assert!(symbols.contains(" malloc"), "not the list that was expected: {symbols}");
    assert!(!symbols.contains("sqlite3"), "{symbols}");
    let Some(dynamic) = inspect("readelf", &["--dynamic", "--wide"]) else { return };
    assert!(dynamic.contains("(NEEDED)"), "not the list that was expected: {dynamic}");
    assert!(!dynamic.contains("sqlite"), "{dynamic}");
}

#[test]
fn the_library_stays_in_memory_once_it_was_loaded() {
    let Some(dynamic) = inspect("readelf", &["--dynamic", "--wide"]) else { return };
    let flags = dynamic.lines().find(|line| line.contains("(FLAGS_1)")).unwrap_or(&dynamic);
    assert!(flags.contains("NODELETE"), "{flags}");
}

/// The functions that loading added, with their numbers of arguments.
fn functions(conn: &Connection) -> Vec<String> {
    let sql = "SELECT name || '/' || narg FROM pragma_function_list WHERE name LIKE 'fence%'
                ORDER BY 1";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// Lets SQL call load_extension(), too.
fn allow_loading(conn: &Connection) {
    // SAFETY: the connection is open.
    unsafe { ffi::sqlite3_enable_load_extension(conn.handle(), 1) };
}

#[test]
fn loading_again_is_harmless() {
    let scratch = Scratch::new();
    let conn = scratch.connect();
    let load_by_sql = format!("SELECT load_extension('{}')", common::extension().display());
    allow_loading(&conn);
    assert!(functions(&conn).is_empty());
    // The first time inside a statement that runs, as everybody does who has only SQL.
    conn.query_row(&load_by_sql, [], |_| Ok(())).unwrap();
    let loaded = functions(&conn);
    assert!(loaded.contains(&"fence_claim/4".to_string()), "{loaded:?}");
    add_jobs(&conn);

    let mut open = conn.prepare("SELECT fence_state(id) FROM jobs").unwrap();
    let mut rows = open.query([]).unwrap();
    rows.next().unwrap().expect("a first row");
    for _ in 0..2 {
        common::load(&conn).unwrap();
        conn.query_row(&load_by_sql, [], |_| Ok(())).unwrap();
        assert_eq!(functions(&conn), loaded);
    }
    rows.next().unwrap().expect("a second row");
    drop(rows);
    drop(open);
    for call in [WRITES[0], WRITES[1], WRITES[3], WRITES[5]] {
        assert_eq!(one::<i64>(&conn, &format!("SELECT {call}")), 1, "{call}");
    }
    conn.close().unwrap();
}

#[test]
fn the_shell_may_load_it_again() {
    let scratch = Scratch::new();
    let again = format!(".load {}", common::extension().display());
    let sql = format!(
        "SELECT fence_init(), fence_enqueue('j');\n{again}\nSELECT fence_claim('j', 'a', 0, 10);
         SELECT load_extension('{}') IS NULL;\nSELECT fence_release('j', 'a', 1);",
        common::extension().display()
    );
    let Some(output) = common::shell(&scratch.db(), &sql) else { return };
    assert_eq!(
        (common::stdout(&output), common::stderr(&output)),
        ("1|1\n1\n1\n1\n".into(), "".into())
    );
}

#[test]
fn loading_waits_for_no_lock() {
    for hold in ["BEGIN EXCLUSIVE", "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT"] {
        for journal in ["delete", "wal"] {
            let scratch = Scratch::new();
            let holder = scratch.loaded();
            holder.pragma_update(None, "journal_mode", journal).unwrap();
            add_jobs(&holder);
            holder.execute_batch(hold).unwrap();

            let conn = scratch.connect();
            conn.busy_timeout(Duration::ZERO).unwrap();
            common::load(&conn).unwrap_or_else(|e| panic!("{hold} in {journal}: {e}"));
            let claim = "SELECT fence_claim('free', 'b', 1, 10)";
            // The bundled SQLite cannot prepare so much as SELECT 1 here: the sentence may be its own.
            assert_eq!(error_of(&conn, claim).0, ffi::SQLITE_BUSY, "{hold} in {journal}");
            drop(holder);
            assert_eq!(one::<i64>(&conn, claim), 1, "{hold} in {journal}");
        }
    }
}

#[test]
fn many_connections_of_many_threads_claim_their_own_jobs() {
    const THREADS: usize = 10;
    const CONNECTIONS: usize = 5;
    const JOBS: usize = 4;
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    conn.execute_batch("PRAGMA journal_mode = wal; SELECT fence_init()").unwrap();
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (scratch, start) = (&scratch, &start);
            scope.spawn(move || {
                start.wait();
                let connections: Vec<Connection> =
                    (0..CONNECTIONS).map(|_| scratch.loaded()).collect();
                for job in 0..JOBS {
                    for (i, conn) in connections.iter().enumerate() {
                        conn.busy_timeout(Duration::from_secs(60)).unwrap();
                        let (id, owner) = (format!("{thread}.{i}.{job}"), format!("{thread}.{i}"));
                        let claim = format!("SELECT fence_claim('{id}', '{owner}', 0, 10)");
                        let enqueue = format!("SELECT fence_enqueue('{id}')");
                        assert_eq!(one::<i64>(conn, &enqueue), 1, "{id}");
                        assert_eq!(one::<Option<i64>>(conn, &claim), Some(1), "{id}");
                    }
                }
                for conn in connections {
                    conn.close().unwrap();
                }
            });
        }
    });
    let sql = "SELECT count(*) FROM jobs WHERE id LIKE owner || '._' AND fence = 1 AND until = 10";
    assert_eq!(one::<i64>(&conn, sql), (THREADS * CONNECTIONS * JOBS) as i64);
}

extern "C" {
    // rusqlite's bindings leave it out.
    fn sqlite3_close_v2(db: *mut ffi::sqlite3) -> std::ffi::c_int;
}

/// A connection as a C program has it, and a borrowed view of it to call SQL through.
fn open(scratch: &Scratch) -> (*mut ffi::sqlite3, Connection) {
    let path = CString::new(scratch.db().to_str().unwrap()).unwrap();
    let mut db = std::ptr::null_mut();
    // SAFETY: the path is a C string; the view is used only while the connection is open.
    let conn = unsafe {
        assert_eq!(ffi::sqlite3_open(path.as_ptr(), &mut db), ffi::SQLITE_OK);
        Connection::from_handle(db).unwrap()
    };
    common::load(&conn).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    (db, conn)
}

fn call_everything(conn: &Connection) {
    add_jobs(conn);
    conn.execute_batch("CREATE TABLE t(id)").unwrap();
    let reads = [
        "fence_state('held')",
        "fence_check('held', 'a', 1, 1)",
        "fence_check('held', 'a', 1)",
        "fence_version()",
        "fence_debug()",
        "(SELECT count(*) FROM fence_statements)",
    ];
    for call in WRITES.into_iter().chain(reads).chain(ALSO_WRITES) {
        conn.query_row(&format!("SELECT {call}"), [], |_| Ok(())).unwrap();
    }
}

fn prepare(db: *mut ffi::sqlite3, sql: &str) -> *mut ffi::sqlite3_stmt {
    let sql = CString::new(sql).unwrap();
    let mut statement = std::ptr::null_mut();
    // SAFETY: the connection is open and the text a C string.
    let rc = unsafe {
        ffi::sqlite3_prepare_v2(db, sql.as_ptr(), -1, &mut statement, std::ptr::null_mut())
    };
    assert_eq!(rc, ffi::SQLITE_OK);
    statement
}

const WHILE_OPEN: [&str; 3] = ["jobs.db", "jobs.db-shm", "jobs.db-wal"];
const AFTER_CLOSE: [&str; 1] = ["jobs.db"];

#[test]
fn sqlite3_close_answers_0_and_leaves_one_file() {
    let scratch = Scratch::new();
    let (db, conn) = open(&scratch);
    call_everything(&conn);
    assert_eq!(scratch.files(), WHILE_OPEN);
    drop(conn);
    // SAFETY: the view is gone; nothing uses the connection after this.
    assert_eq!(unsafe { ffi::sqlite3_close(db) }, ffi::SQLITE_OK);
    assert_eq!(scratch.files(), AFTER_CLOSE);
}

#[test]
fn after_a_close_that_failed_for_the_callers_own_statement_everything_goes_on() {
    for own in ["SELECT id FROM jobs", "SELECT fence_state(id) FROM jobs"] {
        let scratch = Scratch::new();
        let (db, conn) = open(&scratch);
        add_jobs(&conn);
        let statement = prepare(db, own);
        // SAFETY: statement and connection are open until they are finalized and closed below.
        unsafe {
            assert_eq!(ffi::sqlite3_step(statement), ffi::SQLITE_ROW);
            for round in 1..=2 {
                assert_eq!(ffi::sqlite3_close(db), ffi::SQLITE_BUSY, "{own}");
                let claim = format!("SELECT fence_claim('free', 'b', {round}0, 10)");
                // The open read pins a snapshot, so the call must come from outside it.
                assert_eq!(ffi::sqlite3_reset(statement), ffi::SQLITE_OK);
                assert_eq!(one::<Option<i64>>(&conn, &claim), Some(round), "{own}");
                assert_eq!(ffi::sqlite3_step(statement), ffi::SQLITE_ROW, "{own}");
            }
            assert_eq!(ffi::sqlite3_close(db), ffi::SQLITE_BUSY, "{own}");
            assert_eq!(ffi::sqlite3_step(statement), ffi::SQLITE_ROW, "{own}");
            assert_eq!(ffi::sqlite3_step(statement), ffi::SQLITE_DONE, "{own}");
            assert_eq!(ffi::sqlite3_finalize(statement), ffi::SQLITE_OK);
            assert_eq!(jobs(&conn)[0], "'free' 'b' 30.0 2 NULL 0");
            drop(conn);
            assert_eq!(ffi::sqlite3_close(db), ffi::SQLITE_OK, "{own}");
        }
        assert_eq!(scratch.files(), AFTER_CLOSE, "{own}");
    }
}

#[test]
fn sqlite3_close_v2_leaves_one_file_once_the_callers_last_statement_is_finalised() {
    for own in ["SELECT id FROM jobs", "SELECT fence_state(id) FROM jobs"] {
        let scratch = Scratch::new();
        let (db, conn) = open(&scratch);
        call_everything(&conn);
        let statement = prepare(db, own);
        drop(conn);
        // SAFETY: SQLite keeps the connection for the statement, which is finalized once.
        unsafe {
            assert_eq!(ffi::sqlite3_step(statement), ffi::SQLITE_ROW);
            assert_eq!(sqlite3_close_v2(db), ffi::SQLITE_OK, "{own}");
            assert_eq!(scratch.files(), WHILE_OPEN, "{own}");
            let next = ffi::sqlite3_step(statement);
            // A connection that was closed prepares nothing, for us as for anybody.
            let calls = own.contains("fence_state");
            assert_eq!(next, if calls { ffi::SQLITE_MISUSE } else { ffi::SQLITE_ROW }, "{own}");
            ffi::sqlite3_finalize(statement);
        }
        assert_eq!(scratch.files(), AFTER_CLOSE, "{own}");
    }
}

#[test]
fn the_shell_leaves_one_file() {
    let scratch = Scratch::new();
    let calls: String = WRITES.iter().map(|call| format!("SELECT {call};\n")).collect();
    let sql = format!(
        "PRAGMA journal_mode = wal;\nSELECT fence_init();\nSELECT fence_enqueue('free');\n\
         SELECT fence_enqueue('held');\nSELECT fence_claim('held', 'a', 0, 9e9);\n{calls}.quit"
    );
    let Some(output) = common::shell(&scratch.db(), &sql) else { return };
    assert!(output.status.success(), "{}", common::stderr(&output));
    assert_eq!(common::stderr(&output), "");
    assert!(common::stdout(&output).starts_with("wal\n1\n"), "{}", common::stdout(&output));
    assert_eq!(scratch.files(), AFTER_CLOSE);
}

#[test]
fn python_leaves_one_file_as_soon_as_it_closes() {
    let Some(python) = common::python() else { return };
    let scratch = Scratch::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/close.py");
    let output = Command::new(python)
        .arg(script)
        .args([common::extension(), &scratch.db()])
        .args(WRITES)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", common::stderr(&output));
    let expected = format!("{}\n{}\n", WHILE_OPEN.join(" "), AFTER_CLOSE.join(" "));
    assert_eq!(common::stdout(&output), expected);
}

/// `clock.sql` is a part that the others are filled with.
#[test]
fn fence_statements_is_the_folder_of_statements() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    let mut files: Vec<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/sql"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file != "clock.sql")
        .collect();
    files.sort();
    let mut statement =
        conn.prepare("SELECT name, sql FROM fence_statements ORDER BY name").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let rows: Vec<(String, String)> = rows.map(Result::unwrap).collect();
    let names: Vec<String> = rows.iter().map(|(name, _)| format!("{name}.sql")).collect();
    assert_eq!(names, files);
    for (name, sql) in rows {
        let file = format!("{}/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(sql, std::fs::read_to_string(file).unwrap(), "{name}");
    }
    // Read again for each row of another table, and each row has its number.
    let n = files.len() as i64;
    let twice = "SELECT count(*) FROM fence_statements CROSS JOIN fence_statements";
    assert_eq!(one::<i64>(&conn, twice), n * n);
    let numbers = "SELECT count(*) FROM fence_statements AS a JOIN fence_statements AS b
                    ON a.rowid + 1 = b.rowid";
    assert_eq!(one::<i64>(&conn, numbers), n - 1);
}
