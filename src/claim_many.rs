//! Many owners, one job: a few threads with a connection each.
//!
//! Whether a job can be claimed is the same for all owners, so the first answer of the database
//! holds for all who are asked after it. Who comes before it looks first, which waits for nobody.
use rusqlite::OpenFlags;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, PoisonError};
use std::time::Instant;
use threadpool::ThreadPool;

use crate::protocol::{self, Now};
use crate::session::Session;
use crate::store::{open_session, Options};
use crate::{args, busy, Result};

/// One writer at a time gets SQLite's lock, so more threads would only wait.
const THREADS: usize = 4;

pub(crate) struct Pool {
    // Mutex: a ThreadPool may not be shared by threads as it is.
    threads: Mutex<ThreadPool>,
    connections: Arc<Connections>,
}

/// Connections that no claim uses just now.
struct Connections {
    path: PathBuf,
    options: Options,
    idle: Mutex<Vec<Session>>,
}

impl Connections {
    /// The timeout is that of the whole call, which began at `began`.
    fn with<T>(&self, began: Instant, body: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        busy::within(self.options.busy_timeout.saturating_sub(began.elapsed()), || {
            let idle = self.idle().pop();
            let session = match idle {
                Some(session) => session,
                None => open_session(&self.path, self.options, OpenFlags::empty())?,
            };
            let answer = body(&session);
            self.idle().push(session);
            answer
        })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    /// Waits until the threads have let go of their connections, so that the file is closed.
    fn drop(&mut self) {
        self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).join();
    }
}

impl Pool {
    pub(crate) fn new(path: PathBuf, options: Options) -> Self {
        Pool {
            threads: Mutex::new(ThreadPool::with_name("fence-claim".into(), THREADS)),
            connections: Arc::new(Connections { path, options, idle: Mutex::default() }),
        }
    }

    pub(crate) fn claim(
        &self,
        id: &str,
        owners: &[impl AsRef<str>],
        now: Now,
        ttl: f64,
    ) -> Vec<Result<Option<i64>>> {
        let (sender, answers) = mpsc::channel();
        let began = Instant::now();
        let race = Arc::new(Race::new(id, now, ttl));
        let owners: Arc<[String]> = owners.iter().map(|owner| owner.as_ref().to_owned()).collect();
        let next = Arc::new(AtomicUsize::new(0));
        {
            let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..THREADS.min(owners.len()) {
                let (race, owners, next) = (race.clone(), owners.clone(), next.clone());
                let (connections, sender) = (Arc::clone(&self.connections), sender.clone());
                threads.execute(move || {
                    // Each thread takes the next owner that no other has taken.
                    while let Some((index, owner)) = {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        owners.get(index).map(|owner| (index, owner))
                    } {
                        let answer = race.claim(owner, |body| connections.with(began, body));
                        // Nobody listens only after a panic of the caller.
                        let _ = sender.send((index, answer));
                    }
                });
            }
        }
        drop(sender);
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.sort_by_key(|(index, _)| *index);
        assert_eq!(answers.len(), owners.len(), "a claiming thread panicked");
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// The claims of one call.
pub(crate) struct Race {
    id: String,
    now: Now,
    ttl: f64,
    over: AtomicBool,
    /// So that threads of this process do not wait in SQLite's way, which is slower.
    claiming: Mutex<()>,
}

impl Race {
    pub(crate) fn new(id: &str, now: Now, ttl: f64) -> Self {
        Race { id: id.to_owned(), now, ttl, over: AtomicBool::new(false), claiming: Mutex::new(()) }
    }

    pub(crate) fn claim(
        &self,
        owner: &str,
        with: impl FnOnce(&dyn Fn(&Session) -> Result<Option<i64>>) -> Result<Option<i64>>,
    ) -> Result<Option<i64>> {
        args::name("claim_many", "owner", owner)?;
        if self.over() {
            return Ok(None);
        }
        let answer = with(&|session| self.look_and_claim(session, owner))?;
        self.over.store(true, Ordering::Release);
        Ok(answer)
    }

    fn look_and_claim(&self, session: &Session, owner: &str) -> Result<Option<i64>> {
        let claimable = protocol::job_state(session, &self.id)?
            .is_some_and(|job| job.done == 0 && job.until <= self.now.unwrap_or_else(args::clock));
        if !claimable {
            return Ok(None);
        }
        let _claiming = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        if self.over() {
            return Ok(None);
        }
        let claimed = protocol::claim(session, &self.id, owner, self.now, self.ttl)?;
        self.over.store(true, Ordering::Release);
        Ok(claimed.map(|claimed| claimed.fence))
    }

    fn over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}
