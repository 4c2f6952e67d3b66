//! Memory runs out: each allocation that SQLite makes fails once, or it and all later ones do.
#[path = "../faults/bench.rs"]
mod bench;
#[path = "../faults/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;
#[path = "../faults/operations.rs"]
mod operations;
#[path = "../faults/together.rs"]
mod together;

mod allocator;
mod calls;
mod connections;
mod stores;
