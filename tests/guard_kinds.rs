//! Guarded tables of every kind: without rowid, with hidden or renamed rowid, strict, with
//! generated columns, and with job columns of every type.
mod common;
#[path = "common/guarded.rs"]
mod guarded;

use common::one;
use guarded::*;

#[test]
fn a_table_without_rowid_is_guarded_by_its_key() {
    for (columns, collation) in [
        ("k1 TEXT, k2 INTEGER, job TEXT, n, PRIMARY KEY (k1, k2)", ""),
        (
            "k1 TEXT COLLATE NOCASE, k2 INTEGER, job TEXT, n, PRIMARY KEY (k2, k1 COLLATE NOCASE)",
            "nocase",
        ),
        (
            "k1 TEXT COLLATE NOCASE, k2 INTEGER, job TEXT, n, PRIMARY KEY (k1 COLLATE BINARY, k2)",
            "",
        ),
        ("job TEXT, k2 INTEGER, k1 TEXT, n, PRIMARY KEY (k2 DESC, k1)", ""),
    ] {
        let setup = format!(
            "CREATE TABLE orders({columns}) WITHOUT ROWID;
             INSERT INTO orders(k1, k2, job, n) VALUES ('x', 1, 'a', 1), ('x', 2, 'b', 2), ('y', 1, 'a', 3);
             {GUARD}"
        );
        each_client(&setup, |conn| {
            refused(conn, "UPDATE orders SET n = 9", STATE);
            refused(conn, "UPDATE orders SET n = 9, fence = 3", STATE);
            refused(conn, "DELETE FROM orders WHERE job = 'a'", DELETE);
            let key = if collation == "nocase" { "X" } else { "x" };
            let replace =
                format!("REPLACE INTO orders(k1, k2, job, fence) VALUES ('{key}', 2, 'a', 3)");
            refused(conn, &replace, REPLACE);
            let update = format!(
                "UPDATE OR REPLACE orders SET k1 = '{key}', k2 = 2, fence = 3 WHERE k1 = 'y'"
            );
            refused(conn, &update, REPLACE);
            accepted(conn, "UPDATE orders SET n = 9, fence = 3 WHERE job = 'a'", 2);
            accepted(conn, "UPDATE orders SET k1 = 'z', fence = 3 WHERE k1 = 'y'", 1);
            accepted(conn, "INSERT INTO orders(k1, k2, job, fence) VALUES ('x', 3, 'a', 3)", 1);
            accepted(
                conn,
                "REPLACE INTO orders(k1, k2, job, n, fence) VALUES ('x', 3, 'a', 4, 3)",
                1,
            );
            accepted(conn, "UPDATE orders SET fence = -3 WHERE k1 = 'z'", 1);
            accepted(conn, "UPDATE orders SET k2 = 7, fence = -5 WHERE k2 = 2", 1);
            let left: String = one(
                conn,
                "SELECT group_concat(k1 || k2 || n) FROM (SELECT * FROM orders ORDER BY k1, k2)",
            );
            assert_eq!(left, "x19,x34");
        });
    }
}

#[test]
fn a_job_that_is_the_key_is_guarded() {
    for without in ["", "WITHOUT ROWID"] {
        let setup = format!(
            "CREATE TABLE orders(job TEXT PRIMARY KEY, n) {without};
             INSERT INTO orders VALUES ('b', 1);{GUARD}"
        );
        each_client(&setup, |conn| {
            accepted(conn, "INSERT INTO orders(job, n, fence) VALUES ('a', 1, 3)", 1);
            accepted(conn, "REPLACE INTO orders(job, n, fence) VALUES ('a', 2, 3)", 1);
            refused(conn, "REPLACE INTO orders(job, n, fence) VALUES ('b', 2, 3)", STATE);
            refused(
                conn,
                "UPDATE OR REPLACE orders SET job = 'b', fence = 3 WHERE job = 'a'",
                MOVE,
            );
            accepted(conn, "UPDATE orders SET fence = -3 WHERE job = 'a'", 1);
        });
    }
}

#[test]
fn a_column_that_hides_a_name_of_the_rowid_is_not_taken_for_it() {
    for columns in ["rowid TEXT", "rowid INTEGER, _rowid_ INTEGER", "RowId TEXT, OID INTEGER"] {
        let setup = format!(
            "CREATE TABLE orders(job TEXT, n, {columns});
             INSERT INTO orders(job, n) VALUES ('a', 1), ('b', 2), ('a', 3);
             UPDATE orders SET rowid = 1;{GUARD}"
        );
        each_client(&setup, |conn| {
            let rowid = if columns.contains("_rowid_") { "oid" } else { "_rowid_" };
            refused(conn, "UPDATE orders SET n = 9", STATE);
            let replace = format!("REPLACE INTO orders({rowid}, job, fence) VALUES (2, 'a', 3)");
            refused(conn, &replace, REPLACE);
            accepted(conn, "UPDATE orders SET n = 9, fence = 3 WHERE n = 1", 1);
            accepted(conn, "INSERT INTO orders(rowid, job, n, fence) VALUES (1, 'a', 4, 3)", 1);
            accepted(conn, "UPDATE orders SET fence = -3 WHERE n = 3", 1);
            assert_eq!(one::<String>(conn, "SELECT group_concat(n) FROM orders"), "9,2,4");
        });
    }
}

#[test]
fn a_table_that_hides_every_name_of_its_rowid_is_guarded_by_its_key() {
    for key in ["id INTEGER PRIMARY KEY", "id TEXT PRIMARY KEY", "id INTEGER PRIMARY KEY DESC"] {
        let setup = format!(
            "CREATE TABLE orders({key}, job TEXT, n, rowid TEXT, _rowid_ TEXT, oid TEXT);
             INSERT INTO orders(id, job, n) VALUES (1, 'a', 1), (2, 'b', 2), (NULL, 'a', 3), (NULL, 'b', 4);
             {GUARD}"
        );
        each_client(&setup, |conn| {
            refused(conn, "UPDATE orders SET n = 9", STATE);
            refused(conn, "REPLACE INTO orders(id, job, fence) VALUES (2, 'a', 3)", REPLACE);
            refused(conn, "UPDATE OR REPLACE orders SET id = 2, fence = 3 WHERE id = 1", REPLACE);
            // A key that is NULL still finds its row, and no other one.
            accepted(conn, "UPDATE orders SET n = 30, fence = 3 WHERE n = 3", 1);
            accepted(conn, "INSERT INTO orders(id, job, n, fence) VALUES (NULL, 'a', 5, 3)", 1);
            accepted(conn, "UPDATE orders SET fence = -3 WHERE n = 30", 1);
            assert_eq!(one::<String>(conn, "SELECT group_concat(n) FROM orders"), "1,2,4,5");
        });
    }
}

#[test]
fn a_strict_table_is_guarded() {
    let setup = format!(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, job TEXT, n INT) STRICT;
         INSERT INTO orders VALUES (1, 'a', 1);{GUARD}"
    );
    each_client(&setup, |conn| {
        for stamp in ["NULL", "2", "-2", "0"] {
            refused(conn, &format!("UPDATE orders SET n = 9, fence = {stamp}"), STATE);
        }
        for stamp in ["'abc'", "3.5", "x'33'"] {
            // The column's own type refuses these first.
            let update = format!("UPDATE orders SET n = 9, fence = {stamp}");
            let (code, sentence) = common::error_of(conn, &update);
            assert_eq!(code, rusqlite::ffi::SQLITE_CONSTRAINT_DATATYPE, "{sentence}");
            assert_eq!(one::<i64>(conn, "SELECT n FROM orders"), 1);
        }
        for stamp in ["3", "3.0", "'3'"] {
            accepted(conn, &format!("UPDATE orders SET n = n + 1, fence = {stamp}"), 1);
        }
        accepted(conn, "UPDATE orders SET fence = -3", 1);
    });
}

#[test]
fn generated_columns_may_stand_beside_the_job_or_name_it() {
    for kind in ["VIRTUAL", "STORED"] {
        let setup = format!(
            "CREATE TABLE orders(id INTEGER PRIMARY KEY, n INTEGER, kind TEXT,
                 job TEXT GENERATED ALWAYS AS (lower(kind)) {kind}, twice AS (n * 2) {kind});
             INSERT INTO orders(n, kind) VALUES (1, 'A'), (2, 'B');{GUARD}"
        );
        each_client(&setup, |conn| {
            refused(conn, "UPDATE orders SET n = 9", STATE);
            refused(conn, "INSERT INTO orders(kind, fence) VALUES ('B', 3)", STATE);
            refused(conn, "UPDATE orders SET kind = 'B', fence = 3 WHERE id = 1", MOVE);
            accepted(conn, "UPDATE orders SET n = 9, kind = 'a', fence = 3 WHERE id = 1", 1);
            accepted(conn, "INSERT INTO orders(n, kind, fence) VALUES (4, 'A', 3)", 1);
            assert_eq!(one::<String>(conn, "SELECT group_concat(twice) FROM orders"), "18,4,8");
        });
    }
}

#[test]
fn a_job_column_names_the_job_whose_id_is_its_value_as_text() {
    for (kind, written, id) in [
        ("INTEGER", "1", "1"),
        ("INTEGER", "'01'", "1"),
        ("INTEGER", "-5", "-5"),
        ("TEXT", "1", "1"),
        ("TEXT", "'01'", "01"),
        ("TEXT", "'1.0'", "1.0"),
        ("REAL", "1", "1.0"),
        ("NUMERIC", "'1.0'", "1"),
        ("", "'1'", "1"),
        ("", "1.5", "1.5"),
        // Bytes name the job that they spell.
        ("BLOB", "x'31'", "1"),
    ] {
        let setup = format!(
            "INSERT INTO jobs(id, owner, fence)
             SELECT value, 'w', 10 FROM json_each('[\"1\", \"01\", \"1.0\", \"-5\", \"1.5\"]');
             UPDATE jobs SET fence = 11 WHERE id = '{id}';
             CREATE TABLE orders(job {kind}, n); INSERT INTO orders VALUES ({written}, 0);{GUARD}"
        );
        each_client(&setup, |conn| {
            refused(conn, "UPDATE orders SET n = 1, fence = 10", STATE);
            let insert = format!("INSERT INTO orders(job, fence) VALUES ({written},");
            refused(conn, &format!("{insert} 10)"), STATE);
            accepted(conn, "UPDATE orders SET n = 1, fence = 11", 1);
            accepted(conn, &format!("{insert} 11)"), 1);
            accepted(conn, "UPDATE orders SET fence = -11", 2);
        });
    }
}

#[test]
fn a_guarded_table_in_utf_16_is_guarded() {
    let scratch = common::Scratch::new();
    let maker = scratch.loaded();
    batch(&maker, "PRAGMA encoding = 'UTF-16le'");
    batch(&maker, JOBS);
    batch(&maker, ORDERS);
    batch(&maker, GUARD);
    let conn = scratch.connect();
    assert_eq!(one::<String>(&conn, "PRAGMA encoding"), "UTF-16le");
    refused(&conn, "UPDATE orders SET total = 9, fence = 2 WHERE id = 1", STATE);
    refused(&conn, "REPLACE INTO orders(job, slug, fence) VALUES ('a', 's3', 3)", REPLACE);
    accepted(&conn, "UPDATE orders SET total = 9, fence = 3 WHERE id = 1", 1);
}

/// SQLite chooses the value of an INTEGER PRIMARY KEY after the guard looked; till then it is -1.
#[test]
fn a_row_whose_job_is_its_number_must_state_it() {
    let setup = format!(
        "INSERT INTO jobs(id, owner, fence) VALUES ('-1', 'w', 7), ('1', 'w', 3);
         CREATE TABLE orders(job INTEGER PRIMARY KEY, total);{GUARD}"
    );
    each_client(&setup, |conn| {
        let sentence = "orders: state the row's job";
        refused(conn, "INSERT INTO orders(total, fence) VALUES (9, 7)", sentence);
        refused(conn, "INSERT INTO orders(job, total, fence) VALUES (NULL, 9, 7)", sentence);
        refused(conn, "INSERT INTO orders(job, total, fence) VALUES (2, 9, 3)", STATE);
        accepted(conn, "INSERT INTO orders(job, total, fence) VALUES (1, 9, 3)", 1);
    });
}

/// Only such a key reads so: elsewhere -1 is the name of a job.
#[test]
fn a_job_may_have_the_name_that_a_missing_number_reads_as() {
    for column in ["job INTEGER", "job TEXT PRIMARY KEY"] {
        let setup = format!(
            "INSERT INTO jobs(id, owner, fence) VALUES ('-1', 'w', 7);
             CREATE TABLE orders({column}, total);{GUARD}"
        );
        each_client(&setup, |conn| {
            refused(conn, "INSERT INTO orders(job, total, fence) VALUES (-1, 9, 3)", STATE);
            accepted(conn, "INSERT INTO orders(job, total, fence) VALUES (-1, 9, 7)", 1);
            accepted(conn, "UPDATE orders SET total = 8, fence = 7 WHERE total = 9", 1);
        });
    }
}
