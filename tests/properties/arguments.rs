//! Arguments that nobody should give, in every pair of positions of every operation: what the
//! function refuses with an error the plain statement must not do, and what the function does
//! the plain statement does alike.
#![allow(dead_code)] // every test binary uses its own part

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{params_from_iter, Connection};

use crate::statements::Statements;

/// An argument, perhaps one that Rust's types cannot say.
pub type Bound = ToSqlOutput<'static>;

fn text(text: &'static str) -> Bound {
    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
}

fn real(value: f64) -> Bound {
    ToSqlOutput::Owned(Value::Real(value))
}

fn integer(value: i64) -> Bound {
    ToSqlOutput::Owned(Value::Integer(value))
}

/// Values that are wrong in most positions, or look as if they were.
pub fn nasty() -> Vec<Bound> {
    let bytes = |bytes| ToSqlOutput::Borrowed(ValueRef::Text(bytes));
    vec![
        ToSqlOutput::Owned(Value::Null),
        real(f64::NAN),
        real(f64::INFINITY),
        real(f64::NEG_INFINITY),
        real(-0.0),
        real(5e-324),
        real(1e308),
        real(-1e308),
        real(0.5),
        integer(0),
        integer(1),
        integer(-1),
        integer(i64::MIN),
        integer(i64::MAX),
        integer((1 << 53) + 1),
        real(9_007_199_254_740_992.0),
        real(9_007_199_254_740_994.0),
        text(""),
        text("a\0b"),
        text("\0"),
        text("\u{feff}j"),
        bytes(b"j\xff"),
        ToSqlOutput::Borrowed(ValueRef::Blob(b"j")),
        ToSqlOutput::Borrowed(ValueRef::Blob(b"")),
        text("5"),
        text(" 5 "),
        text("5x"),
        text("0x10"),
        text("1e999"),
        text("2026-01-01"),
        text("w"),
    ]
}

/// A statement file and its function, with arguments to start from.
pub struct Operation {
    pub file: &'static str,
    pub function: &'static str,
    pub base: Vec<Bound>,
}

pub fn operations() -> Vec<Operation> {
    let operation = |file, function, base| Operation { file, function, base };
    let (j, w, one) = (|| text("j"), || text("w"), || integer(1));
    vec![
        operation("enqueue", "fence_enqueue", vec![text("new")]),
        operation("enqueue_at", "fence_enqueue", vec![text("new"), real(50.0)]),
        operation("state", "fence_state", vec![j()]),
        operation("claim", "fence_claim", vec![text("free"), w(), real(1.0), real(10.0)]),
        // Held by somebody: only a wrong moment could take it.
        operation("claim", "fence_claim", vec![j(), text("x"), real(1.0), real(10.0)]),
        operation(
            "claim_batch",
            "fence_claim_batch",
            vec![w(), real(1.0), real(10.0), integer(2), text("q")],
        ),
        operation("renew", "fence_renew", vec![j(), w(), one(), real(1.0), real(10.0)]),
        operation("renew", "fence_renew", vec![j(), w(), one(), real(200.0), real(10.0)]),
        operation("complete", "fence_complete", vec![j(), w(), one(), real(1.0), text("r")]),
        operation("complete", "fence_complete", vec![j(), w(), one(), real(200.0), text("r")]),
        operation("fail", "fence_fail", vec![j(), w(), one(), real(1.0), text("e")]),
        operation("fail", "fence_fail", vec![j(), w(), one(), real(200.0), text("e")]),
        operation("release", "fence_release", vec![j(), w(), one()]),
        operation("release_at", "fence_release", vec![j(), w(), one(), real(50.0)]),
        operation("requeue", "fence_requeue", vec![text("dead")]),
        operation("check", "fence_check", vec![j(), w(), one(), real(1.0)]),
        operation("purge", "fence_purge", vec![real(50.0), integer(1)]),
        operation("restore", "fence_restore", vec![integer(5)]),
        operation("pass", "fence_pass", vec![text("r"), integer(7)]),
        // By the clock: no file has these.
        operation("", "fence_claim", vec![text("free"), w(), real(10.0)]),
        operation("", "fence_renew", vec![text("long"), w(), one(), real(10.0)]),
        operation("", "fence_complete", vec![text("long"), w(), one(), text("r")]),
        operation("", "fence_fail", vec![text("long"), w(), one(), text("e")]),
        operation("", "fence_check", vec![text("long"), w(), one()]),
    ]
}

/// One call: the arguments of an operation with one or two of them replaced.
pub struct Case {
    pub operation: usize,
    pub arguments: Vec<Bound>,
}

/// Every nasty value in every position, and every two in every pair of positions, or one of
/// `thin` pairs. A text of a megabyte stands alone.
pub fn cases(thin: usize) -> Vec<Case> {
    let nasty = nasty();
    let long: &'static str = Box::leak("long".repeat(1 << 18).into_boxed_str());
    let mut cases = Vec::new();
    for (operation, Operation { base, .. }) in operations().iter().enumerate() {
        for i in 0..base.len() {
            for (a, first) in nasty.iter().enumerate() {
                let mut arguments = base.clone();
                arguments[i] = first.clone();
                for j in i + 1..base.len() {
                    for (_, second) in nasty.iter().enumerate().filter(|(b, _)| (a + b) % thin == 0)
                    {
                        let mut arguments = arguments.clone();
                        arguments[j] = second.clone();
                        cases.push(Case { operation, arguments });
                    }
                }
                cases.push(Case { operation, arguments });
            }
            if matches!(base[i], ToSqlOutput::Borrowed(ValueRef::Text(_))) {
                let mut arguments = base.clone();
                arguments[i] = text(long);
                cases.push(Case { operation, arguments });
            }
        }
        cases.push(Case { operation, arguments: base.clone() });
    }
    cases
}

/// Rows in every condition that an operation cares for.
pub const ROWS: &str = "
    INSERT INTO jobs(id, owner, until, fence, result, done) VALUES
      ('j', 'w', 100, 1, NULL, 0), ('free', NULL, 0, 0, NULL, 0), ('dead', 'w', 5, 2, 'e', 2),
      ('old', 'w', 5, 3, 'r', 1), ('older', 'w', 4, 3, 'r', 1), ('q:1', NULL, 0, 0, NULL, 0),
      ('q:2', 'w', 0.5, 1, NULL, 0), ('q:3', NULL, 60, 0, NULL, 0), ('5', 'w', 100, 1, NULL, 0),
      ('long', 'w', 9e15, 1, NULL, 0);
    INSERT INTO fence_gate VALUES ('r', 5);";

/// Everything that an operation could change; texts that are no UTF-8 among it.
const EVERYTHING: &str = "
    SELECT (SELECT group_concat(hex(id) || ' ' || typeof(owner) || hex(owner) || ' ' || quote(until) || ' '
                                || quote(fence) || ' ' || typeof(result) || hex(result) || ' '
                                || quote(done), ';')
              FROM (SELECT * FROM main.jobs ORDER BY rowid))
        || (SELECT fence FROM main.fence_floor)
        || (SELECT group_concat(hex(resource) || quote(fence)) FROM main.fence_gate)";

/// Rows that no operation may leave behind.
const BROKEN_ROWS: &str = "
    SELECT count(*) FROM main.jobs
     WHERE typeof(id) <> 'text' OR id = '' OR instr(id, char(0)) > 0
        OR typeof(owner) NOT IN ('text', 'null') OR owner = '' OR instr(owner, char(0)) > 0
        OR typeof(until) <> 'real' OR abs(until) >= 9e999
        OR typeof(fence) <> 'integer' OR fence < 0
        OR typeof(result) NOT IN ('text', 'null') OR done NOT IN (0, 1, 2)";

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Error(String),
    /// It left rows behind that no operation may leave.
    Broken(String),
    /// The answer, and everything as it is now if that changed.
    Answer {
        answer: Answer,
        changed: Option<String>,
    },
}

/// A refusal, a word, or that something was done.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Refused,
    Done,
    Word(String),
}

pub struct Door<'a> {
    conn: &'a Connection,
    before: String,
}

impl<'a> Door<'a> {
    /// A database with everything made.
    pub fn new(conn: &'a Connection) -> rusqlite::Result<Self> {
        conn.set_prepared_statement_cache_capacity(256);
        conn.execute_batch(ROWS)?;
        // Everything that follows is undone.
        conn.execute_batch("SAVEPOINT arguments")?;
        let before = conn.query_row(EVERYTHING, [], |row| row.get(0))?;
        Ok(Door { conn, before })
    }

    /// Runs the statements one after the other, as one call.
    pub fn call(&self, texts: &[&str], arguments: &[Bound]) -> Verdict {
        let before = self.conn.total_changes();
        let mut answer = Ok(Answer::Refused);
        for (i, text) in texts.iter().enumerate() {
            match self.run(text, arguments) {
                Ok(first) if i == 0 => answer = Ok(first),
                Ok(_) => {}
                Err(e) => {
                    answer = Err(e);
                    break;
                }
            }
        }
        let (mut changed, mut broken) = (None, false);
        if self.conn.total_changes() != before {
            let after: String = self.one(EVERYTHING);
            broken = self.one::<i64>(BROKEN_ROWS) > 0;
            if after != self.before {
                changed = Some(after);
            }
            self.conn.execute_batch("ROLLBACK TO arguments").unwrap();
        }
        match (answer, changed) {
            (_, Some(rows)) if broken => Verdict::Broken(rows),
            (Ok(answer), changed) => Verdict::Answer { answer, changed },
            // A statement is atomic; several of them are undone by their caller.
            (Err(_), Some(rows)) if texts.len() == 1 => Verdict::Broken(rows),
            (Err(e), _) => Verdict::Error(e.to_string()),
        }
    }

    fn one<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        self.conn.prepare_cached(sql).unwrap().query_row([], |row| row.get(0)).unwrap()
    }

    fn run(&self, text: &str, arguments: &[Bound]) -> rusqlite::Result<Answer> {
        let mut statement = self.conn.prepare_cached(text)?;
        let needed = statement.parameter_count().min(arguments.len());
        let arguments = params_from_iter(&arguments[..needed]);
        if statement.column_count() == 0 {
            let done = statement.execute(arguments)? > 0;
            return Ok(if done { Answer::Done } else { Answer::Refused });
        }
        let mut rows = statement.query(arguments)?;
        let mut answer = Answer::Refused;
        while let Some(row) = rows.next()? {
            answer = match row.get_ref(0)? {
                ValueRef::Null | ValueRef::Integer(0) => Answer::Refused,
                ValueRef::Text(word) if row.as_ref().column_name(0)? == "standing" => {
                    Answer::Word(String::from_utf8_lossy(word).into_owned())
                }
                _ => Answer::Done,
            };
        }
        Ok(answer)
    }
}

/// The text that calls a function: its column has the name of the file's.
pub fn function_text(operation: &Operation) -> String {
    let marks: Vec<_> = (1..=operation.base.len()).map(|i| format!("?{i}")).collect();
    let call = format!("{}({})", operation.function, marks.join(", "));
    match operation.file {
        "check" => format!("SELECT {call} AS standing"),
        "claim_batch" => format!("SELECT id FROM {call}"),
        _ => format!("SELECT {call}"),
    }
}

/// What the functions make of every case.
pub fn by_functions(conn: &Connection, cases: &[Case]) -> Vec<Verdict> {
    let operations = operations();
    let texts: Vec<_> = operations.iter().map(function_text).collect();
    let door = Door::new(conn).unwrap();
    cases.iter().map(|case| door.call(&[&texts[case.operation]], &case.arguments)).collect()
}

/// What is different through the plain files, if anything.
pub fn plain_agrees<'a>(
    statements: &Statements,
    cases: impl Iterator<Item = (&'a Case, &'a Verdict)>,
) -> Result<usize, String> {
    let conn = statements.database().map_err(|e| e.to_string())?;
    let door = Door::new(&conn).map_err(|e| e.to_string())?;
    let operations = operations();
    let mut compared = 0;
    for (case, by_function) in cases {
        let file = operations[case.operation].file;
        if file.is_empty() {
            continue;
        }
        let texts: Vec<_> = statements.text(file).split("\n\n").collect();
        let by_file = door.call(&texts, &case.arguments);
        if !agree(file, &case.arguments, by_function, &by_file) {
            return Err(format!(
                "{file} {:?}\n  function: {by_function:?}\n  file: {by_file:?}",
                case.arguments
            ));
        }
        compared += 1;
    }
    Ok(compared)
}

fn agree(file: &str, arguments: &[Bound], by_function: &Verdict, by_file: &Verdict) -> bool {
    if by_function == by_file {
        return !matches!(by_file, Verdict::Broken(_));
    }
    let idle = match by_file {
        Verdict::Error(_) => true,
        Verdict::Broken(_) => false,
        // It only looks.
        Verdict::Answer { answer: Answer::Word(word), .. } => word != "held",
        Verdict::Answer { .. } if file == "state" => true,
        Verdict::Answer { answer, changed } => *answer == Answer::Refused && changed.is_none(),
    };
    match by_function {
        // No sentence in a plain file: it refuses by doing nothing.
        Verdict::Error(_) if idle => true,
        // SQL has no word for it.
        Verdict::Error(e) if e.ends_with("must be valid UTF-8") => true,
        // The function refuses a REAL so large that it may stand for its neighbour; the file
        // takes it for the number that it is.
        Verdict::Error(_) => arguments.contains(&real(9_007_199_254_740_994.0)),
        // The file refuses a moment that no REAL is, and the function rounds it.
        _ if idle && arguments.iter().any(is_between_two_reals) => true,
        // NULL for the moment is the clock there.
        _ => idle && file == "claim_batch" && is_null(&arguments[1]),
    }
}

fn is_null(value: &Bound) -> bool {
    let nan = |r: &f64| r.is_nan();
    match value {
        ToSqlOutput::Owned(Value::Null) => true,
        ToSqlOutput::Owned(Value::Real(r)) => nan(r),
        _ => false,
    }
}

fn is_between_two_reals(value: &Bound) -> bool {
    matches!(value, ToSqlOutput::Owned(Value::Integer(i)) if *i as f64 as i128 != i128::from(*i))
}
