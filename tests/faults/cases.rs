//! The operations that are tried with faults, the file that each begins with, and its answer.
#![allow(dead_code)] // two test binaries use their own parts
use rusqlite::Connection;

use crate::operations::{held, template, Kind, Operation};

/// A journal mode, and what else a connection is told.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Journal(pub &'static str, pub &'static str);

pub const DELETE: Journal = Journal("delete", "PRAGMA synchronous = EXTRA");
pub const TRUNCATE: Journal = Journal("truncate", "PRAGMA synchronous = FULL");
pub const PERSIST: Journal = Journal("persist", "PRAGMA synchronous = FULL");
pub const WAL: Journal = Journal("wal", "PRAGMA synchronous = FULL");
/// Each commit is followed by a checkpoint.
pub const CHECKPOINTED: Journal =
    Journal("wal", "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1");

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum File {
    Empty,
    /// The job table and nothing else, as the first version made it.
    Old,
    Bare,
    Full,
    /// Texts are converted in each call, which needs memory.
    Utf16,
}

impl File {
    pub fn make(self, conn: &Connection, journal: Journal) {
        if self == File::Utf16 {
            conn.pragma_update(None, "encoding", "UTF-16").unwrap();
        }
        conn.pragma_update(None, "journal_mode", journal.0).unwrap();
        fence::register(conn).unwrap();
        match self {
            File::Empty => {}
            File::Old => conn
                .execute_batch(&format!(
                    "{} INSERT INTO jobs(id, fence) VALUES ('free', 3);",
                    include_str!("../../sql/schema.sql")
                ))
                .unwrap(),
            File::Bare => conn.execute_batch("SELECT fence_init()").unwrap(),
            File::Full | File::Utf16 => template(conn),
        }
    }
}

#[derive(Clone)]
pub struct Case {
    pub file: File,
    pub before: Vec<Operation>,
    pub operation: Operation,
    pub answer: &'static str,
}

pub fn cases(kind: Kind) -> Vec<Case> {
    use Operation::*;
    let case = |file, operation, answer| Case { file, before: Vec::new(), operation, answer };
    let mine = || held("held", "A", 1);
    let mut cases = vec![
        case(File::Bare, InitQueue, "1"),
        case(File::Full, Check(mine(), 1.0), "held"),
        case(File::Full, Enqueue("new".into()), "1"),
        case(File::Full, EnqueueBatch, "2"),
        case(File::Full, Claim("free".into(), "B", 1.0), "1"),
        case(File::Full, ClaimBatch("B", 1.0), "q:1 1,q:2 1"),
        case(File::Full, Renew(mine(), 1.0), "1"),
        case(File::Full, Complete(mine(), 1.0), "1"),
        case(File::Full, Fail(mine(), 1.0), "1"),
        case(File::Full, Release(mine()), "1"),
        case(File::Full, Requeue("dead".into()), "1"),
        case(File::Full, Purge(1e6), "1"),
        case(File::Full, Restore(5), "1"),
        case(File::Full, Guard, "1"),
        case(File::Full, Unguard, "1"),
        Case {
            before: vec![Claim("free".into(), "B", 1.0)],
            ..case(File::Full, GuardedWrite(held("free", "B", 1), 2.0), "1")
        },
    ];
    let state = match kind {
        Kind::Store => r#"{"id":"held","fence":1}"#,
        _ => r#"{"id":"held","owner":"A","until":100.0,"fence":1,"result":null,"done":0}"#,
    };
    cases.push(case(File::Full, State("held".into()), state));
    if kind != Kind::Store {
        cases.extend([
            case(File::Empty, Init, "1"),
            case(File::Old, Init, "1"),
            case(File::Full, RenewBatch(mine(), 1.0), "[1]"),
            case(File::Full, CompleteBatch(mine(), 1.0), "[1]"),
            case(File::Full, Pass(1), "1"),
        ]);
    }
    cases
}
