//! `fence_check` says in one word how a lease stands, and `fence_assert` makes a write depend on it.
mod common;
#[path = "common/doors.rs"]
mod doors;

use common::{error_of, Scratch};
use doors::{Client, Door, DOORS};
use rusqlite::types::Value as Sql;
use rusqlite::{ffi, Connection, OpenFlags, ToSql};
use serde_json::Value;

/// Every word, from the story that leads to it. A's claim of `j` was the first, at 0 for 10 s.
#[test]
fn nine_words_tell_nine_stories() {
    for door in DOORS {
        let claimed = || {
            let client = door.memory();
            assert!(client.enqueue("j"));
            assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(1));
            client
        };
        let client = claimed();
        assert_eq!(client.check("j", "A", 1, 9.999), "held");
        assert_eq!(client.check("j", "A", 1, 10.0), "expired");
        assert_eq!(client.check("j", "A", 2, 1.0), "never_issued");
        assert_eq!(client.check("j", "A", 0, 1.0), "never_issued");
        assert_eq!(client.check("j", "A", -1, 1.0), "never_issued");
        assert_eq!(client.check("j", "B", 1, 1.0), "not_owner");
        assert_eq!(client.check("k", "A", 1, 1.0), "missing");
        assert!(client.release("j", "A", 1));
        assert_eq!(client.check("j", "A", 1, 1.0), "released");
        assert_eq!(client.claim("j", "A", 10.0, 10.0), Some(2));
        assert_eq!(client.check("j", "A", 1, 11.0), "superseded");
        assert!(client.complete("j", "A", 2, 11.0, "r"));
        assert_eq!(client.check("j", "A", 2, 11.0), "done_by_you");
        assert_eq!(client.check("j", "A", 1, 11.0), "done");
        assert_eq!(client.check("j", "B", 2, 11.0), "done");
        client.batch("DELETE FROM jobs");
        assert_eq!(client.check("j", "A", 2, 11.0), "missing");
        assert!(client.enqueue("j"));
        assert_eq!(client.check("j", "A", 2, 11.0), "superseded");
    }
}

/// A job in the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    owner: Option<&'static str>,
    fence: i64,
    done: i64,
    until: f64,
}

/// The first word that is true, in the documented order.
fn first_true(job: Option<Row>, owner: &str, fence: i64, now: f64) -> &'static str {
    let Some(job) = job else { return "missing" };
    let same = job.owner == Some(owner) && job.fence == fence;
    [
        (job.done != 0 && same, "done_by_you"),
        (job.done != 0, "done"),
        (fence < 1 || fence > job.fence, "never_issued"),
        (fence < job.fence, "superseded"),
        (job.owner.is_some_and(|holder| holder != owner), "not_owner"),
        (job.owner.is_none(), "released"),
        (now >= job.until, "expired"),
    ]
    .into_iter()
    .find_map(|(is, word)| is.then_some(word))
    .unwrap_or("held")
}

fn every_row() -> Vec<Option<Row>> {
    let mut rows = vec![None];
    for owner in [None, Some("A"), Some("B")] {
        for fence in 0..3 {
            for done in 0..3 {
                for until in [10.0, 20.0] {
                    rows.push(Some(Row { owner, fence, done, until }));
                }
            }
        }
    }
    rows
}

fn store(client: &Client, job: Option<Row>) {
    client.batch("DROP TABLE jobs");
    client.init();
    if let Some(Row { owner, fence, done, until }) = job {
        client
            .execute(
                "INSERT INTO jobs(id, owner, fence, done, until) VALUES ('j', ?1, ?2, ?3, ?4)",
                (owner, fence, done, until),
            )
            .unwrap();
    }
}

#[test]
fn where_several_words_are_true_the_first_is_answered() {
    for door in DOORS {
        let client = door.memory();
        for job in every_row() {
            store(&client, job);
            for fence in -1..4 {
                let found = client.check("j", "A", fence, 10.0);
                assert_eq!(found, first_true(job, "A", fence, 10.0), "{door:?} {job:?} {fence}");
            }
        }
    }
}

#[test]
fn held_means_that_renew_and_complete_would_succeed() {
    for door in DOORS {
        let client = door.memory();
        for job in every_row() {
            store(&client, job);
            for fence in 1..4 {
                let held = client.check("j", "A", fence, 10.0) == "held";
                for operation in ["renew", "complete"] {
                    client.batch("SAVEPOINT trial");
                    let accepted = match operation {
                        "renew" => client.renew("j", "A", fence, 10.0, 5.0),
                        _ => client.complete("j", "A", fence, 10.0, "r"),
                    };
                    client.batch("ROLLBACK TO trial; RELEASE trial");
                    assert_eq!(accepted, held, "{door:?} {operation} {job:?} {fence}");
                }
            }
        }
    }
}

fn text(word: &str) -> Sql {
    Sql::Text(word.into())
}

/// The functions refuse such arguments; the file cannot, but it never answers `held`.
#[test]
fn a_bad_argument_in_the_plain_file_is_never_held() {
    let client = Door::Plain.memory();
    assert!(client.enqueue("j"));
    assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(1));
    let blob = |bytes: &[u8]| Sql::Blob(bytes.into());
    let (inf, null) = (f64::INFINITY, Sql::Null);
    let call = |at: usize, bad: &Sql| {
        let mut arguments = [text("j"), text("A"), Sql::Integer(1), Sql::Real(1.0)];
        arguments[at] = bad.clone();
        let arguments: Vec<&dyn ToSql> = arguments.iter().map(|value| value as _).collect();
        client.run("check", &arguments).unwrap()
    };
    for (at, bad, word) in [
        (0, null.clone(), "missing"),
        (0, blob(b"j"), "missing"),
        (0, Sql::Real(inf), "missing"),
        (1, null.clone(), "not_owner"),
        (1, blob(b"A"), "not_owner"),
        (1, Sql::Real(inf), "not_owner"),
        (2, null.clone(), "never_issued"),
        (2, text("one"), "never_issued"),
        (2, text("0"), "never_issued"),
        (2, text("-1"), "never_issued"),
        (2, text("2"), "never_issued"),
        (2, blob(b"1"), "never_issued"),
        (2, Sql::Real(0.5), "never_issued"),
        (2, Sql::Real(1.5), "never_issued"),
        (2, Sql::Real(inf), "never_issued"),
        (2, Sql::Real(-inf), "never_issued"),
        (3, null, "expired"),
        (3, text("now"), "expired"),
        (3, blob(b"1"), "expired"),
        (3, Sql::Real(inf), "expired"),
        (3, Sql::Real(-inf), "expired"),
        (3, text("-9e999"), "expired"),
        // What SQLite takes for a number is one.
        (2, text("1"), "held"),
        (2, Sql::Real(1.0), "held"),
        (3, text("9.5"), "held"),
        (3, Sql::Integer(-5), "held"),
    ] {
        assert_eq!(call(at, &bad), text(word), "argument {at}: {bad:?}");
    }
    // Half an earlier fence was never issued either.
    assert_eq!(client.claim("j", "A", 10.0, 10.0), Some(2));
    assert_eq!(call(2, &Sql::Real(1.5)), text("never_issued"));
    assert_eq!(call(2, &text("1")), text("superseded"));
    assert!(client.complete("j", "A", 2, 11.0, "r"));
    for bad in [Sql::Null, blob(b"2"), text("two"), Sql::Real(2.5)] {
        assert_eq!(call(2, &bad), text("done"), "{bad:?}");
    }
}

fn argument(value: &Value) -> Sql {
    match value {
        Value::Null => Sql::Null,
        Value::String(s) => text(s),
        Value::Number(n) => n.as_i64().map_or_else(|| Sql::Real(n.as_f64().unwrap()), Sql::Integer),
        other => panic!("no argument of a call that is refused without an error: {other}"),
    }
}

/// Renew and complete are refused exactly where the check with the same arguments is not `held`;
/// a release also counts when the lease is `expired`. A claim is refused where there is no job,
/// where it is done, where the holder holds it, where nobody has it but it is not due, and where
/// the fences have come to their end.
#[test]
fn every_refusal_in_the_contract_vectors_has_its_word() {
    for door in DOORS {
        let mut refusals = 0;
        for line in include_str!("vectors/contract.jsonl").lines() {
            let vector: Value = serde_json::from_str(line).unwrap();
            let client = door.memory();
            for step in vector["steps"].as_array().unwrap() {
                let (operation, given) = (step[0].as_str().unwrap(), step[1].as_array().unwrap());
                let expected = &step[2];
                if operation == "sql" {
                    client.batch(given[0].as_str().unwrap());
                    continue;
                }
                if expected == "!error" {
                    continue;
                }
                let given: Vec<Sql> = given.iter().map(argument).collect();
                let place = format!("{door:?} {}: {operation} {given:?}", vector["name"]);
                let arguments: Vec<&dyn ToSql> = given.iter().map(|value| value as _).collect();
                let word = |arguments: &[&dyn ToSql]| match client.run("check", arguments) {
                    Ok(Sql::Text(word)) => word,
                    other => panic!("{place}: {other:?}"),
                };
                let explained = match operation {
                    "renew" | "complete" => word(&arguments[..4]) != "held",
                    "release" => {
                        let word = word(&[arguments[0], arguments[1], arguments[2], &0]);
                        word != "held" && word != "expired"
                    }
                    "claim" => {
                        let job = client.query_row(
                            "SELECT ifnull(owner, '-'), fence, until > ?2 FROM jobs WHERE id = ?1",
                            [arguments[0], arguments[2]],
                            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                        );
                        let (holder, fence, early): (String, i64, bool) =
                            job.unwrap_or(("-".into(), 0, false));
                        match word(&[arguments[0], &holder, &fence, arguments[2]]).as_str() {
                            "missing" | "done_by_you" | "held" => true,
                            "released" | "never_issued" => early,
                            _ => fence == i64::MAX,
                        }
                    }
                    _ => expected.is_null() || expected == false,
                };
                assert_eq!(explained, expected.is_null() || expected == false, "{place}");
                refusals += i32::from(explained);
                client.run(operation, &arguments).unwrap_or_else(|e| panic!("{place}: {e}"));
            }
        }
        assert!(refusals > 30, "{refusals} refusals");
    }
}

#[test]
fn a_worker_whose_answer_was_lost_learns_that_its_completion_counted() {
    for door in DOORS {
        let scratch = Scratch::new();
        let (first, again) = (door.open(&scratch), door.open(&scratch));
        assert!(first.enqueue("j"));
        assert_eq!(first.claim("j", "A", 0.0, 10.0), Some(1));
        assert!(first.complete("j", "A", 1, 1.0, "r"));
        assert!(!again.complete("j", "A", 1, 1.0, "r"));
        assert_eq!(again.check("j", "A", 1, 1.0), "done_by_you");
    }
}

/// A check reads a copy of the truth; only the write itself meets the truth.
#[test]
fn on_a_copy_of_the_file_a_check_may_be_out_of_date_but_the_write_is_refused() {
    for door in DOORS {
        let scratch = Scratch::new();
        let primary = door.open(&scratch);
        assert!(primary.enqueue("j"));
        assert_eq!(primary.claim("j", "A", 0.0, 10.0), Some(1));
        let copy = scratch.dir.path().join("copy.db");
        primary.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        assert_eq!(primary.claim("j", "B", 10.0, 10.0), Some(2));
        let replica = door.on(Connection::open(copy).unwrap());
        assert_eq!(replica.check("j", "A", 1, 9.0), "held");
        assert!(!primary.complete("j", "A", 1, 9.0, "old"));
    }
}

#[test]
fn without_now_the_check_is_by_the_databases_clock() {
    let client = Door::Loaded.memory();
    client.batch("SELECT fence_enqueue('j'), fence_claim('j', 'A', 100)");
    assert_eq!(client.one::<String>("SELECT fence_check('j', 'A', 1)"), "held");
    client.batch("UPDATE jobs SET until = 100");
    assert_eq!(client.one::<String>("SELECT fence_check('j', 'A', 1)"), "expired");
}

#[test]
fn a_check_may_stand_in_a_view_and_a_trigger_also_of_an_untrusted_schema() {
    for trusted in ["ON", "OFF"] {
        let client = Door::Loaded.memory();
        client.batch(&format!("PRAGMA trusted_schema = {trusted}"));
        client.batch(
            "CREATE VIEW mine AS SELECT id, fence_check(id, 'A', 1, 5) AS standing FROM jobs;
             CREATE TABLE notes(job, standing);
             CREATE TRIGGER note AFTER UPDATE ON jobs BEGIN
               INSERT INTO notes VALUES (new.id, fence_check(new.id, 'A', 1, 5));
             END;
             SELECT fence_enqueue('j');",
        );
        assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(1));
        assert_eq!(client.one::<String>("SELECT standing FROM mine"), "held");
        assert_eq!(client.one::<String>("SELECT standing FROM notes"), "held");
        assert!(client.release("j", "A", 1));
        assert_eq!(client.one::<String>("SELECT standing FROM mine WHERE id = 'j'"), "released");
    }
}

#[test]
fn a_check_reads_only() {
    let scratch = Scratch::new();
    let client = Door::Loaded.open(&scratch);
    assert!(client.enqueue("j"));
    assert_eq!(client.claim("j", "A", 0.0, 10.0), Some(1));
    let reader =
        Connection::open_with_flags(scratch.db(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let reader = Door::Loaded.on(reader);
    client.batch("BEGIN IMMEDIATE");
    assert_eq!(reader.check("j", "A", 1, 1.0), "held");
    let (code, sentence) = error_of(&reader, "SELECT fence_check('j', 'A', 'one', 1)");
    assert_eq!(code, ffi::SQLITE_ERROR);
    assert_eq!(sentence, "fence_check: fence must be an integer, got text 'one'");
}

#[test]
fn a_check_cannot_be_part_of_an_index_or_a_generated_column() {
    const CHECK: &str = "fence_check(id, 'A', 1, 5)";
    let client = Door::Loaded.memory();
    for (statement, place) in [
        (format!("CREATE INDEX i ON jobs({CHECK})"), "index expressions"),
        (format!("CREATE TABLE t(id, standing AS ({CHECK}))"), "generated columns"),
    ] {
        let sentence = format!("non-deterministic functions prohibited in {place}");
        assert_eq!(error_of(&client, &statement), (ffi::SQLITE_ERROR, sentence));
    }
}
