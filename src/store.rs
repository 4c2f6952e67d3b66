//! The Rust API: a database behind one kept connection.
use rusqlite::{Connection, OpenFlags};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::claim_many::{Pool, Race};
use crate::group::Group;
use crate::protocol::{self, JobState, Outcome};
use crate::session::Session;
use crate::{args, busy, guard, schema, Error, Lease, Result, Standing};

/// What a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A power cut loses nothing that was answered (`synchronous=FULL`).
    #[default]
    Full,
    /// Survives a crash of the program; a power cut may lose the last commits, and with them
    /// claims, so that a fence is handed out twice (`synchronous=NORMAL`). Several times faster.
    Normal,
}

/// How a [`Store`] is opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How long a call waits for another connection's lock before it fails with
    /// [`Error::Busy`](crate::Error::Busy). 5 seconds by default.
    pub busy_timeout: Duration,
    /// What a commit survives. Everything by default.
    pub durability: Durability,
}

impl Default for Options {
    fn default() -> Self {
        Options { busy_timeout: Duration::from_secs(5), durability: Durability::Full }
    }
}

/// A database with a job table: one kept connection, in WAL mode, shared by its clones and their
/// threads. Calls that arrive while a commit runs share the next one; each returns after it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    create: OpenFlags,
    options: Options,
    /// Opened by the first call whose arguments are right.
    session: Mutex<Option<Session>>,
    group: Group,
    pool: OnceLock<Pool>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database at `path`, or creates it, in WAL mode, and creates the job table where
    /// it is missing. `":memory:"` is a database of this store alone.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, Options::default())
    }

    /// Like [`open`](Store::open), with other [`Options`].
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let store = Self::new(path.as_ref(), options, OpenFlags::SQLITE_OPEN_CREATE);
        store.with(|session| {
            let conn = session.connection();
            // Where somebody writes, SQLite does not wait for the lock that a change to WAL needs.
            while let Err(e) = change_to_wal(conn) {
                let busy = e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
                if !busy || !busy::wait() {
                    return Err(e.into());
                }
            }
            // After a reader that pinned it, the log shrinks again.
            conn.pragma_update(None, "journal_size_limit", 16 << 20)?;
            schema::init(session, "init_db")
        })?;
        Ok(store)
    }

    pub(crate) fn new(path: &Path, options: Options, create: OpenFlags) -> Self {
        Store {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                create,
                options,
                session: Mutex::new(None),
                group: Group::default(),
                pool: OnceLock::new(),
            }),
        }
    }

    pub(crate) fn with<T>(&self, body: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        let Inner { path, create, options, session, .. } = &*self.inner;
        let _entered = Entered::new(&self.inner)?;
        // A panic leaves no statement half done: each is reset when it goes out of scope.
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        busy::within(options.busy_timeout, || {
            if session.is_none() {
                *session = Some(open_session(path, *options, *create)?);
            }
            body(session.as_ref().expect("opened above"))
        })
    }

    /// One statement that writes, in a transaction that it may share with other threads' ones.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        body: impl FnMut(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // Before it waits for another thread's call, which may wait for this one.
        drop(Entered::new(&self.inner)?);
        self.inner.group.run(|work| self.with(work), body)
    }

    /// Adds a job that anybody may claim. True if it is new, false if it was there already;
    /// then nothing changes.
    pub fn enqueue(&self, id: &str) -> Result<bool> {
        args::name("enqueue", "id", id)?;
        let id = id.to_owned();
        self.write(move |session| protocol::enqueue(session, &id, None))
    }

    /// The job as the last commit left it, or `None` if there is none of this id.
    pub fn state(&self, id: &str) -> Result<Option<JobState>> {
        args::name("state", "id", id)?;
        self.with(|session| protocol::job_state(session, id))
    }

    /// Takes a job for `ttl` seconds. `None` if it is not claimable: missing, done, or leased
    /// until after `now`, also by the same owner.
    ///
    /// `now` is in seconds on whatever clock all workers share; `None` takes the database's clock
    /// (Unix seconds), read once the write lock is held, so that waiting costs no lease time.
    pub fn claim(
        &self,
        id: &str,
        owner: &str,
        now: impl Into<Option<f64>>,
        ttl: f64,
    ) -> Result<Option<Lease>> {
        let now = now.into();
        check_claim("claim", id, now, ttl)?;
        args::name("claim", "owner", owner)?;
        let lease = (id.to_owned(), owner.to_owned());
        let claimed =
            self.write(move |session| protocol::claim(session, &lease.0, &lease.1, now, ttl))?;
        Ok(claimed.map(|claimed| Lease {
            store: self.clone(),
            id: id.into(),
            owner: owner.into(),
            fence: claimed.fence,
            until: claimed.until,
        }))
    }

    /// Lets several owners claim one job at once: at most one of them gets a fence, the others
    /// `None`, in the order of `owners`. Each owner has an answer of its own, so that an error of
    /// one does not hide that another one won; the outer error is for `id`, `now` and `ttl`.
    pub fn claim_many(
        &self,
        id: &str,
        owners: &[impl AsRef<str>],
        now: impl Into<Option<f64>>,
        ttl: f64,
    ) -> Result<Vec<Result<Option<i64>>>> {
        let now = now.into();
        check_claim("claim_many", id, now, ttl)?;
        let file = self.with(|session| {
            let path = session.connection().path().filter(|path| !path.is_empty());
            // A URI says more than the file's name.
            let uri = self.inner.path.to_str().filter(|path| path.starts_with("file:"));
            Ok(path.map(|path| PathBuf::from(uri.unwrap_or(path))))
        })?;
        let Some(file) = file else {
            // In memory, a second connection would have a second database.
            let race = Race::new(id, now, ttl);
            return self.with(|session| {
                let claim = |owner| race.claim(owner, |body| body(session));
                Ok(owners.iter().map(|owner| claim(owner.as_ref())).collect())
            });
        };
        let pool = self.inner.pool.get_or_init(|| Pool::new(file, self.inner.options));
        Ok(pool.claim(id, owners, now, ttl))
    }

    /// Sets the end of a lease to `now + ttl`, even if that is sooner. False if the lease is not
    /// held any more: over, taken over, released or done. It cannot be renewed then.
    pub fn renew(
        &self,
        id: &str,
        owner: &str,
        fence: i64,
        now: impl Into<Option<f64>>,
        ttl: f64,
    ) -> Result<bool> {
        let now = now.into();
        args::holder("renew", id, owner)?;
        args::lease("renew", now, ttl)?;
        let (id, owner) = (id.to_owned(), owner.to_owned());
        self.write(move |session| protocol::renew(session, &id, &owner, fence, now, ttl))
    }

    /// Stores the result and finishes the job for good. False if the lease is not held any more,
    /// or the job is done already; then nothing changes.
    pub fn complete<'a>(
        &self,
        id: &str,
        owner: &str,
        fence: i64,
        now: impl Into<Option<f64>>,
        result: impl Into<Option<&'a str>>,
    ) -> Result<bool> {
        self.finish("complete", Outcome::Complete, id, owner, fence, now.into(), result.into())
    }

    #[allow(clippy::too_many_arguments)] // those of complete and fail, and which of them it is
    pub(crate) fn finish(
        &self,
        function: &str,
        outcome: Outcome,
        id: &str,
        owner: &str,
        fence: i64,
        now: protocol::Now,
        result: Option<&str>,
    ) -> Result<bool> {
        args::holder(function, id, owner)?;
        now.map_or(Ok(()), |now| args::moment(function, "now", now))?;
        let (id, owner, result) = (id.to_owned(), owner.to_owned(), result.map(str::to_owned));
        self.write(move |session| {
            protocol::finish(session, outcome, &id, &owner, fence, now, &result)
        })
    }

    /// Gives a job back, so that anybody may claim it at once. False if it is not (or no longer)
    /// this owner's with this fence, or done.
    pub fn release(&self, id: &str, owner: &str, fence: i64) -> Result<bool> {
        args::holder("release", id, owner)?;
        let (id, owner) = (id.to_owned(), owner.to_owned());
        self.write(move |session| protocol::release(session, &id, &owner, fence, None))
    }

    /// How a lease stands, and so why another call answered `None` or `false`.
    pub fn check(
        &self,
        id: &str,
        owner: &str,
        fence: i64,
        now: impl Into<Option<f64>>,
    ) -> Result<Standing> {
        let now = now.into();
        args::holder("check", id, owner)?;
        now.map_or(Ok(()), |now| args::moment("check", "now", now))?;
        self.with(|session| protocol::check(session, id, owner, fence, now))
    }

    /// Deletes at most `limit` done jobs whose lease ended before `before` (seconds), the oldest
    /// first, and tells how many. Each call is one short transaction; the first one in a file
    /// makes the index that finds them.
    pub fn purge(&self, before: f64, limit: i64) -> Result<usize> {
        args::moment("purge", "before", before)?;
        args::count("purge", "limit", limit)?;
        self.with(|session| protocol::purge(session, before, limit))
    }

    /// To be called once on a file that was restored from a backup, or copied to go its own way:
    /// every fence grows by `bump`, which must be more than any fence or the floor grew since the
    /// copy was made (by claims, requeueing, or deleting and adding a job again), and every lease
    /// is cleared. Done jobs stay done.
    pub fn restore(&self, bump: i64) -> Result<()> {
        args::count("restore", "bump", bump)?;
        self.with(|session| protocol::restore(session, "restore", bump))
    }

    /// Fences a table of your own: from now on its rows are written only with the current fence
    /// of the job that `job_column` names, stated in the column `fence` which this adds. False if
    /// the table was guarded so already.
    pub fn guard(&self, table: &str, job_column: &str) -> Result<bool> {
        self.with(|session| guard::guard(session, "guard", table, job_column))
    }

    /// Takes the guard away again. False if there was none. The column `fence` stays.
    pub fn unguard(&self, table: &str) -> Result<bool> {
        self.with(|session| guard::unguard(session, table))
    }
}

thread_local! {
    /// The stores in which a call of this thread is under way.
    static ENTERED: RefCell<Vec<*const Inner>> = const { RefCell::new(Vec::new()) };
}

/// A thread that waited for its own call would wait for ever.
struct Entered;

impl Entered {
    fn new(inner: &Inner) -> Result<Self> {
        let inner: *const Inner = inner;
        ENTERED.with_borrow_mut(|entered| {
            if entered.contains(&inner) {
                let sentence = "the store was called inside Lease::write, use its transaction";
                return Err(Error::InvalidArgument(sentence.into()));
            }
            entered.push(inner);
            Ok(Entered)
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Calls end in the reverse order of their beginning.
        ENTERED.with_borrow_mut(Vec::pop);
    }
}

fn check_claim(function: &str, id: &str, now: protocol::Now, ttl: f64) -> Result<()> {
    args::name(function, "id", id)?;
    args::lease(function, now, ttl)
}

/// To the last step: the change is committed in it, after the row with the new mode.
fn change_to_wal(conn: &Connection) -> rusqlite::Result<()> {
    let mut statement = conn.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// A connection of our own, as a [`Store`] and its pool use it.
pub(crate) fn open_session(path: &Path, options: Options, create: OpenFlags) -> Result<Session> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let conn = Connection::open_with_flags(path, flags | create)?;
    conn.busy_handler(Some(busy::handler))?;
    let synchronous = match options.durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    Ok(Session::new(conn))
}
