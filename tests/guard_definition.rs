//! fence_guard and fence_unguard themselves: which tables and names they take, what they answer,
//! and that an error leaves nothing half done.
mod common;
#[path = "common/guarded.rs"]
mod guarded;

use common::{error_of, one, Scratch};
use guarded::*;
use rusqlite::Connection;

/// A connection with the extension to a new file, after `JOBS` and `setup`.
fn file(setup: &str) -> (Scratch, Connection) {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    batch(&conn, "PRAGMA synchronous = OFF");
    batch(&conn, JOBS);
    batch(&conn, setup);
    (scratch, conn)
}

fn schema(conn: &Connection) -> String {
    one(conn, "SELECT group_concat(concat_ws(' ', type, name, tbl_name, sql), x'0a') FROM main.sqlite_master")
}

fn call(conn: &Connection, function: &str, arguments: &[&str]) -> rusqlite::Result<i64> {
    let marks = vec!["?"; arguments.len()].join(", ");
    let parameters = rusqlite::params_from_iter(arguments);
    conn.query_row(&format!("SELECT {function}({marks})"), parameters, |row| row.get(0))
}

#[track_caller]
fn guard(conn: &Connection, table: &str, job: &str) -> i64 {
    call(conn, "fence_guard", &[table, job]).unwrap_or_else(|e| panic!("{table}: {e}"))
}

#[track_caller]
fn unguard(conn: &Connection, table: &str) -> i64 {
    call(conn, "fence_unguard", &[table]).unwrap_or_else(|e| panic!("{table}: {e}"))
}

/// fence_guard fails with this sentence, and neither the schema nor a row changes.
#[track_caller]
fn not_guarded(conn: &Connection, table: &str, job: &str, sentence: &str) {
    let before = (schema(conn), rows(conn), conn.is_autocommit());
    match call(conn, "fence_guard", &[table, job]) {
        Err(rusqlite::Error::SqliteFailure(e, Some(message))) => {
            assert_eq!((e.extended_code, message), (1, format!("fence_guard: {sentence}")));
        }
        other => panic!("{table}: {other:?}"),
    }
    assert_eq!((schema(conn), rows(conn), conn.is_autocommit()), before, "{table}");
}

/// Names that need quoting, look like a placeholder or a piece of SQL, or mean something inside a
/// trigger.
const NAMES: [&str; 26] = [
    "say \"hi\"",
    "it's",
    "two words",
    "select",
    "größe 𝄞",
    "{table}",
    "{job}",
    "{replaces} {} }{",
    "100% %s %d",
    "a]b [c]",
    "`tick`",
    "semi;colon -- /*",
    "x'); DROP TABLE jobs; --",
    "x\"; DROP TABLE jobs; --",
    "new\n\nline",
    "main.orders",
    "?1 :a $b",
    "new",
    "old",
    "v",
    "id",
    "owner",
    "done",
    "sqlite master",
    "1",
    "",
];

#[test]
fn any_name_of_a_table_and_a_column_is_taken_as_a_name() {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let (_scratch, conn) = file("");
    // An empty argument is refused as for every function; see below.
    for name in NAMES.into_iter().filter(|name| !name.is_empty()) {
        let (table, job, key) = (quoted(name), quoted(name), quoted(&format!("{name} key")));
        batch(&conn, &format!("CREATE TABLE {table}({job} TEXT, {key} NOT NULL DEFAULT 0 UNIQUE)"));
        batch(&conn, &format!("INSERT INTO {table} VALUES ('a', 1), ('b', 2), ('a', 3)"));
        let before = schema(&conn);
        assert_eq!(guard(&conn, name, name), 1, "{name}");
        assert_eq!(guard(&conn, name, name), 0, "{name}");
        let sentence = |text: &str| text.replacen("orders", name, 1);
        for write in [
            format!("UPDATE {table} SET {key} = 9 WHERE {key} = 1"),
            format!("UPDATE {table} SET {key} = 9, fence = 5 WHERE {key} = 1"),
            format!("INSERT INTO {table}({job}, {key}, fence) VALUES ('a', 9, 5)"),
        ] {
            refused(&conn, &write, &sentence(STATE));
        }
        refused(&conn, &format!("DELETE FROM {table}"), &sentence(DELETE));
        let replace = format!("REPLACE INTO {table}({job}, {key}, fence) VALUES ('a', 2, 3)");
        refused(&conn, &replace, &sentence(REPLACE));
        let null = format!("REPLACE INTO {table}({job}, {key}, fence) VALUES ('a', NULL, 3)");
        refused(&conn, &null, &format!("{name}: {name} key is NULL"));
        let mv = format!("UPDATE {table} SET {job} = 'b', fence = 3 WHERE {key} = 1");
        refused(&conn, &mv, &sentence(MOVE));

        batch(&conn, &format!("UPDATE {table} SET {key} = 11, fence = 3 WHERE {key} = 1"));
        batch(&conn, &format!("UPDATE {table} SET fence = -3 WHERE {key} = 3"));
        batch(&conn, &format!("INSERT INTO {table}({job}, {key}, fence) VALUES ('b', 4, 5)"));
        let left = format!("SELECT group_concat({key} || quote(fence), ' ') FROM {table}");
        assert_eq!(one::<String>(&conn, &left), "11NULL 2NULL 4NULL", "{name}");

        assert_eq!(unguard(&conn, name), 1, "{name}");
        assert_eq!(unguard(&conn, name), 0, "{name}");
        batch(&conn, &format!("DELETE FROM {table}; ALTER TABLE {table} DROP COLUMN fence"));
        assert_eq!(schema(&conn), before, "{name}");
    }
}

#[test]
fn names_are_found_as_sqlite_finds_them_and_written_as_the_schema_does() {
    let (_scratch, conn) = file(ORDERS);
    assert_eq!(guard(&conn, "ORDERS", "JOB"), 1);
    assert_eq!(guard(&conn, "orders", "job"), 0);
    refused(&conn, "UPDATE Orders SET total = 9", STATE);
    assert_eq!(unguard(&conn, "oRDERS"), 1);
}

#[test]
fn a_name_that_is_no_table_is_an_error_and_runs_no_sql() {
    let (_scratch, conn) = file(ORDERS);
    batch(
        &conn,
        "ATTACH ':memory:' AS aux; CREATE TABLE aux.orders(job); CREATE TABLE aux.other(job)",
    );
    batch(&conn, "CREATE TEMP TABLE other(job); CREATE TABLE two(job)");
    let dotted = ", give its name without a schema";
    for (name, hint) in [
        ("nothing", ""),
        ("other", ""),
        ("main.orders", dotted),
        ("temp.other", dotted),
        ("aux.orders", dotted),
        ("\"orders\"", ""),
        ("orders; DROP TABLE jobs", ""),
        ("orders' OR '1'='1", ""),
        ("orders\" BEGIN SELECT 1; END; --", ""),
        ("sqlite_master", ""),
        ("two\n", ""),
    ] {
        let shown = name.replace('\n', "\\n");
        not_guarded(&conn, name, "job", &format!("there is no table '{shown}' in main{hint}"));
        assert_eq!(unguard(&conn, name), 0, "{name}");
    }
    for (table, job, sentence) in [
        ("orders", "nothing", "the table 'orders' has no column 'nothing'"),
        ("orders", "rowid", "the table 'orders' has no column 'rowid'"),
        ("orders", "job\" --", "the table 'orders' has no column 'job\" --'"),
        ("orders", "orders.job", "the table 'orders' has no column 'orders.job'"),
        ("orders", "fence", "the table 'orders' has no column 'fence'"),
        ("", "job", "table must not be empty"),
        ("orders", "", "job_column must not be empty"),
    ] {
        not_guarded(&conn, table, job, sentence);
    }
    for (arguments, sentence) in [
        ("NULL, 'job'", "table must be text, got NULL"),
        ("'orders', 1", "job_column must be text, got 1"),
        ("x'6f', 'job'", "table must be text, got a BLOB"),
    ] {
        let error = error_of(&conn, &format!("SELECT fence_guard({arguments})"));
        assert_eq!(error, (1, format!("fence_guard: {sentence}")));
    }
}

#[test]
fn what_is_no_table_of_the_users_own_is_an_error() {
    let (_scratch, conn) = file(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY AUTOINCREMENT, job);
         CREATE VIEW seen AS SELECT * FROM orders;
         CREATE VIRTUAL TABLE words USING fts5(job);
         CREATE TABLE hidden(rowid TEXT, _rowid_ TEXT, oid TEXT, job TEXT);
         CREATE TABLE folded(job TEXT, mail TEXT);
         CREATE UNIQUE INDEX folded_mail ON folded(lower(mail));",
    );
    for (table, column, sentence) in [
        ("seen", "job", "'seen' is a view, a table is needed"),
        ("fence_status", "id", "'fence_status' is a view, a table is needed"),
        ("words", "job", "'words' is a virtual table, which has no triggers"),
        ("jobs", "id", "'jobs' is not a table of your own"),
        ("JOBS", "id", "'JOBS' is not a table of your own"),
        ("fence_floor", "only", "'fence_floor' is not a table of your own"),
        ("fence_replaced", "id", "'fence_replaced' is not a table of your own"),
        ("sqlite_sequence", "name", "'sqlite_sequence' is not a table of your own"),
        ("hidden", "job", "the table 'hidden' hides its rowid and has no primary key"),
        (
            "folded",
            "job",
            "the UNIQUE index 'folded_mail' is on an expression, so INSERT OR REPLACE could delete \
             rows unseen",
        ),
    ] {
        for begin in ["", "BEGIN IMMEDIATE"] {
            batch(&conn, begin);
            not_guarded(&conn, table, column, sentence);
        }
        batch(&conn, "COMMIT");
    }
}

#[test]
fn a_column_fence_with_another_meaning_is_an_error() {
    for (column, row) in [
        ("fence INTEGER", "('a', 1)"),
        ("fence INTEGER", "('a', 0)"),
        ("FENCE INTEGER", "('a', 'x')"),
        ("fence TEXT", "('a', NULL)"),
        ("fence", "('a', NULL)"),
        ("fence INTEGER DEFAULT 1", "('a', NULL)"),
        ("fence INTEGER NOT NULL", ""),
        ("fence INTEGER AS (NULL)", "('a')"),
        ("fence INTEGER PRIMARY KEY", "('a', 1)"),
        ("fence INTEGER PRIMARY KEY", ""),
    ] {
        let (_scratch, conn) = file(&format!("CREATE TABLE orders(job TEXT, {column})"));
        if !row.is_empty() {
            batch(&conn, &format!("INSERT INTO orders VALUES {row}"));
        }
        not_guarded(&conn, "orders", "job", "the table 'orders' has a column fence of its own");
        let sentence = "the column fence is for the stamp, it cannot name the job";
        not_guarded(&conn, "orders", "fence", sentence);
    }
    // Empty in every row, as an earlier guard left it.
    let (_scratch, conn) = file("CREATE TABLE orders(job TEXT, Fence integer, n)");
    batch(&conn, "INSERT INTO orders VALUES ('a', NULL, 1)");
    assert_eq!(guard(&conn, "orders", "job"), 1);
    refused(&conn, "UPDATE orders SET n = 2", STATE);
    accepted(&conn, "UPDATE orders SET n = 2, fence = 3", 1);
}

#[test]
fn guarding_is_repeatable_and_taking_the_guard_away_too() {
    let (_scratch, conn) = file(ORDERS);
    assert_eq!(unguard(&conn, "orders"), 0);
    batch(&conn, "CREATE TABLE other(job TEXT, n); INSERT INTO other VALUES ('b', 1)");
    assert_eq!(guard(&conn, "orders", "job"), 1);
    assert_eq!(guard(&conn, "other", "job"), 1);
    let guarded = schema(&conn);
    let version: i64 = one(&conn, "PRAGMA schema_version");
    assert_eq!(guard(&conn, "orders", "job"), 0);
    assert_eq!((schema(&conn), one::<i64>(&conn, "PRAGMA schema_version")), (guarded, version));
    refused(&conn, "UPDATE other SET n = 2", &STATE.replace("orders", "other"));
    refused(&conn, "UPDATE orders SET total = 9", STATE);

    assert_eq!(unguard(&conn, "orders"), 1);
    assert_eq!(unguard(&conn, "orders"), 0);
    refused(&conn, "UPDATE other SET n = 2", &STATE.replace("orders", "other"));
    batch(&conn, "UPDATE orders SET total = 9; DELETE FROM orders WHERE id = 2");
    batch(&conn, "INSERT INTO orders(job) VALUES ('missing')");

    assert_eq!(guard(&conn, "orders", "job"), 1);
    refused(&conn, "UPDATE orders SET total = 10", STATE);
    accepted(&conn, "UPDATE orders SET total = 10, fence = 3 WHERE id = 1", 1);

    // Stamps that were written meanwhile would each let one write through.
    assert_eq!(unguard(&conn, "orders"), 1);
    batch(&conn, "UPDATE orders SET fence = 3 WHERE id = 1");
    not_guarded(&conn, "orders", "job", "the table 'orders' has a column fence of its own");
}

#[test]
fn a_guard_that_is_damaged_or_of_another_version_is_made_anew() {
    let (_scratch, conn) = file(&format!("{ORDERS}{GUARD}"));
    let whole = schema(&conn);
    let sorted = |schema: &str| {
        let mut lines: Vec<_> = schema.split("\ntrigger").map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for event in ["insert", "inserted", "update", "updated", "delete"] {
        batch(&conn, &format!("DROP TRIGGER fence_guard_orders_{event}"));
        assert_eq!(guard(&conn, "orders", "job"), 1, "{event}");
        assert_eq!(sorted(&schema(&conn)), sorted(&whole), "{event}");
    }
    for other_version in [
        "CREATE TRIGGER fence_guard_orders_older AFTER DELETE ON orders BEGIN SELECT 1; END",
        "DROP TRIGGER fence_guard_orders_update;
         CREATE TRIGGER fence_guard_orders_update BEFORE UPDATE ON orders BEGIN SELECT 1; END",
    ] {
        batch(&conn, other_version);
        assert_eq!(guard(&conn, "orders", "job"), 1, "{other_version}");
        assert_eq!(sorted(&schema(&conn)), sorted(&whole), "{other_version}");
    }
}

/// Who names another column means it; taking the guard away first would leave a gap.
#[test]
fn guarding_by_another_column_replaces_the_guard() {
    let (_scratch, conn) = file(
        "CREATE TABLE orders(job TEXT, task TEXT, total);
         INSERT INTO orders VALUES ('a', 'b', 1);",
    );
    assert_eq!(guard(&conn, "orders", "job"), 1);
    accepted(&conn, "UPDATE orders SET total = 2, fence = 3", 1);
    assert_eq!(guard(&conn, "orders", "task"), 1);
    refused(&conn, "UPDATE orders SET total = 3, fence = 3", STATE);
    accepted(&conn, "UPDATE orders SET total = 3, fence = 5", 1);
    let triggers = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'fence_guard_orders%'";
    assert_eq!(one::<i64>(&conn, triggers), 5);
}

#[test]
fn without_a_job_table_there_is_no_guard() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    batch(&conn, "CREATE TABLE orders(job TEXT); CREATE TEMP TABLE jobs(id, owner, until, fence, result, done)");
    let before = schema(&conn);
    let sentence = "fence_guard: no such table: main.jobs (fence_init() makes it)".to_string();
    assert_eq!(error_of(&conn, "SELECT fence_guard('orders', 'job')"), (1, sentence));
    assert_eq!(schema(&conn), before);
    assert!(conn.is_autocommit());
}

#[test]
fn temporary_tables_of_the_same_names_confuse_nothing() {
    let (_scratch, conn) = file(ORDERS);
    batch(
        &conn,
        "CREATE TEMP TABLE orders(job TEXT, x); INSERT INTO temp.orders VALUES ('a', 1);
         CREATE TEMP TABLE jobs AS SELECT id, owner, until, 9 AS fence, result, done FROM main.jobs;
",
    );
    assert_eq!(guard(&conn, "orders", "job"), 1);
    assert_eq!(guard(&conn, "orders", "job"), 0);
    for stamp in ["", ", fence = 9", ", fence = 2"] {
        refused(&conn, &format!("UPDATE main.orders SET total = 9{stamp} WHERE id = 1"), STATE);
    }
    batch(&conn, "UPDATE main.orders SET total = 9, fence = 3 WHERE id = 1");
    batch(&conn, "UPDATE temp.orders SET x = 2; DELETE FROM temp.orders");
    assert_eq!(one::<i64>(&conn, "SELECT total FROM main.orders WHERE id = 1"), 9);
    assert_eq!(one::<Option<i64>>(&conn, "SELECT fence FROM main.orders WHERE id = 1"), None);
    assert_eq!(unguard(&conn, "orders"), 1);
}

#[test]
fn a_renamed_table_leaves_its_name_to_another_one() {
    let (_scratch, conn) = file(&format!("{ORDERS}{GUARD}"));
    batch(&conn, "ALTER TABLE orders RENAME TO bills; CREATE TABLE orders(job TEXT, n)");
    batch(&conn, "INSERT INTO orders VALUES ('a', 1)");
    assert_eq!(guard(&conn, "orders", "job"), 1);
    assert_eq!(guard(&conn, "orders", "job"), 0);
    refused(&conn, "UPDATE orders SET n = 2", STATE);
    refused(&conn, "UPDATE bills SET total = 2", STATE);
    batch(&conn, "UPDATE orders SET n = 2, fence = 3");
    batch(&conn, "CREATE UNIQUE INDEX later ON orders(n)");
    let sentence = "orders: its UNIQUE indexes changed, call fence_guard again";
    refused(&conn, "UPDATE orders SET n = 3, fence = 3", sentence);
    batch(&conn, "UPDATE bills SET total = 2, fence = 3 WHERE id = 1");

    assert_eq!(guard(&conn, "bills", "job"), 1);
    assert_eq!(guard(&conn, "orders", "job"), 1);
    refused(&conn, "UPDATE bills SET total = 2", &STATE.replace("orders", "bills"));
    assert_eq!((unguard(&conn, "bills"), unguard(&conn, "orders")), (1, 1));
    batch(&conn, "UPDATE bills SET total = 2; UPDATE orders SET n = 3");
}

#[test]
fn the_rust_api_guards_too() {
    let store = fence::Store::open(":memory:").unwrap();
    let error = store.guard("orders", "job").unwrap_err();
    assert!(matches!(error, fence::Error::InvalidArgument(_)), "{error:?}");
    assert_eq!(error.to_string(), "guard: there is no table 'orders' in main");
    store.enqueue("a").unwrap();
    let lease = store.claim("a", "w", 0.0, 10.0).unwrap().unwrap();
    lease.write(1.0, |tx| Ok(tx.execute_batch("CREATE TABLE orders(job TEXT)")?)).unwrap();
    assert!(store.guard("orders", "job").unwrap());
    assert!(!store.guard("orders", "job").unwrap());
    assert!(store.unguard("orders").unwrap());
    assert!(!store.unguard("orders").unwrap());
}
