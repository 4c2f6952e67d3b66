//! A guarded table `orders` for two clients: one that loads the extension, one that never does.
#![allow(dead_code)] // every test binary uses its own part

use super::common::{error_of, one, Scratch};
use rusqlite::{ffi, Connection};

pub const STATE: &str = "orders: state the current fence of the row's job in the column fence";
pub const DELETE: &str = "orders: to delete a row, set its fence to minus the current one";
pub const MOVE: &str = "orders: a row cannot change its job";
pub const REPLACE: &str = "orders: the row would replace one of another job";

/// Jobs: `a` is held with fence 3, `b` with fence 5, by leases that ended long ago on every clock.
/// The others nobody holds: `free` was never claimed, the rest once.
pub const JOBS: &str = "
    SELECT fence_init();
    SELECT count(fence_enqueue(value))
      FROM json_each('[\"a\", \"b\", \"free\", \"released\", \"done\", \"failed\"]');
    SELECT count(fence_claim('a', 'w', value, 1)) FROM json_each('[0, 1, 2]');
    SELECT count(fence_claim('b', 'w', value, 1)) FROM json_each('[0, 1, 2, 3, 4]');
    SELECT count(fence_claim(value, 'w', 0, 1))
      FROM json_each('[\"released\", \"done\", \"failed\"]');
    SELECT fence_release('released', 'w', 1);
    SELECT fence_complete('done', 'w', 1, 0, 'r');
    UPDATE jobs SET done = 2 WHERE id = 'failed';";

/// Rows of every job, also of one that is missing and of none.
pub const ORDERS: &str = "
    CREATE TABLE orders(id INTEGER PRIMARY KEY, job TEXT, total INTEGER DEFAULT 0, slug TEXT UNIQUE);
    INSERT INTO orders VALUES (1, 'a', 10, 's1'), (2, 'a', 20, 's2'), (3, 'b', 30, 's3'),
      (4, 'free', 40, 's4'), (5, 'released', 50, 's5'), (6, 'done', 60, 's6'),
      (7, 'failed', 70, 's7'), (8, 'missing', 80, 's8'), (9, NULL, 90, 's9');";

pub const GUARD: &str = "SELECT fence_guard('orders', 'job');";

/// Stamps that the row's job, at fence 3, does not have. NULL is a stamp that is stated as none.
pub const BAD_STAMPS: [&str; 14] = [
    "NULL",
    "0",
    "1",
    "2",
    "4",
    "5",
    "3.5",
    "'abc'",
    "''",
    "'3x'",
    "x'33'",
    "9223372036854775807",
    "-9223372036854775808",
    "9e999",
];

/// Runs `body` twice on a fresh file in which an extended connection ran `JOBS` and `setup`: on a
/// connection with the extension, and on one that never loads it.
pub fn each_client(setup: &str, body: impl Fn(&Connection)) {
    for client in ["with the extension", "without"] {
        println!("client: {client}");
        let scratch = Scratch::new();
        let maker = scratch.loaded();
        batch(&maker, "PRAGMA synchronous = OFF; PRAGMA journal_mode = memory");
        batch(&maker, JOBS);
        batch(&maker, setup);
        let conn = if client == "without" { scratch.connect() } else { scratch.loaded() };
        batch(&conn, "PRAGMA synchronous = OFF; PRAGMA journal_mode = memory");
        body(&conn);
    }
}

pub fn batch(conn: &Connection, sql: &str) {
    conn.execute_batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// All rows of all tables of the user's own, and the jobs.
pub fn rows(conn: &Connection) -> Vec<String> {
    let mut tables = conn
        .prepare(
            "SELECT name FROM main.sqlite_master WHERE type = 'table' AND rootpage > 0
                AND name NOT LIKE 'sqlite%' ORDER BY name",
        )
        .unwrap();
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut all = Vec::new();
    for table in tables {
        let table = format!("\"{}\"", table.replace('"', "\"\""));
        let mut statement = conn.prepare(&format!("SELECT * FROM main.{table}")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<_> = (0..columns).map(|i| row.get_ref(i).unwrap()).collect();
            all.push(format!("{table}: {values:?}"));
        }
    }
    all
}

/// The statement fails with this sentence and changes nothing; a transaction goes on.
#[track_caller]
pub fn refused(conn: &Connection, sql: &str, sentence: &str) {
    let before = (rows(conn), conn.is_autocommit());
    assert_eq!(error_of(conn, sql), (ffi::SQLITE_CONSTRAINT_TRIGGER, sentence.into()), "{sql}");
    assert_eq!((rows(conn), conn.is_autocommit()), before, "{sql}");
}

/// The statement changes this many rows of `orders`, and no stamp stays behind.
#[track_caller]
pub fn accepted(conn: &Connection, sql: &str, changes: u64) {
    let before = rows(conn);
    let run = conn.prepare(sql).and_then(|mut statement| {
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    });
    run.unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert_eq!(conn.changes(), changes, "{sql}");
    assert_eq!(rows(conn) != before, changes > 0, "{sql}");
    no_stamp_at_rest(conn, sql);
}

#[track_caller]
pub fn no_stamp_at_rest(conn: &Connection, sql: &str) {
    let stamped = "SELECT count(*) FROM orders WHERE fence IS NOT NULL";
    assert_eq!(one::<i64>(conn, stamped), 0, "{sql}");
}
