//! A lease that came out of a commit, and writes that depend on it.
use rusqlite::Connection;
use std::ops::Deref;

use crate::session::{Session, Undo};
use crate::{args, protocol, Error, Result, Standing, Store};

/// A claim that was committed. It ends at [`until`](Lease::until) or with the first call that
/// answers false; nothing happens when it is dropped.
#[derive(Clone, Debug)]
pub struct Lease {
    pub(crate) store: Store,
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) fence: i64,
    pub(crate) until: f64,
}

impl Lease {
    /// The job's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who holds the lease.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fencing token: higher than that of every earlier claim of this job.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// The end of the lease as this value knows it, in seconds on the clock of the claim.
    pub fn until(&self) -> f64 {
        self.until
    }

    /// Sets the end of the lease to `now + ttl`; see [`Store::renew`].
    pub fn renew(&mut self, now: impl Into<Option<f64>>, ttl: f64) -> Result<bool> {
        let now = now.into();
        let renewed = self.store.renew(&self.id, &self.owner, self.fence, now, ttl)?;
        if renewed {
            self.until = now.unwrap_or_else(args::clock) + ttl;
        }
        Ok(renewed)
    }

    /// Stores the result and finishes the job; see [`Store::complete`].
    pub fn complete<'a>(
        &self,
        now: impl Into<Option<f64>>,
        result: impl Into<Option<&'a str>>,
    ) -> Result<bool> {
        self.store.complete(&self.id, &self.owner, self.fence, now, result)
    }

    /// Gives the job back; see [`Store::release`].
    pub fn release(&self) -> Result<bool> {
        self.store.release(&self.id, &self.owner, self.fence)
    }

    /// How the lease stands; see [`Store::check`].
    pub fn check(&self, now: impl Into<Option<f64>>) -> Result<Standing> {
        self.store.check(&self.id, &self.owner, self.fence, now)
    }

    /// Writes of your own that count only while the lease is held: begins a transaction, takes
    /// the write lock, checks the lease, runs `body` and commits. Where the lease is not held,
    /// [`Error::NotHeld`] says why and `body` does not run. An error of `body` rolls everything
    /// back. `body` uses the connection that it is given: another call of the store in there is
    /// an error, and one on a thread that `body` waits for would wait for ever.
    pub fn write<T>(
        &self,
        now: impl Into<Option<f64>>,
        body: impl FnOnce(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let now = now.into();
        now.map_or(Ok(()), |now| args::moment("write", "now", now))?;
        self.store.with(|session| {
            let transaction = Transaction { session, lease: self, now };
            // Prepared before there is something to roll back, because the error may be that memory
            // ran out.
            let rollback = session.connection().prepare("ROLLBACK")?;
            session.connection().execute_batch("BEGIN IMMEDIATE")?;
            let mut undo = Undo(vec![rollback]);
            protocol::assert(session, &self.id, &self.owner, self.fence, now)?;
            let answer = body(&transaction)?;
            session.connection().execute_batch("COMMIT")?;
            undo.0.clear();
            Ok(answer)
        })
    }
}

/// The connection inside [`Lease::write`].
pub struct Transaction<'a> {
    session: &'a Session,
    lease: &'a Lease,
    now: protocol::Now,
}

impl Transaction<'_> {
    /// Finishes the job in the same transaction, with the `now` of the write: the result and
    /// your own writes are committed together or not at all.
    pub fn complete<'r>(&self, result: impl Into<Option<&'r str>>) -> Result<()> {
        let Lease { id, owner, fence, .. } = self.lease;
        let (outcome, result) = (protocol::Outcome::Complete, result.into());
        if protocol::finish(self.session, outcome, id, owner, *fence, self.now, &result)? {
            return Ok(());
        }
        let standing = protocol::check(self.session, id, owner, *fence, self.now)?;
        Err(Error::NotHeld { id: id.clone(), standing })
    }

    /// The lease's fencing token, the stamp for guarded tables.
    pub fn fence(&self) -> i64 {
        self.lease.fence
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.session.connection()
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("lease", self.lease).finish_non_exhaustive()
    }
}
