//! The contract vectors, the same for every door: Rust, the SQL functions registered on a
//! connection, the loaded extension in the shell and in Python, and the plain statement files.
//!
//! Each vector starts on a fresh database. A step is an operation with its arguments and the
//! answer it must give; a step that must fail must also change nothing.

mod common;

use common::{jobs, one, Scratch};
use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{params_from_iter, Connection};
use serde_json::{json, Value};
use std::path::Path;

struct Vector {
    name: String,
    steps: Vec<Step>,
}

struct Step {
    operation: String,
    arguments: Vec<Value>,
    expected: Value,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("vectors/contract.jsonl").lines().map(|line| {
        let vector: Value = serde_json::from_str(line).unwrap();
        let steps = vector["steps"].as_array().unwrap().iter().map(|step| Step {
            operation: step[0].as_str().unwrap().into(),
            arguments: step[1].as_array().unwrap().clone(),
            expected: step[2].clone(),
        });
        Vector { name: vector["name"].as_str().unwrap().into(), steps: steps.collect() }
    });
    lines.collect()
}

/// An argument or answer for SQLite.
fn sql_value(value: &Value) -> Sql {
    match value {
        Value::Null => Sql::Null,
        Value::Bool(b) => Sql::Integer(i64::from(*b)),
        Value::Number(n) => n.as_i64().map_or_else(|| Sql::Real(n.as_f64().unwrap()), Sql::Integer),
        Value::String(s) => Sql::Text(s.clone()),
        Value::Object(float) => match float["f"].as_str().unwrap() {
            "NaN" => Sql::Null, // what SQLite makes of it
            "Infinity" => Sql::Real(f64::INFINITY),
            "-Infinity" => Sql::Real(f64::NEG_INFINITY),
            other => panic!("no such float: {other}"),
        },
        Value::Array(_) => panic!("no SQL value: {value}"),
    }
}

fn json_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(i) => json!(i),
        ValueRef::Real(r) => json!(r),
        ValueRef::Text(t) => json!(std::str::from_utf8(t).unwrap()),
        ValueRef::Blob(_) => panic!("no operation answers a BLOB"),
    }
}

fn rows(conn: &Connection, sql: &str, arguments: &[Value]) -> rusqlite::Result<Vec<Value>> {
    let mut statement = conn.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query(params_from_iter(arguments.iter().map(sql_value)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let row = (0..columns).map(|i| Ok(json_value(row.get_ref(i)?)));
        found.push(row.collect::<rusqlite::Result<Value>>()?);
    }
    Ok(found)
}

/// `SELECT fence_<operation>(?1, ..)`, the answer in the contract's form.
fn by_function(conn: &Connection, step: &Step) -> Result<Value, String> {
    let marks: Vec<_> = (1..=step.arguments.len()).map(|i| format!("?{i}")).collect();
    let sql = format!("SELECT fence_{}({})", step.operation, marks.join(", "));
    let found = rows(conn, &sql, &step.arguments).map_err(|e| e.to_string())?;
    Ok(contract_answer(&step.operation, found[0][0].clone()))
}

fn contract_answer(operation: &str, answer: Value) -> Value {
    match (operation, answer) {
        ("enqueue" | "renew" | "complete" | "release", answer) => json!(answer == json!(1)),
        ("state", Value::String(text)) => serde_json::from_str(&text).unwrap(),
        (_, answer) => answer,
    }
}

/// Runs every vector on a fresh database; `perform` is the door.
fn check<D>(
    open: impl Fn(&Path) -> (D, Connection),
    perform: impl Fn(&D, &Step) -> Option<Result<Value, String>>,
) -> usize {
    let mut complete = 0;
    for vector in vectors() {
        let scratch = Scratch::new();
        let (door, observer) = open(&scratch.db());
        let mut expressible = true;
        for (i, step) in vector.steps.iter().enumerate() {
            let place =
                format!("{} step {i}: {} {:?}", vector.name, step.operation, step.arguments);
            if step.operation == "sql" {
                let found = rows(&observer, step.arguments[0].as_str().unwrap(), &[]).unwrap();
                assert_eq!(Value::Array(found), step.expected, "{place}");
                continue;
            }
            let before = jobs(&observer);
            match perform(&door, step) {
                None => expressible = false,
                Some(Err(_)) if step.expected == json!("!error") => {
                    assert_eq!(jobs(&observer), before, "{place}: an error changed something");
                }
                Some(answer) => assert_eq!(answer.as_ref(), Ok(&step.expected), "{place}"),
            }
        }
        complete += usize::from(expressible);
    }
    complete
}

#[test]
fn functions_registered_on_a_connection() {
    let open = |path: &Path| {
        let conn = Connection::open(path).unwrap();
        fence::register(&conn).unwrap();
        assert_eq!(one::<i64>(&conn, "SELECT fence_init()"), 1);
        (conn, Connection::open(path).unwrap())
    };
    let complete = check(open, |conn, step| Some(by_function(conn, step)));
    assert_eq!(complete, vectors().len());
}

#[test]
fn functions_of_the_loaded_extension() {
    let open = |path: &Path| {
        let conn = Connection::open(path).unwrap();
        common::load(&conn).unwrap();
        assert_eq!(one::<i64>(&conn, "SELECT fence_init()"), 1);
        (conn, Connection::open(path).unwrap())
    };
    let complete = check(open, |conn, step| Some(by_function(conn, step)));
    assert_eq!(complete, vectors().len());
}

/// The files of `sql/` have no errors to give: what the functions refuse with a sentence, they
/// refuse by changing nothing.
#[test]
fn plain_statement_files_without_the_extension() {
    let open = |path: &Path| {
        let conn = Connection::open(path).unwrap();
        conn.execute_batch(include_str!("../sql/schema.sql")).unwrap();
        (conn, Connection::open(path).unwrap())
    };
    let complete = check(open, |conn, step| {
        let file = format!("{}/sql/{}.sql", env!("CARGO_MANIFEST_DIR"), step.operation);
        let sql = std::fs::read_to_string(file).unwrap();
        let before = conn.total_changes();
        let found = rows(conn, &sql, &step.arguments).unwrap();
        let changed = conn.total_changes() > before;
        if step.expected == json!("!error") {
            assert!(!changed && found.is_empty(), "{}: {:?}", step.operation, step.arguments);
            return Some(Err("refused".into()));
        }
        Some(Ok(match step.operation.as_str() {
            "claim" => found.first().map_or(Value::Null, |row| row[0].clone()),
            "state" => found.first().map_or(Value::Null, |row| {
                let names = ["id", "owner", "until", "fence", "result", "done"];
                names.into_iter().zip(row.as_array().unwrap().iter().cloned()).collect()
            }),
            _ => json!(changed),
        }))
    });
    assert_eq!(complete, vectors().len());
}

/// What Rust's types cannot say (a NULL owner, a text for `now`) has no step here.
#[test]
fn path_functions_of_the_crate() {
    let open = |path: &Path| {
        fence::init_db(path).unwrap();
        (path.to_owned(), Connection::open(path).unwrap())
    };
    let complete = check(open, |path, step| {
        let text = |i: usize| step.arguments[i].as_str();
        let number = |i: usize| match &step.arguments[i] {
            Value::Object(float) => float["f"].as_str().unwrap().parse().ok(),
            other => other.as_f64(),
        };
        let fence = || step.arguments[2].as_i64();
        let answer = match step.operation.as_str() {
            "enqueue" => fence::enqueue(path, text(0)?).map(Value::from),
            "state" => fence::state(path, text(0)?).map(|job| {
                job.map_or(Value::Null, |job| {
                    json!({"id": job.id, "owner": job.owner, "until": job.until,
                           "fence": job.fence, "result": job.result, "done": job.done})
                })
            }),
            "claim" => {
                fence::claim(path, text(0)?, text(1)?, number(2)?, number(3)?).map(Value::from)
            }
            "renew" => fence::renew(path, text(0)?, text(1)?, fence()?, number(3)?, number(4)?)
                .map(Value::from),
            "complete" => fence::complete(path, text(0)?, text(1)?, fence()?, number(3)?, text(4))
                .map(Value::from),
            "release" => fence::release(path, text(0)?, text(1)?, fence()?).map(Value::from),
            other => panic!("no such operation: {other}"),
        };
        Some(answer.map_err(|e| e.to_string()))
    });
    assert_eq!(vectors().len() - complete, 4, "vectors with a step that Rust cannot say");
}

/// Each answer is one line between two marks; an error prints nothing there.
#[test]
fn functions_in_the_sqlite3_shell() {
    for vector in vectors() {
        let scratch = Scratch::new();
        let mut script = String::from("SELECT fence_init();\n");
        for (i, step) in vector.steps.iter().enumerate() {
            let sql = if step.operation == "sql" {
                format!("{};", step.arguments[0].as_str().unwrap())
            } else {
                let arguments: Vec<_> = step.arguments.iter().map(literal).collect();
                format!("SELECT fence_{}({});", step.operation, arguments.join(", "))
            };
            script.push_str(&format!("SELECT '#{i}';\n{sql}\n"));
        }
        let Some(output) = common::shell(&scratch.db(), &script) else { return };
        let output = common::stdout(&output);
        let mut parts = output.split('#');
        assert_eq!(parts.next(), Some("1\n"), "{}", vector.name);
        for (step, part) in vector.steps.iter().zip(parts) {
            let (_, answer) = part.split_once('\n').unwrap();
            let place = format!("{}: {} {:?}", vector.name, step.operation, step.arguments);
            let expected = match &step.expected {
                Value::Object(state) => {
                    let found: Value = serde_json::from_str(answer).expect(&place);
                    assert_eq!(&found, &json!(state), "{place}");
                    continue;
                }
                Value::Null => "NULL\n".into(),
                Value::String(_) => String::new(), // an error
                Value::Array(rows) => rows.iter().map(|row| line(row) + "\n").collect(),
                other => quoted(other) + "\n",
            };
            assert_eq!(answer, expected, "{place}");
        }
    }
}

fn line(row: &Value) -> String {
    row.as_array().unwrap().iter().map(quoted).collect::<Vec<_>>().join("|")
}

/// A value as the shell's list mode prints it.
fn quoted(value: &Value) -> String {
    match value {
        Value::Bool(b) => i64::from(*b).to_string(),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

fn literal(value: &Value) -> String {
    match sql_value(value) {
        Sql::Null => "NULL".into(),
        Sql::Integer(i) => i.to_string(),
        Sql::Real(r) if r.is_infinite() => if r > 0.0 { "9e999" } else { "-9e999" }.into(),
        Sql::Real(r) => format!("{r:?}"),
        Sql::Text(s) => format!("'{}'", s.replace('\'', "''")),
        Sql::Blob(_) => unreachable!("JSON has no BLOB"),
    }
}

#[test]
fn functions_of_the_loaded_extension_in_python() {
    let Some(python) = common::python() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = std::process::Command::new(python)
        .arg(root.join("tests/clients/vectors.py"))
        .arg(common::extension())
        .arg(root.join("tests/vectors/contract.jsonl"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", common::stderr(&output));
    assert_eq!(common::stdout(&output), format!("{} vectors passed\n", vectors().len()));
}
