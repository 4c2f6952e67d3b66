//! The guard is plain SQL in the file: it holds on every connection, whatever its settings and its
//! program, and can be made without the extension.
mod common;
#[path = "common/guarded.rs"]
mod guarded;

use common::{error_of, one, python, stderr, Scratch};
use guarded::*;
use rusqlite::Connection;

#[test]
fn the_guard_holds_on_connections_with_other_settings() {
    use rusqlite::config::DbConfig;
    each_client(&format!("{ORDERS}{GUARD}"), |conn| {
        for pragma in [
            "trusted_schema = OFF",
            "recursive_triggers = ON",
            "foreign_keys = ON",
            "case_sensitive_like = ON",
        ] {
            batch(conn, &format!("PRAGMA {pragma}"));
            stale_writes_are_refused_and_current_ones_are_not(conn);
        }
        assert!(conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).unwrap());
        stale_writes_are_refused_and_current_ones_are_not(conn);
    });
}

fn stale_writes_are_refused_and_current_ones_are_not(conn: &Connection) {
    for stamp in ["", ", fence = 2", ", fence = 5", ", fence = -2"] {
        refused(conn, &format!("UPDATE orders SET total = 9{stamp} WHERE id = 1"), STATE);
    }
    refused(conn, "INSERT INTO orders(job) VALUES ('a')", STATE);
    refused(conn, "INSERT INTO orders(job, fence) VALUES ('a', 2)", STATE);
    refused(conn, "INSERT OR REPLACE INTO orders(id, job, fence) VALUES (3, 'a', 3)", REPLACE);
    refused(conn, "DELETE FROM orders WHERE id = 1", DELETE);
    accepted(conn, "UPDATE orders SET total = total + 1, fence = 3 WHERE id = 1", 1);
    accepted(conn, "INSERT INTO orders(id, job, fence) VALUES (100, 'a', 3)", 1);
    accepted(conn, "UPDATE orders SET fence = -3 WHERE id = 100", 1);
}

#[test]
fn the_guard_holds_where_the_file_is_attached_to_another_one() {
    let scratch = Scratch::new();
    batch(&scratch.loaded(), &format!("{JOBS}{ORDERS}{GUARD}"));
    for load in [true, false] {
        let conn = Connection::open_in_memory().unwrap();
        if load {
            common::load(&conn).unwrap();
        }
        // Jobs of its own, in which the stale fence would be current.
        batch(&conn, include_str!("../sql/schema.sql"));
        batch(&conn, "INSERT INTO jobs(id, owner, fence) VALUES ('a', 'w', 2)");
        conn.execute("ATTACH ?1 AS shop", [scratch.db().to_str().unwrap()]).unwrap();
        for (write, sentence) in [
            ("UPDATE shop.orders SET total = 9, fence = 2 WHERE id = 1", STATE),
            ("INSERT INTO shop.orders(job, fence) VALUES ('a', 2)", STATE),
            ("REPLACE INTO shop.orders(id, job, fence) VALUES (3, 'a', 3)", REPLACE),
            ("DELETE FROM shop.orders", DELETE),
        ] {
            let code = rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER;
            assert_eq!(error_of(&conn, write), (code, sentence.into()), "{write}");
        }
        let update = "UPDATE shop.orders SET total = total + 1, fence = 3 WHERE id = 1";
        assert_eq!(conn.execute(update, []).unwrap(), 1);
    }
    let orders = "SELECT group_concat(total || quote(fence)) FROM orders WHERE id < 4";
    assert_eq!(one::<String>(&scratch.connect(), orders), "12NULL,20NULL,30NULL");
}

/// The template of `sql/guard.sql`, filled in as its header says, for the table of `ORDERS`.
fn filled_by_hand() -> String {
    let replaces: String = ["rowid = new.rowid", "slug = new.slug"]
        .iter()
        .map(|conflict| {
            format!(
                "  SELECT RAISE(ABORT, '{REPLACE}') FROM orders AS v
                    WHERE v.{conflict} AND v.job IS NOT new.job;\n"
            )
        })
        .collect();
    let (_header, triggers) = include_str!("../sql/guard.sql").split_once("\n\n").unwrap();
    let mut sql = triggers.to_owned();
    for (placeholder, text) in [
        ("{table}", "orders"),
        ("{job}", "job"),
        ("{row}", "rowid = new.rowid"),
        ("{label}", "orders"),
        ("{name}", "orders_insert"),
        ("{indexes}", ""),
        ("{replaces}", &replaces),
    ] {
        sql = sql.replace(placeholder, text);
    }
    for event in ["insert", "inserted", "update", "updated", "delete"] {
        sql = sql.replace(&format!("{{{event}}}"), &format!("orders_{event}"));
    }
    sql
}

#[test]
fn a_guard_filled_in_by_hand_does_the_same_where_nobody_has_the_extension() {
    let conn = Connection::open_in_memory().unwrap();
    batch(&conn, include_str!("../sql/schema.sql"));
    batch(&conn, "INSERT INTO jobs(id, owner, fence) VALUES ('a', 'w', 3), ('b', 'w', 5)");
    batch(&conn, ORDERS);
    batch(&conn, "ALTER TABLE orders ADD COLUMN fence INTEGER");
    batch(&conn, &filled_by_hand());
    stale_writes_are_refused_and_current_ones_are_not(&conn);
    for stamp in BAD_STAMPS {
        refused(
            &conn,
            &format!("UPDATE orders SET total = 9, fence = {stamp} WHERE id = 1"),
            STATE,
        );
    }
    refused(&conn, "UPDATE orders SET job = 'b', fence = 3 WHERE id = 1", MOVE);
    refused(
        &conn,
        "INSERT OR REPLACE INTO orders(job, slug, fence) VALUES ('a', 's3', 3)",
        REPLACE,
    );
    batch(&conn, "CREATE UNIQUE INDEX later ON orders(total)");
    let sentence = "orders: its UNIQUE indexes changed, call fence_guard again";
    refused(&conn, "UPDATE orders SET total = 9, fence = 3 WHERE id = 1", sentence);
}

#[test]
fn a_python_program_without_the_extension_is_refused_and_can_state_its_fence() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    let maker = scratch.loaded();
    batch(&maker, &format!("{JOBS}{ORDERS}{GUARD}"));
    let program = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for stamp in (None, 2, 4, "abc", 3.5):
    for sql, values in (
        ("UPDATE orders SET total = 9, fence = ? WHERE id = 1", (stamp,)),
        ("INSERT INTO orders(job, fence) VALUES ('a', ?)", (stamp,)),
        ("DELETE FROM orders WHERE id = 1", ()),
        ("INSERT OR REPLACE INTO orders(id, job, fence) VALUES (3, 'a', ?)", (stamp,)),
    ):
        try:
            db.execute(sql, values)
        except sqlite3.IntegrityError as e:
            print(e)
        else:
            print("let through:", sql, values)
db.execute("UPDATE orders SET total = ?, fence = ? WHERE id = ?", (11, 3, 1))
db.execute("UPDATE orders SET fence = ? WHERE id = ?", (-3, 2))
db.commit()
"#;
    let mut command = std::process::Command::new(python);
    let ran = command.arg("-c").arg(program).arg(scratch.db()).output().unwrap();
    assert!(ran.status.success(), "{}", stderr(&ran));
    let sentences = common::stdout(&ran);
    let expected = [STATE, STATE, DELETE, STATE].map(|sentence| format!("{sentence}\n")).concat();
    assert_eq!(sentences, expected.repeat(5));
    assert_eq!(
        one::<String>(&maker, "SELECT group_concat(total) FROM orders WHERE id < 4"),
        "11,30"
    );
}
