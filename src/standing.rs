//! How a lease stands, in one word.
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use std::fmt;

/// How a lease stands: what `fence_check` answers, and why another call answered 0 or NULL.
///
/// Where several are true, the first in this order is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// There is no job of this id.
    Missing,
    /// The job is done, and it was this owner with this fence that finished it: a completion
    /// whose answer got lost has counted.
    DoneByYou,
    /// The job is done by somebody else, or by another claim of the same owner.
    Done,
    /// No claim of this job has had this fence yet.
    NeverIssued,
    /// A later claim has a higher fence.
    Superseded,
    /// The fence is the current one, but it is another owner's.
    NotOwner,
    /// The lease was given back.
    Released,
    /// The lease ran out, and nobody has taken the job since.
    Expired,
    /// The lease is held: renew, complete and release would succeed.
    Held,
}

impl Standing {
    const ALL: [Standing; 9] = [
        Standing::Missing,
        Standing::DoneByYou,
        Standing::Done,
        Standing::NeverIssued,
        Standing::Superseded,
        Standing::NotOwner,
        Standing::Released,
        Standing::Expired,
        Standing::Held,
    ];

    /// The word that `fence_check` answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Missing => "missing",
            Standing::DoneByYou => "done_by_you",
            Standing::Done => "done",
            Standing::NeverIssued => "never_issued",
            Standing::Superseded => "superseded",
            Standing::NotOwner => "not_owner",
            Standing::Released => "released",
            Standing::Expired => "expired",
            Standing::Held => "held",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromSql for Standing {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?;
        let found = Standing::ALL.into_iter().find(|standing| standing.as_str() == word);
        found.ok_or(FromSqlError::InvalidType)
    }
}
