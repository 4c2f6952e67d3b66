//! Claiming whatever is due. The queue of a job is the part of its id before the first `:`, and
//! `""` where there is none.
use std::time::{Duration, Instant};

use crate::operation::file;
use crate::protocol::Outcome;
use crate::{args, batch, protocol, Lease, Result, Store};

impl Store {
    /// Makes the index that the methods about queues need. It costs pages at every write of an
    /// unfinished job, so a program that claims by id only does without.
    pub fn init_queue(&self) -> Result<()> {
        self.with(|session| Ok(session.connection().execute_batch(file("queue"))?))
    }

    /// Adds a job that may be claimed from the moment `due` (seconds) on; a negative one makes it
    /// urgent. True if it is new.
    pub fn enqueue_at(&self, id: &str, due: f64) -> Result<bool> {
        args::name("enqueue_at", "id", id)?;
        args::moment("enqueue_at", "due", due)?;
        let id = id.to_owned();
        self.write(move |session| protocol::enqueue(session, &id, Some(due)))
    }

    /// Adds many jobs in one transaction, in their order, and tells how many were new.
    pub fn enqueue_many(&self, ids: &[impl AsRef<str>]) -> Result<usize> {
        for id in ids {
            args::name("enqueue_many", "id", id.as_ref())?;
        }
        self.with(|session| {
            session.atomically(|| {
                let mut new = 0;
                for id in ids {
                    new += usize::from(protocol::enqueue(session, id.as_ref(), None)?);
                }
                Ok(new)
            })
        })
    }

    /// Takes the next job of a queue that is due: leases that ran out and delayed jobs whose
    /// moment has come first, then the others by `until` and as they were enqueued.
    pub fn claim_next(
        &self,
        queue: &str,
        owner: &str,
        now: impl Into<Option<f64>>,
        ttl: f64,
    ) -> Result<Option<Lease>> {
        Ok(self.claim_due("claim_next", queue, owner, now.into(), ttl, 1)?.pop())
    }

    /// Like [`claim_next`](Store::claim_next), for up to `limit` jobs in one transaction. In no
    /// order.
    pub fn claim_batch(
        &self,
        queue: &str,
        owner: &str,
        now: impl Into<Option<f64>>,
        ttl: f64,
        limit: i64,
    ) -> Result<Vec<Lease>> {
        self.claim_due("claim_batch", queue, owner, now.into(), ttl, limit)
    }

    fn claim_due(
        &self,
        function: &str,
        queue: &str,
        owner: &str,
        now: protocol::Now,
        ttl: f64,
        limit: i64,
    ) -> Result<Vec<Lease>> {
        args::name(function, "owner", owner)?;
        args::lease(function, now, ttl)?;
        args::count(function, "limit", limit)?;
        let (queue, owner_name) = (queue.to_owned(), owner.to_owned());
        let taken =
            self.write(move |session| batch::claim(session, &owner_name, now, ttl, limit, &queue))?;
        let lease = |job: batch::Taken| Lease {
            store: self.clone(),
            id: job.id,
            owner: owner.into(),
            fence: job.fence,
            until: job.until,
        };
        Ok(taken.into_iter().map(lease).collect())
    }

    /// Gives a job back, to be claimed from the moment `due` (seconds) on: back-off.
    pub fn release_at(&self, id: &str, owner: &str, fence: i64, due: f64) -> Result<bool> {
        args::holder("release_at", id, owner)?;
        args::moment("release_at", "due", due)?;
        let (id, owner) = (id.to_owned(), owner.to_owned());
        self.write(move |session| protocol::release(session, &id, &owner, fence, Some(due)))
    }

    /// Stores an error and gives the job up for good, under the same conditions as
    /// [`complete`](Store::complete). Such a dead letter stays until [`requeue`](Store::requeue).
    pub fn fail<'a>(
        &self,
        id: &str,
        owner: &str,
        fence: i64,
        now: impl Into<Option<f64>>,
        error: impl Into<Option<&'a str>>,
    ) -> Result<bool> {
        self.finish("fail", Outcome::Fail, id, owner, fence, now.into(), error.into())
    }

    /// Makes a dead letter claimable again; its fence grows by one, so that no old holder is
    /// valid. False if there is no dead letter of this id.
    pub fn requeue(&self, id: &str) -> Result<bool> {
        args::name("requeue", "id", id)?;
        let id = id.to_owned();
        self.write(move |session| protocol::requeue(session, &id))
    }

    /// Waits until a job of the queue is due by the database's clock: true, or false after
    /// `timeout`. It sleeps until the next due moment, and looks for commits of others in pauses
    /// that grow from 1 to 100 milliseconds. Another worker may still be quicker to claim.
    pub fn wait(&self, queue: &str, timeout: Duration) -> Result<bool> {
        const FIRST_PAUSE: Duration = Duration::from_millis(1);
        const LAST_PAUSE: Duration = Duration::from_millis(100);
        let deadline = Instant::now().checked_add(timeout);
        let mut pause = FIRST_PAUSE;
        let mut seen = None;
        let mut due = None;
        loop {
            // Read before the moment: a commit in between is seen in the next round.
            let version = self.version()?;
            if seen.replace(version) != Some(version) {
                due = self.with(|session| batch::next_due(session, queue))?;
                pause = FIRST_PAUSE;
            }
            // SQLite's clock cuts after the milliseconds.
            let now = (args::clock() * 1e3).floor() / 1e3;
            let until_due = due.map(|due| due - now);
            if until_due.is_some_and(|seconds| seconds <= 0.0) {
                return Ok(true);
            }
            let mut sleep = pause;
            if let Some(left) = until_due.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
                sleep = sleep.min(left);
            }
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(false);
                }
                sleep = sleep.min(left);
            }
            std::thread::sleep(sleep);
            pause = pause.mul_f64(1.5).min(LAST_PAUSE);
        }
    }

    /// Changes with every commit: data_version counts those of other connections,
    /// total_changes() our own.
    fn version(&self) -> Result<(i64, i64)> {
        self.with(|session| {
            let mut statement = session.connection().prepare_cached(
                "SELECT data_version, total_changes() FROM temp.pragma_data_version",
            )?;
            Ok(statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
        })
    }
}

impl Lease {
    /// Gives the job back, to be claimed from a moment on; see [`Store::release_at`].
    pub fn release_at(&self, due: f64) -> Result<bool> {
        self.store.release_at(&self.id, &self.owner, self.fence, due)
    }

    /// Gives the job up for good; see [`Store::fail`].
    pub fn fail<'a>(
        &self,
        now: impl Into<Option<f64>>,
        error: impl Into<Option<&'a str>>,
    ) -> Result<bool> {
        self.store.fail(&self.id, &self.owner, self.fence, now, error)
    }
}
