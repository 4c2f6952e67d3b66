//! Waiting for a lock. SQLite's own busy timeout backs off by fixed steps, so that who waits long
//! waits longer; a short random pause is fair.
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs `body`, during which this thread waits at most `timeout` for locks.
pub(crate) fn within<T>(timeout: Duration, body: impl FnOnce() -> T) -> T {
    let outer = DEADLINE.replace(Instant::now().checked_add(timeout));
    let answer = body();
    DEADLINE.set(outer);
    answer
}

/// The busy handler of our own connections.
pub(crate) fn handler(_attempt: i32) -> bool {
    wait()
}

/// Waits a moment for a lock; false gives up.
pub(crate) fn wait() -> bool {
    let left = match DEADLINE.get() {
        Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        // A timeout beyond the end of time.
        None => Duration::MAX,
    };
    if left.is_zero() {
        return false;
    }
    std::thread::sleep(pause().min(left));
    true
}

/// 0.5 to 1.5 milliseconds: shorter pauses take the lock from the one who works too often, and the
/// processor too; longer ones make single calls wait long.
fn pause() -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    Duration::from_micros(500 + random % 1001)
}
