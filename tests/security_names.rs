//! Names and values are data, whatever they look like: an identifier given to `fence_guard` reaches
//! SQL as an identifier, an id or a result as a parameter, and an error shows the beginning of a
//! value and no SQL of ours.
mod common;

use common::{add_jobs, batch, error_of, one, Scratch};
use rusqlite::{ffi, Connection};

/// Names that would end a quotation, begin a comment or a parameter, or be filled in.
const NAMES: [&str; 22] = [
    "plain",
    "a\"; DROP TABLE victim; --",
    "\"",
    "\"\"",
    "'); DELETE FROM victim; --",
    "'",
    "it''s",
    "x -- y",
    "/* x",
    "*/ x",
    "[x]",
    "`x`",
    "a;b",
    "{table}",
    "{replaces}END;\n\nCREATE TRIGGER",
    "{",
    "}{",
    "?1",
    ":x @x $x",
    "%s %q",
    "new.fence\nOR 1",
    "größe \u{1f512}",
];

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Calls a function with two texts.
fn call(conn: &Connection, function: &str, a: &str, b: &str) -> Result<i64, String> {
    conn.query_row(&format!("SELECT {function}(?1, ?2)"), [a, b], |row| row.get(0)).map_err(|e| {
        match e {
            rusqlite::Error::SqliteFailure(_, Some(sentence)) => sentence,
            other => panic!("{other}"),
        }
    })
}

/// Type and name of everything in the file.
fn objects(conn: &Connection) -> Vec<(String, String)> {
    let mut statement = conn.prepare("SELECT type, name FROM sqlite_master ORDER BY 1, 2").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn names_given_to_fence_guard_are_identifiers_and_nothing_else() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    batch(&conn, "PRAGMA synchronous = OFF; PRAGMA journal_mode = memory");
    add_jobs(&conn);
    batch(&conn, "CREATE TABLE victim(x); INSERT INTO victim VALUES ('here')");
    for name in NAMES {
        // The same for the table, the column with the job, a UNIQUE index and its column.
        let (table, job) = (identifier(name), identifier(&format!("{name} job")));
        let (unique, index) =
            (identifier(&format!("{name} unique")), identifier(&format!("{name} index")));
        batch(
            &conn,
            &format!(
                "CREATE TABLE {table}({job}, {unique} NOT NULL DEFAULT 'd' UNIQUE, n);
                 CREATE UNIQUE INDEX {index} ON {table}(n);"
            ),
        );
        let before = objects(&conn);
        assert_eq!(call(&conn, "fence_guard", name, &format!("{name} job")), Ok(1), "{name}");
        let new: Vec<_> =
            objects(&conn).into_iter().filter(|object| !before.contains(object)).collect();
        let ours = ["delete", "insert", "inserted", "update", "updated"]
            .map(|event| ("trigger".to_owned(), format!("fence_guard_{name}_{event}")));
        assert_eq!(new, ours, "{name}");
        // It is guarded, in the same form, and works.
        assert_eq!(call(&conn, "fence_guard", name, &format!("{name} job")), Ok(0), "{name}");
        let insert = |columns: &str, values: &str| {
            format!(
                "INSERT INTO {table}({job}, {unique}, n{columns}) VALUES ('held', 1, 2{values})"
            )
        };
        let sentence =
            format!("{name}: state the current fence of the row's job in the column fence");
        let refused = (ffi::SQLITE_CONSTRAINT_TRIGGER, sentence);
        assert_eq!(error_of(&conn, &insert("", "")), refused);
        batch(&conn, &insert(", fence", ", 1"));
        batch(&conn, &format!("UPDATE {table} SET fence = 1, n = 3"));
        let replace = format!(
            "INSERT OR REPLACE INTO {table}({job}, {unique}, n, fence) VALUES ('held', NULL, 2, 1)"
        );
        let sentence = format!("{name}: {name} unique is NULL");
        assert_eq!(error_of(&conn, &replace), (ffi::SQLITE_CONSTRAINT_TRIGGER, sentence));
        assert_eq!(one::<i64>(&conn, &format!("SELECT n FROM {table}")), 3, "{name}");
        let unguarded: i64 =
            conn.query_row("SELECT fence_unguard(?1)", [name], |row| row.get(0)).unwrap();
        assert_eq!(unguarded, 1, "{name}");
        assert_eq!(objects(&conn), before, "{name}");
        assert_eq!(one::<String>(&conn, "SELECT x FROM victim"), "here", "{name}");
        batch(&conn, &format!("DROP TABLE {table}"));
    }
}

#[test]
fn names_of_no_table_or_column_are_refused_and_shown_as_they_are() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);
    batch(&conn, "CREATE TABLE orders(job)");
    let before = objects(&conn);
    for name in NAMES {
        let shown = name.replace('\n', "\\n");
        let suffix = if name.contains('.') { ", give its name without a schema" } else { "" };
        let sentence = format!("fence_guard: there is no table '{shown}' in main{suffix}");
        assert_eq!(call(&conn, "fence_guard", name, "job"), Err(sentence));
        let sentence = format!("fence_guard: the table 'orders' has no column '{shown}'");
        assert_eq!(call(&conn, "fence_guard", "orders", name), Err(sentence));
    }
    for (table, job, argument) in [("or\0ders", "job", "table"), ("orders", "j\0ob", "job_column")]
    {
        let got = if argument == "table" { "or\\u{0}ders" } else { "j\\u{0}ob" };
        let sentence =
            format!("fence_guard: {argument} must not contain a NUL character, got '{got}'");
        assert_eq!(call(&conn, "fence_guard", table, job), Err(sentence));
    }
    assert_eq!(objects(&conn), before);
}

#[test]
fn ids_owners_results_queues_and_resources_are_data() {
    for name in NAMES {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        batch(&conn, "PRAGMA synchronous = OFF; PRAGMA journal_mode = memory");
        add_jobs(&conn);
        batch(
            &conn,
            "SELECT fence_pass('r', 1); CREATE TABLE victim(x); INSERT INTO victim VALUES (1)",
        );
        let before = objects(&conn);
        let with = |sql: &str| -> Option<i64> {
            conn.query_row(sql, [name], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
        };
        assert_eq!(with("SELECT fence_enqueue(?1)"), Some(1), "{name}");
        assert_eq!(with("SELECT fence_claim(?1, ?1, 1, 10)"), Some(1), "{name}");
        assert_eq!(with("SELECT fence_renew(?1, ?1, 1, 2, 10)"), Some(1), "{name}");
        assert_eq!(with("SELECT fence_fail(?1, ?1, 1, 3, ?1)"), Some(1), "{name}");
        let row = with("SELECT owner = ?1 AND result = ?1 AND done = 2 FROM jobs WHERE id = ?1");
        assert_eq!(row, Some(1), "{name}");
        let state: String =
            conn.query_row("SELECT fence_state(?1)", [name], |row| row.get(0)).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        for key in ["id", "owner", "result"] {
            assert_eq!(state[key], name);
        }
        assert_eq!(with("SELECT fence_requeue(?1)"), Some(1), "{name}");
        let queue = name.split(':').next().unwrap();
        let queue = if queue.len() < name.len() { queue } else { "" };
        let taken: String = conn
            .query_row("SELECT fence_claim_batch(?1, 20, 10, 1, ?2)", [name, queue], |row| {
                row.get(0)
            })
            .unwrap();
        let taken: serde_json::Value = serde_json::from_str(&taken).unwrap();
        assert_eq!(taken, serde_json::json!([["free", 1]]), "{name}");
        assert_eq!(with("SELECT fence_pass(?1, 7)"), Some(1), "{name}");
        assert_eq!(with("SELECT fence_pass(?1, 6)"), Some(0), "{name}");
        assert_eq!(objects(&conn), before, "{name}");
        assert_eq!(one::<i64>(&conn, "SELECT x FROM victim"), 1, "{name}");
    }
}

/// A value of 5,000 characters, and how a sentence shows it.
fn long(quoted: bool) -> (String, String) {
    let start = "SELECT é; ".repeat(4);
    let shown = if quoted { format!("'{start}...'") } else { start.clone() };
    (start.repeat(125), shown)
}

#[test]
fn long_values_are_cut_in_every_sentence() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);
    let (value, shown) = long(true);
    let nul = format!("{value}\0");
    for (sql, given, sentence) in [
        ("fence_enqueue(?1)", &nul, format!("id must not contain a NUL character, got {shown}")),
        (
            "fence_claim('a', ?1, 1, 10)",
            &nul,
            format!("owner must not contain a NUL character, got {shown}"),
        ),
        (
            "fence_claim('a', 'w', ?1, 10)",
            &value,
            format!("now must be a number, got text {shown}"),
        ),
        ("fence_claim('a', 'w', 1, ?1)", &value, format!("ttl must be a number, got text {shown}")),
        (
            "fence_renew('a', 'w', ?1, 1, 10)",
            &value,
            format!("fence must be an integer, got text {shown}"),
        ),
        ("fence_enqueue('a', ?1)", &value, format!("due must be a number, got text {shown}")),
        (
            "fence_claim_batch('w', 1, 10, ?1, 'q')",
            &value,
            format!("limit must be an integer, got text {shown}"),
        ),
        (
            "fence_claim_batch(?1, 10, 1)",
            &nul,
            format!("owner must not contain a NUL character, got {shown}"),
        ),
        ("fence_enqueue_batch(?1)", &value, format!("needs a JSON array, got {shown}")),
        ("fence_guard(?1, 'job')", &value, format!("there is no table {shown} in main")),
        (
            "fence_pass(?1, 1)",
            &nul,
            format!("resource must not contain a NUL character, got {shown}"),
        ),
    ] {
        let name = common::function_of(sql);
        let found = conn
            .query_row(&format!("SELECT {sql}"), [given], |row| {
                row.get::<_, rusqlite::types::Value>(0)
            })
            .expect_err(sql);
        assert_eq!(found.to_string(), format!("{name}: {sentence}"), "{sql}");
    }
}

#[test]
fn long_items_and_foreign_columns_are_cut_too() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    let (value, _) = long(false);
    let item = |items: String| {
        let sql = "SELECT fence_complete_batch('w', 1, ?1)";
        conn.query_row(sql, [items], |_| Ok(())).expect_err("no item").to_string()
    };
    let shape = "fence_complete_batch: item 1 must be [id, fence] or [id, fence, result], got";
    let cut = |text: &str| text.chars().take(80).collect::<String>();
    batch(&conn, "SELECT fence_init()");
    assert_eq!(
        item(format!(r#"["{value}"]"#)),
        format!("{shape} {}...", cut(&format!("\"{value}")))
    );
    assert_eq!(
        item(format!(r#"[["{value}"]]"#)),
        format!("{shape} {}...", cut(&format!("[\"{value}")))
    );

    let scratch = Scratch::new();
    let conn = scratch.loaded();
    let columns: Vec<_> = (0..100).map(|i| format!("column_{i:03} TEXT")).collect();
    batch(&conn, &format!("CREATE TABLE jobs({})", columns.join(", ")));
    let found: String = columns.join(", ").chars().take(400).collect();
    let (_, sentence) = error_of(&conn, "SELECT fence_init()");
    assert!(sentence.starts_with("fence_init: the table jobs has other columns: needs (id "));
    assert!(sentence.ends_with(&format!(", found ({found}...)")), "{sentence}");
}

#[test]
fn no_sentence_shows_sql_of_ours() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    // A floor that no fence compares with.
    batch(
        &conn,
        "CREATE TABLE fence_floor(only, fence); INSERT INTO fence_floor VALUES (1, 'x');
         SELECT fence_init()",
    );
    let (code, sentence) = error_of(&conn, "SELECT fence_restore(1)");
    let expected = "fence_restore: Invalid column type Text at index: 0, name: highest";
    assert_eq!((code, sentence.as_str()), (ffi::SQLITE_ERROR, expected));
}

/// JSON can spell half of a character.
#[test]
fn items_that_are_no_text_of_whole_characters_are_refused() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);
    for (sql, sentence) in [
        (r#"fence_enqueue_batch('["a", "\ud800"]')"#, "item 2 must be valid UTF-8"),
        (
            r#"fence_renew_batch('w', 1, 10, '[["\udc00", 1]]')"#,
            "the id of item 1 must be valid UTF-8",
        ),
        (
            r#"fence_complete_batch('a', 1, '[["held", 1, "\ud800"]]')"#,
            "the result of item 1 must be valid UTF-8",
        ),
    ] {
        let refused = (ffi::SQLITE_ERROR, format!("{}: {sentence}", common::function_of(sql)));
        assert_eq!(error_of(&conn, &format!("SELECT {sql}")), refused);
    }
}

/// An error would have hidden the others, which were claimed all the same.
#[test]
fn a_stored_id_that_is_no_utf8_does_not_hide_the_other_jobs_of_a_batch() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    batch(&conn, "SELECT fence_init(); SELECT fence_init_queue()");
    batch(&conn, "INSERT INTO jobs(id) VALUES ('a'), (CAST(x'62ff' AS TEXT)), ('c')");
    let taken: String = one(&conn, "SELECT fence_claim_batch('w', 1, 10, 3)");
    assert_eq!(taken, "[[\"a\",1],[\"b\u{fffd}\",1],[\"c\",1]]");
}
