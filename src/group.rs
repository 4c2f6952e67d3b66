//! Group commit: calls that arrive while a commit runs share the next one.
//!
//! One caller at a time leads. It runs what has gathered in one transaction, and each of the
//! others gets its own answer after the commit. Then it passes the lead to a caller that came
//! meanwhile.
use std::collections::VecDeque;
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
    waiting: VecDeque<Box<dyn Work>>,
}

/// A caller's operation, whatever it answers.
trait Work: Send {
    fn run(&mut self, session: &Session);
    /// Hands over the answer, or the error that took it away.
    fn deliver(self: Box<Self>, lost: Option<Error>);
    fn lead(&self);
}

struct Call<T, F> {
    body: F,
    answer: Option<Result<T>>,
    slot: Arc<Slot<T>>,
}

/// Where a caller waits.
struct Slot<T> {
    news: Mutex<News<T>>,
    changed: Condvar,
}

enum News<T> {
    None,
    /// Nobody leads any more: it is for this caller to run what has gathered.
    Lead,
    Answer(Result<T>),
}

impl<T> Slot<T> {
    fn tell(&self, news: News<T>) {
        *lock(&self.news) = news;
        self.changed.notify_one();
    }

    /// The answer, or None where this caller has to lead.
    fn wait(&self) -> Option<Result<T>> {
        let mut news = lock(&self.news);
        loop {
            match std::mem::replace(&mut *news, News::None) {
                News::None => {
                    news = self.changed.wait(news).unwrap_or_else(PoisonError::into_inner);
                }
                News::Lead => return None,
                News::Answer(answer) => return Some(answer),
            }
        }
    }
}

impl<T: Send, F: FnMut(&Session) -> Result<T> + Send> Work for Call<T, F> {
    fn run(&mut self, session: &Session) {
        self.answer = Some((self.body)(session));
    }

    fn deliver(self: Box<Self>, lost: Option<Error>) {
        let answer = lost.map_or(self.answer, |error| Some(Err(error)));
        self.slot.tell(News::Answer(answer.expect("run before it is delivered")));
    }

    fn lead(&self) {
        self.slot.tell(News::Lead);
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
        match state.waiting.front() {
            Some(next) => next.lead(),
            None => state.led = false,
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
        let slot = Arc::new(Slot { news: Mutex::new(News::None), changed: Condvar::new() });
        state.waiting.push_back(Box::new(Call { body, answer: None, slot: Arc::clone(&slot) }));
        drop(state);
        if let Some(answer) = slot.wait() {
            return answer;
        }
        let _lead = Lead(self);
        let mut calls: Vec<_> = lock(&self.state).waiting.drain(..).collect();
        let outcome = with(&mut |session| together(session, &mut calls));
        for call in calls {
            call.deliver(outcome.as_ref().err().map(Error::copy));
        }
        slot.wait().expect("the leader's own call was among them")
    }
}

/// Runs the calls in one transaction. An error means that none of them counts.
fn together(session: &Session, calls: &mut [Box<dyn Work>]) -> Result<()> {
    if let [call] = calls {
        call.run(session);
        return Ok(());
    }
    let conn = session.connection();
    conn.execute_batch("BEGIN IMMEDIATE")?;
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
    let committed = conn.execute_batch("COMMIT");
    if committed.is_err() && !conn.is_autocommit() {
        // If this fails too, the connection is beyond help; the first error says why.
        let _ = conn.execute_batch("ROLLBACK");
    }
    Ok(committed?)
}
