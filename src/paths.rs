//! The contract as functions of a path. Each opens the file and closes it again, which costs more
//! than the operation itself: a program that calls often keeps a [`Store`].
use rusqlite::OpenFlags;
use std::path::Path;

use crate::{JobState, Options, Result, Store};

fn existing(path: impl AsRef<Path>) -> Store {
    Store::new(path.as_ref(), Options::default(), OpenFlags::empty())
}

/// Creates the database and the job table where they are missing, in WAL mode.
pub fn init_db(path: impl AsRef<Path>) -> Result<()> {
    Store::open(path).map(drop)
}

/// Adds a job; see [`Store::enqueue`].
pub fn enqueue(path: impl AsRef<Path>, id: &str) -> Result<bool> {
    existing(path).enqueue(id)
}

/// The job as it stands; see [`Store::state`].
pub fn state(path: impl AsRef<Path>, id: &str) -> Result<Option<JobState>> {
    existing(path).state(id)
}

/// Takes a job for `ttl` seconds and answers its fence; see [`Store::claim`].
pub fn claim(
    path: impl AsRef<Path>,
    id: &str,
    owner: &str,
    now: impl Into<Option<f64>>,
    ttl: f64,
) -> Result<Option<i64>> {
    Ok(existing(path).claim(id, owner, now, ttl)?.map(|lease| lease.fence()))
}

/// Lets several owners claim one job at once; see [`Store::claim_many`].
pub fn claim_many(
    path: impl AsRef<Path>,
    id: &str,
    owners: &[impl AsRef<str>],
    now: impl Into<Option<f64>>,
    ttl: f64,
) -> Result<Vec<Result<Option<i64>>>> {
    existing(path).claim_many(id, owners, now, ttl)
}

/// Sets the end of a lease to `now + ttl`; see [`Store::renew`].
pub fn renew(
    path: impl AsRef<Path>,
    id: &str,
    owner: &str,
    fence: i64,
    now: impl Into<Option<f64>>,
    ttl: f64,
) -> Result<bool> {
    existing(path).renew(id, owner, fence, now, ttl)
}

/// Stores the result and finishes the job; see [`Store::complete`].
pub fn complete<'a>(
    path: impl AsRef<Path>,
    id: &str,
    owner: &str,
    fence: i64,
    now: impl Into<Option<f64>>,
    result: impl Into<Option<&'a str>>,
) -> Result<bool> {
    existing(path).complete(id, owner, fence, now, result)
}

/// Gives a job back; see [`Store::release`].
pub fn release(path: impl AsRef<Path>, id: &str, owner: &str, fence: i64) -> Result<bool> {
    existing(path).release(id, owner, fence)
}
