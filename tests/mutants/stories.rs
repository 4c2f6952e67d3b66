//! Stories for the plain statement files, one step a line; `scenarios/operations.txt` says how to
//! read them.

use rusqlite::types::Value;
use rusqlite::Connection;
use serde_json::json;

use crate::statements::{self, run, Statements};

pub struct Scenario {
    pub title: String,
    pub steps: Vec<Step>,
}

pub struct Step {
    pub operation: String,
    arguments: Vec<serde_json::Value>,
    expected: serde_json::Value,
}

/// A title, then indented steps: `operation(arguments) = answer`.
pub fn scenarios() -> Vec<Scenario> {
    let mut found: Vec<Scenario> = Vec::new();
    let files = [
        include_str!("scenarios/operations.txt"),
        include_str!("scenarios/queues.txt"),
        include_str!("scenarios/enforcement.txt"),
        include_str!("scenarios/guard.txt"),
    ];
    for line in files.into_iter().flat_map(str::lines) {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if !line.starts_with(' ') {
            found.push(Scenario { title: text.into(), steps: Vec::new() });
            continue;
        }
        let (operation, rest) = text.split_once('(').unwrap_or_else(|| panic!("{text}"));
        // Such a text may stand in an argument, too.
        let step = rest.match_indices(") = ").find_map(|(at, equals)| {
            let arguments = serde_json::from_str(&format!("[{}]", &rest[..at])).ok()?;
            let expected = serde_json::from_str(&rest[at + equals.len()..]).ok()?;
            Some(Step { operation: operation.into(), arguments, expected })
        });
        let step = step.unwrap_or_else(|| panic!("no step: {text}"));
        found.last_mut().expect("a title comes first").steps.push(step);
    }
    found
}

/// The contract's vectors, in the same form.
pub fn vectors() -> Vec<Scenario> {
    let vectors = include_str!("../vectors/contract.jsonl").lines().map(|line| {
        let vector: serde_json::Value = serde_json::from_str(line).unwrap();
        let steps = vector["steps"].as_array().unwrap().iter().map(|step| Step {
            operation: step[0].as_str().unwrap().into(),
            arguments: step[1].as_array().unwrap().clone(),
            expected: expected(&step[0], &step[2]),
        });
        Scenario { title: vector["name"].as_str().unwrap().into(), steps: steps.collect() }
    });
    vectors.collect()
}

/// What a file answers where the contract has this answer.
fn expected(operation: &serde_json::Value, answer: &serde_json::Value) -> serde_json::Value {
    match (operation.as_str().unwrap(), answer) {
        ("claim", serde_json::Value::Null) | ("state", serde_json::Value::Null) => json!([]),
        ("claim", fence @ serde_json::Value::Number(_)) => json!([[fence]]),
        ("state", row @ serde_json::Value::Object(_)) => {
            let columns = ["id", "owner", "until", "fence", "result", "done"];
            json!([columns.map(|column| row[column].clone())])
        }
        ("claim", error) if error == "!error" => json!([]),
        (_, error) if error == "!error" => json!(0),
        (_, serde_json::Value::Bool(yes)) => json!(i64::from(*yes)),
        // What prepares a vector.
        (_, serde_json::Value::Array(_)) => json!("?"),
        (operation, other) => panic!("{operation}: {other}"),
    }
}

/// The first step that answers differently, if any.
pub fn play(statements: &Statements, scenario: &Scenario) -> Result<(), String> {
    let conn = statements.database().map_err(|e| e.to_string())?;
    for step in &scenario.steps {
        let answer = perform(statements, &conn, step);
        let expected = &step.expected;
        // A claim of the vectors is answered by its fence alone.
        let same = match (&answer, expected) {
            (_, serde_json::Value::String(any)) if any == "?" => true,
            (serde_json::Value::Array(rows), serde_json::Value::Array(fences))
                if step.operation == "claim" && rows.len() == 1 && fences.len() == 1 =>
            {
                let given = fences[0].as_array().unwrap().len();
                rows[0].as_array().unwrap()[..given] == fences[0].as_array().unwrap()[..]
            }
            _ => answer == *expected,
        };
        if !same {
            return Err(format!(
                "{}: {}({}) is {answer}, expected {expected}",
                scenario.title,
                step.operation,
                serde_json::Value::from(step.arguments.clone()),
            ));
        }
    }
    Ok(())
}

fn perform(statements: &Statements, conn: &Connection, step: &Step) -> serde_json::Value {
    let text = |i: usize| step.arguments[i].as_str().expect("a text");
    let outcome = match step.operation.as_str() {
        "sql" => {
            let arguments: Vec<_> = step.arguments[1..].iter().map(value).collect();
            run(conn, text(0), &arguments)
        }
        "script" => done(conn.execute_batch(text(0))),
        "install" => done(statements.install(conn)),
        "guard" => done(conn.execute_batch(&statements.guard(text(0), text(1), text(2)))),
        "locked" => {
            let state = conn.transaction_state(Some("main")).unwrap();
            Ok(statements::Answer::Changes(usize::from(state == rusqlite::TransactionState::Write)))
        }
        file => {
            let arguments: Vec<_> = step.arguments.iter().map(value).collect();
            statements.run(conn, file, &arguments)
        }
    };
    match outcome {
        Ok(statements::Answer::Changes(changes)) => json!(changes),
        Ok(statements::Answer::Rows(rows)) => {
            rows.into_iter().map(|row| row.into_iter().map(answer).collect::<Vec<_>>()).collect()
        }
        Err(rusqlite::Error::SqliteFailure(_, Some(sentence))) => json!(format!("!{sentence}")),
        Err(rusqlite::Error::SqlInputError { msg, .. }) => json!(format!("!{msg}")),
        Err(e) => json!(format!("!{e}")),
    }
}

fn done(outcome: rusqlite::Result<()>) -> rusqlite::Result<statements::Answer> {
    outcome.map(|()| statements::Answer::Changes(0))
}

/// An argument: JSON, `{"f": "Infinity"}` for what JSON cannot say, `{"blob": ".."}`.
fn value(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Number(n) => {
            n.as_i64().map_or_else(|| Value::Real(n.as_f64().unwrap()), Value::Integer)
        }
        serde_json::Value::String(s) => Value::Text(s.clone()),
        serde_json::Value::Object(special) => match (special.get("f"), special.get("blob")) {
            (Some(float), None) => match float.as_str().unwrap() {
                "NaN" => Value::Null, // what SQLite makes of it
                float => Value::Real(float.parse().unwrap()),
            },
            (None, Some(blob)) => Value::Blob(blob.as_str().unwrap().as_bytes().to_vec()),
            _ => panic!("no argument: {value}"),
        },
        other => panic!("no argument: {other}"),
    }
}

fn answer(value: Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(i) => json!(i),
        Value::Real(r) => json!(r),
        Value::Text(t) => json!(t),
        Value::Blob(b) => json!({ "blob": String::from_utf8_lossy(&b) }),
    }
}
