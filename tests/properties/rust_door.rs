//! The same calls through the Rust API.

use rusqlite::Connection;

use crate::doors::{raw, Door, BREAKABLE};
use crate::table::{Answer, Call, Job};

/// The Rust API on a file, with another connection beside it.
pub struct Rust {
    store: fence::Store,
    plain: Connection,
    _directory: tempfile::TempDir,
}

impl Rust {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.db");
        let mut options = fence::Options::default();
        options.durability = fence::Durability::Normal; // no power cut in here
        let store = fence::Store::open_with(&path, options).unwrap();
        store.init_queue().unwrap();
        let plain = Connection::open(path).unwrap();
        plain.execute_batch(BREAKABLE).unwrap();
        plain.execute_batch("PRAGMA synchronous = OFF").unwrap();
        Rust { store, plain, _directory: directory }
    }

    fn answer(&self, call: &Call) -> fence::Result<Answer> {
        let store = &self.store;
        Ok(match call {
            Call::Enqueue { id, due: None } => Answer::Yes(store.enqueue(id)?),
            Call::Enqueue { id, due: Some(due) } => Answer::Yes(store.enqueue_at(id, *due)?),
            Call::Claim { id, owner, now, ttl } => {
                let lease = store.claim(id, owner, *now, *ttl)?;
                assert!(lease.as_ref().is_none_or(|lease| lease.until() == now + ttl));
                Answer::Fence(lease.map(|lease| lease.fence()))
            }
            Call::ClaimBatch { queue, owner, now, ttl, limit } => {
                let leases = store.claim_batch(queue, owner, *now, *ttl, *limit)?;
                let mut taken: Vec<_> = leases
                    .iter()
                    .map(|lease| (lease.id().to_owned(), lease.fence(), lease.until()))
                    .collect();
                taken.sort_by(|a, b| a.0.cmp(&b.0));
                Answer::Taken(taken)
            }
            Call::Race { id, owners, now, ttl } => {
                let answers = store.claim_many(id, owners, *now, *ttl)?;
                let mut winners = Vec::new();
                for (i, answer) in answers.into_iter().enumerate() {
                    winners.extend(answer?.map(|fence| (i, fence)));
                }
                assert!(winners.len() <= 1, "several owners won: {winners:?}");
                Answer::Winner(winners.pop())
            }
            Call::Renew { id, owner, fence, now, ttl } => {
                Answer::Yes(store.renew(id, owner, *fence, *now, *ttl)?)
            }
            Call::Complete { id, owner, fence, now, result } => {
                Answer::Yes(store.complete(id, owner, *fence, *now, result.as_deref())?)
            }
            Call::Fail { id, owner, fence, now, result } => {
                Answer::Yes(store.fail(id, owner, *fence, *now, result.as_deref())?)
            }
            Call::Release { id, owner, fence, due: None } => {
                Answer::Yes(store.release(id, owner, *fence)?)
            }
            Call::Release { id, owner, fence, due: Some(due) } => {
                Answer::Yes(store.release_at(id, owner, *fence, *due)?)
            }
            Call::Requeue { id } => Answer::Yes(store.requeue(id)?),
            Call::Check { id, owner, fence, now } => {
                Answer::Word(store.check(id, owner, *fence, *now)?.to_string())
            }
            Call::State { id } => Answer::Row(store.state(id)?.map(|job| Job {
                owner: job.owner,
                until: job.until,
                fence: job.fence,
                result: job.result,
                done: job.done,
            })),
            Call::Purge { before, limit } => Answer::Count(store.purge(*before, *limit)?),
            Call::Restore { bump } => {
                store.restore(*bump)?;
                Answer::Yes(true)
            }
            Call::Delete { .. } | Call::Replace { .. } | Call::Lift { .. } => {
                raw(&self.plain, call).expect("plain SQL")
            }
        })
    }
}

impl Door for Rust {
    fn plain(&self) -> &Connection {
        &self.plain
    }

    fn call(&self, call: &Call) -> Result<Answer, (i32, String)> {
        self.answer(call).map_err(|e| (e.extended_code(), e.to_string()))
    }
}
