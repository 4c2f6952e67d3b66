//! What changes rows of a guarded table from the side: INSERT OR REPLACE, upserts, cascades of
//! foreign keys, triggers of the user's own, and a schema that changes under the guard.
mod common;
#[path = "common/guarded.rs"]
mod guarded;

use common::{error_of, one};
use guarded::*;
use rusqlite::{ffi, Connection};

fn orders(body: impl Fn(&Connection)) {
    each_client(&format!("{ORDERS}{GUARD}"), body);
}

#[test]
fn a_row_that_replaces_one_of_another_job_is_refused() {
    orders(|conn| {
        for recursive in ["OFF", "ON"] {
            batch(conn, &format!("PRAGMA recursive_triggers = {recursive}"));
            for columns in ["id", "rowid", "oid"] {
                let sql = format!("REPLACE INTO orders({columns}, job, fence) VALUES (3, 'a', 3)");
                refused(conn, &sql, REPLACE);
            }
            for values in ["3, 'a', 9, 's3', 3", "10, 'a', 9, 's3', 3", "3, 'a', 9, 's1', 3"] {
                for or in ["OR REPLACE", "OR IGNORE", ""] {
                    refused(conn, &format!("INSERT {or} INTO orders VALUES ({values})"), REPLACE);
                }
            }
            for set in ["id = 3", "rowid = 3", "slug = 's3'", "id = 9", "slug = 's8'"] {
                for or in ["OR REPLACE", "OR IGNORE", ""] {
                    let update = format!("UPDATE {or} orders SET {set}, fence = 3 WHERE id = 1");
                    refused(conn, &update, REPLACE);
                    refused(conn, &update.replace("= 3 W", "= -3 W"), REPLACE);
                }
            }
            refused(conn, "REPLACE INTO orders(id, job) VALUES (3, 'b')", STATE);
            refused(conn, "REPLACE INTO orders(id, job, fence) VALUES (3, 'b', 3)", STATE);
            refused(conn, "REPLACE INTO orders(id, job, fence) VALUES (1, 'a', 2)", STATE);
            refused(conn, "UPDATE OR REPLACE orders SET id = 1 WHERE id = 2", STATE);
        }
    });
}

#[test]
fn a_row_may_replace_one_of_its_own_job() {
    orders(|conn| {
        accepted(conn, "REPLACE INTO orders(id, job, total, fence) VALUES (1, 'a', 11, 3)", 1);
        accepted(conn, "REPLACE INTO orders(job, slug, fence) VALUES ('a', 's2', 3)", 1);
        let own: String = one(conn, "SELECT group_concat(total) FROM orders WHERE job = 'a'");
        assert_eq!(own, "11,0");
        accepted(conn, "UPDATE OR REPLACE orders SET slug = 's2', fence = 3 WHERE id = 1", 1);
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders WHERE job = 'a'"), 1);

        // Delete triggers now fire for the replaced row, and a DELETE has no place for a stamp.
        batch(conn, "PRAGMA recursive_triggers = ON");
        refused(conn, "REPLACE INTO orders(id, job, fence) VALUES (1, 'a', 3)", DELETE);
        refused(conn, "REPLACE INTO orders(id, job, fence) VALUES (3, 'b', 5)", DELETE);
        accepted(conn, "UPDATE orders SET total = 12, fence = 3 WHERE id = 1", 1);
    });
}

#[test]
fn each_unique_index_is_watched() {
    for (index, row, other_job) in [
        ("email TEXT COLLATE NOCASE UNIQUE", "email) VALUES ('x@y'", "email) VALUES ('X@Y'"),
        ("a, b, UNIQUE(a, b)", "a, b) VALUES (1, 2", "a, b) VALUES (1, 2.0"),
        ("a INTEGER UNIQUE ON CONFLICT REPLACE", "a) VALUES (1", "a) VALUES ('1'"),
        ("a TEXT, g TEXT AS (lower(a)) UNIQUE", "a) VALUES ('x'", "a) VALUES ('X'"),
        ("a TEXT, g TEXT AS (lower(a)) STORED UNIQUE", "a) VALUES ('x'", "a) VALUES ('X'"),
        (
            "a TEXT); CREATE UNIQUE INDEX i ON orders(a COLLATE NOCASE",
            "a) VALUES ('x'",
            "a) VALUES ('X'",
        ),
        ("a TEXT); CREATE UNIQUE INDEX i ON orders(a DESC", "a) VALUES ('x'", "a) VALUES ('x'"),
        (
            "a, on_ INT); CREATE UNIQUE INDEX i ON orders(a) WHERE (on_",
            "a, on_) VALUES (1, 1",
            "a, on_) VALUES (1, 1",
        ),
    ] {
        let (job_b, job_a) =
            (row.replace(") V", ", job) V"), other_job.replace(") V", ", job, fence) V"));
        let setup = format!(
            "CREATE TABLE orders(job TEXT, {index});INSERT INTO orders({job_b}, 'b');{GUARD}"
        );
        each_client(&setup, |conn| {
            refused(conn, &format!("REPLACE INTO orders({job_a}, 'a', 3)"), REPLACE);
            refused(conn, &format!("INSERT INTO orders({job_a}, 'a', 3)"), REPLACE);
            accepted(conn, "INSERT INTO orders(job, fence) VALUES ('a', 3)", 1);
            accepted(conn, "INSERT INTO orders(job, fence) VALUES ('a', 3)", 1);
            let (column, _) = row.split_once([',', ')']).unwrap();
            let of_b = format!("(SELECT {column} FROM orders WHERE job = 'b')");
            let mut update = format!("UPDATE OR REPLACE orders SET {column} = {of_b}, fence = 3");
            for second in ["b", "on_"] {
                if row.contains(&format!(", {second})")) {
                    update += &format!(", {second} = {}", of_b.replace(column, second));
                }
            }
            refused(conn, &format!("{update} WHERE job = 'a' AND rowid = 2"), REPLACE);
            assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders"), 3, "{index}");
        });
    }
}

/// REPLACE puts the default in the place of a NULL that a column does not admit, and only then
/// looks for the row that is in the way.
#[test]
fn a_null_that_replace_would_turn_into_a_default_is_refused() {
    for (columns, value) in [
        ("slug TEXT NOT NULL DEFAULT 'd' UNIQUE", "'d'"),
        ("slug TEXT NOT NULL DEFAULT 'D', g TEXT AS (lower(slug)) UNIQUE", "'d'"),
        ("slug TEXT NOT NULL DEFAULT 'd', PRIMARY KEY (slug)) WITHOUT ROWID; CREATE TABLE other(x", "'d'"),
    ] {
        let setup = format!(
            "CREATE TABLE orders(job TEXT, {columns});
             INSERT INTO orders(job, slug) VALUES ('b', {value}), ('a', 'mine');{GUARD}"
        );
        each_client(&setup, |conn| {
            let sentence = "orders: slug is NULL";
            refused(conn, "REPLACE INTO orders(job, slug, fence) VALUES ('a', NULL, 3)", sentence);
            refused(conn, "UPDATE OR REPLACE orders SET slug = NULL, fence = 3 WHERE job = 'a'", sentence);
            refused(conn, "REPLACE INTO orders(job, fence) VALUES ('a', 3)", REPLACE);
            accepted(conn, "UPDATE OR REPLACE orders SET slug = 'other', fence = 3 WHERE job = 'a'", 1);
        });
    }
}

/// A column that admits NULL keeps it, also where a row is replaced.
#[test]
fn a_null_that_a_column_admits_is_stored() {
    let setup = format!(
        "CREATE TABLE orders(job TEXT, slug TEXT DEFAULT 'd' UNIQUE);
         INSERT INTO orders(job, slug) VALUES ('b', 'd'), ('a', 'mine');{GUARD}"
    );
    each_client(&setup, |conn| {
        accepted(conn, "REPLACE INTO orders(job, slug, fence) VALUES ('a', NULL, 3)", 1);
        accepted(conn, "UPDATE OR REPLACE orders SET slug = NULL, fence = 3 WHERE job = 'a'", 2);
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders WHERE slug IS NULL"), 2);
    });
}

#[test]
fn an_upsert_needs_the_stamp_in_both_halves() {
    orders(|conn| {
        let insert =
            |values: &str| format!("INSERT INTO orders(id, job, total, fence) VALUES ({values})");
        for conflict in ["ON CONFLICT(id)", "ON CONFLICT"] {
            let upsert = |values: &str, set: &str| {
                format!("{} {conflict} DO UPDATE SET {set}", insert(values))
            };
            accepted(
                conn,
                &upsert("1, 'a', 7, 3", "total = excluded.total, fence = excluded.fence"),
                1,
            );
            accepted(conn, &upsert("1, 'a', 8, 3", "total = excluded.total, fence = 3"), 1);
            refused(conn, &upsert("1, 'a', 9, 3", "total = excluded.total"), STATE);
            refused(conn, &upsert("1, 'a', 9, 3", "total = 9, fence = 2"), STATE);
            refused(conn, &upsert("1, 'a', 9, NULL", "total = 9, fence = 3"), STATE);
            refused(conn, &upsert("1, 'a', 9, 2", "total = 9, fence = 3"), STATE);
            refused(conn, &upsert("3, 'a', 9, 3", "total = 9, fence = 3"), REPLACE);
            refused(conn, &upsert("3, 'b', 9, 5", "total = 9, fence = 3"), STATE);
            refused(conn, &upsert("3, 'b', 9, 5", "job = 'a', fence = 5"), MOVE);
        }
        assert_eq!(one::<i64>(conn, "SELECT total FROM orders WHERE id = 1"), 8);
        accepted(conn, &(insert("1, 'a', 9, 3") + " ON CONFLICT DO NOTHING"), 0);
        refused(conn, &(insert("3, 'a', 9, 3") + " ON CONFLICT DO NOTHING"), REPLACE);
        accepted(conn, &(insert("10, 'a', 9, 3") + " ON CONFLICT DO NOTHING"), 1);
        accepted(conn, "INSERT OR IGNORE INTO orders(id, job, fence) VALUES (1, 'a', 3)", 0);
        refused(conn, "INSERT OR IGNORE INTO orders(id, job) VALUES (1, 'a')", STATE);
        refused(conn, "INSERT OR IGNORE INTO orders(id, job) VALUES (11, 'a')", STATE);
        refused(conn, "UPDATE OR IGNORE orders SET total = 9 WHERE id = 1", STATE);
        refused(conn, "UPDATE OR IGNORE orders SET total = 9, fence = 2 WHERE id = 1", STATE);
        // What IGNORE skips keeps no stamp either.
        accepted(conn, "UPDATE OR IGNORE orders SET slug = 's2', fence = 3 WHERE id = 1", 0);
    });
}

#[test]
fn a_cascade_of_a_foreign_key_is_refused_and_undone() {
    let setup = format!(
        "CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT UNIQUE);
         INSERT INTO customers VALUES (1, 'free to go'), (2, 'two'), (3, 'three'), (4, 'four');
         CREATE TABLE orders(id INTEGER PRIMARY KEY, job TEXT,
             c INTEGER REFERENCES customers ON DELETE CASCADE,
             n INTEGER REFERENCES customers ON DELETE SET NULL,
             u TEXT DEFAULT 'free to go' REFERENCES customers(name) ON UPDATE CASCADE ON DELETE SET DEFAULT);
         INSERT INTO orders VALUES (1, 'a', 2, NULL, NULL), (2, 'a', NULL, 3, NULL), (3, 'a', NULL, NULL, 'four');
         {GUARD}"
    );
    each_client(&setup, |conn| {
        batch(conn, "PRAGMA foreign_keys = ON");
        for begin in ["", "BEGIN"] {
            batch(conn, begin);
            refused(conn, "DELETE FROM customers WHERE id IN (1, 2)", DELETE);
            refused(conn, "DELETE FROM customers WHERE id IN (1, 3)", STATE);
            refused(conn, "DELETE FROM customers WHERE id IN (1, 4)", STATE);
            refused(conn, "UPDATE customers SET name = name || 'x' WHERE id IN (1, 4)", STATE);
            refused(conn, "REPLACE INTO customers VALUES (2, 'new')", DELETE);
        }
        accepted(conn, "UPDATE orders SET c = NULL, fence = 3 WHERE id = 1", 1);
        batch(conn, "DELETE FROM customers WHERE id = 2; COMMIT");
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM customers"), 3);
        no_stamp_at_rest(conn, "cascades");
    });
}

#[test]
fn rows_below_a_deleted_row_go_only_if_nothing_of_theirs_is_written() {
    let setup = format!(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, job TEXT,
             above INTEGER REFERENCES orders ON DELETE CASCADE);
         INSERT INTO orders VALUES (1, 'a', NULL), (2, 'b', 1), (3, 'a', 3);{GUARD}"
    );
    each_client(&setup, |conn| {
        batch(conn, "PRAGMA foreign_keys = ON");
        refused(conn, "UPDATE orders SET fence = -3 WHERE id = 1", DELETE);
        accepted(conn, "UPDATE orders SET fence = -3 WHERE id = 3", 1);
        accepted(conn, "UPDATE orders SET fence = -5 WHERE id = 2", 1);
        accepted(conn, "UPDATE orders SET fence = -3 WHERE id = 1", 1);
    });
}

/// A trigger that writes the row again states the fence too. The guard takes the stamp out by an
/// UPDATE of its own, for which such a trigger must not fire: hence WHEN.
#[test]
fn a_trigger_of_the_users_own_can_write_the_row_that_is_being_written() {
    const TOUCH: &str = "
        CREATE TRIGGER touch AFTER UPDATE OF total ON orders WHEN new.fence IS NOT NULL
        BEGIN UPDATE orders SET slug = 'touched ' || new.id, fence = new.fence WHERE id = new.id; END;
        CREATE TRIGGER touch_new AFTER INSERT ON orders
        BEGIN UPDATE orders SET slug = 'made ' || new.id, fence = new.fence WHERE id = new.id; END;";
    for setup in [format!("{ORDERS}{GUARD}{TOUCH}"), format!("{ORDERS}{TOUCH}{GUARD}")] {
        each_client(&setup, |conn| {
            for recursive in ["OFF", "ON"] {
                batch(conn, &format!("PRAGMA recursive_triggers = {recursive}"));
                accepted(conn, "UPDATE orders SET total = total + 1, fence = 3 WHERE id = 1", 1);
                assert_eq!(
                    one::<String>(conn, "SELECT slug FROM orders WHERE id = 1"),
                    "touched 1"
                );
                accepted(conn, "INSERT INTO orders(id, job, fence) VALUES (100, 'a', 3)", 1);
                assert_eq!(
                    one::<String>(conn, "SELECT slug FROM orders WHERE id = 100"),
                    "made 100"
                );
                refused(conn, "UPDATE orders SET total = 9, fence = 2 WHERE id = 1", STATE);
                refused(conn, "UPDATE orders SET total = 9 WHERE id = 1", STATE);
                refused(conn, "INSERT INTO orders(job, fence) VALUES ('a', 2)", STATE);
                accepted(conn, "UPDATE orders SET total = 9, fence = -3 WHERE id = 100", 1);
                assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders WHERE id = 100"), 0);
            }
        });
    }
}

#[test]
fn a_trigger_of_the_users_own_cannot_do_what_its_statement_cannot() {
    for (event, act, sentence) in [
        ("AFTER UPDATE OF total", "UPDATE orders SET job = 'b' WHERE id = new.id", MOVE),
        ("AFTER INSERT", "UPDATE orders SET job = 'b' WHERE id = new.id", MOVE),
        (
            "AFTER UPDATE OF total",
            "UPDATE OR REPLACE orders SET slug = 's3' WHERE id = new.id",
            REPLACE,
        ),
        ("AFTER INSERT", "UPDATE orders SET total = 0 WHERE id = 3", STATE),
        (
            "AFTER UPDATE OF total",
            "UPDATE orders SET total = 0, fence = new.fence WHERE id = 3",
            STATE,
        ),
        ("BEFORE UPDATE OF total", "UPDATE orders SET total = 0 WHERE id = new.id", STATE),
        ("BEFORE INSERT", "DELETE FROM orders WHERE id = 1", DELETE),
    ] {
        let trigger = format!("CREATE TRIGGER own {event} ON orders BEGIN {act}; END;");
        each_client(&format!("{ORDERS}{GUARD}{trigger}"), |conn| {
            let write = if event.ends_with("INSERT") {
                "INSERT INTO orders(job, fence) VALUES ('a', 3)"
            } else {
                "UPDATE orders SET total = total + 1, fence = 3 WHERE id = 1"
            };
            refused(conn, write, sentence);
        });
    }
}

#[test]
fn a_view_passes_the_stamp_on() {
    let view = "
        CREATE VIEW v AS SELECT * FROM orders;
        CREATE TRIGGER v_update INSTEAD OF UPDATE ON v
        BEGIN UPDATE orders SET total = new.total, fence = new.fence WHERE id = new.id; END;
        CREATE TRIGGER v_delete INSTEAD OF DELETE ON v
        BEGIN DELETE FROM orders WHERE id = old.id; END;
        CREATE TRIGGER v_insert INSTEAD OF INSERT ON v
        BEGIN INSERT INTO orders(job, total, fence) VALUES (new.job, new.total, new.fence); END;";
    each_client(&format!("{ORDERS}{GUARD}{view}"), |conn| {
        refused(conn, "UPDATE v SET total = 9 WHERE id = 1", STATE);
        refused(conn, "UPDATE v SET total = 9, fence = 2 WHERE id = 1", STATE);
        refused(conn, "INSERT INTO v(job, total) VALUES ('a', 9)", STATE);
        refused(conn, "DELETE FROM v WHERE id = 1", DELETE);
        batch(conn, "UPDATE v SET total = 9, fence = 3 WHERE id = 1");
        batch(conn, "INSERT INTO v(job, total, fence) VALUES ('a', 9, 3)");
        assert_eq!(one::<i64>(conn, "SELECT count(*) FROM orders WHERE total = 9"), 2);
        no_stamp_at_rest(conn, "view");
    });
}

#[test]
fn a_unique_index_made_later_closes_the_table_until_it_is_guarded_again() {
    let sentence = "orders: its UNIQUE indexes changed, call fence_guard again";
    let setup = format!("{ORDERS}CREATE UNIQUE INDEX known ON orders(job, id);{GUARD}");
    // Also in the place of one that was known, and on a table that has another name by now.
    for (before, index, table) in [
        ("", "later ON orders(total)", "orders"),
        ("DROP INDEX known", "known ON orders(total)", "orders"),
        ("ALTER TABLE orders RENAME TO bills", "later ON bills(total)", "bills"),
    ] {
        each_client(&setup, |conn| {
            batch(conn, before);
            batch(
                conn,
                &format!("CREATE INDEX plain ON {table}(total); CREATE UNIQUE INDEX {index}"),
            );
            let update = format!("UPDATE {table} SET total = 31, fence = 3 WHERE id = 1");
            let insert = format!("REPLACE INTO {table}(job, total, fence) VALUES ('a', 30, 3)");
            refused(conn, &update, sentence);
            refused(conn, &insert, sentence);
            common::load(conn).unwrap();
            assert_eq!(one::<i64>(conn, &format!("SELECT fence_guard('{table}', 'job')")), 1);
            refused(conn, &insert, &REPLACE.replace("orders", table));
            batch(conn, &update);
            assert_eq!(one::<i64>(conn, &format!("SELECT total FROM {table} WHERE id = 1")), 31);
        });
    }
}

#[test]
fn an_index_that_is_not_unique_and_a_new_column_change_nothing() {
    orders(|conn| {
        batch(conn, "CREATE INDEX plain ON orders(total); ALTER TABLE orders ADD COLUMN note TEXT");
        refused(conn, "UPDATE orders SET note = 'x' WHERE id = 1", STATE);
        accepted(conn, "UPDATE orders SET note = 'x', fence = 3 WHERE id = 1", 1);
        batch(conn, "DROP INDEX plain; ALTER TABLE orders RENAME COLUMN job TO task");
        batch(conn, "ALTER TABLE orders RENAME COLUMN slug TO short");
        refused(conn, "UPDATE orders SET note = 'y' WHERE id = 1", STATE);
        refused(conn, "REPLACE INTO orders(task, short, fence) VALUES ('a', 's3', 3)", REPLACE);
        accepted(conn, "UPDATE orders SET note = 'y', fence = 3 WHERE id = 1", 1);
    });
}

#[test]
fn a_renamed_table_stays_guarded() {
    orders(|conn| {
        batch(conn, "ALTER TABLE orders RENAME TO bills");
        refused(conn, "UPDATE bills SET total = 9 WHERE id = 1", STATE);
        refused(conn, "DELETE FROM bills WHERE id = 1", DELETE);
        refused(conn, "REPLACE INTO bills(job, slug, fence) VALUES ('a', 's3', 3)", REPLACE);
        batch(conn, "UPDATE bills SET total = 9, fence = 3 WHERE id = 1");
        batch(conn, "ALTER TABLE bills RENAME TO orders");
        no_stamp_at_rest(conn, "renamed");
        assert_eq!(one::<i64>(conn, "SELECT total FROM orders WHERE id = 1"), 9);
    });
}

#[test]
fn the_stamp_column_cannot_be_dropped_under_the_guard() {
    orders(|conn| {
        let before = one::<String>(conn, "SELECT group_concat(sql) FROM sqlite_master");
        let (code, sentence) = error_of(conn, "ALTER TABLE orders DROP COLUMN fence");
        assert_eq!(code, ffi::SQLITE_ERROR);
        assert!(sentence.starts_with("error in trigger fence_guard_orders_"), "{sentence}");
        assert_eq!(one::<String>(conn, "SELECT group_concat(sql) FROM sqlite_master"), before);
        refused(conn, "UPDATE orders SET total = 9 WHERE id = 1", STATE);
    });
}
