//! What an argument may be: each wrong one is an error that names the function, the argument and
//! the value, and changes nothing; what SQLite itself would take for a number is one.
mod common;

use common::{error_of, jobs, one, Scratch};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::Connection;

/// What an argument is.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Id,
    Owner,
    Fence,
    Now,
    Ttl,
    Result,
}
use Kind::*;

const FUNCTIONS: [(&str, &[Kind]); 9] = [
    ("fence_enqueue", &[Id]),
    ("fence_state", &[Id]),
    ("fence_claim", &[Id, Owner, Ttl]),
    ("fence_claim", &[Id, Owner, Now, Ttl]),
    ("fence_renew", &[Id, Owner, Fence, Ttl]),
    ("fence_renew", &[Id, Owner, Fence, Now, Ttl]),
    ("fence_complete", &[Id, Owner, Fence, Result]),
    ("fence_complete", &[Id, Owner, Fence, Now, Result]),
    ("fence_release", &[Id, Owner, Fence]),
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Id => "id",
            Owner => "owner",
            Fence => "fence",
            Now => "now",
            Ttl => "ttl",
            Result => "result",
        }
    }

    /// A value with which the call would change the job `held`.
    fn good(self) -> Bound {
        match self {
            Id => text("held"),
            Owner => text("a"),
            Fence => integer(1),
            Now => real(1.0),
            Ttl => integer(10),
            Result => text("r"),
        }
    }

    /// Wrong values, and what the sentence says about them after the argument's name.
    fn bad(self) -> Vec<(Bound, &'static str)> {
        match self {
            Id | Owner => vec![
                (NULL, "must be text, got NULL"),
                (BLOB, "must be text, got a BLOB"),
                (integer(7), "must be text, got 7"),
                (real(1.5), "must be text, got 1.5"),
                (real(f64::NAN), "must be text, got NULL"),
                (real(f64::INFINITY), "must be text, got inf"),
                (text(""), "must not be empty"),
                (text("held\0"), "must not contain a NUL character, got 'held\\u{0}'"),
                (text("\0held"), "must not contain a NUL character, got '\\u{0}held'"),
                (ToSqlOutput::Borrowed(ValueRef::Text(b"held\xff")), "must be valid UTF-8"),
                // What a program leaves that cuts a text between two bytes of a letter.
                (ToSqlOutput::Borrowed(ValueRef::Text(b"\xc3")), "must be valid UTF-8"),
            ],
            Now => numbers(),
            Ttl => [
                numbers(),
                vec![
                    (integer(0), "must be greater than 0, got 0"),
                    (integer(-1), "must be greater than 0, got -1"),
                    (real(-0.5), "must be greater than 0, got -0.5"),
                    (text("0"), "must be greater than 0, got 0"),
                    (integer(i64::MIN), "must be greater than 0, got -9.223372036854776e18"),
                ],
            ]
            .concat(),
            Fence => vec![
                (NULL, "must be an integer, got NULL"),
                (BLOB, "must be an integer, got a BLOB"),
                (text("one"), "must be an integer, got text 'one'"),
                (text(""), "must be an integer, got text ''"),
                (text("1x"), "must be an integer, got text '1x'"),
                (text("0x1"), "must be an integer, got text '0x1'"),
                (real(1.4), "must be an integer, got 1.4"),
                (text("1.4"), "must be an integer, got 1.4"),
                (real(f64::NAN), "must be an integer, got NULL"),
                (real(f64::INFINITY), "must be an integer, got inf"),
                (real(f64::NEG_INFINITY), "must be an integer, got -inf"),
                // 2^53 + 2: from 2^53 on a REAL may stand for a neighbour.
                (real(9007199254740994.0), "must be an integer, got 9007199254740994.0"),
                (real(-9007199254740994.0), "must be an integer, got -9007199254740994.0"),
                (text("9223372036854775808"), "must be an integer, got 9.223372036854776e18"),
            ],
            Result => vec![
                (BLOB, "must be text or NULL, got a BLOB"),
                (ToSqlOutput::Borrowed(ValueRef::Text(b"half a \xc3")), "must be valid UTF-8"),
            ],
        }
    }
}

/// What neither a moment nor a length of time can be.
fn numbers() -> Vec<(Bound, &'static str)> {
    vec![
        (NULL, "must be a number, got NULL"),
        (BLOB, "must be a number, got a BLOB"),
        (text("soon"), "must be a number, got text 'soon'"),
        (text("2026-01-01"), "must be a number, got text '2026-01-01'"),
        (text(""), "must be a number, got text ''"),
        (ToSqlOutput::Borrowed(ValueRef::Text(b"1\xff")), "must be a number, got text '1\u{fffd}'"),
        (real(f64::NAN), "must be a number, got NULL"),
        (real(f64::INFINITY), "must be a finite number, got inf"),
        (text("1e999"), "must be a finite number, got inf"),
    ]
}

/// A value as a client binds it. A NaN becomes NULL there.
type Bound = ToSqlOutput<'static>;

const NULL: Bound = ToSqlOutput::Owned(Value::Null);
const BLOB: Bound = ToSqlOutput::Borrowed(ValueRef::Blob(b"held"));

fn text(value: &'static str) -> Bound {
    ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes()))
}

fn integer(value: i64) -> Bound {
    ToSqlOutput::Owned(Value::Integer(value))
}

fn real(value: f64) -> Bound {
    ToSqlOutput::Owned(Value::Real(value))
}

/// The answer of a call, or its code and sentence.
fn call(
    conn: &Connection,
    function: &str,
    values: &[Bound],
) -> std::result::Result<Value, (i32, String)> {
    let marks = vec!["?"; values.len()].join(", ");
    let mut statement = conn.prepare_cached(&format!("SELECT {function}({marks})")).unwrap();
    statement.query_row(rusqlite::params_from_iter(values), |row| row.get(0)).map_err(|e| match e {
        rusqlite::Error::SqliteFailure(e, Some(message)) => (e.extended_code, message),
        other => panic!("{function}: {other}"),
    })
}

/// The job `held`, by `a` with fence 1 until long after today.
fn prepared(scratch: &Scratch) -> Connection {
    let conn = scratch.loaded();
    common::add_jobs(&conn);
    conn
}

/// Asserts that a call fails with this sentence and code 1, and that no commit happened.
fn assert_refused(
    conn: &Connection,
    onlooker: &Connection,
    function: &str,
    values: &[Bound],
    sentence: &str,
) {
    let look = || (jobs(onlooker), one::<i64>(onlooker, "PRAGMA data_version"));
    let before = look();
    assert_eq!(call(conn, function, values), Err((1, sentence.to_string())));
    assert_eq!(look(), before, "{sentence}");
    assert!(conn.is_autocommit());
}

#[test]
fn every_wrong_argument_is_refused_by_name_and_value_and_changes_nothing() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (prepared(&scratch), scratch.connect());
    for (function, kinds) in FUNCTIONS {
        for (i, kind) in kinds.iter().enumerate() {
            for (value, problem) in kind.bad() {
                let mut values: Vec<Bound> = kinds.iter().map(|kind| kind.good()).collect();
                values[i] = value;
                let sentence = format!("{function}: {} {problem}", kind.name());
                assert_refused(&conn, &onlooker, function, &values, &sentence);
            }
        }
    }
}

/// Without this, a call refused above might be one that had changed nothing anyway.
#[test]
fn the_same_calls_with_good_arguments_change_the_job() {
    for (function, kinds) in FUNCTIONS {
        let scratch = Scratch::new();
        let (conn, onlooker) = (prepared(&scratch), scratch.connect());
        let expected = match function {
            "fence_enqueue" => {
                conn.execute_batch("DELETE FROM jobs").unwrap();
                1
            }
            "fence_claim" => {
                conn.execute_batch("SELECT fence_release('held', 'a', 1)").unwrap();
                2 // the fence after the first one
            }
            _ => 1,
        };
        let before = jobs(&onlooker);
        let values: Vec<Bound> = kinds.iter().map(|kind| kind.good()).collect();
        let answer = call(&conn, function, &values).unwrap();
        if function == "fence_state" {
            assert_eq!(jobs(&onlooker), before);
        } else {
            assert_eq!(answer, Value::Integer(expected), "{function}");
            assert_ne!(jobs(&onlooker), before, "{function}");
        }
    }
}

#[test]
fn minus_infinity_is_neither_a_moment_nor_a_length_of_time() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (prepared(&scratch), scratch.connect());
    for (function, kinds) in FUNCTIONS {
        for (i, kind) in kinds.iter().enumerate() {
            let problem = match kind {
                Now => "must be a finite number",
                Ttl => "must be greater than 0",
                _ => continue,
            };
            let mut values: Vec<Bound> = kinds.iter().map(|kind| kind.good()).collect();
            values[i] = real(f64::NEG_INFINITY);
            let sentence = format!("{function}: {} {problem}, got -inf", kind.name());
            assert_refused(&conn, &onlooker, function, &values, &sentence);
        }
    }
}

#[test]
fn a_lease_that_has_no_length_or_no_end_is_refused() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (prepared(&scratch), scratch.connect());
    for (now, ttl, problem) in [
        (real(1e308), real(1e308), "must be finite, got 1e308 + 1e308"),
        (
            real(f64::MAX),
            real(f64::MAX),
            "must be finite, got 1.7976931348623157e308 + 1.7976931348623157e308",
        ),
        (real(1e17), integer(1), "must be after now, got 1e17 + 1"),
        (real(1.0), real(5e-324), "must be after now, got 1 + 5e-324"),
    ] {
        for (function, holder) in
            [("fence_claim", &[Id, Owner][..]), ("fence_renew", &[Id, Owner, Fence])]
        {
            let mut values: Vec<Bound> = holder.iter().map(|kind| kind.good()).collect();
            values.extend([now.clone(), ttl.clone()]);
            let sentence = format!("{function}: now + ttl {problem}");
            assert_refused(&conn, &onlooker, function, &values, &sentence);
        }
    }
    // The clock's moment is in the sentence where none was given.
    for function in ["fence_claim('free', 'b', 1e-12)", "fence_renew('held', 'a', 1, 1e-12)"] {
        let before = jobs(&onlooker);
        let (code, sentence) = error_of(&conn, &format!("SELECT {function}"));
        let prefix =
            format!("{}: now + ttl must be after now, got ", common::function_of(function));
        let sum = sentence.strip_prefix(&prefix).unwrap_or_else(|| panic!("{sentence}"));
        let now = sum.strip_suffix(" + 1e-12").unwrap_or_else(|| panic!("{sentence}"));
        assert!(now.parse::<f64>().unwrap() > 1.7e9, "{sentence}");
        assert_eq!((code, jobs(&onlooker)), (1, before));
    }
}

#[test]
fn what_sqlite_takes_for_a_number_is_one() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    conn.execute_batch("SELECT fence_init(); SELECT fence_enqueue('j')").unwrap();
    for (sql, answer) in [
        ("fence_claim('j', 'a', '0', '10.5')", 1),
        ("fence_renew('j', 'a', '1', ' 1 ', 1e1)", 1),
        ("fence_renew('j', 'a', 1.0, '2e0', '10')", 1),
        ("fence_renew('j', 'a', '1.0', 3.0, 10)", 1),
        ("fence_renew('j', 'a', 9007199254740992.0, 3, 10)", 0), // 2^53 is still exact
        ("fence_renew('j', 'a', 9223372036854775807, 3, 10)", 0),
        ("fence_renew('j', 'a', '-1', 3, 10)", 0),
        ("fence_release('j', 'a', '1.0')", 1),
        ("fence_claim('j', 'a', -5, 6)", 0),
        ("fence_claim('j', 'a', 0, 1e-300)", 2),
        ("fence_complete('j', 'a', '2', '-1', 'r')", 1),
    ] {
        let got: Option<i64> = one(&conn, &format!("SELECT {sql}"));
        assert_eq!(got.unwrap_or(0), answer, "{sql}");
    }
    assert_eq!(jobs(&conn), ["'j' 'a' 1.0e-300 2 'r' 1"]);
}

#[test]
fn a_result_is_stored_as_text_or_null() {
    for (value, stored) in [
        (text("r"), "'r'"),
        (text(""), "''"),
        (NULL, "NULL"),
        (integer(-5), "'-5'"),
        (real(1.0), "'1.0'"),
        (real(0.1), "'0.1'"),
        (integer(i64::MAX), "'9223372036854775807'"),
        (real(f64::NAN), "NULL"),
        (real(f64::INFINITY), "'Inf'"),
    ] {
        for now in [vec![], vec![real(1.0)]] {
            let scratch = Scratch::new();
            let conn = prepared(&scratch);
            let mut values = vec![text("held"), text("a"), integer(1)];
            values.extend(now);
            values.push(value.clone());
            assert_eq!(call(&conn, "fence_complete", &values), Ok(Value::Integer(1)), "{stored}");
            let result: String = one(&conn, "SELECT quote(result) FROM jobs WHERE id = 'held'");
            assert_eq!(result, stored);
        }
    }
}

#[test]
fn another_number_of_arguments_is_sqlites_own_error() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (prepared(&scratch), scratch.connect());
    let before = jobs(&onlooker);
    let known = "SELECT name, narg FROM pragma_function_list WHERE name LIKE 'fence%'";
    let mut statement = conn.prepare(known).unwrap();
    let arities: Vec<(String, usize)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    for (function, kinds) in FUNCTIONS {
        assert!(arities.contains(&(function.into(), kinds.len())), "{function}");
    }
    for (function, _) in &arities {
        for count in 0..8 {
            if arities.contains(&(function.clone(), count)) {
                continue;
            }
            let sql = format!("SELECT {function}({})", vec!["'x'"; count].join(", "));
            let sentence = format!("wrong number of arguments to function {function}()");
            assert_eq!(error_of(&conn, &sql), (1, sentence), "{sql}");
        }
    }
    assert_eq!(jobs(&onlooker), before);
}

#[test]
fn texts_of_a_megabyte_are_welcome() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    conn.execute_batch("SELECT fence_init()").unwrap();
    let long = |start: &str| Value::Text(start.to_string() + &"ü".repeat(1 << 19));
    let (id, owner, result) = (long("i"), long("o"), long("r"));
    let run = |sql: &str, values: &[&Value]| -> i64 {
        conn.query_row(sql, rusqlite::params_from_iter(values), |row| row.get(0)).unwrap()
    };
    assert_eq!(run("SELECT fence_enqueue(?)", &[&id]), 1);
    assert_eq!(run("SELECT fence_claim(?, ?, 0, 10)", &[&id, &owner]), 1);
    assert_eq!(run("SELECT fence_renew(?, ?, 1, 1, 10)", &[&id, &owner]), 1);
    assert_eq!(run("SELECT fence_complete(?, ?, 1, 2, ?)", &[&id, &owner, &result]), 1);
    let mut statement = conn.prepare("SELECT fence_state(?)").unwrap();
    let state: String = statement.query_row([&id], |row| row.get(0)).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    for (name, value) in [("id", id), ("owner", owner), ("result", result)] {
        assert_eq!(Value::Text(state[name].as_str().unwrap().into()), value, "{name}");
    }
}

#[test]
fn a_sentence_quotes_only_the_beginning_of_a_long_text() {
    let scratch = Scratch::new();
    let (conn, onlooker) = (prepared(&scratch), scratch.connect());
    let long = ToSqlOutput::Owned(Value::Text("x".repeat(1 << 20) + "\0"));
    let x = "x".repeat(40);
    let sentence = format!("fence_enqueue: id must not contain a NUL character, got '{x}...'");
    assert_refused(&conn, &onlooker, "fence_enqueue", std::slice::from_ref(&long), &sentence);
    let sentence = format!("fence_claim: now must be a number, got text '{x}...'");
    let values = [text("held"), text("a"), long, integer(10)];
    assert_refused(&conn, &onlooker, "fence_claim", &values, &sentence);
}
