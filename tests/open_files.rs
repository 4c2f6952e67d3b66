//! The extension opens no file of its own: a second open of the database in one process would
//! drop SQLite's locks. Counted over the whole process, hence one test at a time, in a binary
//! of their own.
#![cfg(target_os = "linux")]
mod common;

use common::{add_jobs, one, Scratch, WRITES};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What every open file descriptor of this process stands for.
fn open_files() -> Vec<PathBuf> {
    let entries: Vec<PathBuf> =
        std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path()).collect();
    // The one that listed the directory is closed by now and has no target.
    let mut files: Vec<PathBuf> =
        entries.iter().filter_map(|entry| std::fs::read_link(entry).ok()).collect();
    files.sort();
    files
}

#[test]
fn loading_and_calling_opens_no_file() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    common::extension();
    let scratch = Scratch::new();
    let before = open_files();
    let conn = scratch.connect();
    // From here on SQLite has the database, its log and its index open.
    conn.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t(x)").unwrap();
    let by_sqlite = open_files();
    assert_eq!(by_sqlite.len(), before.len() + 3, "{by_sqlite:?}");

    common::load(&conn).unwrap();
    assert_eq!(open_files(), by_sqlite);
    add_jobs(&conn);
    for call in WRITES.into_iter().chain(["fence_state('held')", "fence_debug()"]) {
        conn.query_row(&format!("SELECT {call}"), [], |_| Ok(())).unwrap();
        assert_eq!(open_files(), by_sqlite, "{call}");
    }
    conn.close().unwrap();
    assert_eq!(open_files(), before);
}

#[test]
fn connections_that_come_and_go_leave_no_open_file() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    common::extension();
    let scratch = Scratch::new();
    let before = open_files();
    for round in 1..=200 {
        let conn = scratch.loaded();
        if round == 1 {
            conn.execute_batch("PRAGMA journal_mode = wal; SELECT fence_init()").unwrap();
            conn.execute_batch("PRAGMA synchronous = OFF; SELECT fence_enqueue('j')").unwrap();
        }
        let claim = format!("SELECT fence_claim('j', 'a', {round}, 1)");
        assert_eq!(one::<Option<i64>>(&conn, &claim), Some(round));
        conn.close().unwrap();
    }
    assert_eq!(open_files(), before);
}
