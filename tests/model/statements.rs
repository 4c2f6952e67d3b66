//! The files of `sql/` as texts that a test may change before it runs them.
#![allow(dead_code)] // every test binary uses its own part

use rusqlite::types::Value;
use rusqlite::{params_from_iter, Connection, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The texts by name: `claim` is `sql/claim.sql`.
#[derive(Clone)]
pub struct Statements(BTreeMap<String, String>);

/// What a statement answers: its rows if it gives any back, else how many it changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Rows(Vec<Vec<Value>>),
    Changes(usize),
}

impl Answer {
    /// Whether the statement did what it is for.
    pub fn accepted(&self) -> bool {
        match self {
            Answer::Rows(rows) => !rows.is_empty(),
            Answer::Changes(changes) => *changes > 0,
        }
    }
}

impl Statements {
    /// As they are in `sql/`.
    pub fn committed() -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
        let texts = std::fs::read_dir(&directory).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        });
        Statements(texts.collect())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("there is no sql/{name}.sql"))
    }

    /// The same files, one of them with another text.
    pub fn with(&self, name: &str, text: String) -> Self {
        let mut changed = self.clone();
        assert!(changed.0.insert(name.into(), text).is_some(), "there is no sql/{name}.sql");
        changed
    }

    /// The same files, with a piece of one of them replaced.
    pub fn edited(&self, name: &str, from: &str, to: &str) -> Self {
        let text = self.text(name);
        assert_eq!(text.matches(from).count(), 1, "sql/{name}.sql has one {from:?}");
        self.with(name, text.replace(from, to))
    }

    /// Makes everything that the operations need.
    pub fn install(&self, conn: &Connection) -> Result<()> {
        for name in ["schema", "enforce", "status", "queue", "purge_index", "gate"] {
            conn.execute_batch(self.text(name))?;
        }
        Ok(())
    }

    /// A database in memory with everything made.
    pub fn database(&self) -> Result<Connection> {
        let conn = Connection::open_in_memory()?;
        conn.set_prepared_statement_cache_capacity(256);
        self.install(&conn)?;
        Ok(conn)
    }

    /// Runs the statements of a file to their ends and answers for the first of them.
    pub fn run(&self, conn: &Connection, name: &str, arguments: &[Value]) -> Result<Answer> {
        let mut answers = Vec::new();
        for text in self.text(name).split("\n\n") {
            answers.push(run(conn, text, arguments)?);
        }
        Ok(answers.swap_remove(0))
    }

    /// The triggers of `guard.sql` for a table with a rowid and the UNIQUE column `slug`, filled
    /// in by hand. `indexes` are its CREATE UNIQUE INDEX statements, in single quotes.
    pub fn guard(&self, table: &str, job: &str, indexes: &str) -> String {
        // After the header, which explains the placeholders.
        let (_, triggers) = self.text("guard").split_once("\n\n").expect("a header");
        let mut text = triggers.to_owned();
        let replaces: String = ["v.rowid = new.rowid", "v.slug = new.slug"]
            .iter()
            .map(|conflict| {
                format!(
                    "SELECT RAISE(ABORT, '{table}: the row would replace one of another job')
                       FROM {table} AS v WHERE {conflict}
                        AND CAST(v.{job} AS TEXT) IS NOT CAST(new.{job} AS TEXT) COLLATE BINARY;"
                )
            })
            .collect();
        let first = format!("fence_guard_{table}_insert");
        for (placeholder, value) in [
            ("{table}", table),
            ("{job}", job),
            ("{row}", "rowid = new.rowid"),
            ("{label}", table),
            ("{name}", &first),
            ("{indexes}", indexes),
            ("{replaces}", &replaces),
        ] {
            text = text.replace(placeholder, value);
        }
        for event in ["insert", "inserted", "update", "updated", "delete"] {
            text = text.replace(&format!("{{{event}}}"), &format!("fence_guard_{table}_{event}"));
        }
        text
    }
}

/// Runs one statement to its end: in autocommit the commit happens in its last step.
pub fn run(conn: &Connection, text: &str, arguments: &[Value]) -> Result<Answer> {
    let mut statement = conn.prepare_cached(text)?;
    let columns = statement.column_count();
    let needed = statement.parameter_count().min(arguments.len());
    let arguments = params_from_iter(&arguments[..needed]);
    if columns == 0 {
        return statement.execute(arguments).map(Answer::Changes);
    }
    let mut rows = statement.query(arguments)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((0..columns).map(|i| row.get(i)).collect::<Result<_>>()?);
    }
    Ok(Answer::Rows(found))
}
