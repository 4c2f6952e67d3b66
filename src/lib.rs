//! A worker that stalled, lost its lease and woke up again must not overwrite the result of the
//! worker that took over. This crate makes SQLite itself refuse that write: every claim of a job
//! gets a higher *fence*, and a write counts only with the current one.
//!
//! The doors:
//!
//! - [`Store`]: a kept connection that threads share. It hands out [`Lease`]s, which renew, complete,
//!   release, and write to tables of your own.
//! - Functions of a path, such as [`claim`], which open the file for one call.
//! - [`register`]: the `fence_*` SQL functions on a rusqlite connection of your own.
//! - The loadable extension, for every other program that uses SQLite: `cargo build --release
//!   --no-default-features --features loadable`.
//! - The files of `sql/`, for clients that can load nothing.
//!
//! ```
//! # #[cfg(not(feature = "loadable"))]
//! # fn main() -> fence::Result<()> {
//! use fence::{Error, Standing, Store};
//!
//! let store = Store::open(":memory:")?;
//! store.enqueue("report")?;
//! let a = store.claim("report", "A", 0.0, 10.0)?.expect("nobody holds it");
//! let b = store.claim("report", "B", 10.0, 10.0)?.expect("A's lease is over");
//!
//! // Both write to a table of their own; it counts while the lease is held, or not at all.
//! let write = |lease: &fence::Lease| {
//!     lease.write(11.0, |tx| {
//!         tx.execute_batch("CREATE TABLE reports(text); INSERT INTO reports VALUES ('..')")?;
//!         tx.complete("written")
//!     })
//! };
//! assert!(matches!(write(&a), Err(Error::NotHeld { standing: Standing::Superseded, .. })));
//! write(&b)?;
//! assert_eq!(b.check(12.0)?, Standing::DoneByYou);
//! # Ok(())
//! # }
//! # #[cfg(feature = "loadable")]
//! # fn main() {}
//! ```

#[cfg(all(feature = "loadable", feature = "bundled"))]
compile_error!(
    "the features `loadable` and `bundled` exclude each other; build the extension with \
     `cargo build --release --no-default-features --features loadable`"
);

mod args;
mod array;
mod batch;
#[cfg(not(feature = "loadable"))]
mod busy;
mod call;
mod claim_batch;
#[cfg(not(feature = "loadable"))]
mod claim_many;
mod error;
#[cfg(feature = "loadable")]
mod extension;
mod functions;
#[cfg(not(feature = "loadable"))]
mod group;
mod guard;
mod host;
mod json;
#[cfg(not(feature = "loadable"))]
mod keep_alive;
#[cfg(not(feature = "loadable"))]
mod lease;
mod operation;
#[cfg(not(feature = "loadable"))]
mod paths;
mod protocol;
#[cfg(not(feature = "loadable"))]
mod queue;
mod schema;
mod session;
mod standing;
mod statements;
#[cfg(not(feature = "loadable"))]
mod store;

pub use error::{Error, Result};
#[cfg(feature = "loadable")]
pub use extension::sqlite3_fence_init;
#[cfg(not(feature = "loadable"))]
pub use keep_alive::{KeepAlive, Renewal};
#[cfg(not(feature = "loadable"))]
pub use lease::{Lease, Transaction};
#[cfg(not(feature = "loadable"))]
pub use paths::{claim, claim_many, complete, enqueue, init_db, release, renew, state};
#[cfg(not(feature = "loadable"))]
pub use protocol::JobState;
pub use standing::Standing;
#[cfg(not(feature = "loadable"))]
pub use store::{Durability, Options, Store};

/// What `fence_version()` answers.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What `fence_debug()` answers.
pub(crate) fn debug() -> String {
    format!(
        "sqlite-fence {VERSION}\ncommit {}\nbuilt with SQLite {}\nrunning on SQLite {}",
        env!("FENCE_COMMIT"),
        rusqlite::ffi::SQLITE_VERSION.to_str().unwrap_or("?"),
        rusqlite::version(),
    )
}

/// The gate of a second store: whether a write with this fence may go on, on a connection to the
/// database that the write is for. True if no higher fence of `resource` was let through before;
/// it is remembered. Call it in the transaction of the write itself. The first call in a file
/// makes the table `fence_gate`.
#[cfg(not(feature = "loadable"))]
pub fn pass(conn: &rusqlite::Connection, resource: &str, fence: i64) -> Result<bool> {
    args::name("pass", "resource", resource)?;
    args::count("pass", "fence", fence)?;
    host::borrow(conn, |session| protocol::pass(session, resource, fence))
}

/// Adds the `fence_*` SQL functions to a connection of your own.
pub fn register(conn: &rusqlite::Connection) -> Result<()> {
    Ok(host::register(conn, functions::FUNCTIONS)?)
}

/// The blocks of Rust in the README.
#[cfg(all(doctest, not(feature = "loadable")))]
#[doc = include_str!("../README.md")]
struct Readme;
