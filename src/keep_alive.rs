//! Renewing a lease in the background while its worker works.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{args, Error, Lease, Result, Standing};

/// What became of one attempt to renew a lease.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease is held for another ttl.
    Renewed,
    /// The lease is not held any more, and why: the worker must stop. Nothing follows.
    Lost(Standing),
    /// The database could not be asked, because it was busy, say. The lease may still be held;
    /// another attempt follows.
    TryAgain(Error),
}

/// Renews a lease until it is dropped or the lease is lost.
#[derive(Debug)]
pub struct KeepAlive {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Debug)]
struct State {
    stop: bool,
    lost: bool,
    deadline: Instant,
}

impl Lease {
    /// Renews the lease by the database's clock in a thread of its own: at once, and then every
    /// third of `ttl` (seconds). `tell` hears of each attempt, in that thread.
    ///
    /// An error is for `ttl`; that of an attempt goes to `tell`.
    pub fn keep_alive(
        &self,
        ttl: f64,
        tell: impl FnMut(Renewal) + Send + 'static,
    ) -> Result<KeepAlive> {
        args::lease("keep_alive", None, ttl)?;
        let length = Duration::try_from_secs_f64(ttl).ok();
        let Some(length) = length.filter(|l| Instant::now().checked_add(*l).is_some()) else {
            return Err(Error::invalid(
                "keep_alive",
                format_args!("ttl is too long, got {}", args::Number(ttl)),
            ));
        };
        // Until the first answer, what the claim knows is all there is.
        let left = Duration::try_from_secs_f64(self.until - args::clock()).unwrap_or_default();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                stop: false,
                lost: false,
                deadline: local_deadline(Instant::now(), left.min(length)),
            }),
            stopped: Condvar::new(),
        });
        let (lease, of_thread) = (self.clone(), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("fence-keep-alive".into())
            .spawn(move || renew_until_stopped(lease, &of_thread, ttl, length, tell))
            .map_err(|e| Error::Caller(e.into()))?;
        Ok(KeepAlive { shared, thread: Some(thread) })
    }
}

/// The worker's clock may run slower than the database's: a tenth of the lease is not used.
fn local_deadline(asked: Instant, length: Duration) -> Instant {
    asked.checked_add(length - length / 10).unwrap_or(asked)
}

fn renew_until_stopped(
    mut lease: Lease,
    shared: &Shared,
    ttl: f64,
    length: Duration,
    mut tell: impl FnMut(Renewal),
) {
    loop {
        // Measured from before the question: the lease began at some moment after it.
        let asked = Instant::now();
        let renewal = match lease.renew(None, ttl) {
            Ok(true) => Some(Renewal::Renewed),
            Ok(false) => match lease.check(None) {
                // The clock was set back between the two questions.
                Ok(Standing::Held) => None,
                Ok(standing) => Some(Renewal::Lost(standing)),
                Err(e) => Some(Renewal::TryAgain(e)),
            },
            Err(e) => Some(Renewal::TryAgain(e)),
        };
        let pause = match renewal {
            Some(Renewal::Renewed) => {
                shared.lock().deadline = local_deadline(asked, length);
                length / 3
            }
            Some(lost @ Renewal::Lost(_)) => {
                shared.lock().lost = true;
                tell(lost);
                return;
            }
            Some(Renewal::TryAgain(_)) | None => length / 20,
        };
        if let Some(renewal) = renewal {
            tell(renewal);
        }
        let (state, _) = shared
            .stopped
            .wait_timeout_while(shared.lock(), pause, |state| !state.stop)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stop {
            return;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeepAlive {
    /// Whether the worker may go on: no refusal so far, and the deadline is not reached.
    pub fn is_held(&self) -> bool {
        let state = self.shared.lock();
        !state.lost && Instant::now() < state.deadline
    }

    /// Until when, by this machine's monotonic clock, the lease is held for certain if nothing
    /// more is heard: what was left of it when it was last renewed, minus a tenth.
    pub fn deadline(&self) -> Instant {
        self.shared.lock().deadline
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.stopped.notify_one();
        if let Some(thread) = self.thread.take() {
            // `tell` may drop the handle itself; a thread cannot wait for its own end. A panic of
            // `tell` has been reported where it happened.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
