//! The limits inside the statement files of the queue: they must hold for a program that runs the
//! plain files and checks nothing itself. A wrong value changes nothing at all.
mod common;

use common::{file, jobs, one, Scratch};
use rusqlite::types::Value::{self, Blob, Integer, Null, Real};
use rusqlite::{params_from_iter, Connection};

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

/// The jobs `q:free`, `q:expired` (until 5), `q:live` (by `a`, until 1000), `q:dead` and `q:done`.
fn prepared() -> (Scratch, Connection) {
    let scratch = Scratch::new();
    let conn = scratch.connect();
    for name in ["schema", "enforce", "queue"] {
        conn.execute_batch(&file(name)).unwrap();
    }
    conn.execute_batch(
        "INSERT INTO jobs VALUES ('q:free', NULL, 0, 0, NULL, 0), ('q:expired', 'a', 5, 1, NULL, 0),
             ('q:live', 'a', 1000, 1, NULL, 0), ('q:dead', 'a', 5, 1, 'e', 2),
             ('q:done', 'a', 5, 1, 'r', 1)",
    )
    .unwrap();
    (scratch, conn)
}

/// How many rows the statement answered or changed.
fn run(conn: &Connection, name: &str, parameters: &[Value]) -> rusqlite::Result<usize> {
    let mut statement = conn.prepare(&file(name)).unwrap();
    if statement.column_count() == 0 {
        return statement.execute(params_from_iter(parameters));
    }
    let mut rows = statement.query(params_from_iter(parameters))?;
    let mut count = 0;
    while rows.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Each wrong value, in the place of a good one, is refused without a trace.
fn refused(name: &str, good: &[Value], place: usize, wrong: &[Value]) {
    let (_scratch, conn) = prepared();
    let before = jobs(&conn);
    for value in wrong {
        let mut parameters = good.to_vec();
        parameters[place] = value.clone();
        assert_eq!(run(&conn, name, &parameters), Ok(0), "{name} {parameters:?}");
        assert_eq!(jobs(&conn), before, "{name} {parameters:?}");
    }
    assert_ne!(run(&conn, name, good), Ok(0), "{name} {good:?}");
    assert_ne!(jobs(&conn), before, "{name} {good:?}");
}

/// What is no moment. Text and BLOB sort above every number.
fn no_moments() -> Vec<Value> {
    vec![
        Null,
        text("soon"),
        text("2026-01-01"),
        text(""),
        Blob(b"50".to_vec()),
        Real(f64::INFINITY),
        Real(f64::NEG_INFINITY),
    ]
}

fn no_names() -> Vec<Value> {
    vec![
        Null,
        text(""),
        text("q:new\0"),
        text("\0"),
        Blob(b"q:new".to_vec()),
        Integer(7),
        Real(1.5),
    ]
}

#[test]
fn a_batch_claim_takes_nothing_with_a_wrong_owner() {
    let good = [text("w"), Real(50.0), Integer(10), Integer(9), text("q")];
    refused("claim_batch", &good, 0, &no_names());
}

#[test]
fn a_batch_claim_takes_nothing_with_a_wrong_now() {
    let good = [text("w"), Real(50.0), Integer(10), Integer(9), text("q")];
    refused("claim_batch", &good, 1, &no_moments());
    // 1e18 + 10 is 1e18, a lease that is over when it begins.
    refused("claim_batch", &good, 1, &[Real(1e18), Real(f64::MAX)]);
}

#[test]
fn a_batch_claim_takes_nothing_with_a_wrong_ttl() {
    let good = [text("w"), Real(50.0), Integer(10), Integer(9), text("q")];
    refused("claim_batch", &good, 2, &no_moments());
    refused("claim_batch", &good, 2, &[Integer(0), Integer(-1), Real(-0.5), Real(1e-20)]);
    let late = [text("w"), Real(1e308), Real(1e306), Integer(9), text("q")];
    refused("claim_batch", &late, 2, &[Real(1e308)]);
}

#[test]
fn a_claim_of_the_next_job_takes_nothing_with_a_wrong_argument() {
    let good = [text("w"), Real(50.0), Integer(10), text("q")];
    refused("claim_next", &good, 0, &no_names());
    refused("claim_next", &good, 1, &no_moments());
    refused("claim_next", &good, 1, &[Real(1e18), Real(f64::MAX)]);
    refused("claim_next", &good, 2, &no_moments());
    refused("claim_next", &good, 2, &[Integer(0), Integer(-1), Real(-0.5), Real(1e-20)]);
    let late = [text("w"), Real(1e308), Real(1e306), text("q")];
    refused("claim_next", &late, 2, &[Real(1e308)]);
    refused("claim_next", &good, 3, &[Null, Blob(b"q".to_vec()), text("Q"), text("q:"), text("")]);
}

#[test]
fn a_batch_claim_takes_nothing_with_a_wrong_limit() {
    let good = [text("w"), Real(50.0), Integer(10), Integer(9), text("q")];
    // A client may bind all as text; '-1' sorts above 0.
    let wrong = [Integer(0), Integer(-1), Integer(i64::MIN), text("-1"), text("0"), text("all")];
    refused("claim_batch", &good, 3, &wrong);
    refused("claim_batch", &good, 3, &[Null, Real(1.5), Real(f64::INFINITY), text("9x")]);
}

#[test]
fn a_batch_claim_takes_nothing_from_what_is_no_queue() {
    let good = [text("w"), Real(50.0), Integer(10), Integer(9), text("q")];
    refused("claim_batch", &good, 4, &[Null, Blob(b"q".to_vec()), text("Q"), text("q:"), text("")]);
}

#[test]
fn numbers_bound_as_text_are_numbers() {
    let (_scratch, conn) = prepared();
    let parameters = [text("w"), text("50"), text("10"), text("2"), text("q")];
    assert_eq!(run(&conn, "claim_batch", &parameters), Ok(2));
    let taken = "SELECT group_concat(id || typeof(until) || until) FROM jobs WHERE owner = 'w'";
    assert_eq!(one::<String>(&conn, taken), "q:freereal60.0,q:expiredreal60.0");
    assert_eq!(run(&conn, "enqueue_at", &[text("q:late"), text("70.5")]), Ok(1));
    let due = "SELECT typeof(until) || until FROM jobs WHERE id = 'q:late'";
    assert_eq!(one::<String>(&conn, due), "real70.5");
}

#[test]
fn a_moment_before_zero_bound_as_text_is_one_too() {
    let (_scratch, conn) = prepared();
    // Text sorts above 0, the moment of the untouched job.
    let parameters = [text("w"), text("-5"), text("10"), text("9"), text("q")];
    let next = [text("w"), text("-5"), text("10"), text("q")];
    assert_eq!(run(&conn, "claim_batch", &parameters), Ok(0));
    assert_eq!(run(&conn, "claim_next", &next), Ok(0));
    assert_eq!(run(&conn, "enqueue_at", &[text("q:urgent"), text("-6")]), Ok(1));
    assert_eq!(run(&conn, "claim_batch", &parameters), Ok(1));
    assert_eq!(run(&conn, "enqueue_at", &[text("q:urgent too"), text("-6")]), Ok(1));
    assert_eq!(run(&conn, "claim_next", &next), Ok(1));
}

#[test]
fn what_a_good_call_leaves() {
    let (_scratch, conn) = prepared();
    let row = |id: &str| {
        let all = jobs(&conn);
        all.into_iter().find(|row| row.starts_with(&format!("'{id}' "))).expect(id)
    };
    let holder = [text("q:live"), text("a"), Integer(1), Real(50.0), text("why")];
    assert_eq!(run(&conn, "fail", &holder), Ok(1));
    assert_eq!(row("q:live"), "'q:live' 'a' 1000.0 1 'why' 2");
    assert_eq!(run(&conn, "requeue", &[text("q:live")]), Ok(1));
    assert_eq!(row("q:live"), "'q:live' NULL 0.0 2 NULL 0");
    let lost = [text("q:expired"), text("a"), Integer(1), Real(50.0)];
    assert_eq!(run(&conn, "release_at", &lost), Ok(1));
    assert_eq!(row("q:expired"), "'q:expired' NULL 50.0 1 NULL 0");
    assert_eq!(run(&conn, "enqueue_at", &[text("q:new"), Real(-1.5)]), Ok(1));
    assert_eq!(row("q:new"), "'q:new' NULL -1.5 0 NULL 0");
}

#[test]
fn a_job_is_not_added_under_a_wrong_id_or_for_no_moment() {
    let good = [text("q:new"), Real(50.0)];
    refused("enqueue_at", &good, 0, &no_names());
    refused("enqueue_at", &good, 1, &no_moments());
}

#[test]
fn a_job_is_not_released_for_no_moment() {
    let good = [text("q:live"), text("a"), Integer(1), Real(50.0)];
    refused("release_at", &good, 0, &[Null, text("q:other"), text("")]);
    refused("release_at", &good, 1, &[Null, text("b"), text("A")]);
    refused("release_at", &good, 2, &[Null, Integer(0), Integer(2), Real(1.5), text("one")]);
    refused("release_at", &good, 3, &no_moments());
}

#[test]
fn a_failure_counts_for_the_live_lease_only() {
    let good = [text("q:live"), text("a"), Integer(1), Real(50.0), text("e")];
    refused("fail", &good, 0, &[Null, text("q:other"), text("q:free"), text("q:expired")]);
    refused("fail", &good, 1, &[Null, text("b"), text("A")]);
    refused("fail", &good, 2, &[Null, Integer(0), Integer(2), Real(1.5), text("one")]);
    refused("fail", &good, 3, &no_moments());
    refused("fail", &good, 3, &[Real(1000.0), Real(1e300)]);
    refused("fail", &good, 4, &[Blob(b"e".to_vec())]);
}

#[test]
fn a_job_that_is_finished_fails_no_more() {
    let (_scratch, conn) = prepared();
    let before = jobs(&conn);
    for id in ["q:dead", "q:done"] {
        let parameters = [text(id), text("a"), Integer(1), Real(1.0), text("again")];
        assert_eq!(run(&conn, "fail", &parameters), Ok(0), "{id}");
        assert_eq!(jobs(&conn), before, "{id}");
    }
}

#[test]
fn nothing_but_a_dead_letter_is_put_back() {
    let wrong = ["q:free", "q:expired", "q:live", "q:done", "q:missing"].map(text);
    refused("requeue", &[text("q:dead")], 0, &wrong);
    let (_scratch, conn) = prepared();
    conn.execute("UPDATE jobs SET fence = 9223372036854775807 WHERE id = 'q:dead'", []).unwrap();
    let before = jobs(&conn);
    assert_eq!(run(&conn, "requeue", &[text("q:dead")]), Ok(0), "the fence is used up");
    assert_eq!(jobs(&conn), before);
}

#[test]
fn a_batch_of_ids_adds_those_that_are_new_and_proper() {
    let (_scratch, conn) = prepared();
    let ids = r#"["q:2", "q:10", "", 7, null, ["q:x"], "q:1", "q:2", "q:live", 1.5, true, "q:10"]"#;
    let before = jobs(&conn);
    assert_eq!(run(&conn, "enqueue_batch", &[text(ids)]), Ok(3));
    let after = jobs(&conn);
    assert_eq!(after[..before.len()], before);
    let fresh = ["q:2", "q:10", "q:1"].map(|id| format!("'{id}' NULL 0.0 0 NULL 0"));
    assert_eq!(after[before.len()..], fresh, "in the order of the array");
    assert_eq!(run(&conn, "enqueue_batch", &[text(ids)]), Ok(0));
    assert_eq!(run(&conn, "enqueue_batch", &[text("[]")]), Ok(0));
    assert_eq!(run(&conn, "enqueue_batch", &[text(r#"["nul\u0000nul"]"#)]), Ok(0));
    assert_eq!(jobs(&conn), after);
}
