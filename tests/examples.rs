//! The examples tell the truth: the stale worker is refused, without the fence it is not, and
//! the Python module keeps the contract.

mod common;

use common::docs::example;
use common::{pipe, stderr, stdout, Scratch};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// What the program printed, without the clock in front and with single spaces.
fn steps(output: &Output) -> Vec<String> {
    let text = stdout(output);
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let steps = words.filter(|words| words.get(1) == Some(&"s"));
    steps.map(|words| words[2..].join(" ")).collect()
}

fn job(db: &Path) -> (String, i64, String, i64) {
    let conn = Connection::open(db).unwrap();
    conn.query_row("SELECT owner, fence, result, done FROM jobs", [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })
    .unwrap()
}

/// The steps in which the story is told.
fn story(setup: &[&str], last: &[&str]) -> Vec<String> {
    let begin = ["setup PRAGMA journal_mode = WAL; wal", "setup SELECT fence_init(); 1"];
    let middle = [
        "setup SELECT fence_enqueue('report'); 1",
        "A SELECT fence_claim('report', 'A', 1); 1",
        "A -- stalls: no sign of life until B is done",
        "B SELECT fence_claim('report', 'B', 60); 2",
        "B SELECT fence_complete('report', 'B', 2, 'written by B'); 1",
        "A -- wakes up",
    ];
    [&begin[..], setup, &middle, last].concat().into_iter().map(String::from).collect()
}

/// Without the steps that some runs have: B may have to wait.
fn in_short(mut steps: Vec<String>) -> Vec<String> {
    steps.retain(|step| {
        step != "B SELECT fence_claim('report', 'B', 60); NULL"
            && step != "B -- tries again until A's lease is over"
    });
    steps
}

#[test]
fn the_stale_worker_is_refused() {
    let scratch = Scratch::new();
    let output = example("stale_worker").arg(scratch.db()).output().unwrap();
    assert_eq!(
        in_short(steps(&output)),
        story(
            &[],
            &[
                "A SELECT fence_complete('report', 'A', 1, 'written by A'); 0",
                "A UPDATE jobs SET result = 'written by A' WHERE id = 'report'; \
                 jobs: a job that is done stays so, and its result, while its fence stays",
            ]
        ),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).ends_with("\nThe stale write was refused.\n"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(job(&scratch.db()), ("B".into(), 2, "written by B".into(), 1));
}

#[test]
fn without_the_fence_the_stale_write_goes_through_and_the_exit_code_says_so() {
    let scratch = Scratch::new();
    let output = example("stale_worker").arg("--without-fence").arg(scratch.db()).output().unwrap();
    assert_eq!(
        in_short(steps(&output)),
        story(
            &["setup -- takes 4 triggers off the table jobs"],
            &["A UPDATE jobs SET result = 'written by A' WHERE id = 'report'; 1 row"]
        ),
        "{}",
        stderr(&output)
    );
    let text = stdout(&output);
    assert!(text.ends_with("\nThe stale write went through: B's result is lost.\n"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(job(&scratch.db()), ("B".into(), 2, "written by A".into(), 1));
}

#[test]
fn the_story_leaves_a_file_alone_that_is_there_already() {
    let scratch = Scratch::new();
    fence::init_db(scratch.db()).unwrap();
    let before = std::fs::read(scratch.db()).unwrap();
    let output = example("stale_worker").arg(scratch.db()).output().unwrap();
    assert_eq!(stderr(&output), "stale_worker: this file is there already; choose a new one\n");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(scratch.db()).unwrap(), before);
}

#[test]
fn the_sql_example_prints_what_its_comments_say() {
    let text = std::fs::read_to_string(file("examples/stale_worker.sql")).unwrap();
    let script = common::docs::script(&text);
    assert_eq!(script.iter().filter(|part| !part.expected.is_empty()).count(), 13);
    let Some(outcomes) = common::docs::run_in_shell(&Scratch::new(), &script) else { return };
    for (part, found) in script.iter().zip(outcomes) {
        assert_eq!(found, part.expected, "{}", part.sql);
    }
}

#[test]
fn the_python_module_keeps_the_contract() {
    let Some(python) = common::python() else { return };
    let output = pipe(
        Command::new(python)
            .args(["-W", "error"])
            .arg(file("tests/clients/service_contract.py"))
            .arg(file("examples/python"))
            .arg(file("tests/vectors/contract.jsonl"))
            .env("FENCE_EXTENSION", common::extension()),
        "",
    );
    let vectors = include_str!("vectors/contract.jsonl").lines().count();
    assert_eq!(stdout(&output), format!("{vectors}\n"), "{}", stderr(&output));
}
