//! Opening a store: what it sets, and that it waits for others as its calls do.
mod common;

use common::{batch, Scratch};
use fence::{Durability, Error, Options, Store};
use rusqlite::Connection;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn options(durability: Durability, busy_timeout: Duration) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options.busy_timeout = busy_timeout;
    options
}

#[test]
fn its_connection_has_the_settings_that_the_documents_name() {
    for (durability, synchronous) in [(Durability::Full, "2"), (Durability::Normal, "1")] {
        let scratch = Scratch::new();
        let options = options(durability, Duration::from_secs(5));
        let store = Store::open_with(scratch.db(), options).unwrap();
        assert!(store.enqueue("a").unwrap());
        let lease = store.claim("a", "w", 0.0, 10.0).unwrap().unwrap();
        let setting = |name: &str| {
            let pragma = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            let read = lease.write(1.0, |tx| Ok(tx.query_row(&pragma, [], |row| row.get(0))?));
            read.unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let found: [String; 3] = ["journal_mode", "synchronous", "journal_size_limit"].map(setting);
        assert_eq!(found, ["wal", synchronous, "16777216"]);
    }
}

/// The change to WAL needs the file for itself. For a reader SQLite waits then, for a writer it does
/// not.
const BEGINS: [&str; 3] = ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN; SELECT * FROM t"];

/// A file, and the connection that has it.
fn held(begin: &str) -> (Scratch, Connection) {
    let scratch = Scratch::new();
    let other = scratch.connect();
    batch(&other, &format!("CREATE TABLE t(x); {begin}"));
    (scratch, other)
}

#[test]
fn it_waits_for_who_has_the_file() {
    for begin in BEGINS {
        let (scratch, other) = held(begin);
        let (begins, begun) = mpsc::channel();
        thread::scope(|scope| {
            let opener = scope.spawn(|| {
                begins.send(()).unwrap();
                Store::open_with(scratch.db(), options(Durability::Full, Duration::from_secs(60)))
            });
            begun.recv().unwrap();
            // Long enough for a first try; where it is not, the test shows less and is not wrong.
            thread::sleep(Duration::from_millis(100));
            assert!(!opener.is_finished(), "{begin}: {:?}", opener.join());
            batch(&other, "COMMIT");
            assert!(opener.join().unwrap().unwrap().enqueue("a").unwrap());
        });
    }
}

#[test]
fn it_does_not_wait_longer_than_the_busy_timeout() {
    for begin in BEGINS {
        let (scratch, _other) = held(begin);
        for timeout in [Duration::ZERO, Duration::from_millis(20)] {
            let refused = Store::open_with(scratch.db(), options(Durability::Full, timeout));
            assert!(matches!(refused, Err(Error::Busy(_))), "{begin}, {timeout:?}: {refused:?}");
        }
    }
}

#[test]
fn what_is_no_lock_is_not_waited_for() {
    let scratch = Scratch::new();
    std::fs::write(scratch.db(), "no database at all, but long enough to be read as one".repeat(9))
        .unwrap();
    let refused = Store::open_with(scratch.db(), options(Durability::Full, Duration::MAX));
    assert_eq!(refused.unwrap_err().to_string(), "file is not a database");
}
