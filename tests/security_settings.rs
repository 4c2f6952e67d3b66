//! Everything works where SQLite trusts a file least: in defensive mode, with `trusted_schema` off,
//! through both doors.
mod common;

use common::{error_of, jobs, load, one, Scratch};
use rusqlite::config::DbConfig;
use rusqlite::{ffi, Connection};

fn text(conn: &Connection, call: &str) -> String {
    one(conn, &format!("SELECT {call}"))
}

fn number(conn: &Connection, call: &str) -> i64 {
    one(conn, &format!("SELECT {call}"))
}

fn distrustful(scratch: &Scratch, door: fn(&Connection)) -> Connection {
    let conn = scratch.connect();
    door(&conn);
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
    ] {
        conn.set_db_config(setting, on).unwrap();
        assert_eq!(conn.db_config(setting), Ok(on));
    }
    conn.execute_batch("PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON").unwrap();
    conn
}

const DOORS: [fn(&Connection); 2] =
    [|conn| load(conn).unwrap(), |conn| fence::register(conn).unwrap()];

#[test]
fn a_whole_story_works_in_defensive_mode_with_an_untrusted_schema() {
    for door in DOORS {
        let scratch = Scratch::new();
        let conn = distrustful(&scratch, door);
        assert_eq!(number(&conn, "fence_init()"), 1);
        assert_eq!(number(&conn, "fence_init_queue()"), 1);
        assert_eq!(number(&conn, r#"fence_enqueue_batch('["a", "q:b", "c"]')"#), 3);
        assert_eq!(number(&conn, "fence_enqueue('later', 100)"), 1);
        // The stale worker.
        assert_eq!(number(&conn, "fence_claim('a', 'A', 0, 10)"), 1);
        assert_eq!(number(&conn, "fence_claim('a', 'B', 10, 10)"), 2);
        assert_eq!(number(&conn, "fence_complete('a', 'A', 1, 11, 'stale')"), 0);
        assert_eq!(text(&conn, "fence_check('a', 'A', 1, 11)"), "superseded");
        assert_eq!(number(&conn, "fence_renew('a', 'B', 2, 11, 10)"), 1);

        // A guarded table, which has no rowid here.
        conn.execute_batch("CREATE TABLE pages(job TEXT, n, PRIMARY KEY (job, n)) WITHOUT ROWID")
            .unwrap();
        assert_eq!(number(&conn, "fence_guard('pages', 'job')"), 1);
        let sentence = "pages: state the current fence of the row's job in the column fence";
        let refused = (ffi::SQLITE_CONSTRAINT_TRIGGER, sentence.to_string());
        let stale = "INSERT INTO pages(job, n, fence) VALUES ('a', 1, 1)";
        assert_eq!(error_of(&conn, stale), refused);
        conn.execute_batch(
            "BEGIN IMMEDIATE;
             SELECT fence_assert('a', 'B', 2, 12);
             INSERT INTO pages(job, n, fence) VALUES ('a', 1, 2);
             COMMIT",
        )
        .unwrap();
        assert_eq!(number(&conn, "fence_complete('a', 'B', 2, 12, 'fresh')"), 1);
        assert_eq!(error_of(&conn, "UPDATE jobs SET fence = 1").1, "jobs: a fence cannot fall");

        // Queues, a dead letter, giving back.
        let taken: Vec<String> = {
            let sql = "SELECT id || fence FROM fence_claim_batch('W', 20, 10, 5, 'q')";
            let mut statement = conn.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.collect::<rusqlite::Result<_>>().unwrap()
        };
        assert_eq!(taken, ["q:b1"]);
        assert_eq!(
            text(&conn, r#"fence_renew_batch('W', 21, 10, '[["q:b", 1], ["c", 1]]')"#),
            "[1,0]"
        );
        assert_eq!(number(&conn, "fence_fail('q:b', 'W', 1, 22, 'broken')"), 1);
        assert_eq!(number(&conn, "fence_requeue('q:b')"), 1);
        assert_eq!(text(&conn, "fence_claim_batch('W', 20, 10, 1)"), r#"[["c",1]]"#);
        assert_eq!(number(&conn, "fence_release('c', 'W', 1, 50)"), 1);
        assert_eq!(one::<String>(&conn, "SELECT state FROM fence_status WHERE id = 'a'"), "done");

        // What is for those who keep house.
        assert_eq!(number(&conn, "fence_purge(100, 10)"), 1);
        assert_eq!(number(&conn, "fence_restore(5)"), 1);
        assert_eq!(number(&conn, "fence_pass('file', 7)"), 1);
        assert_eq!(number(&conn, "fence_pass('file', 6)"), 0);
        assert_eq!(number(&conn, "fence_unguard('pages')"), 1);
        assert_eq!(
            jobs(&conn),
            ["'q:b' NULL 0.0 7 NULL 0", "'c' NULL 50.0 6 NULL 0", "'later' NULL 100.0 5 NULL 0"]
        );
        assert_eq!(number(&conn, "fence_enqueue('a')"), 1);
        assert_eq!(number(&conn, "fence_claim('a', 'A', 0, 10)"), 9, "above the floor of 2 + 5");
        assert_eq!(one::<String>(&conn, "PRAGMA integrity_check"), "ok");
        conn.close().unwrap();
        assert_eq!(scratch.files(), ["jobs.db"]);
    }
}
