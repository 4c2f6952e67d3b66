//! The table-valued function `fence_claim_batch`: it claims once, however its rows are counted,
//! filtered or joined.
#[path = "common/batch.rs"]
mod batch;
mod common;

use batch::{claimed, prepared, rows};
use common::{error_of, one, Scratch};
use std::time::SystemTime;

#[test]
fn it_answers_a_row_for_each_job_it_took() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.connect());
    let sql = "SELECT * FROM fence_claim_batch('w', 5, 10, 3, 'q') ORDER BY id";
    assert_eq!(rows(&conn, sql), ["q:1 1 15.0", "q:2 1 15.0", "q:3 1 15.0"]);
    // Committed, and visible to others.
    let mine = "SELECT id || owner || fence || until FROM jobs WHERE owner IS NOT NULL";
    assert_eq!(rows(&other, mine), ["q:1w115.0", "q:2w115.0", "q:3w115.0"]);
    assert_eq!(rows(&conn, "SELECT * FROM fence_claim_batch('w', 5, 10, 99, 'none')"), [""; 0]);
    assert_eq!(rows(&conn, "SELECT id FROM fence_claim_batch('w', 5, 10, 99, 'q')").len(), 7);
    assert_eq!(rows(&conn, sql), [""; 0], "nothing is left");
}

#[test]
fn as_a_function_it_answers_what_the_other_batches_take() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let taken: String = one(&conn, "SELECT fence_claim_batch('w', 5, 10, 3, 'q')");
    let items: Vec<(String, i64)> = serde_json::from_str(&taken).unwrap();
    let mut ids: Vec<&str> = items.iter().map(|(id, _)| id.as_str()).collect();
    ids.sort();
    assert_eq!((ids, claimed(&conn)), (vec!["q:1", "q:2", "q:3"], 3));
    assert!(items.iter().all(|(_, fence)| *fence == 1));
    let each = |sql: &str| -> String { conn.query_row(sql, [&taken], |row| row.get(0)).unwrap() };
    assert_eq!(each("SELECT fence_renew_batch('w', 6, 10, ?)"), "[1,1,1]");
    assert_eq!(each("SELECT fence_complete_batch('w', 7, ?)"), "[1,1,1]");
    assert_eq!(one::<String>(&conn, "SELECT fence_claim_batch('w', 5, 10, 3, 'none')"), "[]");
    // Ids that JSON must escape come back as they were.
    let odd = "odd:\"\\\n\u{1}é𝄞";
    assert_eq!(conn.query_row("SELECT fence_enqueue(?)", [odd], |row| row.get(0)), Ok(1));
    let taken: String = one(&conn, "SELECT fence_claim_batch('w', 10, 1, 'odd')");
    let items: Vec<(String, i64)> = serde_json::from_str(&taken).unwrap();
    assert_eq!(items, [(odd.to_string(), 1)]);
}

#[test]
fn it_claims_once_however_its_rows_are_used() {
    const CALL: &str = "fence_claim_batch('w', 5, 10, 3, 'q')";
    for (sql, expected) in [
        ("SELECT count(*) FROM CALL", &["3"][..]),
        ("SELECT EXISTS (SELECT 1 FROM CALL)", &["1"]),
        ("SELECT (SELECT count(*) FROM CALL)", &["3"]),
        ("SELECT id FROM CALL WHERE id = 'q:2'", &["q:2"]),
        ("SELECT id FROM CALL WHERE id > 'q:1' AND fence = 1 ORDER BY id", &["q:2", "q:3"]),
        ("SELECT fence FROM CALL WHERE id = 'q:9'", &[]),
        ("SELECT id FROM CALL WHERE a1 = 'w' AND a4 = 3 ORDER BY id", &["q:1", "q:2", "q:3"]),
        ("SELECT id FROM CALL WHERE a1 = 'x'", &[]),
        ("SELECT id FROM CALL WHERE rowid = 0 OR rowid > 0 ORDER BY id", &["q:1", "q:2", "q:3"]),
        ("SELECT group_concat(rowid, ' ') FROM CALL", &["0 1 2"]),
        ("SELECT max(id), min(fence), sum(until) FROM CALL", &["q:3 1 45.0"]),
        ("SELECT DISTINCT until FROM CALL", &["15.0"]),
        ("SELECT a1, a2, a3, a4, a5 FROM CALL LIMIT 1", &["w 5 10 3 q"]),
        // The outer side of a join, and the inner one.
        ("SELECT count(*) FROM CALL CROSS JOIN t", &["9"]),
        ("SELECT count(*) FROM t CROSS JOIN CALL", &["9"]),
        (
            "SELECT n, id FROM t LEFT JOIN CALL ON substr(id, 3) = n ORDER BY n",
            &["1 q:1", "2 q:2", "3 q:3"],
        ),
        (
            "SELECT owner || j.fence FROM CALL AS c CROSS JOIN jobs AS j ON j.id = c.id",
            &["w1", "w1", "w1"],
        ),
        ("SELECT n FROM t WHERE 'q:' || n IN (SELECT id FROM CALL) ORDER BY n", &["1", "2", "3"]),
        (
            "SELECT n FROM t WHERE EXISTS (SELECT 1 FROM CALL WHERE id = 'q:' || n)",
            &["1", "2", "3"],
        ),
        ("WITH c AS (SELECT * FROM CALL) SELECT count(*) FROM c", &["3"]),
        ("WITH c AS MATERIALIZED (SELECT * FROM CALL) SELECT count(*) FROM c AS x, c AS y", &["9"]),
        (
            "WITH c AS MATERIALIZED (SELECT id FROM CALL)
             SELECT (SELECT count(*) FROM c), (SELECT max(id) FROM c)",
            &["3 q:3"],
        ),
        ("SELECT count(*) FROM (SELECT * FROM CALL) GROUP BY fence HAVING count(*) > 2", &["3"]),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM CALL ORDER BY id LIMIT 1", &["q:1 1"]),
        ("SELECT count(*) FROM (SELECT id FROM CALL UNION ALL SELECT 'x')", &["4"]),
    ] {
        let scratch = Scratch::new();
        let conn = prepared(&scratch);
        let sql = sql.replace("CALL", CALL);
        assert_eq!(rows(&conn, &sql), expected, "{sql}");
        assert_eq!(claimed(&conn), 3, "{sql}");
    }
}

#[test]
fn how_the_query_around_it_can_mislead() {
    for (sql, claims) in [
        // Never asked.
        ("SELECT id FROM CALL LIMIT 0", 0),
        ("SELECT id FROM CALL WHERE 0", 0),
        ("EXPLAIN QUERY PLAN SELECT id FROM CALL", 0),
        // Asked, and then not all rows are read: the limit belongs into the call.
        ("SELECT id FROM CALL LIMIT 1", 3),
        ("SELECT id FROM CALL LIMIT 5 OFFSET 2", 3),
        ("SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM CALL) LIMIT 1", 3),
        // SQLite asks before it looks at the first row.
        ("SELECT n FROM t WHERE n > 9 AND EXISTS (SELECT 1 FROM CALL)", 3),
        // Without MATERIALIZED a WITH is pasted wherever its name stands.
        ("WITH c AS (SELECT * FROM CALL) SELECT count(*) FROM c AS x, c AS y", 6),
    ] {
        let scratch = Scratch::new();
        let conn = prepared(&scratch);
        rows(&conn, &sql.replace("CALL", "fence_claim_batch('w', 5, 10, 3, 'q')"));
        assert_eq!(claimed(&conn), claims, "{sql}");
    }
}

#[test]
fn a_reader_that_stops_early_has_claimed_all_the_same() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.connect());
    let mut statement =
        conn.prepare("SELECT id FROM fence_claim_batch('w', 5, 10, 3, 'q')").unwrap();
    let mut rows = statement.query([]).unwrap();
    rows.next().unwrap().expect("a first row");
    assert_eq!(claimed(&other), 3, "committed before the first row is answered");
    drop(rows);
    assert_eq!(claimed(&other), 3);
    // The same statement, run again, takes the next ones.
    assert!(statement.query([]).unwrap().next().unwrap().is_some());
    assert_eq!(claimed(&other), 6);
}

#[test]
fn other_arguments_are_another_claim() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let sql = "SELECT o.column1, c.id
                 FROM (VALUES ('a', 2), ('b', 1)) AS o
                 CROSS JOIN fence_claim_batch(o.column1, 5, 10, o.column2, 'q') AS c
                ORDER BY c.id";
    assert_eq!(rows(&conn, sql), ["a q:1", "a q:2", "b q:3"]);
    assert_eq!(claimed(&conn), 3);
    let sql = "SELECT a1, id FROM fence_claim_batch WHERE a1 IN ('c', 'd') AND a2 = 5 AND a3 = 10
                  AND a4 = 1 AND a5 = 'q' ORDER BY id";
    assert_eq!(rows(&conn, sql), ["c q:4", "d q:5"]);
    // Twice in one text is two calls.
    let sql = "SELECT count(*) FROM fence_claim_batch('x', 5, 10, 1, 'q') AS one
                 CROSS JOIN fence_claim_batch('x', 5, 10, 1, 'q') AS two";
    assert_eq!(rows(&conn, sql), ["1"]);
    assert_eq!(claimed(&conn), 7);
}

#[test]
fn a_rollback_takes_the_claims_back() {
    let scratch = Scratch::new();
    let (conn, other) = (prepared(&scratch), scratch.connect());
    let sql = "SELECT id FROM fence_claim_batch('w', 5, 10, 2, 'q') ORDER BY id";
    conn.execute_batch("BEGIN IMMEDIATE; SAVEPOINT s").unwrap();
    assert_eq!(rows(&conn, sql), ["q:1", "q:2"]);
    assert_eq!(claimed(&other), 0, "not committed");
    conn.execute_batch("ROLLBACK TO s").unwrap();
    assert_eq!(rows(&conn, sql), ["q:1", "q:2"]);
    conn.execute_batch("ROLLBACK").unwrap();
    assert_eq!(claimed(&conn), 0);
    conn.execute_batch("BEGIN").unwrap();
    assert_eq!(rows(&conn, sql), ["q:1", "q:2"]);
    conn.execute_batch("COMMIT").unwrap();
    assert_eq!(claimed(&other), 2);
}

#[test]
fn what_sqlite_takes_for_a_number_is_one() {
    for (arguments, expected) in [
        ("'w', '5', '10', '2', 'q'", "15.0"),
        ("'w', ' 5e0 ', '1e1', '2.0', 'q'", "15.0"),
        ("'w', 5.0, 10.0, 2.0, 'q'", "15.0"),
        ("'w', -5, 10, 9223372036854775807, 'neg'", "5.0"),
    ] {
        let scratch = Scratch::new();
        let conn = prepared(&scratch);
        conn.execute_batch("SELECT fence_enqueue('neg:1', -6); SELECT fence_enqueue('neg:2', -5)")
            .unwrap();
        let sql = format!("SELECT until FROM fence_claim_batch({arguments})");
        assert_eq!(rows(&conn, &sql), [expected, expected], "{arguments}");
    }
}

#[test]
fn the_forms_tell_their_arguments_apart() {
    // Jobs of the queue '' and of 'q', due at 0.
    for (arguments, id, until) in [
        ("'w', 10, 1", "plain", None),
        ("'w', 10, 1, 'q'", "q:1", None),
        ("'w', 10, 1, ''", "plain", None),
        ("'w', NULL, 10, 1, 'q'", "q:1", None),
        ("'w', 5, 10, 1", "plain", Some(15.0)),
        ("'w', '5', '10', '1'", "plain", Some(15.0)),
        ("'w', 5, 10, 1, 'q'", "q:1", Some(15.0)),
        // A queue whose name is a number needs all five.
        ("'w', 5, 10, 1, '7'", "7:1", Some(15.0)),
    ] {
        let scratch = Scratch::new();
        let conn = prepared(&scratch);
        conn.execute_batch("SELECT fence_enqueue('plain'); SELECT fence_enqueue('7:1')").unwrap();
        let before = clock();
        let sql = format!("SELECT id, until FROM fence_claim_batch({arguments})");
        let (taken, end): (String, f64) =
            conn.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(taken, id, "{arguments}");
        match until {
            Some(until) => assert_eq!(end, until, "{arguments}"),
            // SQLite's clock cuts after the milliseconds.
            None => {
                assert!((before - 0.001..=clock()).contains(&(end - 10.0)), "{arguments}: {end}")
            }
        }
    }
}

fn clock() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn the_connection_closes_cleanly_after_it() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    assert_eq!(rows(&conn, "SELECT id FROM fence_claim_batch('w', 5, 10, 3, 'q')").len(), 3);
    assert_eq!(rows(&conn, "SELECT id FROM fence_claim_batch('w', 10, 3, 'q')").len(), 3);
    error_of(&conn, "SELECT id FROM fence_claim_batch('w', 0, 3, 'q')");
    conn.close().map_err(|(_, e)| e).unwrap();
    assert_eq!(scratch.files(), ["jobs.db"]);
}

#[test]
fn it_works_in_the_shell() {
    let scratch = Scratch::new();
    prepared(&scratch);
    let sql = "SELECT * FROM fence_claim_batch('w', 5, 10, 2, 'q') ORDER BY id;
               SELECT id FROM fence_claim_batch('w', '5', '10', '1', 'q');
               SELECT id FROM fence_claim_batch('w', 0, 1, 'q');";
    let Some(output) = common::shell(&scratch.db(), sql) else { return };
    assert_eq!(common::stdout(&output), "q:1|1|15.0\nq:2|1|15.0\nq:3\n");
    let error = common::stderr(&output);
    assert!(error.contains("fence_claim_batch: ttl must be greater than 0, got 0"), "{error}");
}

#[test]
fn connections_that_claim_at_the_same_time_share_the_jobs_out() {
    let scratch = Scratch::new();
    let conn = prepared(&scratch);
    let ids: Vec<String> = (0..400).map(|i| format!("\"p:{i}\"")).collect();
    let enqueue = format!("SELECT fence_enqueue_batch('[{}]')", ids.join(","));
    assert_eq!(one::<i64>(&conn, &enqueue), 400);
    let threads: Vec<_> = (0..4)
        .map(|worker| {
            let conn = scratch.loaded();
            std::thread::spawn(move || {
                let sql = format!("SELECT id FROM fence_claim_batch('w{worker}', 5, 10, 7, 'p')");
                let mut taken = Vec::new();
                loop {
                    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
                    let batch = rows(&conn, &sql);
                    conn.execute_batch("COMMIT").unwrap();
                    if batch.is_empty() {
                        return taken;
                    }
                    taken.extend(batch);
                }
            })
        })
        .collect();
    let mut all: Vec<String> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    assert_eq!(all.len(), 400);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 400, "a job was handed out twice");
    assert_eq!(claimed(&conn), 400);
}
