use super::*;
use rusqlite::{params, Connection};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A group and its connection, to a table of words: triggers refuse `abort` and `rollback`, the
/// commit refuses `late`.
struct Shared {
    group: Group,
    session: Mutex<Session>,
    dir: tempfile::TempDir,
}

impl Shared {
    fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join("t.db")).unwrap();
        conn.execute_batch(
            "PRAGMA busy_timeout = 0;
             PRAGMA journal_mode = WAL;
             PRAGMA synchronous = OFF;
             PRAGMA foreign_keys = ON;
             CREATE TABLE t(word TEXT UNIQUE, together INTEGER);
             CREATE TABLE promise(kept TEXT REFERENCES t(word) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER a AFTER INSERT ON t WHEN new.word = 'abort'
             BEGIN SELECT RAISE(ABORT, 'this one alone'); END;
             CREATE TRIGGER b AFTER INSERT ON t WHEN new.word = 'rollback'
             BEGIN SELECT RAISE(ROLLBACK, 'the whole transaction'); END;
             CREATE TRIGGER c AFTER INSERT ON t WHEN new.word = 'late'
             BEGIN INSERT INTO promise VALUES ('never'); END;",
        )
        .unwrap();
        let session = Mutex::new(Session::new(conn));
        Arc::new(Shared { group: Group::default(), session, dir })
    }

    fn run<T: Send + 'static>(
        &self,
        body: impl FnMut(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.group.run(|work| work(&lock(&self.session)), body)
    }

    /// Inserts a word and tells whether another connection sees it once it is answered.
    fn insert(&self, word: &'static str) -> Result<bool> {
        self.run(move |session| {
            let conn = session.connection();
            assert_ne!(word, "panic", "as asked");
            let sql = "INSERT INTO t VALUES (?1, ?2)";
            conn.execute(sql, params![word, !conn.is_autocommit()])?;
            Ok(())
        })?;
        Ok(self.words().iter().any(|(found, _)| found == word))
    }

    /// What is committed: each word, and whether it was written in a common transaction.
    fn words(&self) -> Vec<(String, bool)> {
        let conn = Connection::open(self.dir.path().join("t.db")).unwrap();
        let mut statement = conn.prepare("SELECT word, together FROM t ORDER BY rowid").unwrap();
        let words = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        words.map(rusqlite::Result::unwrap).collect()
    }

    /// One thread for each word. All of them gather while a first caller, that inserts
    /// `first`, is under way.
    fn gather(self: &Arc<Self>, words: &[&'static str]) -> Vec<JoinHandle<Result<bool>>> {
        self.gather_behind("INSERT INTO t VALUES ('first', 0)", words, || ())
    }

    /// Likewise behind a statement of another kind, which goes on after `meanwhile`.
    fn gather_behind(
        self: &Arc<Self>,
        statement: &'static str,
        words: &[&'static str],
        meanwhile: impl FnOnce(),
    ) -> Vec<JoinHandle<Result<bool>>> {
        let (started, starts) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let shared = Arc::clone(self);
        let first = thread::spawn(move || {
            shared.run(move |session| {
                started.send(()).unwrap();
                goes_on.recv().unwrap();
                session.connection().execute_batch(statement)?;
                Ok(true)
            })
        });
        starts.recv().unwrap();
        let mut threads = vec![first];
        for (i, &word) in words.iter().enumerate() {
            let shared = Arc::clone(self);
            threads.push(thread::spawn(move || shared.insert(word)));
            while lock(&self.group.state).waiting.len() <= i {
                thread::yield_now();
            }
        }
        meanwhile();
        go_on.send(()).unwrap();
        threads
    }
}

fn join(thread: JoinHandle<Result<bool>>) -> thread::Result<Result<bool>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !thread.is_finished() {
        assert!(Instant::now() < deadline, "a caller waits for ever");
        thread::sleep(Duration::from_millis(1));
    }
    thread.join()
}

fn sentence(thread: JoinHandle<Result<bool>>) -> String {
    join(thread).unwrap().unwrap_err().to_string()
}

fn succeed(threads: impl IntoIterator<Item = JoinHandle<Result<bool>>>) {
    for thread in threads {
        assert!(join(thread).unwrap().unwrap(), "answered before it was committed");
    }
}

fn committed(words: &[(&str, bool)]) -> Vec<(String, bool)> {
    words.iter().map(|(word, together)| (word.to_string(), *together)).collect()
}

#[test]
fn calls_that_gathered_share_a_transaction_in_their_order() {
    let shared = Shared::new();
    succeed(shared.gather(&["a", "b", "c"]));
    let expected = [("first", false), ("a", true), ("b", true), ("c", true)];
    assert_eq!(shared.words(), committed(&expected));
    // Nobody leads any more.
    assert!(shared.insert("later").unwrap());
    assert!(!lock(&shared.group.state).led);
}

#[test]
fn one_call_that_waited_needs_no_transaction_of_its_own() {
    let shared = Shared::new();
    succeed(shared.gather(&["a"]));
    assert_eq!(shared.words(), committed(&[("first", false), ("a", false)]));
}

#[test]
fn an_error_of_one_call_is_its_own() {
    let shared = Shared::new();
    let mut threads = shared.gather(&["a", "abort", "b"]);
    assert_eq!(sentence(threads.remove(2)), "this one alone");
    succeed(threads);
    assert_eq!(shared.words(), committed(&[("first", false), ("a", true), ("b", true)]));
}

#[test]
fn what_an_error_rolled_back_is_done_again() {
    let shared = Shared::new();
    let mut threads = shared.gather(&["a", "rollback", "b"]);
    assert_eq!(sentence(threads.remove(2)), "the whole transaction");
    succeed(threads);
    assert_eq!(shared.words(), committed(&[("first", false), ("a", false), ("b", false)]));
}

#[test]
fn a_commit_that_fails_is_everybodys_error_and_leaves_nothing() {
    let shared = Shared::new();
    let mut threads = shared.gather(&["a", "late", "b"]);
    succeed([threads.remove(0)]);
    for thread in threads {
        let error = join(thread).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "FOREIGN KEY constraint failed");
        assert_eq!(error.extended_code(), rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY);
    }
    assert_eq!(shared.words(), committed(&[("first", false)]));
    assert!(shared.insert("later").unwrap());
}

#[test]
fn a_lock_that_cannot_be_had_is_everybodys_error() {
    let shared = Shared::new();
    let other = Connection::open(shared.dir.path().join("t.db")).unwrap();
    let mut threads = shared.gather_behind("SELECT 1", &["a", "b"], || {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
    });
    succeed([threads.remove(0)]);
    for thread in threads {
        let error = join(thread).unwrap().unwrap_err();
        assert!(matches!(error, Error::Busy(_)), "{error:?}");
        assert_eq!(error.to_string(), "database is locked");
    }
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(shared.words(), []);
    assert!(shared.insert("later").unwrap());
}

#[test]
fn a_panic_of_one_call_is_its_own() {
    for words in [["panic", "a", "b"], ["a", "panic", "b"], ["a", "b", "panic"]] {
        let shared = Shared::new();
        let mut threads = shared.gather(&words);
        let panics = 1 + words.iter().position(|word| *word == "panic").unwrap();
        assert!(join(threads.remove(panics)).is_err());
        succeed(threads);
        let expected = [("first", false), ("a", true), ("b", true)];
        assert_eq!(shared.words(), committed(&expected));
        assert!(shared.insert("later").unwrap());
    }
}

#[test]
fn a_panic_of_a_call_alone_passes_the_lead_on() {
    let shared = Shared::new();
    let alone = Arc::clone(&shared);
    assert!(join(thread::spawn(move || alone.insert("panic"))).is_err());
    succeed(shared.gather(&["a", "b"]));
}
