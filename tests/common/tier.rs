//! How much a test that searches at random does: `FENCE_TIER=fast` (the default of `cargo test`),
//! `middle` (`.ci/run`) or `long` (what docs/testing.md reports).

/// The number for the tier of this run.
pub fn scale<T>(fast: T, middle: T, long: T) -> T {
    match std::env::var("FENCE_TIER").as_deref() {
        Ok("long") => long,
        Ok("middle") => middle,
        Ok("fast") | Err(_) => fast,
        Ok(other) => panic!("FENCE_TIER is fast, middle or long, not {other}"),
    }
}

/// The seed of this run: `FENCE_SEED`, or a new one. A test prints it, so that a failure can be
/// repeated.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    match std::env::var("FENCE_SEED") {
        Ok(seed) => seed.parse().expect("FENCE_SEED is a number"),
        Err(_) => RandomState::new().hash_one(0_u8),
    }
}

/// A small random generator (xorshift64*), the same on every platform.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
}
