//! One call of one function with arguments of any type: it answers or fails with a sentence, never
//! panics, and where it fails nothing has changed. The functions are those that SQLite lists, so
//! that a new one is fuzzed from its first day.
//!
//! A million calls: `RUSTC_BOOTSTRAP=1 cargo fuzz run -s none arguments -- -runs=1000000`
#![no_main]

use libfuzzer_sys::fuzz_target;
use rusqlite::backup::Backup;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{ffi, params_from_iter, Connection, ToSql};
use std::cell::RefCell;
use std::collections::HashMap;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Autocommit,
    Transaction,
    Savepoint,
    Update,
    Insert,
    /// `SELECT * FROM f(..)`
    Table,
}

const PLACES: [Place; 6] = [
    Place::Autocommit,
    Place::Transaction,
    Place::Savepoint,
    Place::Update,
    Place::Insert,
    Place::Table,
];

/// An argument; unlike rusqlite's own value its text need not be UTF-8.
#[derive(Clone, Debug)]
enum Argument {
    Plain(Value),
    Text(Vec<u8>),
}

impl ToSql for Argument {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Argument::Plain(value) => ToSqlOutput::Borrowed(value.into()),
            Argument::Text(bytes) => ToSqlOutput::Borrowed(ValueRef::Text(bytes)),
        })
    }
}

/// Texts that mean something to some function.
const TEXTS: &[&str] = &[
    "free",
    "held",
    "done",
    "dead",
    "last",
    "q:1",
    "missing",
    "a",
    "b",
    "q",
    "",
    "orders",
    "job",
    "guarded",
    "Orders",
    "fence",
    "jobs",
    "fence_floor",
    "sqlite_master",
    "odd\"'; --",
    "odd",
    "v",
    "r",
    "[]",
    "[\"n1\",\"n2\",\"n1\"]",
    "[\"n1\",7]",
    "[[\"held\",1]]",
    "[[\"held\",1,\"r\"],[\"free\",0],[\"done\",1,null]]",
    "[[\"held\",1],[\"held\",1.5]]",
    "[[\"held\",\"1\"]]",
    "[[1,1]]",
    "[[[[[",
    "{\"a\":1}",
    "[\"\\ud800\"]",
    "[\"\\u0000\"]",
    "[[\"\\udc00\",1,\"\\ud800\"]]",
    "NaN",
    "inf",
    "9e999",
    "0x10",
    " 5 ",
    "1e308",
    "1.0",
    "-0",
    "9223372036854775807",
    "9223372036854775808",
    "\u{feff}held",
    "held\0",
    "\u{1f}",
];

const REALS: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    0.5,
    -1.0,
    5e-324,
    1e-9,
    1e15,
    9_007_199_254_740_992.0,
    9_007_199_254_740_994.0,
    1e17,
    9.223_372_036_854_775e18,
    1e308,
    f64::MAX,
    f64::INFINITY,
    f64::NAN,
];

const INTEGERS: [i64; 8] =
    [0, 1, -1, i64::MAX, i64::MIN, i64::MAX - 1, 9_007_199_254_740_993, 2_000_000_000];

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    fn some(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte()).min(self.0.len());
        let (some, rest) = self.0.split_at(len);
        self.0 = rest;
        some.to_vec()
    }

    fn argument(&mut self) -> Argument {
        Argument::Plain(match self.byte() % 12 {
            0 => Value::Null,
            1 => Value::Integer(i64::from_le_bytes(self.bytes())),
            2 => Value::Integer(i64::from(self.byte() as i8)),
            3 => Value::Integer(INTEGERS[usize::from(self.byte()) % INTEGERS.len()]),
            4 => Value::Real(f64::from_le_bytes(self.bytes())),
            5 => Value::Real(REALS[usize::from(self.byte()) % REALS.len()]),
            6 => Value::Blob(self.some()),
            7 => return Argument::Text(self.some()),
            8 => {
                // Long enough to be cut in every sentence.
                let (part, times) = (self.some(), usize::from(self.byte()) * 16);
                return Argument::Text(part.repeat(times));
            }
            9 => Value::Text(i64::from_le_bytes(self.bytes()).to_string()),
            _ => Value::Text(TEXTS[usize::from(self.byte()) % TEXTS.len()].into()),
        })
    }
}

/// A database in which every function finds something to do.
struct Fixture {
    conn: Connection,
    pristine: Connection,
    dump: String,
}

impl Fixture {
    fn new(encoding: &str) -> Fixture {
        let conn = Connection::open_in_memory().unwrap();
        conn.pragma_update(None, "encoding", encoding).unwrap();
        fence::register(&conn).unwrap();
        conn.set_prepared_statement_cache_capacity(512);
        conn.execute_batch(
            "SELECT fence_init(), fence_init_queue();
             SELECT fence_enqueue_batch('[\"free\",\"held\",\"done\",\"dead\",\"last\",\"q:1\"]');
             SELECT fence_claim('held', 'a', 0, 1e10), fence_claim('done', 'a', 0, 10),
                    fence_claim('dead', 'a', 0, 10);
             SELECT fence_complete('done', 'a', 1, 5, 'r'), fence_fail('dead', 'a', 1, 5, 'e');
             UPDATE jobs SET fence = 9223372036854775806 WHERE id = 'last';
             SELECT fence_pass('r', 5);
             CREATE TABLE scratch(x);
             INSERT INTO scratch VALUES (1);
             CREATE TABLE orders(id INTEGER PRIMARY KEY, job TEXT, n UNIQUE);
             CREATE TABLE guarded(job TEXT PRIMARY KEY, n) WITHOUT ROWID;
             CREATE TABLE \"odd\"\"'; --\"(job, \"{table} '\");
             CREATE TABLE odd(a, fence TEXT);
             CREATE VIEW v AS SELECT 1 AS job;
             SELECT fence_guard('guarded', 'job');",
        )
        .unwrap();
        let mut pristine = Connection::open_in_memory().unwrap();
        Backup::new(&conn, &mut pristine).unwrap().step(-1).unwrap();
        let mut fixture = Fixture { conn, pristine, dump: String::new() };
        fixture.dump = fixture.dump();
        fixture
    }

    fn restore(&mut self) {
        Backup::new(&self.pristine, &mut self.conn).unwrap().step(-1).unwrap();
        assert_eq!(self.dump(), self.dump);
    }

    /// Everything that a call could change.
    fn dump(&self) -> String {
        let sql = "
            SELECT (SELECT group_concat(name || sql, ';') FROM sqlite_master)
                || (SELECT group_concat(concat, ';') FROM
                     (SELECT quote(id) || quote(owner) || quote(until) || quote(fence)
                             || quote(result) || quote(done) AS concat FROM jobs ORDER BY rowid))
                || (SELECT fence FROM fence_floor)
                || (SELECT group_concat(resource || quote(fence)) FROM fence_gate)
                || (SELECT count(*) || quote(max(x)) FROM scratch)
                || (SELECT count(*) FROM fence_replaced) || (SELECT count(*) FROM orders)";
        let mut statement = self.conn.prepare_cached(sql).unwrap();
        statement.query_row([], |row| row.get(0)).unwrap()
    }
}

/// Name, number of arguments, and whether it writes.
type Function = (String, i32, bool);

fn functions(conn: &Connection) -> Vec<Function> {
    let mut statement = conn
        .prepare(
            "SELECT DISTINCT name, narg, flags & ?1 <> 0 FROM pragma_function_list
              WHERE name LIKE 'fence\\_%' ESCAPE '\\' ORDER BY name, narg",
        )
        .unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let all = statement.query_map([ffi::SQLITE_DIRECTONLY], row).unwrap();
    let mut all = all.collect::<rusqlite::Result<Vec<Function>>>().unwrap();
    // Changes with every commit, and answers the same whatever is done.
    all.retain(|(name, ..)| name != "fence_debug");
    assert!(all.len() > 30, "{all:?}");
    all
}

struct Fuzzer {
    functions: Vec<Function>,
    fixtures: HashMap<&'static str, Fixture>,
}

thread_local! {
    static FUZZER: RefCell<Fuzzer> = RefCell::new(Fuzzer {
        functions: functions(&Fixture::new("UTF-8").conn),
        fixtures: HashMap::new(),
    });
}

/// What the statement's first row answers, or its error's extended code and sentence.
fn run(conn: &Connection, sql: &str, arguments: &[Argument]) -> Result<Value, (i32, String)> {
    let answer = || {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(arguments))?;
        let mut first = None;
        while let Some(row) = rows.next()? {
            if first.is_none() {
                first = Some(row.get(0)?);
            }
        }
        Ok(first.unwrap_or(Value::Null))
    };
    answer().map_err(|error: rusqlite::Error| match error {
        rusqlite::Error::SqliteFailure(e, message) => {
            (e.extended_code, message.unwrap_or_default())
        }
        other => panic!("{sql}: {other}"),
    })
}

/// A sentence names the function and the value that was wrong, cut; it shows no SQL of ours.
fn check_sentence(name: &str, code: i32, sentence: &str, arguments: &[Argument]) {
    let context = || format!("{name} {arguments:.200?}: {code}, {sentence:?}");
    assert!(sentence.starts_with(&format!("{name}: ")), "{}", context());
    // 80 characters of the value, each of them perhaps escaped.
    assert!(sentence.chars().count() <= 800, "{}", context());
    assert!(!sentence.contains(char::is_control), "{}", context());
    let given = |word: &str| {
        arguments.iter().any(|argument| match argument {
            Argument::Text(bytes) => String::from_utf8_lossy(bytes).contains(word),
            Argument::Plain(Value::Text(text)) => text.contains(word),
            Argument::Plain(_) => false,
        })
    };
    for word in ["SELECT", "UPDATE", "INSERT INTO", "WHERE", "main.jobs", "panicked", "?1"] {
        assert!(!sentence.contains(word) || given(word), "{}", context());
    }
    let primary = code & 0xff;
    let usual = [ffi::SQLITE_ERROR, ffi::SQLITE_CONSTRAINT];
    assert!(usual.contains(&primary), "{}", context());
}

fuzz_target!(|bytes: &[u8]| FUZZER.with_borrow_mut(|fuzzer| {
    let mut input = Input(bytes);
    let functions = &fuzzer.functions;
    let (name, count, writes) = functions[usize::from(input.byte()) % functions.len()].clone();
    let place = input.byte();
    let encoding = if place < 128 { "UTF-8" } else { "UTF-16le" };
    let mut place = PLACES[usize::from(place) % PLACES.len()];
    if place == Place::Table && name != "fence_claim_batch" {
        place = Place::Autocommit;
    }
    let arguments: Vec<Argument> = (0..count).map(|_| input.argument()).collect();
    let call = format!("{name}({})", vec!["?"; arguments.len()].join(", "));
    let (begin, sql, end) = match place {
        Place::Autocommit => ("", format!("SELECT {call}"), ""),
        Place::Transaction => ("BEGIN", format!("SELECT {call}"), "ROLLBACK"),
        Place::Savepoint => ("SAVEPOINT s", format!("SELECT {call}"), "ROLLBACK TO s; RELEASE s"),
        Place::Update => ("", format!("UPDATE scratch SET x = {call}"), ""),
        Place::Insert => ("BEGIN", format!("INSERT INTO scratch SELECT {call}"), "ROLLBACK"),
        Place::Table => ("", format!("SELECT fence FROM {call}"), ""),
    };
    let fixture = fuzzer.fixtures.entry(encoding).or_insert_with(|| Fixture::new(encoding));
    let conn = &fixture.conn;
    conn.execute_batch(begin).unwrap();
    let autocommit = conn.is_autocommit();
    let answer = run(conn, &sql, &arguments);
    assert_eq!(conn.is_autocommit(), autocommit, "{sql} {arguments:?}");
    match &answer {
        Ok(Value::Real(_) | Value::Blob(_)) => panic!("{sql} {arguments:?}: {answer:?}"),
        Ok(_) => {
            let inside = matches!(place, Place::Update | Place::Insert);
            assert!(!(inside && writes), "{sql} {arguments:?} wrote inside a write");
        }
        Err((code, sentence)) => {
            check_sentence(&name, *code, sentence, &arguments);
            assert_eq!(fixture.dump(), fixture.dump, "{sql} {arguments:?} failed and changed it");
        }
    }
    conn.execute_batch(end).unwrap();
    if answer.is_ok() && fixture.dump() != fixture.dump {
        assert!(autocommit, "{sql} {arguments:?} was not rolled back");
        fixture.restore();
    }
}));
