//! What each statement of `sql/` costs: its query plan, word for word, and the steps of SQLite's
//! machine, which must not grow with the jobs that wait, are leased or are done.
mod common;

use common::{file, one};
use rusqlite::types::Value::{self, Integer, Null, Real};
use rusqlite::{params_from_iter, Connection, StatementStatus};

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

const BY_ID: &[&str] = &["SEARCH main.jobs USING INDEX sqlite_autoindex_jobs_1 (id=?)"];
const ENQUEUE: &[&str] = &[
    "SCAN CONSTANT ROW",
    "SCALAR SUBQUERY 1",
    "SEARCH main.jobs USING COVERING INDEX sqlite_autoindex_jobs_1 (id=?)",
];

const PLANS: [(&str, &[&str]); 17] = [
    ("state", BY_ID),
    ("claim", BY_ID),
    ("renew", BY_ID),
    ("complete", BY_ID),
    ("fail", BY_ID),
    ("release", BY_ID),
    ("release_at", BY_ID),
    ("requeue", BY_ID),
    (
        "check",
        &[
            "CO-ROUTINE (subquery-1)",
            "SCAN CONSTANT ROW",
            "SCAN (subquery-1)",
            "SEARCH j USING INDEX sqlite_autoindex_jobs_1 (id=?) LEFT-JOIN",
        ],
    ),
    ("enqueue", ENQUEUE),
    ("enqueue_at", ENQUEUE),
    (
        "enqueue_batch",
        &[
            "SCAN ids VIRTUAL TABLE INDEX 1:",
            "CORRELATED SCALAR SUBQUERY 1",
            "SEARCH main.jobs USING COVERING INDEX sqlite_autoindex_jobs_1 (id=?)",
            "USE TEMP B-TREE FOR GROUP BY",
            "USE TEMP B-TREE FOR ORDER BY",
        ],
    ),
    (
        "claim_next",
        &[
            "SEARCH main.jobs USING INTEGER PRIMARY KEY (rowid=?)",
            "SCALAR SUBQUERY 1",
            "SEARCH main.jobs USING INDEX fence_queue (<expr>=? AND until>? AND until<?)",
            "SCALAR SUBQUERY 2",
            "SEARCH main.jobs USING INDEX fence_queue (<expr>=? AND until<?)",
        ],
    ),
    // No sorting, and the co-routines stop at the limit.
    (
        "claim_batch",
        &[
            "SEARCH main.jobs USING INTEGER PRIMARY KEY (rowid=?)",
            "LIST SUBQUERY 4",
            "COMPOUND QUERY",
            "LEFT-MOST SUBQUERY",
            "CO-ROUTINE (subquery-1)",
            "SEARCH main.jobs USING INDEX fence_queue (<expr>=? AND until>? AND until<?)",
            "SCAN (subquery-1)",
            "UNION ALL",
            "CO-ROUTINE (subquery-3)",
            "SEARCH main.jobs USING INDEX fence_queue (<expr>=? AND until<?)",
            "SCAN (subquery-3)",
        ],
    ),
    // min() reads the first entry and stops.
    ("next_due", &["SEARCH main.jobs USING INDEX fence_queue (<expr>=?)"]),
    (
        "purge",
        &[
            "SEARCH main.jobs USING INTEGER PRIMARY KEY (rowid=?)",
            "LIST SUBQUERY 1",
            "SEARCH main.jobs USING COVERING INDEX fence_done (until<?)",
        ],
    ),
    ("pass", &["SCAN CONSTANT ROW"]),
];

#[test]
fn every_statement_finds_its_rows_by_an_index() {
    let conn = Connection::open_in_memory().unwrap();
    for name in ["schema", "enforce", "queue", "purge_index", "gate"] {
        conn.execute_batch(&file(name)).unwrap();
    }
    for (name, expected) in PLANS {
        let sql = format!("EXPLAIN QUERY PLAN {}", file(name));
        let mut statement = conn.prepare(&sql).unwrap();
        let parameters = vec![Null; statement.parameter_count()];
        let plan = statement.query_map(params_from_iter(parameters), |row| row.get(3)).unwrap();
        let plan: Vec<String> = plan.collect::<rusqlite::Result<_>>().unwrap();
        assert_eq!(plan, expected, "{name}");
    }
    // Done jobs are not in the index of the queue, so a query that wants them cannot use it.
    let all = "SELECT id FROM jobs INDEXED BY fence_queue";
    assert_eq!(conn.prepare(all).unwrap_err().to_string(), "no query solution");
}

/// `pending` jobs of the queue `q` and as many of another one; a tenth of them was claimed and
/// ran out, another tenth is leased; twice as many done ones and a tenth of dead letters.
fn filled(pending: i64) -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(&file("schema")).unwrap();
    for (prefix, count, row) in [
        ("q:wait", pending, "NULL, 0, 0, NULL, 0"),
        ("r:wait", pending, "NULL, 0, 0, NULL, 0"),
        ("q:lost", pending / 10, "'w', 50 + i % 10, 1, NULL, 0"),
        ("q:held", pending / 10, "'w', 1000 + i, 1, NULL, 0"),
        ("q:done", pending * 2, "'w', i, 1, 'r', 1"),
        ("q:dead", pending / 10, "'w', i, 1, 'e', 2"),
    ] {
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             INSERT INTO jobs SELECT '{prefix}' || i, {row} FROM n"
        );
        conn.execute(&sql, [count]).unwrap();
    }
    for name in ["enforce", "queue", "purge_index"] {
        conn.execute_batch(&file(name)).unwrap();
    }
    conn
}

/// The steps of a statement, and how many rows it answered or changed.
fn steps(conn: &Connection, sql: &str, parameters: &[Value]) -> (i32, usize) {
    let mut statement = conn.prepare(sql).unwrap();
    let count = if statement.column_count() == 0 {
        statement.execute(params_from_iter(parameters)).unwrap()
    } else {
        let mut rows = statement.query(params_from_iter(parameters)).unwrap();
        let mut count = 0;
        while rows.next().unwrap().is_some() {
            count += 1;
        }
        count
    };
    (statement.get_status(StatementStatus::VmStep), count)
}

/// From here on a claim meets untouched jobs only.
const NO_MORE_LOST: &str = "UPDATE jobs SET until = 2000 WHERE id LIKE 'q:lost%'";

const SIZES: [i64; 3] = [1_000, 10_000, 50_000];

#[test]
fn no_statement_costs_more_where_more_jobs_are() {
    let now = || Real(100.0);
    let claim = |limit| vec![text("x"), now(), Integer(10), Integer(limit), text("q")];
    let next = || vec![text("x"), now(), Integer(10), text("q")];
    let holder = |id| vec![text(id), text("w"), Integer(1)];
    let by = |id, more: &[Value]| [holder(id), more.to_vec()].concat();
    let ids = (0..20).map(|i| format!("\"q:more{i}\"")).collect::<Vec<_>>().join(",");
    // In this order: the first claims meet leases that ran out, the last ones do not.
    let calls: Vec<(&str, Vec<Value>, usize)> = vec![
        ("next_due", vec![text("q")], 1),
        ("claim_next", next(), 1),
        ("claim_batch", claim(1), 1),
        ("claim_batch", claim(50), 50),
        (NO_MORE_LOST, vec![], 0),
        ("claim_next", next(), 1),
        ("claim_batch", claim(1), 1),
        ("claim_batch", claim(50), 50),
        ("next_due", vec![text("none")], 1),
        ("state", vec![text("q:wait500")], 1),
        ("check", by("q:held50", &[now()]), 1),
        ("claim", vec![text("r:wait500"), text("x"), now(), Integer(10)], 1),
        ("renew", by("q:held50", &[now(), Integer(2000)]), 1),
        ("complete", by("q:held50", &[now(), text("r")]), 1),
        ("fail", by("q:held51", &[now(), text("e")]), 1),
        ("release", by("q:held52", &[]), 1),
        ("release_at", by("q:held53", &[Real(500.0)]), 1),
        ("requeue", vec![text("q:dead50")], 1),
        ("enqueue", vec![text("q:new")], 1),
        ("enqueue_at", vec![text("q:new at"), Real(70.0)], 1),
        ("enqueue_batch", vec![text(&format!("[{ids}]"))], 20),
        ("purge", vec![Real(1e6), Integer(20)], 20),
    ];
    let mut costs: Vec<Vec<i32>> = vec![Vec::new(); calls.len()];
    let mut scans = Vec::new();
    for size in SIZES {
        let conn = filled(size);
        for ((name, parameters, expected), costs) in calls.iter().zip(&mut costs) {
            if *name == NO_MORE_LOST {
                conn.execute(NO_MORE_LOST, []).unwrap();
                continue;
            }
            let (cost, count) = steps(&conn, &file(name), parameters);
            assert_eq!(count, *expected, "{name} {size}");
            costs.push(cost);
        }
        assert_eq!(one::<i64>(&conn, "SELECT max(fence) FROM jobs"), 2);
        let scan = file("claim_batch").replace("INDEXED BY fence_queue", "NOT INDEXED");
        scans.push(steps(&conn, &scan, &claim(1)).0);
    }
    for ((name, parameters, _), costs) in calls.iter().zip(&costs) {
        if *name == NO_MORE_LOST {
            continue;
        }
        println!("{name} {parameters:?}: {costs:?}");
        let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
        assert!(*most as f64 <= 1.2 * *least as f64, "{name} {parameters:?}: {costs:?}");
    }
    // Without the index the same statement shows what the measure would find.
    assert!(scans[2] > 10 * scans[0], "{scans:?}");
}
