//! Group commit: calls that arrive while a commit runs share the next one.
//!
//! One caller at a time leads. It runs what has gathered in one transaction, and each of the
//! others gets its own answer after the commit. Then it passes the lead to a caller that came
//! meanwhile.
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::session::Session;
use crate::{Error, Result};

#[derive(Default)]
pub(crate) struct Group {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    led: bool,
    waiting: Vec<Box<dyn Work>>,
    /// Where the callers wait whose operations are in `waiting`.
    batch: Arc<Batch>,
}

/// Callers that wait for the same commit. They share one condition, because to wake them one by
/// one takes longer than their statements.
#[derive(Default)]
struct Batch {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
enum News {
    #[default]
    None,
    /// Nobody leads any more: it is for one of these callers to run what has gathered.
    Lead,
    Answered,
}

impl Batch {
    fn lead(&self) {
        *lock(&self.news) = News::Lead;
        self.changed.notify_one();
    }

    /// True where this caller has to lead, false once it is answered.
    fn wait(&self) -> bool {
        let mut news = lock(&self.news);
        loop {
            match *news {
                News::None => {
                    news = self.changed.wait(news).unwrap_or_else(PoisonError::into_inner);
                }
                News::Lead => {
                    *news = News::None;
                    return true;
                }
                News::Answered => return false,
            }
        }
    }
}

/// Sends the callers of a batch home when it is dropped, also by a panic.
struct Answered(Arc<Batch>);

impl Drop for Answered {
    fn drop(&mut self) {
        *lock(&self.0.news) = News::Answered;
        self.0.changed.notify_all();
    }
}

/// A caller's operation, whatever it answers.
trait Work: Send {
    fn run(&mut self, session: &Session);
    /// Hands over the answer, or the error that took it away.
    fn deliver(self: Box<Self>, lost: Option<Error>);
}

struct Call<T, F> {
    body: F,
    answer: Option<Answer<T>>,
    slot: Arc<Mutex<Option<Answer<T>>>>,
}

/// What a body answered, or the panic that ended it: that is for its own caller, the others would
/// wait for ever.
type Answer<T> = std::thread::Result<Result<T>>;

impl<T: Send, F: FnMut(&Session) -> Result<T> + Send> Work for Call<T, F> {
    fn run(&mut self, session: &Session) {
        self.answer = Some(catch_unwind(AssertUnwindSafe(|| (self.body)(session))));
    }

    fn deliver(self: Box<Self>, lost: Option<Error>) {
        let answer = lost.map_or(self.answer, |error| Some(Ok(Err(error))));
        *lock(&self.slot) = Some(answer.expect("run before it is delivered"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes the lead on when the leader is done, also by a panic.
struct Lead<'a>(&'a Group);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if state.waiting.is_empty() {
            state.led = false;
        } else {
            state.batch.lead();
        }
    }
}

impl Group {
    /// Runs `body` in a transaction, perhaps together with others. It may run twice: what was
    /// rolled back because of another caller's error is done again alone.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        with: impl Fn(&mut dyn FnMut(&Session) -> Result<()>) -> Result<()>,
        mut body: impl FnMut(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut state = lock(&self.state);
        if !state.led {
            state.led = true;
            drop(state);
            let _lead = Lead(self);
            // Alone: one statement in autocommit is its own transaction.
            let mut answer = None;
            with(&mut |session| {
                answer = Some(body(session)?);
                Ok(())
            })?;
            return Ok(answer.expect("set where the body succeeded"));
        }
        let slot = Arc::new(Mutex::new(None));
        state.waiting.push(Box::new(Call { body, answer: None, slot: Arc::clone(&slot) }));
        let batch = Arc::clone(&state.batch);
        drop(state);
        if batch.wait() {
            let _lead = Lead(self);
            self.lead(with);
        }
        let answer = lock(&slot).take().expect("the leader panicked");
        answer.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs what has gathered.
    fn lead(&self, with: impl Fn(&mut dyn FnMut(&Session) -> Result<()>) -> Result<()>) {
        let mut state = lock(&self.state);
        let mut calls = std::mem::take(&mut state.waiting);
        let _answered = Answered(std::mem::take(&mut state.batch));
        drop(state);
        let outcome = with(&mut |session| together(session, &mut calls));
        for call in calls {
            call.deliver(outcome.as_ref().err().map(Error::copy));
        }
    }
}

/// Runs the calls in one transaction. An error means that none of them counts.
fn together(session: &Session, calls: &mut [Box<dyn Work>]) -> Result<()> {
    if let [call] = calls {
        call.run(session);
        return Ok(());
    }
    let conn = session.connection();
    // Prepared now, because what fails may be that memory ran out.
    let mut rollback = conn.prepare_cached("ROLLBACK")?;
    conn.prepare_cached("BEGIN IMMEDIATE")?.raw_execute()?;
    for i in 0..calls.len() {
        calls[i].run(session);
        // A full disk, say, rolls the whole transaction back.
        if conn.is_autocommit() {
            for (other, call) in calls.iter_mut().enumerate() {
                if other != i {
                    call.run(session);
                }
            }
            return Ok(());
        }
    }
    let committed = conn.prepare_cached("COMMIT").and_then(|mut commit| commit.raw_execute());
    if committed.is_err() && !conn.is_autocommit() {
        // The first error says why.
        let _ = rollback.raw_execute();
    }
    committed?;
    Ok(())
}

#[cfg(test)]
mod tests {
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
            let mut statement =
                conn.prepare("SELECT word, together FROM t ORDER BY rowid").unwrap();
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
}
