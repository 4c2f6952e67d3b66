//! Two doors to one protocol: the functions of the loaded extension, and the files of `sql/` on a
//! connection that never loads anything.
#![allow(dead_code)] // every test binary uses its own part

use crate::common::{self, Scratch};
use rusqlite::types::{FromSql, Value};
use rusqlite::{Connection, ToSql};
use std::ops::Deref;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Door {
    Loaded,
    Plain,
}

pub const DOORS: [Door; 2] = [Door::Loaded, Door::Plain];

/// A connection that works through one of the doors.
pub struct Client {
    pub door: Door,
    conn: Connection,
}

impl Deref for Client {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.conn
    }
}

impl Door {
    /// On a database in memory, with everything made.
    pub fn memory(self) -> Client {
        let client = self.on(Connection::open_in_memory().unwrap());
        client.init();
        client
    }

    /// On a file, with everything made.
    pub fn open(self, scratch: &Scratch) -> Client {
        let client = self.on(scratch.connect());
        client.init();
        client
    }

    pub fn on(self, conn: Connection) -> Client {
        if self == Door::Loaded {
            common::load(&conn).unwrap();
        }
        Client { door: self, conn }
    }
}

/// A file of `sql/`, as a client without the extension reads it.
pub fn sql(name: &str) -> String {
    let file = format!("{}/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"))
}

impl Client {
    pub fn init(&self) {
        match self.door {
            Door::Loaded => assert_eq!(common::one::<i64>(self, "SELECT fence_init()"), 1),
            Door::Plain => self.batch(&(sql("schema") + &sql("enforce") + &sql("status"))),
        }
    }

    pub fn batch(&self, text: &str) {
        self.conn.execute_batch(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    }

    pub fn one<T: FromSql>(&self, text: &str) -> T {
        common::one(self, text)
    }

    /// One operation. A file answers by its row or by the number of changes, as its function does.
    pub fn run(&self, operation: &str, arguments: &[&dyn ToSql]) -> rusqlite::Result<Value> {
        let text = match self.door {
            Door::Loaded => {
                let marks: Vec<_> = (1..=arguments.len()).map(|i| format!("?{i}")).collect();
                format!("SELECT fence_{operation}({})", marks.join(", "))
            }
            Door::Plain => sql(operation),
        };
        let mut statement = self.conn.prepare(&text)?;
        if statement.column_count() == 0 {
            return statement.execute(arguments).map(|changes| Value::Integer(changes as i64));
        }
        let mut rows = statement.query(arguments)?;
        let answer = rows.next()?.map_or(Ok(Value::Null), |row| row.get(0))?;
        while rows.next()?.is_some() {}
        Ok(answer)
    }

    fn yes(&self, operation: &str, arguments: &[&dyn ToSql]) -> bool {
        match self.run(operation, arguments) {
            Ok(Value::Integer(answer @ (0 | 1))) => answer == 1,
            other => panic!("{operation}: {other:?}"),
        }
    }

    pub fn enqueue(&self, id: &str) -> bool {
        self.yes("enqueue", &[&id])
    }

    pub fn claim(&self, id: &str, owner: &str, now: f64, ttl: f64) -> Option<i64> {
        match self.run("claim", &[&id, &owner, &now, &ttl]) {
            Ok(Value::Integer(fence)) => Some(fence),
            Ok(Value::Null) => None,
            other => panic!("claim: {other:?}"),
        }
    }

    pub fn renew(&self, id: &str, owner: &str, fence: i64, now: f64, ttl: f64) -> bool {
        self.yes("renew", &[&id, &owner, &fence, &now, &ttl])
    }

    pub fn complete(&self, id: &str, owner: &str, fence: i64, now: f64, result: &str) -> bool {
        self.yes("complete", &[&id, &owner, &fence, &now, &result])
    }

    pub fn release(&self, id: &str, owner: &str, fence: i64) -> bool {
        self.yes("release", &[&id, &owner, &fence])
    }

    pub fn check(&self, id: &str, owner: &str, fence: i64, now: f64) -> String {
        match self.run("check", &[&id, &owner, &fence, &now]) {
            Ok(Value::Text(word)) => word,
            other => panic!("check: {other:?}"),
        }
    }

    /// How many jobs a purge deleted.
    pub fn purge(&self, before: f64, limit: i64) -> i64 {
        if self.door == Door::Plain {
            self.batch(&sql("purge_index"));
        }
        match self.run("purge", &[&before, &limit]) {
            Ok(Value::Integer(deleted)) => deleted,
            other => panic!("purge: {other:?}"),
        }
    }

    /// Without the extension, the statements of the file in one transaction.
    pub fn restore(&self, bump: i64) -> rusqlite::Result<()> {
        if self.door == Door::Loaded {
            assert_eq!(self.run("restore", &[&bump])?, Value::Integer(1));
            return Ok(());
        }
        self.batch("SAVEPOINT restoring");
        let done = sql("restore").split("\n\n").try_for_each(|statement| {
            self.conn.execute(statement, [bump])?;
            Ok(())
        });
        self.batch(match done {
            Ok(()) => "RELEASE restoring",
            Err(_) => "ROLLBACK TO restoring; RELEASE restoring",
        });
        done
    }

    pub fn pass(&self, resource: &str, fence: i64) -> bool {
        if self.door == Door::Plain {
            self.batch(&sql("gate"));
        }
        self.yes("pass", &[&resource, &fence])
    }

    /// Everything in the job table.
    pub fn jobs(&self) -> Vec<String> {
        common::jobs(self)
    }

    /// The fence that a job starts at, or has come to.
    pub fn fence(&self, id: &str) -> i64 {
        let text = "SELECT fence FROM main.jobs WHERE id = ?1";
        self.conn.query_row(text, [id], |row| row.get(0)).unwrap()
    }

    pub fn floor(&self) -> i64 {
        self.one("SELECT fence FROM main.fence_floor")
    }

    /// The sentence of a statement that a trigger refuses; nothing may have changed.
    pub fn refusal(&self, text: &str) -> String {
        let everything = || (self.jobs(), self.floor());
        let before = everything();
        let (code, sentence) = common::error_of(self, text);
        assert_eq!(code, rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER, "{text}: {sentence}");
        assert_eq!(everything(), before, "{text}");
        sentence
    }
}

/// Runs a program without the extension on a database: SQL in the sqlite3 shell. One line a row,
/// columns separated by '|', an error as SQLite's sentence in the standard error.
pub fn plain_shell(scratch: &Scratch, text: &str) -> Option<std::process::Output> {
    let program = common::client("sqlite3")?;
    let mut command = std::process::Command::new(program);
    Some(common::pipe(command.arg("-batch").arg(scratch.db()), text))
}

/// Statements in Python, without the extension and in autocommit: the sentence of each that is
/// refused, or "ok".
pub fn plain_python(scratch: &Scratch, statements: &[&str]) -> Option<Vec<String>> {
    const PROGRAM: &str = "
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    try:
        conn.execute(statement).fetchall()
        print('ok')
    except sqlite3.IntegrityError as e:
        print(e)
";
    let mut command = std::process::Command::new(common::python()?);
    command.args(["-c", PROGRAM]).arg(scratch.db()).args(statements);
    let output = common::pipe(&mut command, "");
    assert!(output.status.success(), "{}", common::stderr(&output));
    Some(common::stdout(&output).lines().map(String::from).collect())
}
