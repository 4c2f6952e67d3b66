//! The statements of `sql/`: their texts, and which of them a connection keeps.
use std::borrow::Cow;

use crate::array;

/// Unix seconds with milliseconds. SQLite reads the clock when the statement first asks for it,
/// which is after it took the write lock, and keeps the value for the whole statement.
const CLOCK: &str = include_str!("../sql/clock.sql");

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// The files of `sql/`, for clients without the extension.
        pub(crate) const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../sql/", $name, ".sql")))),*];
    };
}

files!(
    "schema",
    "enforce",
    "status",
    "queue",
    "enqueue",
    "enqueue_at",
    "enqueue_batch",
    "state",
    "claim",
    "claim_next",
    "claim_batch",
    "renew",
    "complete",
    "fail",
    "release",
    "release_at",
    "requeue",
    "lock",
    "check",
    "next_due",
    "purge_index",
    "purge",
    "restore",
    "guard",
    "gate",
    "pass",
);

/// The text of `sql/<name>.sql`.
pub(crate) fn file(name: &str) -> &'static str {
    let found = FILES.iter().find(|(file, _)| *file == name);
    found.expect("a file of sql/").1
}

/// The statements that a session keeps. The ones by clock are made of the others: their `now`
/// is the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Operation {
    Enqueue,
    EnqueueAt,
    EnqueueBatch,
    State,
    Claim,
    ClaimByClock,
    ClaimNext,
    ClaimNextByClock,
    ClaimBatch,
    ClaimBatchByClock,
    Renew,
    RenewByClock,
    Complete,
    CompleteByClock,
    Fail,
    FailByClock,
    Release,
    ReleaseAt,
    Requeue,
    Lock,
    Check,
    CheckByClock,
    #[cfg_attr(feature = "loadable", allow(dead_code))]
    NextDue,
    Purge,
    Pass,
    // Of array.rs, which clears what it has bound.
    IsArray,
    ArrayOfIds,
    ArrayOfParts,
}

impl Operation {
    pub(crate) const COUNT: usize = Operation::ArrayOfParts as usize + 1;

    /// A result or a batch can be of any size, ids and owners are short.
    pub(crate) fn binds_large_text(self) -> bool {
        use Operation::*;
        matches!(self, Complete | CompleteByClock | Fail | FailByClock | EnqueueBatch)
    }

    pub(crate) fn sql(self) -> Cow<'static, str> {
        use Operation::*;
        let by_clock = |name, now: &str| Cow::Owned(file(name).replace(now, CLOCK.trim_end()));
        Cow::Borrowed(file(match self {
            Enqueue => "enqueue",
            EnqueueAt => "enqueue_at",
            // A file may have a table of that name, but not in temp.
            EnqueueBatch => {
                return Cow::Owned(file("enqueue_batch").replace("json_each", "temp.json_each"))
            }
            State => "state",
            Claim => "claim",
            ClaimByClock => return by_clock("claim", "?3"),
            ClaimNext => "claim_next",
            ClaimNextByClock => return by_clock("claim_next", "?2"),
            ClaimBatch => "claim_batch",
            ClaimBatchByClock => return by_clock("claim_batch", "?2"),
            Renew => "renew",
            RenewByClock => return by_clock("renew", "?4"),
            Complete => "complete",
            CompleteByClock => return by_clock("complete", "?4"),
            Fail => "fail",
            FailByClock => return by_clock("fail", "?4"),
            Release => "release",
            ReleaseAt => "release_at",
            Requeue => "requeue",
            Lock => "lock",
            Check => "check",
            CheckByClock => return by_clock("check", "?4"),
            NextDue => "next_due",
            Purge => "purge",
            Pass => "pass",
            IsArray => return Cow::Borrowed(array::IS_ARRAY),
            ArrayOfIds => return Cow::Borrowed(array::IDS),
            ArrayOfParts => return Cow::Borrowed(array::PARTS),
        }))
    }
}
