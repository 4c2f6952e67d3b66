//! Making and upgrading what a database needs: the job table, and what the file itself refuses.
use rusqlite::Connection;

use crate::args::Cut;
use crate::operation::file;
use crate::session::Session;
use crate::{Error, Result};

const COLUMNS: [&str; 6] = [
    "id TEXT PRIMARY KEY",
    "owner TEXT",
    "until REAL NOT NULL DEFAULT 0",
    "fence INTEGER NOT NULL DEFAULT 0",
    "result TEXT",
    "done INTEGER NOT NULL DEFAULT 0",
];

/// Creates what is missing and replaces triggers and views of another version. Harmless to
/// repeat, also from two processes at once; writes nothing where nothing is to be done.
pub(crate) fn init(session: &Session, function: &str) -> Result<()> {
    let conn = session.connection();
    if kind(conn, "jobs")?.is_some() {
        return complete(session, function);
    }
    // The first statement writes, so that it can wait for another writer.
    session.in_savepoint(|| {
        conn.execute_batch(file("schema"))?;
        complete(session, function)
    })
}

/// The same where there is a table jobs, or was not a moment ago.
fn complete(session: &Session, function: &str) -> Result<()> {
    let conn = session.connection();
    match kind(conn, "jobs")? {
        Some(kind) if kind != "table" => {
            return Err(Error::invalid(
                function,
                format_args!(
                    "the database has {} {kind} named jobs, a table is needed",
                    article(&kind)
                ),
            ))
        }
        _ => check_columns(conn, function)?,
    }
    if up_to_date(conn, function)? {
        return Ok(());
    }
    session.atomically(|| {
        for statement in statements() {
            if let Some(object) = Object::of(statement) {
                object.replace(conn, function)?;
            } else {
                conn.execute_batch(statement)?;
            }
        }
        // Compiles the triggers: a table of somebody else's under one of our names is an error
        // now, not at the first job.
        conn.prepare("INSERT INTO main.jobs(id) SELECT NULL WHERE 0")?;
        Ok(())
    })
}

fn up_to_date(conn: &Connection, function: &str) -> Result<bool> {
    for object in statements().filter_map(Object::of) {
        if !object.present(conn, function)? {
            return Ok(false);
        }
    }
    Ok(conn.query_row("SELECT EXISTS (SELECT 1 FROM main.fence_floor)", [], |row| row.get(0))?)
}

/// The statements of the files, which an empty line separates.
fn statements() -> impl Iterator<Item = &'static str> {
    [file("enforce"), file("status")].into_iter().flat_map(|text| text.split("\n\n"))
}

/// A `CREATE <kind> IF NOT EXISTS main.<name>..` of the files.
struct Object {
    kind: &'static str,
    name: &'static str,
    /// From the name on, as SQLite stores it.
    definition: &'static str,
    statement: &'static str,
}

impl Object {
    fn of(statement: &'static str) -> Option<Object> {
        let (_, create) = statement.split_once("CREATE ")?;
        let (kind, rest) = create.split_once(" IF NOT EXISTS main.")?;
        let name = &rest[..rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric())?];
        let definition = rest.trim_end().trim_end_matches(';');
        Some(Object { kind, name, definition, statement })
    }

    /// Whether the file has this object in this version. A table is never replaced.
    fn present(&self, conn: &Connection, function: &str) -> Result<bool> {
        let Some((kind, sql)) = stored(conn, self.name)? else { return Ok(false) };
        if !kind.eq_ignore_ascii_case(self.kind) {
            return Err(Error::invalid(
                function,
                format_args!("the database has {} {kind} named {}", article(&kind), self.name),
            ));
        }
        // The whole text: with a comment between, another trigger could end like ours.
        Ok(self.kind == "TABLE" || sql == format!("CREATE {} {}", self.kind, self.definition))
    }

    fn replace(&self, conn: &Connection, function: &str) -> Result<()> {
        if !self.present(conn, function)? {
            if self.kind != "TABLE" {
                conn.execute_batch(&format!("DROP {} IF EXISTS main.{}", self.kind, self.name))?;
            }
            conn.execute_batch(self.statement)?;
        }
        Ok(())
    }
}

/// Type and text of an object in main.
fn stored(conn: &Connection, name: &str) -> Result<Option<(String, String)>> {
    let mut statement = conn.prepare(
        "SELECT type, coalesce(sql, '') FROM main.sqlite_master WHERE name = ?1 COLLATE NOCASE",
    )?;
    let mut rows = statement.query([name])?;
    Ok(rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?)
}

fn article(kind: &str) -> &'static str {
    if kind == "index" {
        "an"
    } else {
        "a"
    }
}

fn kind(conn: &Connection, name: &str) -> Result<Option<String>> {
    Ok(stored(conn, name)?.map(|(kind, _)| kind))
}

/// A WITHOUT ROWID table, which our triggers could not live on, shows by the NOT NULL of its key.
fn check_columns(conn: &Connection, function: &str) -> Result<()> {
    let mut statement = conn.prepare(
        "SELECT name || ' ' || type || iif(pk, ' PRIMARY KEY', '')
                || iif(\"notnull\", ' NOT NULL', '') || coalesce(' DEFAULT ' || dflt_value, '')
                || iif(hidden, ' GENERATED', '')
           FROM temp.pragma_table_xinfo('jobs', 'main') ORDER BY cid",
    )?;
    let found =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    if found != COLUMNS {
        return Err(Error::invalid(
            function,
            format_args!(
                "the table jobs has other columns: needs ({}), found ({})",
                COLUMNS.join(", "),
                Cut(&found.join(", "), 400)
            ),
        ));
    }
    Ok(())
}
