//! The example `drain` at a small size: workers are killed with jobs in their hands, and every
//! job is completed exactly once all the same. Its proof finds what is made wrong on purpose.
mod common;

use common::docs::example;
use common::{stderr, stdout, Scratch};
use rusqlite::Connection;
use std::path::Path;
use std::process::Output;

fn run(arguments: &[&str], file: &Path) -> Output {
    example("drain").args(arguments).arg(file).output().unwrap()
}

const PROOF: [&str; 6] = [
    "every job is completed",
    "every job has its effect",
    "no job has two effects",
    "no effect is without a job",
    "every effect is by the last claim of its job",
    "the file is sound",
];

/// The lines of the proof that say that something is wrong.
fn wrong(output: &Output) -> Vec<String> {
    let text = stdout(output);
    text.lines().filter(|line| line.starts_with("WRONG")).map(String::from).collect()
}

#[test]
fn killed_workers_lose_no_job_and_none_is_done_twice() {
    let scratch = Scratch::new();
    let arguments = ["--jobs", "2000", "--workers", "3", "--kills", "2"];
    let output = run(&arguments, &scratch.db());
    let text = stdout(&output);
    println!("{text}{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(wrong(&output), [""; 0]);
    assert_eq!(text.lines().next(), Some("2000 jobs, 3 workers, 2 of them to be killed"));
    assert!(text.contains("\n2 workers were killed with "), "{text}");
    for claim in PROOF {
        assert!(text.lines().any(|line| line == claim), "{claim}");
    }

    // Not by the example's word alone: what was in a dead worker's hands went to others.
    let conn = scratch.connect();
    let again: i64 = common::one(&conn, "SELECT count(*) FROM jobs WHERE fence > 1");
    assert!(again > 0);
    let completed =
        "SELECT count(*) FROM jobs JOIN effect ON job = id AND effect.fence = jobs.fence
                      WHERE done = 1";
    assert_eq!(common::one::<i64>(&conn, completed), 2000);
    assert_eq!(common::one::<i64>(&conn, "SELECT count(*) FROM effect"), 2000);

    let checked = run(&["--check"], &scratch.db());
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    let first = format!("2000 jobs, {again} of them were claimed more than once\n");
    assert_eq!(stdout(&checked), first + &PROOF.join("\n") + "\n");

    // A file that is there is not drained again.
    let second = run(&arguments, &scratch.db());
    assert_eq!(second.status.code(), Some(2));
    let sentence = "drain: this file is there already; choose a new one, or --check it\n";
    assert_eq!(stderr(&second), sentence);

    each_fault_is_found(&conn, &scratch.db());
}

fn each_fault_is_found(conn: &Connection, file: &Path) {
    for (fault, repair, found) in [
        (
            "INSERT INTO effect SELECT * FROM effect WHERE rowid = 7",
            "DELETE FROM effect WHERE rowid = (SELECT max(rowid) FROM effect)",
            &["no job has two effects"][..],
        ),
        (
            "UPDATE effect SET fence = fence + 1 WHERE rowid = 7",
            "UPDATE effect SET fence = fence - 1 WHERE rowid = 7",
            &["every effect is by the last claim of its job"],
        ),
        (
            "UPDATE effect SET worker = 'x' || worker WHERE rowid = 7",
            "UPDATE effect SET worker = substr(worker, 2) WHERE rowid = 7",
            &["every effect is by the last claim of its job"],
        ),
        (
            "UPDATE effect SET job = 'x' || job WHERE rowid = 7",
            "UPDATE effect SET job = substr(job, 2) WHERE rowid = 7",
            &["every job has its effect", "no effect is without a job"],
        ),
        (
            "INSERT INTO jobs(id) VALUES ('drain:new')",
            "DELETE FROM jobs WHERE id = 'drain:new'",
            &["every job is completed", "every job has its effect"],
        ),
    ] {
        assert_eq!(conn.execute(fault, []).unwrap(), 1, "{fault}");
        let output = run(&["--check"], file);
        assert_eq!(output.status.code(), Some(1), "{fault}");
        let sentence = |claim| format!("WRONG: it is not true that {claim}, see 1 of them");
        let expected: Vec<String> = found.iter().map(sentence).collect();
        assert_eq!(wrong(&output), expected, "{fault}");
        assert_eq!(conn.execute(repair, []).unwrap(), 1, "{repair}");
    }
    assert_eq!(run(&["--check"], file).status.code(), Some(0));
}

#[test]
fn wrong_arguments_are_told() {
    let scratch = Scratch::new();
    let usage = "drain: usage: drain [--jobs N] [--workers N] [--kills N] [--check] [FILE]\n";
    for (arguments, sentence) in [
        (&["--slowly"][..], usage),
        (&["--jobs", "many"], "drain: --jobs needs a number\n"),
        (&["--workers", "0"], "drain: nobody would do the work\n"),
    ] {
        let output = run(arguments, &scratch.db());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stderr(&output), sentence);
    }
    assert_eq!(scratch.files(), [""; 0]);
}
