//! Many jobs in one call: `fence_enqueue_batch`, `fence_complete_batch` and `fence_renew_batch`.
//! All of it in one transaction, with an answer for each item.
mod common;

use common::{error_of, jobs, one, Scratch};
use fence::Store;
use rusqlite::{ffi, Connection};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// The jobs `a` to `d`, held by `w` from 0 until 10 with fence 1, and a free one, `e`.
fn prepared(scratch: &Scratch) -> Connection {
    let conn = scratch.loaded();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL;
         SELECT fence_init();
         SELECT fence_enqueue_batch('[\"a\", \"b\", \"c\", \"d\", \"e\"]');
         SELECT fence_claim('a', 'w', 0, 10), fence_claim('b', 'w', 0, 10),
                fence_claim('c', 'w', 0, 10), fence_claim('d', 'w', 0, 10);",
    )
    .unwrap();
    conn
}

fn answers(conn: &Connection, sql: &str, json: &str) -> String {
    conn.query_row(sql, [json], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql} {json}: {e}"))
}

/// How many commits `body` makes.
fn commits(conn: &Connection, body: impl FnOnce()) -> u32 {
    unsafe extern "C" fn count(commits: *mut c_void) -> c_int {
        // SAFETY: the counter that was given below, which outlives the hook.
        unsafe { *commits.cast::<u32>() += 1 };
        0
    }
    let mut commits = 0_u32;
    // SAFETY: the connection is open, and the hook is taken away before the counter goes.
    unsafe {
        ffi::sqlite3_commit_hook(conn.handle(), Some(count), (&raw mut commits).cast());
        body();
        ffi::sqlite3_commit_hook(conn.handle(), None, std::ptr::null_mut());
    }
    commits
}

#[test]
fn a_batch_of_ids_adds_the_new_ones_in_order_and_tells_how_many() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let before = jobs(&conn);
    let sql = "SELECT fence_enqueue_batch(?)";
    let enqueue = |json: &str| conn.query_row(sql, [json], |row| row.get::<_, i64>(0)).unwrap();
    let count = commits(&conn, || {
        assert_eq!(enqueue(r#"["z", "a", "y:10", "z", "y:9", "e"]"#), 3);
    });
    assert_eq!(count, 1);
    let after = jobs(&conn);
    assert_eq!(after[..5], before, "those that were there are as they were");
    assert_eq!(after[5..], ["z", "y:10", "y:9"].map(|id| format!("'{id}' NULL 0.0 0 NULL 0")));
    assert_eq!(enqueue(r#"["z", "a"]"#), 0);
    assert_eq!(enqueue("[]"), 0);
    // What JSON escapes comes out right; a backslash before u0000 is no NUL.
    assert_eq!(enqueue(r#"["caf\u00e9 \ud834\udd1e \"q\"", "\\u0000"]"#), 2);
    let names =
        "SELECT group_concat(id, ',') FROM (SELECT id FROM jobs ORDER BY rowid DESC LIMIT 2)";
    assert_eq!(one::<String>(&conn, names), "\\u0000,café 𝄞 \"q\"");
}

#[test]
fn a_batch_of_completions_answers_each_item_and_commits_once() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    conn.execute_batch("SELECT fence_release('c', 'w', 1), fence_claim('c', 'x', 0, 10)").unwrap();
    let items = r#"[["a", 1, "r"], ["b", 2], ["c", 1, "stale"], ["missing", 1], ["d", 1],
                    ["a", 1, "again"], ["e", 0]]"#;
    let count = commits(&conn, || {
        let found = answers(&conn, "SELECT fence_complete_batch('w', 9, ?)", items);
        assert_eq!(found, "[1,0,0,0,1,0,0]");
    });
    assert_eq!(count, 1);
    let expected = [
        "'a' 'w' 10.0 1 'r' 1",
        "'b' 'w' 10.0 1 NULL 0",
        "'c' 'x' 10.0 2 NULL 0",
        "'d' 'w' 10.0 1 NULL 1",
        "'e' NULL 0.0 0 NULL 0",
    ];
    assert_eq!(jobs(&conn), expected);
    assert_eq!(answers(&conn, "SELECT fence_complete_batch('w', 10, ?)", r#"[["b",1]]"#), "[0]");
    assert_eq!(answers(&conn, "SELECT fence_complete_batch('w', 9, ?)", "[]"), "[]");
    assert_eq!(answers(&conn, "SELECT fence_complete_batch('w', ?)", r#"[["b",1]]"#), "[0]");
    assert_eq!(jobs(&conn), expected);
    // By the clock, of a lease that has not ended.
    assert_eq!(one::<i64>(&conn, "SELECT fence_claim('e', 'w', 1e6)"), 1);
    let sql = "SELECT fence_complete_batch('w', ?)";
    assert_eq!(answers(&conn, sql, r#"[["e", 1, null]]"#), "[1]");
}

#[test]
fn a_batch_of_renewals_answers_each_item_and_commits_once() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    conn.execute_batch("SELECT fence_complete('c', 'w', 1, 5, 'r')").unwrap();
    let count = commits(&conn, || {
        let items = r#"[["a", 1], ["b", 2], ["c", 1], ["missing", 1], ["d", 1], ["a", 1]]"#;
        let found = answers(&conn, "SELECT fence_renew_batch('w', 9, 20, ?)", items);
        assert_eq!(found, "[1,0,0,0,1,1]");
    });
    assert_eq!(count, 1);
    let expected = [
        "'a' 'w' 29.0 1 NULL 0",
        "'b' 'w' 10.0 1 NULL 0",
        "'c' 'w' 10.0 1 'r' 1",
        "'d' 'w' 29.0 1 NULL 0",
        "'e' NULL 0.0 0 NULL 0",
    ];
    assert_eq!(jobs(&conn), expected);
    let late =
        answers(&conn, "SELECT fence_renew_batch('w', 10, 20, ?)", r#"[["b", 1], ["a", 1]]"#);
    assert_eq!(late, "[0,1]");
    assert_eq!(answers(&conn, "SELECT fence_renew_batch('w', 20, ?)", r#"[["a", 1]]"#), "[0]");
    assert_eq!(one::<i64>(&conn, "SELECT fence_claim('e', 'w', 1e6)"), 1);
    assert_eq!(answers(&conn, "SELECT fence_renew_batch('w', 2e6, ?)", r#"[["e", 1]]"#), "[1]");
    let longer = "SELECT until - unixepoch() > 1.5e6 FROM jobs WHERE id = 'e'";
    assert_eq!(one::<i64>(&conn, longer), 1);
}

#[test]
fn an_error_in_the_middle_takes_the_whole_batch_back() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    conn.execute_batch(
        "CREATE TRIGGER refuse BEFORE UPDATE ON jobs WHEN old.id = 'c'
         BEGIN SELECT RAISE(ABORT, 'not c'); END;
         CREATE TRIGGER refuse_new BEFORE INSERT ON jobs WHEN new.id = 'x'
         BEGIN SELECT RAISE(ABORT, 'not x'); END;",
    )
    .unwrap();
    let before = jobs(&conn);
    let calls = [
        (r#"fence_complete_batch('w', 9, '[["a", 1], ["b", 1], ["c", 1], ["d", 1]]')"#, "not c"),
        (r#"fence_renew_batch('w', 9, 20, '[["a", 1], ["b", 1], ["c", 1], ["d", 1]]')"#, "not c"),
        (r#"fence_enqueue_batch('["v", "x", "y"]')"#, "not x"),
    ];
    for begin in ["", "BEGIN"] {
        conn.execute_batch(begin).unwrap();
        for (call, sentence) in calls {
            let (code, error) = error_of(&conn, &format!("SELECT {call}"));
            assert_eq!(code, rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER, "{call}");
            assert_eq!(error, format!("{}: {sentence}", common::function_of(call)));
            assert_eq!(jobs(&conn), before, "{call}");
            assert_eq!(conn.is_autocommit(), begin.is_empty(), "{call}");
        }
        if !begin.is_empty() {
            conn.execute_batch("COMMIT").unwrap();
        }
    }
    assert_eq!(jobs(&conn), before);
}

#[test]
fn a_batch_is_part_of_the_callers_transaction() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.connect());
    let before = jobs(&conn);
    conn.execute_batch("BEGIN").unwrap();
    let items = r#"[["a", 1], ["b", 1]]"#;
    assert_eq!(answers(&conn, "SELECT fence_complete_batch('w', 9, ?)", items), "[1,1]");
    assert_eq!(answers(&conn, "SELECT fence_renew_batch('w', 9, 9, ?)", r#"[["c", 1]]"#), "[1]");
    assert_eq!(jobs(&other), before);
    conn.execute_batch("ROLLBACK").unwrap();
    assert_eq!(jobs(&conn), before);
}

#[test]
fn a_locked_database_is_code_5_and_nothing_happened() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.connect());
    let before = jobs(&conn);
    conn.busy_timeout(Duration::ZERO).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for call in [
        r#"fence_complete_batch('w', 9, '[["a", 1]]')"#,
        r#"fence_renew_batch('w', 9, 20, '[["a", 1]]')"#,
        r#"fence_enqueue_batch('["x"]')"#,
    ] {
        let sentence = format!("{}: database is locked", common::function_of(call));
        assert_eq!(error_of(&conn, &format!("SELECT {call}")), (5, sentence));
        assert!(conn.is_autocommit(), "{call}");
    }
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(jobs(&conn), before);
}

#[test]
fn a_wrong_item_is_named_before_anything_happens() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let before = jobs(&conn);
    for (ids, sentence) in [
        ("nope", "needs a JSON array, got 'nope'"),
        ("{\"a\": 1}", "needs a JSON array, got '{\"a\": 1}'"),
        ("\"a\"", "needs a JSON array, got '\"a\"'"),
        ("[\"x\"", "needs a JSON array, got '[\"x\"'"),
        ("[\"x\", 7]", "item 2 must be a text"),
        ("[null]", "item 1 must be a text"),
        ("[\"x\", [\"y\"]]", "item 2 must be a text"),
        ("[\"x\", \"\"]", "item 2 must not be empty"),
        // Some versions of SQLite would cut the text there and enqueue 'x'.
        ("[\"x\\u0000y\"]", "the array must not contain a NUL character"),
        ("[\"\\\\\\u0000\"]", "the array must not contain a NUL character"),
    ] {
        let sql = format!("SELECT fence_enqueue_batch('{ids}')");
        assert_eq!(error_of(&conn, &sql), (1, format!("fence_enqueue_batch: {sentence}")), "{ids}");
    }
    let shape = "must be [id, fence] or [id, fence, result], got";
    let cases = [
        ("nope", "needs a JSON array, got 'nope'".to_string()),
        ("7", "needs a JSON array, got '7'".into()),
        (r#"["a", 1]"#, format!(r#"item 1 {shape} "a""#)),
        (r#"[["a", 1], null]"#, format!("item 2 {shape} null")),
        (r#"[["a", 1], 1.5]"#, format!("item 2 {shape} 1.5")),
        (r#"[["a", 1], {"id": "a"}]"#, format!(r#"item 2 {shape} {{"id":"a"}}"#)),
        (r#"[["a", 1], []]"#, format!("item 2 {shape} []")),
        (r#"[["a", 1], ["b"]]"#, format!(r#"item 2 {shape} ["b"]"#)),
        (r#"[["a", "1"]]"#, format!(r#"item 1 {shape} ["a","1"]"#)),
        (r#"[["a", 1.0]]"#, format!(r#"item 1 {shape} ["a",1.0]"#)),
        (r#"[[7, 1]]"#, format!("item 1 {shape} [7,1]")),
        (r#"[["a", 1, 5]]"#, format!(r#"item 1 {shape} ["a",1,5]"#)),
        (r#"[["a", 1, ["r"]]]"#, format!(r#"item 1 {shape} ["a",1,["r"]]"#)),
        (r#"[["a", 1, "r", "s"]]"#, format!(r#"item 1 {shape} ["a",1,"r","s"]"#)),
        (r#"[["a", 9223372036854775808]]"#, format!(r#"item 1 {shape} ["a",9223372036854775808]"#)),
        (r#"[["a", 1], ["", 1]]"#, "the id of item 2 must not be empty".into()),
        (r#"[["a", 1, "r\u0000"]]"#, "the array must not contain a NUL character".into()),
    ];
    for function in ["fence_complete_batch('w', 9, ", "fence_renew_batch('w', 9, 20, "] {
        for (json, sentence) in &cases {
            let sql = format!("SELECT {function}'{json}')");
            let expected = format!("{}: {sentence}", common::function_of(function));
            assert_eq!(error_of(&conn, &sql), (1, expected), "{json}");
        }
    }
    for (call, sentence) in [
        ("fence_enqueue_batch(NULL)", "ids must be text, got NULL"),
        ("fence_enqueue_batch(x'5b5d')", "ids must be text, got a BLOB"),
        ("fence_complete_batch('', 9, '[]')", "owner must not be empty"),
        ("fence_complete_batch('w', 'soon', '[]')", "now must be a number, got text 'soon'"),
        ("fence_complete_batch('w', 9, NULL)", "items must be text, got NULL"),
        ("fence_renew_batch(7, 9, 20, '[]')", "owner must be text, got 7"),
        ("fence_renew_batch('w', 9, 0, '[]')", "ttl must be greater than 0, got 0"),
        ("fence_renew_batch('w', 9, 20, 5)", "items must be text, got 5"),
    ] {
        let expected = format!("{}: {sentence}", common::function_of(call));
        assert_eq!(error_of(&conn, &format!("SELECT {call}")), (1, expected), "{call}");
    }
    assert_eq!(jobs(&conn), before);
}

#[test]
fn the_rust_door_enqueues_and_claims_many() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.db()).unwrap();
    store.init_queue().unwrap();
    assert_eq!(store.enqueue_many(&["q:2", "q:1", "q:2", "other:1"]).unwrap(), 3);
    assert_eq!(store.enqueue_many(&["q:1", "q:3"]).unwrap(), 1);
    assert_eq!(store.enqueue_many(&[""; 0]).unwrap(), 0);
    let error = store.enqueue_many(&["q:4", ""]).unwrap_err().to_string();
    assert_eq!(error, "enqueue_many: id must not be empty");
    assert!(store.state("q:4").unwrap().is_none());
    assert_eq!(store.claim_next("q", "w", 1.0, 10.0).unwrap().unwrap().id(), "q:2");
    let mut leases = store.claim_batch("q", "w", 1.0, 10.0, 9).unwrap();
    leases.sort_by_key(|lease| lease.id().to_string());
    let found: Vec<_> = leases.iter().map(|l| (l.id(), l.owner(), l.fence(), l.until())).collect();
    assert_eq!(found, [("q:1", "w", 1, 11.0), ("q:3", "w", 1, 11.0)]);
    assert!(leases.iter().all(|lease| lease.complete(2.0, "r").unwrap()));
    assert!(store.claim_next("q", "w", 5.0, 10.0).unwrap().is_none());
}

/// Statements are kept, and what was bound to them would be kept with them until the next call.
#[test]
fn a_large_text_takes_no_memory_once_it_is_stored() {
    const LARGE: usize = 1 << 20;
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let large = "x".repeat(LARGE);
    let padded = |json: &str| json.to_owned() + &" ".repeat(LARGE);
    let kept = |sql: &str, text: &str| {
        let answer = conn.query_row(sql, [text], |_| Ok(()));
        let (mut used, mut highest) = (0, 0);
        // SAFETY: the connection is open and both numbers live until the call returns.
        let rc = unsafe {
            let what = ffi::SQLITE_DBSTATUS_STMT_USED;
            ffi::sqlite3_db_status(conn.handle(), what, &mut used, &mut highest, 0)
        };
        assert_eq!(rc, ffi::SQLITE_OK);
        assert!(0 < used && used < LARGE as i32 / 2, "{used} bytes after {sql}");
        answer
    };
    for (sql, text) in [
        ("SELECT fence_complete('a', 'w', 1, 5, ?)", large.clone()),
        ("SELECT fence_fail('b', 'w', 1, 5, ?)", large.clone()),
        ("SELECT fence_complete('a', 'w', 1, ?)", large.clone()),
        ("SELECT fence_fail('b', 'w', 1, ?)", large.clone()),
        ("SELECT fence_enqueue_batch(?)", padded("[\"new\"]")),
        ("SELECT fence_renew_batch('w', 5, 10, ?)", padded("[[\"c\", 1]]")),
        ("SELECT fence_complete_batch('w', 5, ?)", format!("[[\"d\", 1, \"{large}\"]]")),
        ("SELECT fence_complete_batch('w', 5, ?)", padded("no array")),
        ("SELECT fence_complete_batch('w', 5, ?)", padded("[[\"d\", 1], 7]")),
    ] {
        let _ = kept(sql, &text);
    }
    // Nor after an error.
    conn.busy_timeout(Duration::ZERO).unwrap();
    let other = scratch.connect();
    common::batch(&other, "BEGIN IMMEDIATE");
    for sql in [
        "SELECT fence_complete('c', 'w', 1, 5, ?)",
        "SELECT fence_enqueue_batch(json_array('new', ?))",
        "SELECT fence_complete_batch('w', 5, json_array(json_array('c', 1, ?)))",
    ] {
        kept(sql, &large).unwrap_err();
    }
}
