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
    if !conn.is_autocommit() {
        // The first error says why.
        let _ = rollback.raw_execute();
    }
    committed?;
    Ok(())
}

#[cfg(test)]
mod tests;
