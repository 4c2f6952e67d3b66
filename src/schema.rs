//! Making the job table, and telling a foreign table of that name from ours.
use rusqlite::Connection;

use crate::{Error, Result};

const SCHEMA: &str = include_str!("../sql/schema.sql");

const COLUMNS: [(&str, &str); 6] = [
    ("id", "TEXT"),
    ("owner", "TEXT"),
    ("until", "REAL"),
    ("fence", "INTEGER"),
    ("result", "TEXT"),
    ("done", "INTEGER"),
];

/// Creates what is missing. Harmless to repeat, also from two processes at once.
pub(crate) fn init(conn: &Connection, function: &str) -> Result<()> {
    if present(conn)?.is_none() {
        conn.execute_batch(SCHEMA)?;
    }
    // Looked at again: another program may have made a table of its own in between.
    match present(conn)? {
        Some(kind) if kind != "table" => Err(Error::invalid(
            function,
            format_args!("the database has a {kind} named jobs, a table is needed"),
        )),
        _ => check_columns(conn, function),
    }
}

/// What main.jobs is: a table, a view, or nothing.
fn present(conn: &Connection) -> Result<Option<String>> {
    let mut statement = conn.prepare(
        "SELECT type FROM main.sqlite_master
          WHERE name = 'jobs' COLLATE NOCASE AND type IN ('table', 'view')",
    )?;
    let mut rows = statement.query([])?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}

fn check_columns(conn: &Connection, function: &str) -> Result<()> {
    let mut statement =
        conn.prepare("SELECT name, type, pk FROM pragma_table_info('jobs', 'main') ORDER BY cid")?;
    let found = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?)))?
        .collect::<rusqlite::Result<Vec<(String, String, i64)>>>()?;
    let ours = found.len() == COLUMNS.len()
        && found.iter().zip(COLUMNS).enumerate().all(|(i, ((name, kind, pk), ours))| {
            (name.as_str(), kind.as_str()) == ours && *pk == i64::from(i == 0)
        });
    if ours {
        return Ok(());
    }
    let list = |columns: &mut dyn Iterator<Item = String>| columns.collect::<Vec<_>>().join(", ");
    Err(Error::invalid(
        function,
        format_args!(
            "the table jobs has other columns: needs ({}) with id as primary key, found ({})",
            list(&mut COLUMNS.iter().map(|(name, kind)| format!("{name} {kind}"))),
            list(&mut found.iter().map(|(name, kind, _)| format!("{name} {kind}"))),
        ),
    ))
}
