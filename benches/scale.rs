//! What an operation costs in VM steps and written pages, and whether that grows with the table.
//!
//! `cargo bench --bench scale` prints numbers that come out the same on every machine.

use rusqlite::{ffi, Connection, Statement, StatementStatus};

const OPERATIONS: usize = 200;

fn main() {
    println!("By id, in a file of 10,000 jobs; pages are those that one commit writes.\n");
    println!("| operation | steps | pages | pages with the queue index |");
    println!("|---|---|---|---|");
    for operation in ["enqueue", "claim", "renew", "complete"] {
        let plain = by_id(operation, false);
        let indexed = by_id(operation, true);
        println!(
            "| {operation} | {:.0} | {:.2} | {:.2} |",
            plain.steps, plain.pages, indexed.pages
        );
    }
    println!(
        "\nThe next job that is due; beside the pending jobs there are 1,000,000 done ones.\n"
    );
    println!("| pending | leases out | steps | pages |");
    println!("|---|---|---|---|");
    for (pending, leased) in
        [(10_000, 0), (100_000, 0), (1_000_000, 0), (10_000, 10_000), (1_000_000, 10_000)]
    {
        let cost = next_due(pending, leased);
        println!("| {pending} | {leased} | {:.0} | {:.2} |", cost.steps, cost.pages);
    }
}

struct Cost {
    steps: f64,
    pages: f64,
}

fn by_id(operation: &str, queue: bool) -> Cost {
    let (conn, _dir) = database(queue);
    fill(&conn, "pending", 10_000, "0, NULL, 0, 0");
    let file = |name: &str| {
        std::fs::read_to_string(format!("{}/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let mut claim = conn.prepare(&file("claim")).unwrap();
    let mut statement = conn.prepare(&file(operation)).unwrap();
    measure(&conn, |i, measured| {
        let id = format!("pending-{:07}", 7 * i);
        if operation == "renew" || operation == "complete" {
            step(&mut claim, (&id, "worker", 1.0, 30.0));
        }
        measured(&mut statement, &mut |statement| match operation {
            "enqueue" => step(statement, [format!("new-{i:07}")]),
            "claim" => step(statement, (&id, "worker", 1.0, 30.0)),
            "renew" => step(statement, (&id, "worker", 1, 2.0, 30.0)),
            _ => step(statement, (&id, "worker", 1, 2.0, "result")),
        });
    })
}

fn next_due(pending: usize, leased: usize) -> Cost {
    let (conn, _dir) = database(true);
    fill(&conn, "done", 1_000_000, "5, 'worker', 1, 1");
    fill(&conn, "leased", leased, "1e9, 'worker', 1, 0");
    fill(&conn, "pending", pending, "0, NULL, 0, 0");
    let mut statement = conn.prepare(include_str!("../sql/claim_next.sql")).unwrap();
    measure(&conn, |_, measured| {
        measured(&mut statement, &mut |statement| {
            step(statement, ("worker", 1.0, 30.0, ""));
        });
    })
}

type Measured<'a, 's> = dyn FnMut(&mut Statement<'s>, &mut dyn FnMut(&mut Statement<'s>)) + 'a;

/// Runs `round` for each operation; it hands over the statement that counts.
fn measure<'s>(conn: &Connection, mut round: impl FnMut(usize, &mut Measured<'_, 's>)) -> Cost {
    let (mut steps, mut pages) = (0, 0);
    for i in 0..OPERATIONS {
        round(i, &mut |statement, run| {
            statement.reset_status(StatementStatus::VmStep);
            let before = pages_written(conn);
            run(statement);
            pages += pages_written(conn) - before;
            steps += statement.get_status(StatementStatus::VmStep);
            assert_eq!(conn.changes(), 1);
        });
    }
    Cost {
        steps: f64::from(steps) / OPERATIONS as f64,
        pages: f64::from(pages) / OPERATIONS as f64,
    }
}

/// The connection comes first: it closes before the directory goes.
fn database(queue: bool) -> (Connection, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let conn = Connection::open(dir.path().join("jobs.db")).unwrap();
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    conn.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(())).unwrap();
    conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    fence::register(&conn).unwrap();
    conn.query_row("SELECT fence_init()", [], |_| Ok(())).unwrap();
    if queue {
        conn.query_row("SELECT fence_init_queue()", [], |_| Ok(())).unwrap();
    }
    (conn, dir)
}

fn fill(conn: &Connection, name: &str, rows: usize, columns: &str) {
    conn.execute(
        &format!(
            "INSERT INTO jobs(id, until, owner, fence, done)
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT ?1)
             SELECT printf('{name}-%07d', i), {columns} FROM n WHERE ?1 > 0"
        ),
        [rows as i64],
    )
    .unwrap();
}

fn step(statement: &mut Statement<'_>, arguments: impl rusqlite::Params) {
    let mut rows = statement.query(arguments).unwrap();
    while rows.next().unwrap().is_some() {}
}

fn pages_written(conn: &Connection) -> i32 {
    let (mut current, mut highest) = (0, 0);
    // SAFETY: the connection is open, and both pointers are good for the call.
    let rc = unsafe {
        ffi::sqlite3_db_status(
            conn.handle(),
            ffi::SQLITE_DBSTATUS_CACHE_WRITE,
            &mut current,
            &mut highest,
            0,
        )
    };
    assert_eq!(rc, ffi::SQLITE_OK);
    current
}
