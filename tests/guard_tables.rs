//! A guarded table is written only by who states the current fence of the row's job, in the same
//! statement. Every test runs with the extension and with a client that never loads it.
mod common;
#[path = "common/guarded.rs"]
mod guarded;

use common::one;
use guarded::*;
use rusqlite::Connection;

fn orders(body: impl Fn(&Connection)) {
    each_client(&format!("{ORDERS}{GUARD}"), body);
}

#[test]
fn a_write_without_a_stamp_is_refused() {
    orders(|conn| {
        refused(conn, "UPDATE orders SET total = 9 WHERE id = 1", STATE);
        refused(conn, "INSERT INTO orders(job, total) VALUES ('a', 9)", STATE);
        refused(conn, "INSERT INTO orders DEFAULT VALUES", STATE);
        refused(conn, "DELETE FROM orders WHERE id = 1", DELETE);
        refused(conn, "DELETE FROM orders", DELETE);
        refused(conn, "UPDATE orders SET total = total", STATE);
    });
}

#[test]
fn a_stamp_that_is_not_the_current_fence_is_refused() {
    orders(|conn| {
        for stamp in BAD_STAMPS {
            refused(
                conn,
                &format!("UPDATE orders SET total = 9, fence = {stamp} WHERE id = 1"),
                STATE,
            );
            refused(conn, &format!("UPDATE orders SET fence = {stamp} WHERE id = 1"), STATE);
            refused(conn, &format!("INSERT INTO orders(job, fence) VALUES ('a', {stamp})"), STATE);
        }
        for stamp in ["-1", "-2", "-4", "-5", "-3.5", "'-3x'"] {
            refused(conn, &format!("UPDATE orders SET fence = {stamp} WHERE id = 1"), STATE);
            refused(conn, &format!("INSERT INTO orders(job, fence) VALUES ('a', {stamp})"), STATE);
        }
        refused(conn, "INSERT INTO orders(job, fence) VALUES ('a', -3)", STATE);
    });
}

#[test]
fn the_current_fence_is_let_through_and_no_stamp_stays() {
    orders(|conn| {
        // Clients bind text, or every number as REAL; the column's affinity makes it an integer.
        for stamp in ["3", "3.0", "'3'", "' 3 '", "'3.0'"] {
            accepted(
                conn,
                &format!("UPDATE orders SET total = total + 1, fence = {stamp} WHERE id = 1"),
                1,
            );
            accepted(
                conn,
                &format!("INSERT INTO orders(job, total, fence) VALUES ('a', 1, {stamp})"),
                1,
            );
        }
        assert_eq!(one::<i64>(conn, "SELECT total FROM orders WHERE id = 1"), 15);
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders WHERE job = 'a'"), 7);
        accepted(conn, "UPDATE orders SET fence = -3 WHERE id = 1", 1);
        accepted(conn, "UPDATE orders SET total = 0, fence = '-3.0' WHERE job = 'a'", 6);
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders WHERE job = 'a'"), 0);
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders"), 7, "nothing else went");
    });
}

#[test]
fn a_stamp_that_reads_as_zero_is_no_fence_zero() {
    orders(|conn| {
        // Only raw SQL makes such a job: held, though nobody ever claimed it.
        batch(conn, "UPDATE jobs SET owner = 'raw' WHERE id = 'free'");
        for stamp in ["'abc'", "''", "NULL", "x'30'", "'-abc'", "-1"] {
            refused(
                conn,
                &format!("UPDATE orders SET total = 9, fence = {stamp} WHERE id = 4"),
                STATE,
            );
            refused(
                conn,
                &format!("INSERT INTO orders(job, fence) VALUES ('free', {stamp})"),
                STATE,
            );
        }
    });
}

#[test]
fn a_forgotten_stamp_is_refused_right_after_a_good_write() {
    orders(|conn| {
        for begin in ["", "BEGIN"] {
            batch(conn, begin);
            accepted(conn, "UPDATE orders SET total = total + 1, fence = 3 WHERE id = 1", 1);
            refused(conn, "UPDATE orders SET total = 9 WHERE id = 1", STATE);
            refused(conn, "DELETE FROM orders WHERE id = 1", DELETE);
            accepted(conn, "INSERT INTO orders(job, total, fence) VALUES ('a', 1, 3)", 1);
            refused(conn, "UPDATE orders SET total = 9 WHERE id = last_insert_rowid()", STATE);
            refused(conn, "DELETE FROM orders WHERE id = last_insert_rowid()", DELETE);
        }
        batch(conn, "COMMIT");
    });
}

#[test]
fn a_job_that_nobody_holds_admits_no_write_not_even_with_its_stored_fence() {
    orders(|conn| {
        for (id, job, fence) in [
            (4, "'free'", 0),
            (5, "'released'", 1),
            (6, "'done'", 1),
            (7, "'failed'", 1),
            (8, "'missing'", 0),
            (8, "'missing'", 1),
            (9, "NULL", 0),
            (9, "NULL", 1),
        ] {
            let stored =
                format!("SELECT coalesce((SELECT fence FROM jobs WHERE id = {job}), {fence})");
            assert_eq!(one::<i64>(conn, &stored), fence, "{job}");
            for stamp in [fence, -fence] {
                refused(
                    conn,
                    &format!("UPDATE orders SET total = 9, fence = {stamp} WHERE id = {id}"),
                    STATE,
                );
            }
            refused(
                conn,
                &format!("INSERT INTO orders(job, fence) VALUES ({job}, {fence})"),
                STATE,
            );
            refused(conn, &format!("DELETE FROM orders WHERE id = {id}"), DELETE);
        }
        // A NULL that stands for an id is a job all the same to `TEXT PRIMARY KEY`.
        batch(conn, "INSERT INTO jobs(id, owner, fence) VALUES (NULL, 'w', 1)");
        refused(conn, "UPDATE orders SET total = 9, fence = 1 WHERE id = 9", STATE);
        refused(conn, "INSERT INTO orders(job, fence) VALUES (NULL, 1)", STATE);
    });
}

/// There is no clock in the guard: a lease that ran out is current until somebody takes the job.
/// Who wants the time checked too begins with fence_assert or Lease::write.
#[test]
fn the_generation_ends_with_the_takeover_and_not_with_the_lease() {
    orders(|conn| {
        let until: f64 = one(conn, "SELECT until FROM jobs WHERE id = 'a'");
        assert_eq!(until, 3.0, "over since 1970");
        accepted(conn, "UPDATE orders SET total = 11, fence = 3 WHERE id = 1", 1);

        let claim = include_str!("../sql/claim.sql");
        let mut statement = conn.prepare(claim).unwrap();
        let mut answer = statement.query(("a", "next", 100.0, 10.0)).unwrap();
        assert_eq!(answer.next().unwrap().unwrap().get::<_, i64>(0).unwrap(), 4);
        assert!(answer.next().unwrap().is_none());
        drop(answer);

        refused(conn, "UPDATE orders SET total = 12, fence = 3 WHERE id = 1", STATE);
        refused(conn, "UPDATE orders SET fence = -3 WHERE id = 1", STATE);
        refused(conn, "INSERT INTO orders(job, fence) VALUES ('a', 3)", STATE);
        accepted(conn, "UPDATE orders SET total = 12, fence = 4 WHERE id = 1", 1);
        accepted(conn, "INSERT INTO orders(job, fence) VALUES ('a', 4)", 1);
        accepted(conn, "UPDATE orders SET fence = -4 WHERE id = 2", 1);

        for (end, job) in [("owner = NULL, until = 0", "a"), ("done = 1", "b")] {
            batch(conn, &format!("UPDATE jobs SET {end} WHERE id = '{job}'"));
        }
        refused(conn, "UPDATE orders SET total = 13, fence = 4 WHERE id = 1", STATE);
        refused(conn, "UPDATE orders SET total = 13, fence = 5 WHERE id = 3", STATE);
    });
}

#[test]
fn a_statement_over_rows_of_several_jobs_is_undone_as_a_whole() {
    orders(|conn| {
        for begin in ["", "BEGIN"] {
            batch(conn, begin);
            // The rows of a come first and would be let through.
            for or in ["", "OR IGNORE", "OR REPLACE", "OR FAIL", "OR ABORT", "OR ROLLBACK"] {
                let update = format!("UPDATE {or} orders SET total = 9, fence = 3");
                refused(conn, &update, STATE);
                refused(conn, &format!("{update} WHERE id IN (1, 2, 3) RETURNING id"), STATE);
                refused(conn, &format!("UPDATE {or} orders SET fence = -3 WHERE id < 4"), STATE);
                let insert = format!("INSERT {or} INTO orders(job, fence)");
                refused(conn, &format!("{insert} VALUES ('a', 3), ('b', 3)"), STATE);
                refused(conn, &format!("{insert} SELECT job, 3 FROM orders WHERE id < 4"), STATE);
            }
            // Each row with its own stamp.
            accepted(conn, "UPDATE orders SET total = total + 1, fence = CASE job WHEN 'a' THEN 3 ELSE 5 END WHERE id < 4", 3);
            accepted(conn, "INSERT INTO orders(job, fence) VALUES ('a', 3), ('b', 5)", 2);
            accepted(
                conn,
                "UPDATE orders SET total = total + n, fence = f
                   FROM (SELECT 'a' AS j, 1 AS n, 3 AS f UNION SELECT 'b', 2, 5) WHERE job = j AND id < 4",
                3,
            );
            refused(
                conn,
                "UPDATE orders SET total = total + n, fence = f
                   FROM (SELECT 'a' AS j, 1 AS n, 3 AS f UNION SELECT 'b', 2, 3) WHERE job = j",
                STATE,
            );
        }
        batch(conn, "COMMIT");
        let totals: String = one(conn, "SELECT group_concat(total) FROM orders WHERE id < 4");
        assert_eq!(totals, "14,24,36");
    });
}

#[test]
fn a_row_cannot_change_its_job() {
    orders(|conn| {
        for (job, stamp) in
            [("'b'", 3), ("'b'", 5), ("NULL", 3), ("'A'", 3), ("x'62'", 3), ("'a '", 3)]
        {
            let sentence = if stamp == 3 { MOVE } else { STATE };
            for or in ["", "OR IGNORE", "OR REPLACE"] {
                refused(
                    conn,
                    &format!("UPDATE {or} orders SET job = {job}, fence = {stamp} WHERE id = 1"),
                    sentence,
                );
                refused(
                    conn,
                    &format!("UPDATE {or} orders SET job = {job}, fence = -{stamp} WHERE id = 1"),
                    sentence,
                );
            }
        }
        accepted(conn, "UPDATE orders SET job = 'a', total = 11, fence = 3 WHERE id = 1", 1);
    });
}

#[test]
fn jobs_that_only_a_collation_or_a_number_type_takes_for_one_are_two() {
    for (kind, same, other) in [
        ("TEXT COLLATE NOCASE", "'job'", "'JOB'"),
        ("TEXT COLLATE RTRIM", "'job'", "'job  '"),
        ("", "1", "1.0"),
    ] {
        let setup = format!(
            "INSERT INTO jobs(id, owner, fence) VALUES (CAST({same} AS TEXT), 'w', 1),
                                                       (CAST({other} AS TEXT), 'w', 2);
             CREATE TABLE orders(id INTEGER PRIMARY KEY, job {kind}, slug TEXT UNIQUE);
             INSERT INTO orders VALUES (1, {same}, 's1'), (2, {other}, 's2');{GUARD}"
        );
        each_client(&setup, |conn| {
            assert_eq!(one::<i64>(conn, "SELECT count(DISTINCT job) FROM orders"), 1, "{kind}");
            refused(
                conn,
                &format!("UPDATE orders SET job = {other}, fence = 1 WHERE id = 1"),
                MOVE,
            );
            refused(conn, "UPDATE orders SET slug = 'x', fence = 1", STATE);
            for key in ["id, slug) VALUES (2, 's3'", "id, slug) VALUES (3, 's2'"] {
                let values = key.replace(") VALUES", ", job, fence) VALUES");
                refused(
                    conn,
                    &format!("INSERT OR REPLACE INTO orders({values}, {same}, 1)"),
                    REPLACE,
                );
            }
            accepted(conn, "UPDATE orders SET slug = 'x', fence = 1 WHERE id = 1", 1);
        });
    }
}

#[test]
fn a_transaction_goes_on_after_a_refusal() {
    orders(|conn| {
        batch(conn, "BEGIN");
        accepted(conn, "UPDATE orders SET total = 11, fence = 3 WHERE id = 1", 1);
        refused(conn, "UPDATE orders SET total = 9, fence = 2 WHERE id = 2", STATE);
        batch(conn, "SAVEPOINT s");
        refused(conn, "UPDATE OR ROLLBACK orders SET total = 9 WHERE id = 2", STATE);
        accepted(conn, "UPDATE orders SET total = 21, fence = 3 WHERE id = 2", 1);
        batch(conn, "RELEASE s; COMMIT");
        let totals: String = one(conn, "SELECT group_concat(total) FROM orders WHERE id < 4");
        assert_eq!(totals, "11,21,30");
    });
}

#[test]
fn returning_shows_the_row_with_its_stamp() {
    orders(|conn| {
        assert_eq!(
            one::<i64>(
                conn,
                "UPDATE orders SET total = 11, fence = 3 WHERE id = 1 RETURNING total + fence"
            ),
            14
        );
        assert_eq!(
            one::<i64>(conn, "INSERT INTO orders(job, fence) VALUES ('a', 3) RETURNING fence"),
            3
        );
        assert_eq!(
            one::<i64>(conn, "UPDATE orders SET fence = -3 WHERE id = 2 RETURNING total"),
            20
        );
        no_stamp_at_rest(conn, "RETURNING");
        refused(conn, "UPDATE orders SET total = 9 WHERE id = 1 RETURNING total", STATE);
        refused(conn, "DELETE FROM orders WHERE id = 1 RETURNING total", DELETE);
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders WHERE job = 'a'"), 2);
    });
}
