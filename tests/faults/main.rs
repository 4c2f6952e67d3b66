//! What the disk can do to a claim: it is full, it fails, it loses power. A VFS under SQLite does
//! all of it at every point at which SQLite asks the disk for something.
mod bench;
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod images;
mod operations;
mod points;
mod powercut;
mod shim;
mod stores;
mod together;
