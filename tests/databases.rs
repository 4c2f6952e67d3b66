//! The functions work on the table `jobs` of the main database, in any encoding, whatever else
//! is called jobs on the connection.
mod common;

use common::{add_jobs, batch, error_of, function_of, jobs, one, Scratch, WRITES};
use rusqlite::Connection;

/// The jobs of another schema than main.
fn jobs_of(conn: &Connection, schema: &str) -> String {
    let columns = "quote(id), quote(owner), until, fence, quote(result), done";
    one(conn, &format!("SELECT group_concat(concat_ws(' ', {columns}), '; ') FROM {schema}.jobs"))
}

/// Another table jobs, in which every call would find something to do.
fn decoy(conn: &Connection, schema: &str) {
    batch(
        conn,
        &format!(
            "CREATE TABLE {schema}.jobs(id TEXT PRIMARY KEY, owner TEXT,
                 until REAL NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0, result TEXT,
                 done INTEGER NOT NULL DEFAULT 0);
             INSERT INTO {schema}.jobs(id) VALUES ('free');
             INSERT INTO {schema}.jobs(id, owner, until, fence) VALUES ('held', 'a', 9e9, 1);"
        ),
    );
}

#[test]
fn another_schemas_table_jobs_neither_shadows_nor_changes() {
    for (schema, attach) in [("temp", ""), ("aux", "ATTACH ':memory:' AS aux")] {
        for call in WRITES {
            let scratch = Scratch::new();
            let (conn, other) = (scratch.loaded(), scratch.connect());
            add_jobs(&conn);
            batch(&conn, attach);
            decoy(&conn, schema);
            batch(&conn, &format!("UPDATE {schema}.jobs SET result = 'decoy' WHERE id = 'held'"));
            let (decoys, before) = (jobs_of(&conn, schema), jobs(&other));
            assert_eq!(one::<i64>(&conn, &format!("SELECT {call}")), 1, "{schema}: {call}");
            assert_eq!(jobs_of(&conn, schema), decoys, "{schema}: {call}");
            assert_ne!(jobs(&other), before, "{schema}: {call}");
            let state: String = one(&conn, "SELECT fence_state('held')");
            assert!(!state.contains("decoy"), "{schema}: {state}");
        }
    }
}

#[test]
fn another_schemas_table_jobs_does_not_stand_in_for_a_missing_one() {
    for (schema, attach) in [("temp", ""), ("aux", "ATTACH ':memory:' AS aux")] {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        batch(&conn, attach);
        decoy(&conn, schema);
        let decoys = jobs_of(&conn, schema);
        for call in WRITES.into_iter().chain(["fence_state('free')"]) {
            let sentence =
                format!("{}: no such table: main.jobs (fence_init() makes it)", function_of(call));
            assert_eq!(error_of(&conn, &format!("SELECT {call}")), (1, sentence), "{schema}");
            assert_eq!(jobs_of(&conn, schema), decoys, "{schema}: {call}");
        }
        assert_eq!(one::<i64>(&conn, "SELECT fence_init()"), 1, "{schema}");
        assert!(jobs(&conn).is_empty(), "{schema}: made in main");
        assert_eq!(jobs_of(&conn, schema), decoys, "{schema}");
    }
}

#[test]
fn a_utf_16_database_tells_the_whole_story() {
    for encoding in ["UTF-16le", "UTF-16be"] {
        let scratch = Scratch::new();
        let conn = scratch.loaded();
        batch(&conn, &format!("PRAGMA encoding = '{encoding}'"));
        assert_eq!(one::<i64>(&conn, "SELECT fence_init()"), 1);
        assert_eq!(one::<String>(&conn, "PRAGMA encoding"), encoding);
        for (sql, expected) in [
            ("SELECT fence_enqueue('größe 𝄞')", Some(1)),
            ("SELECT fence_enqueue('größe 𝄞')", Some(0)),
            ("SELECT fence_claim('größe 𝄞', 'ärger', 0, '10')", Some(1)),
            ("SELECT fence_claim('größe 𝄞', 'ärger', 10, 10.0)", Some(2)),
            ("SELECT fence_renew('größe 𝄞', 'ärger', 1, 11, 10)", Some(0)),
            ("SELECT fence_renew('größe 𝄞', 'ärger', '2', 11, 10)", Some(1)),
            ("SELECT fence_complete(id, owner, fence, 12, 'éclair 𝄞') FROM jobs", Some(1)),
            ("SELECT fence_claim('größe 𝄞', 'b', 99, 1)", None),
        ] {
            assert_eq!(one::<Option<i64>>(&conn, sql), expected, "{encoding}: {sql}");
        }
        assert_eq!(
            one::<String>(&conn, "SELECT fence_state('größe 𝄞')"),
            r#"{"id":"größe 𝄞","owner":"ärger","until":21.0,"fence":2,"result":"éclair 𝄞","done":1}"#
        );
        let sentence = "fence_claim: now must be a number, got text 'später'".to_string();
        assert_eq!(error_of(&conn, "SELECT fence_claim('x', 'b', 'später', 1)"), (1, sentence));
    }
}

#[test]
fn a_result_that_is_no_utf8_does_not_hide_the_row() {
    let scratch = Scratch::new();
    let store = fence::Store::open(scratch.db()).unwrap();
    assert!(store.enqueue("a").unwrap());
    assert!(store.claim("a", "w", 0.0, 10.0).unwrap().is_some());
    // As the file complete.sql would store it for a client that cuts texts.
    let sql = "UPDATE jobs SET result = CAST(x'6f6bc3' AS TEXT), done = 1 WHERE id = 'a'";
    assert_eq!(scratch.connect().execute(sql, []).unwrap(), 1);
    let job = store.state("a").unwrap().unwrap();
    assert_eq!(job.result.as_deref(), Some("ok\u{fffd}"));
    assert_eq!((job.owner.as_deref(), job.fence, job.done), (Some("w"), 1, 1));
}
