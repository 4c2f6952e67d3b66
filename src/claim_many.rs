//! Many owners, one job: a few threads with a connection each.
use rusqlite::OpenFlags;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, PoisonError};
use threadpool::ThreadPool;

use crate::protocol::Now;
use crate::session::Session;
use crate::store::{claim_one, open_session, Options};
use crate::{busy, Result};

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
    fn with<T>(&self, body: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        busy::within(self.options.busy_timeout, || {
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
        let owners: Arc<[String]> = owners.iter().map(|owner| owner.as_ref().to_owned()).collect();
        let next = Arc::new(AtomicUsize::new(0));
        {
            let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..THREADS.min(owners.len()) {
                let (id, owners, next) = (id.to_owned(), Arc::clone(&owners), Arc::clone(&next));
                let (connections, sender) = (Arc::clone(&self.connections), sender.clone());
                threads.execute(move || {
                    // Each thread takes the next owner that no other has taken.
                    while let Some((index, owner)) = {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        owners.get(index).map(|owner| (index, owner))
                    } {
                        let answer =
                            connections.with(|session| claim_one(session, &id, owner, now, ttl));
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
