//! Fencing a table of the user's own: writes the triggers of `sql/guard.sql` for it.
use rusqlite::{ffi, Connection};

use crate::args::Quoted;
use crate::session::Session;
use crate::{Error, Result};

const TEMPLATE: &str = include_str!("../sql/guard.sql");

/// True if the table was not guarded before, or not in this form.
pub(crate) fn guard(session: &Session, function: &str, table: &str, job: &str) -> Result<bool> {
    let conn = session.connection();
    let done = session.atomically(|| {
        let table = Table::read(conn, table)?;
        let job = table.column(job)?;
        let triggers = table.triggers(job);
        let stored = guard_triggers(conn, &table.name)?;
        let standing = |trigger: &String| stored.iter().any(|(_, sql)| same(trigger, sql));
        if stored.len() == triggers.len() && triggers.iter().all(standing) {
            return Ok(false);
        }
        drop_triggers(conn, &stored)?;
        table.stamp(conn)?;
        for trigger in triggers {
            conn.execute_batch(&trigger)?;
        }
        Ok(true)
    });
    done.map_err(|error| match error {
        Error::InvalidArgument(what) => Error::invalid(function, what),
        other => other,
    })
}

/// True if the table was guarded. The column `fence` stays.
pub(crate) fn unguard(session: &Session, table: &str) -> Result<bool> {
    let conn = session.connection();
    session.atomically(|| {
        let stored = guard_triggers(conn, table)?;
        drop_triggers(conn, &stored)?;
        Ok(!stored.is_empty())
    })
}

/// The name of the function comes before it.
fn invalid<T>(what: impl std::fmt::Display) -> Result<T> {
    Err(Error::InvalidArgument(what.to_string()))
}

/// SQLite stores a trigger from its name on, after `CREATE TRIGGER `. The whole text is compared:
/// with a comment between, another trigger could end like ours.
fn same(statement: &str, stored: &str) -> bool {
    let ours = statement.split_once("CREATE TRIGGER main.").map(|(_, ours)| ours);
    ours.map(|ours| ours.trim_end().trim_end_matches(';')) == stored.strip_prefix("CREATE TRIGGER ")
}

/// Our triggers on a table: names and texts.
fn guard_triggers(conn: &Connection, table: &str) -> Result<Vec<(String, String)>> {
    let mut statement = conn.prepare(
        "SELECT name, sql FROM main.sqlite_master
          WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE
            AND substr(name, 1, 12) = 'fence_guard_'",
    )?;
    let rows = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn drop_triggers(conn: &Connection, triggers: &[(String, String)]) -> Result<()> {
    for (name, _) in triggers {
        conn.execute_batch(&format!("DROP TRIGGER main.{}", identifier(name)))?;
    }
    Ok(())
}

/// A name as SQL: `"orders"`, `"say ""hi"""`.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Inside a text literal.
fn literal(text: &str) -> String {
    text.replace('\'', "''")
}

struct Column {
    name: String,
    /// Position in the primary key, from 1; 0 if not part of it.
    key: i64,
    not_null: bool,
    has_default: bool,
    generated: bool,
    kind: String,
}

/// What the guard of a table depends on.
struct Table {
    name: String,
    columns: Vec<Column>,
    /// What finds a row again: `rowid = new.rowid`, or one condition for each column of the key.
    row: Vec<String>,
    /// For each way in which a new row can take another's place: `v."a" = new."a" AND ..`.
    conflicts: Vec<String>,
    /// The columns of the UNIQUE indexes.
    unique: Vec<String>,
    /// The CREATE UNIQUE INDEX statements of the schema.
    indexes: Vec<String>,
    /// Triggers of another table, renamed since, may have the names we would give.
    prefix: String,
}

impl Table {
    fn read(conn: &Connection, name: &str) -> Result<Table> {
        let quoted = Quoted(name);
        let found = conn
            .prepare(
                "SELECT name, type, rootpage FROM main.sqlite_master
                  WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')",
            )?
            .query_map([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .next()
            .transpose()?;
        let (name, kind, root): (String, String, i64) = match found {
            Some(found) => found,
            None if name.contains('.') => {
                return invalid(format_args!(
                    "there is no table {quoted} in main, give its name without a schema"
                ))
            }
            None => return invalid(format_args!("there is no table {quoted} in main")),
        };
        if kind == "view" {
            return invalid(format_args!("{quoted} is a view, a table is needed"));
        }
        if root == 0 {
            return invalid(format_args!("{quoted} is a virtual table, which has no triggers"));
        }
        let lower = name.to_ascii_lowercase();
        if lower == "jobs" || lower.starts_with("fence_") || lower.starts_with("sqlite_") {
            return invalid(format_args!("{quoted} is not a table of your own"));
        }
        let columns = columns(conn, &name)?;
        let mut table = Table {
            row: Vec::new(),
            conflicts: Vec::new(),
            unique: Vec::new(),
            indexes: Vec::new(),
            prefix: prefix(conn, &name)?,
            name,
            columns,
        };
        table.read_row(conn)?;
        table.read_conflicts(conn)?;
        Ok(table)
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name))
    }

    fn column(&self, name: &str) -> Result<&Column> {
        match self.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)) {
            Some(column) if column.name.eq_ignore_ascii_case("fence") => {
                invalid("the column fence is for the stamp, it cannot name the job")
            }
            Some(column) => Ok(column),
            None => invalid(format_args!(
                "the table {} has no column {}",
                Quoted(&self.name),
                Quoted(name)
            )),
        }
    }

    fn read_row(&mut self, conn: &Connection) -> Result<()> {
        let rowid = ["rowid", "_rowid_", "oid"].into_iter().find(|name| !self.has(name));
        if let Some(rowid) = rowid.map(|name| self.reads(conn, name)).transpose()?.flatten() {
            self.row = vec![format!("{rowid} = new.{rowid}")];
            self.conflicts.push(format!("v.{rowid} = new.{rowid}"));
            return Ok(());
        }
        let mut key: Vec<&Column> = self.columns.iter().filter(|c| c.key > 0).collect();
        key.sort_by_key(|c| c.key);
        if key.is_empty() {
            return invalid(format_args!(
                "the table {} hides its rowid and has no primary key",
                Quoted(&self.name)
            ));
        }
        let key: Vec<String> = key.iter().map(|c| identifier(&c.name)).collect();
        // The key of a rowid table may be NULL.
        self.row = key.iter().map(|name| format!("{name} IS new.{name}")).collect();
        // An INTEGER PRIMARY KEY is in no index.
        let same: Vec<_> = key.iter().map(|name| format!("v.{name} = new.{name}")).collect();
        self.conflicts.push(same.join(" AND "));
        Ok(())
    }

    /// The name by which rows can be found, unless the table is WITHOUT ROWID.
    fn reads<'n>(&self, conn: &Connection, rowid: &'n str) -> Result<Option<&'n str>> {
        let sql = format!("SELECT {rowid} FROM main.{}", identifier(&self.name));
        match conn.prepare(&sql).map_err(Error::from) {
            Ok(_) => Ok(Some(rowid)),
            // No such column. Another error, such as no memory, says nothing about the table.
            Err(e) if e.extended_code() == ffi::SQLITE_ERROR => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn read_conflicts(&mut self, conn: &Connection) -> Result<()> {
        let mut statement = conn.prepare(
            "SELECT name FROM temp.pragma_index_list(?1, 'main') WHERE \"unique\" ORDER BY name",
        )?;
        let unique = statement.query_map([&self.name], |row| row.get(0))?;
        for index in unique.collect::<rusqlite::Result<Vec<String>>>()? {
            let mut statement = conn.prepare(
                "SELECT name, coll FROM temp.pragma_index_xinfo(?1, 'main') WHERE key ORDER BY seqno",
            )?;
            let mut rows = statement.query([&index])?;
            let mut conflict = Vec::new();
            while let Some(row) = rows.next()? {
                let Some(column) = row.get::<_, Option<String>>(0)? else {
                    return invalid(format_args!(
                        "the UNIQUE index {} is on an expression, so INSERT OR REPLACE could \
                         delete rows unseen",
                        Quoted(&index)
                    ));
                };
                self.unique.push(column.clone());
                let (column, collation) = (identifier(&column), row.get::<_, String>(1)?);
                conflict
                    .push(format!("v.{column} = new.{column} COLLATE {}", identifier(&collation)));
            }
            self.conflicts.push(conflict.join(" AND "));
        }
        self.indexes = conn
            .prepare(
                "SELECT sql FROM main.sqlite_master WHERE tbl_name = ?1
                    AND sql BETWEEN 'CREATE UNIQUE' AND 'CREATE UNIQUE~' ORDER BY name",
            )?
            .query_map([&self.name], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(())
    }

    /// Adds the stamp column, or takes one that an earlier guard left.
    fn stamp(&self, conn: &Connection) -> Result<()> {
        let table = identifier(&self.name);
        let Some(stamp) = self.columns.iter().find(|c| c.name.eq_ignore_ascii_case("fence")) else {
            let sql = format!("ALTER TABLE main.{table} ADD COLUMN fence INTEGER");
            return Ok(conn.execute_batch(&sql)?);
        };
        let sql = format!("SELECT EXISTS (SELECT 1 FROM main.{table} WHERE fence IS NOT NULL)");
        let in_use: bool = conn.query_row(&sql, [], |row| row.get(0))?;
        let plain = !stamp.not_null && !stamp.has_default && !stamp.generated && stamp.key == 0;
        if in_use || !plain || stamp.kind != "INTEGER" {
            return invalid(format_args!(
                "the table {} has a column fence of its own",
                Quoted(&self.name)
            ));
        }
        Ok(())
    }

    /// Statements that refuse a write which could delete a row of another job: `INSERT OR REPLACE`
    /// and `UPDATE OR REPLACE` fire no delete trigger.
    fn replaces(&self, job: &Column) -> String {
        let (label, table, quoted) = (literal(&self.name), &self.name, identifier(&job.name));
        let mut statements = String::new();
        let mut refuse = |sentence: &str, rest: &str| {
            statements +=
                &format!("  SELECT RAISE(ABORT, '{label}: {}')\n   {rest};\n", literal(sentence));
        };
        // REPLACE puts the default in the place of such a NULL, after these triggers ran.
        let generated = self.columns.iter().any(|c| c.generated);
        for column in self.columns.iter().filter(|c| c.not_null && c.has_default) {
            if generated || self.unique.contains(&column.name) {
                let name = identifier(&column.name);
                refuse(&format!("{} is NULL", column.name), &format!("WHERE new.{name} IS NULL"));
            }
        }
        // An INTEGER PRIMARY KEY that SQLite is yet to choose reads as -1 here.
        if job.key > 0 && job.kind == "INTEGER" {
            refuse("state the row's job", &format!("WHERE new.{quoted} = -1"));
        }
        for conflict in &self.conflicts {
            refuse(
                "the row would replace one of another job",
                &format!(
                    "FROM {} AS v WHERE {conflict}\n    AND CAST(v.{quoted} AS TEXT) IS NOT \
                     CAST(new.{quoted} AS TEXT) COLLATE BINARY",
                    identifier(table)
                ),
            );
        }
        statements
    }

    fn triggers(&self, job: &Column) -> Vec<String> {
        let replaces = self.replaces(job);
        let job = identifier(&job.name);
        let label = literal(&self.name);
        let indexes: Vec<_> =
            self.indexes.iter().map(|sql| format!("'{}'", literal(sql))).collect();
        let trigger = |event: &str| identifier(&format!("{}_{event}", self.prefix));
        let fill = |text: &str| {
            // One pass, so that a name which looks like a placeholder stays a name.
            let mut filled = String::new();
            let mut rest = text;
            while let Some((before, after)) = rest.split_once('{') {
                let (placeholder, after) = after.split_once('}').expect("the template is closed");
                filled.push_str(before);
                filled.push_str(&match placeholder {
                    "table" => identifier(&self.name),
                    "job" => job.clone(),
                    "row" => self.row.join(" AND "),
                    "name" => literal(&format!("{}_insert", self.prefix)),
                    "label" => label.clone(),
                    "indexes" => indexes.join(", "),
                    "replaces" => replaces.clone(),
                    event => trigger(event),
                });
                rest = after;
            }
            filled + rest
        };
        TEMPLATE.split("\n\n").skip(1).map(fill).collect()
    }
}

fn columns(conn: &Connection, table: &str) -> Result<Vec<Column>> {
    let mut statement = conn.prepare(
        "SELECT name, pk, \"notnull\", dflt_value IS NOT NULL, hidden <> 0, upper(type)
           FROM temp.pragma_table_xinfo(?1, 'main')",
    )?;
    let rows = statement.query_map([table], |row| {
        Ok(Column {
            name: row.get(0)?,
            key: row.get(1)?,
            not_null: row.get(2)?,
            has_default: row.get(3)?,
            generated: row.get(4)?,
            kind: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// `fence_guard_<table>`, longer if another table has triggers of that name.
fn prefix(conn: &Connection, table: &str) -> Result<String> {
    let mut prefix = format!("fence_guard_{table}");
    let mut statement = conn.prepare(
        "SELECT EXISTS (SELECT 1 FROM main.sqlite_master WHERE type = 'trigger'
                           AND tbl_name <> ?2 COLLATE NOCASE AND name = ?1 || '_insert' COLLATE NOCASE)",
    )?;
    while statement.query_row([&prefix, table], |row| row.get(0))? {
        prefix.push('_');
    }
    Ok(prefix)
}
