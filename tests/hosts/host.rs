//! A host: a program with a SQLite of its own that loads the extension and makes the calls it
//! reads from its input. `host.c` explains the lines that go to and fro.
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program to start, with its arguments.
pub struct Host {
    pub name: String,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    /// Whether it shows extended codes; the others show the lowest byte.
    extended: bool,
}

impl Host {
    pub fn new(name: &str, command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        Host { name: name.into(), command: Box::new(command), extended: true }
    }

    pub fn with_primary_codes(self) -> Self {
        Host { extended: false, ..self }
    }

    pub fn command(&self) -> Command {
        (self.command)()
    }
}

/// What a call must answer.
pub enum Expected {
    /// Rows, one a line, columns separated by '|', NULL as a word.
    Rows(String),
    /// One row with a JSON object.
    Json(Value),
    /// A code and a sentence. Some clients put words of their own before it.
    Error(i32, String),
    /// The same as the step so many steps before.
    SameAs(usize),
    Anything,
}

pub struct Step {
    pub line: String,
    pub expected: Expected,
}

#[derive(Debug, PartialEq)]
struct Answer {
    rows: String,
    error: Option<(i32, String)>,
}

/// Lets the host make the calls and compares its answers. Returns how many there were.
pub fn run(host: &Host, steps: &[Step]) -> usize {
    let answers = answers(host, steps);
    for (i, (step, answer)) in steps.iter().zip(&answers).enumerate() {
        let place = || format!("{}: {:?} answered {answer:?}", host.name, step.line);
        let fine = match &step.expected {
            Expected::Rows(rows) => answer.error.is_none() && answer.rows == *rows,
            Expected::Json(object) => {
                answer.error.is_none()
                    && serde_json::from_str(&answer.rows).ok().as_ref() == Some(object)
            }
            Expected::Error(code, sentence) => {
                let code = if host.extended { *code } else { code & 0xff };
                answer.rows.is_empty()
                    && answer
                        .error
                        .as_ref()
                        .is_some_and(|found| found.0 == code && found.1.contains(sentence))
            }
            Expected::SameAs(before) => answer == &answers[i - before],
            Expected::Anything => true,
        };
        let expected = match &step.expected {
            Expected::Rows(rows) => format!("{rows:?}"),
            Expected::Json(object) => object.to_string(),
            Expected::Error(code, sentence) => format!("code {code} and {sentence:?}"),
            Expected::SameAs(before) => format!("{:?}", answers[i - before]),
            Expected::Anything => String::new(),
        };
        assert!(fine, "{}; expected {expected}", place());
    }
    steps.len()
}

fn answers(host: &Host, steps: &[Step]) -> Vec<Answer> {
    let dir = tempfile::tempdir().unwrap();
    let input: String = steps.iter().map(|step| format!("{}\n", step.line)).collect();
    let output = start(&mut host.command(), &input, dir.path());
    assert!(output.status.success(), "{}: {}", host.name, crate::common::stderr(&output));
    let mut answers = Vec::new();
    let mut rows: Vec<String> = Vec::new();
    for line in crate::common::stdout(&output).lines() {
        if let Some(row) = line.strip_prefix("row\t") {
            rows.push(row.replace('\t', "|"));
            continue;
        }
        let error = line.strip_prefix("error\t").map(|error| {
            let (code, sentence) = error.split_once('\t').unwrap();
            (code.parse().unwrap_or_else(|_| panic!("{}: {line}", host.name)), sentence.into())
        });
        assert!(error.is_some() || line == "ok", "{}: {line}", host.name);
        answers.push(Answer { rows: rows.join("\n"), error });
        rows.clear();
    }
    assert_eq!(answers.len(), steps.len(), "{}: {}", host.name, crate::common::stderr(&output));
    answers
}

/// Runs a command whose input may be larger than a pipe holds.
pub fn start(command: &mut Command, input: &str, dir: &Path) -> std::process::Output {
    let file = dir.join("input");
    std::fs::write(&file, input).unwrap();
    command.stdin(Stdio::from(std::fs::File::open(file).unwrap())).output().expect("it starts")
}
