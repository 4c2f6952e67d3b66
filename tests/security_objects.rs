//! Other objects under our names, in the file, in temp and in an attached file; and broken pages. At
//! worst a call fails with a sentence and the code, and nothing is changed.
mod common;

use common::{add_jobs, all, batch, error_of, integer, jobs, one, Scratch, SCHEMA, WRITES};
use rusqlite::ffi;
use std::fs;

#[test]
fn what_the_file_has_under_other_names_of_ours_is_an_error_or_does_no_harm() {
    let index = "there is already a table named";
    for (made, call, sentence) in [
        ("TABLE fence_queue(x)", "fence_init_queue()", format!("{index} fence_queue")),
        ("TABLE fence_done(x)", "fence_purge(9e9, 1)", format!("{index} fence_done")),
        (
            "VIEW fence_gate AS SELECT 1 AS resource, 1 AS fence",
            "fence_pass('r', 1)",
            "cannot modify fence_gate because it is a view".into(),
        ),
        (
            "TABLE fence_gate(x)",
            "fence_pass('r', 1)",
            "table main.fence_gate has no column named resource".into(),
        ),
        (
            "TABLE fence_gate(resource, fence)",
            "fence_pass('r', 1)",
            "ON CONFLICT clause does not match any PRIMARY KEY or UNIQUE constraint".into(),
        ),
        (
            "INDEX fence_queue ON other(x)",
            "fence_claim_batch('b', 1, 10, 1)",
            "no such index: fence_queue (fence_init_queue() makes it)".into(),
        ),
        ("INDEX fence_done ON other(x)", "fence_purge(9e9, 1)", "no such index: fence_done".into()),
    ] {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        batch(&conn, &format!("CREATE TABLE other(x); CREATE {made}"));
        batch(&conn, "SELECT fence_init(); SELECT fence_enqueue('j')");
        let before = (jobs(&conn), all(&conn, SCHEMA));
        let refused = (ffi::SQLITE_ERROR, format!("{}: {sentence}", common::function_of(call)));
        assert_eq!(error_of(&conn, &format!("SELECT {call}")), refused, "{made}");
        assert!(conn.is_autocommit());
        assert_eq!((jobs(&conn), all(&conn, SCHEMA)), before, "{made}");
        assert_eq!(integer(&conn, "fence_claim('j', 'a', 1, 10)"), Some(1), "{made}");
    }
}

/// A table-valued function of SQLite's gives way to a table of its name, and where that is a
/// virtual one, its rows come in the place of ours without an error.
#[test]
fn the_table_valued_functions_that_we_use_are_sqlites_whatever_the_file_has_under_their_names() {
    for made in [
        "TABLE NAME(x)",
        "VIEW NAME AS SELECT 'forged' AS name, 'forged' AS value, 'text' AS type, 1 AS key",
        "VIRTUAL TABLE NAME USING fts5(name, key, type, value)",
    ] {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        for name in [
            "json_each",
            "pragma_table_xinfo",
            "pragma_index_list",
            "pragma_index_xinfo",
            "pragma_data_version",
        ] {
            batch(&conn, &format!("CREATE {}", made.replace("NAME", name)));
        }
        add_jobs(&conn);
        batch(&conn, "CREATE TABLE orders(job TEXT UNIQUE)");
        assert_eq!(integer(&conn, "fence_enqueue_batch('[\"x\"]')"), Some(1), "{made}");
        assert_eq!(all(&conn, "SELECT id FROM jobs"), ["free", "held", "x"], "{made}");
        let answer = "SELECT fence_complete_batch('a', 1, '[[\"held\", 1], [\"x\", 1]]')";
        assert_eq!(one::<String>(&conn, answer), "[1,0]", "{made}");
        assert_eq!(integer(&conn, "fence_guard('orders', 'job')"), Some(1), "{made}");
        let store = fence::Store::open(scratch.db()).unwrap();
        assert!(store.wait("", std::time::Duration::ZERO).unwrap(), "{made}");
    }
}

#[test]
fn a_table_or_view_named_like_our_virtual_tables_does_not_keep_the_connection_open() {
    for made in [
        "TABLE fence_statements(x)",
        "VIEW fence_statements AS SELECT fence_state('held') AS x",
        "TABLE fence_claim_batch(x)",
    ] {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        let mode: String = one(&conn, "PRAGMA journal_mode = wal");
        assert_eq!(mode, "wal");
        batch(&conn, &format!("CREATE {made}"));
        add_jobs(&conn);
        assert_eq!(integer(&conn, "fence_claim('free', 'b', 1, 10)"), Some(1), "{made}");
        // With a statement left open, the close would fail and leave the log behind.
        conn.close().unwrap_or_else(|(_, e)| panic!("{made}: {e}"));
        assert_eq!(scratch.files(), ["jobs.db"], "{made}");
    }
}

#[test]
fn a_broken_file_is_told_as_such_with_the_code() {
    for extended in [false, true] {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        add_jobs(&conn);
        let pages = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'jobs' AND rootpage > 0";
        let pages = all(&conn, &format!("SELECT CAST(rootpage AS TEXT) FROM ({pages})"));
        let size = one::<i64>(&conn, "PRAGMA page_size") as usize;
        conn.close().unwrap();
        let mut bytes = fs::read(scratch.db()).unwrap();
        for page in pages.iter().map(|page| page.parse::<usize>().unwrap()) {
            bytes[(page - 1) * size..page * size].fill(0xff);
        }
        fs::write(scratch.db(), &bytes).unwrap();
        let conn = scratch.loaded();
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_extended_result_codes(conn.handle(), extended.into()) };
        for call in
            WRITES.into_iter().chain(["fence_state('free')", "fence_check('held', 'a', 1, 1)"])
        {
            let sentence =
                format!("{}: database disk image is malformed", common::function_of(call));
            let found = error_of(&conn, &format!("SELECT {call}"));
            assert_eq!(found, (ffi::SQLITE_CORRUPT, sentence), "{call}");
            assert!(conn.is_autocommit());
        }
        conn.close().unwrap();
        assert_eq!(fs::read(scratch.db()).unwrap(), bytes);
    }
}

#[test]
fn temp_objects_shadow_nothing_of_the_file() {
    let scratch = Scratch::new();
    let (conn, other) = (scratch.loaded(), scratch.connect());
    batch(
        &conn,
        "CREATE TEMP TABLE jobs(id, owner, until, fence, result, done);
         INSERT INTO temp.jobs VALUES ('free', 'thief', 0, 99, 'stolen', 0);
         CREATE TEMP TABLE fence_floor(only, fence); INSERT INTO temp.fence_floor VALUES (1, 99);
         CREATE TEMP TABLE fence_replaced(id, fence);
         CREATE TEMP TABLE fence_gate(resource UNIQUE, fence);
         INSERT INTO temp.fence_gate VALUES ('r', 99);
         CREATE TEMP TABLE orders(job);
         CREATE TEMP VIEW fence_status AS SELECT 1;",
    );
    add_jobs(&conn);
    batch(&conn, "CREATE TABLE main.orders(job)");
    assert_eq!(integer(&conn, "fence_claim('free', 'b', 1, 10)"), Some(1));
    assert_eq!(integer(&conn, "fence_complete('free', 'b', 1, 2, 'r')"), Some(1));
    assert_eq!(integer(&conn, "fence_pass('r', 1)"), Some(1));
    assert_eq!(integer(&conn, "fence_guard('orders', 'job')"), Some(1));
    assert_eq!(integer(&conn, "fence_purge(1e9, 10)"), Some(1));
    assert_eq!(integer(&conn, "fence_restore(5)"), Some(1));
    assert_eq!(one::<i64>(&other, "SELECT fence FROM fence_floor"), 6);
    assert_eq!(jobs(&other), ["'held' NULL 0.0 6 NULL 0"]);
    assert_eq!(
        all(
            &conn,
            "SELECT id || owner || fence || result FROM temp.jobs
                    UNION ALL SELECT only || ' ' || fence FROM temp.fence_floor
                    UNION ALL SELECT resource || ' ' || fence FROM temp.fence_gate"
        ),
        ["freethief99stolen", "1 99", "r 99"]
    );
}

#[test]
fn an_attached_file_is_neither_read_nor_written() {
    let (main, beside) = (Scratch::new(), Scratch::new());
    let other = beside.loaded();
    add_jobs(&other);
    batch(&other, "SELECT fence_claim('free', 'x', 0, 10); CREATE TABLE orders(job)");
    batch(&other, "CREATE TABLE fence_statements(x); CREATE TABLE fence_gate(resource, fence)");
    let bytes = fs::read(beside.db()).unwrap();
    let conn = main.loaded();
    conn.execute("ATTACH ?1 AS beside", [beside.db().to_str().unwrap()]).unwrap();
    let missing = "fence_claim: no such table: main.jobs (fence_init() makes it)";
    let refused = (ffi::SQLITE_ERROR, missing.to_string());
    assert_eq!(error_of(&conn, "SELECT fence_claim('free', 'b', 100, 10)"), refused);
    add_jobs(&conn);
    let missing = "fence_guard: there is no table 'orders' in main";
    let refused = (ffi::SQLITE_ERROR, missing.to_string());
    assert_eq!(error_of(&conn, "SELECT fence_guard('orders', 'job')"), refused);
    assert_eq!(integer(&conn, "fence_claim('free', 'b', 100, 10)"), Some(1));
    assert_eq!(integer(&conn, "fence_pass('r', 1)"), Some(1));
    assert_eq!(integer(&conn, "fence_restore(5)"), Some(1));
    batch(&conn, "DETACH beside");
    assert_eq!(fs::read(beside.db()).unwrap(), bytes);
    conn.close().unwrap();
}
