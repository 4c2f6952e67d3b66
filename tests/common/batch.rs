//! A database for the tests of `fence_claim_batch`.
use super::common::{one, Scratch};
use rusqlite::types::Value;
use rusqlite::Connection;

/// Ten jobs, `q:1` to `q:10`, and a table `t` with the rows 1, 2, 3.
pub fn prepared(scratch: &Scratch) -> Connection {
    let conn = scratch.loaded();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL;
         SELECT fence_init();
         SELECT fence_init_queue();
         SELECT fence_enqueue_batch(
             '[\"q:1\",\"q:2\",\"q:3\",\"q:4\",\"q:5\",\"q:6\",\"q:7\",\"q:8\",\"q:9\",\"q:10\"]');
         CREATE TABLE t(n INTEGER);
         INSERT INTO t VALUES (1), (2), (3);",
    )
    .unwrap();
    conn
}

/// The rows of a query, each column in SQL notation.
pub fn rows(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let columns = statement.column_count();
    let found = statement.query_map([], |row| {
        let values = (0..columns).map(|i| {
            Ok(match row.get(i)? {
                Value::Null => "NULL".into(),
                Value::Integer(i) => i.to_string(),
                Value::Real(r) => format!("{r:?}"),
                Value::Text(t) => t,
                Value::Blob(_) => "BLOB".into(),
            })
        });
        Ok(values.collect::<rusqlite::Result<Vec<String>>>()?.join(" "))
    });
    found.unwrap().collect::<rusqlite::Result<_>>().unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// How many jobs are claimed, each of them once.
pub fn claimed(conn: &Connection) -> i64 {
    assert_eq!(one::<i64>(conn, "SELECT max(fence) <= 1 FROM jobs"), 1, "claimed twice");
    one(conn, "SELECT count(*) FROM jobs WHERE owner IS NOT NULL")
}
