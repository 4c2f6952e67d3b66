//! Every guard of the model, and which rule the search finds broken without it.

use crate::protocol::{Op, Op::*, Part, Part::*};

/// What takes a guard's absence to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The search finds this safety or liveness rule broken.
    Rule(&'static str),
    /// No rule is broken, but an answer or a row is not the contract's.
    Contract,
    /// Nothing: in this configuration another guard does its work.
    No,
}

use Seen::{Contract, No, Rule};

/// A guard; what is seen without it where every worker has a name of its own; and where all share
/// one. A worker with a name of its own may even keep the number of a claim that was rolled back.
pub const FAULTS: &[(Op, Part, Seen, Seen)] = &[
    (Claim, Done, Rule("I7"), Rule("I7")),
    (Claim, Until, Rule("I7"), Rule("I7")),
    (Claim, Boundary, Rule("L1"), Rule("L1")),
    (Claim, Last, Rule("I9"), Rule("I9")),
    (Claim, SetOwner, Contract, Contract),
    (Claim, SetUntil, Contract, Contract),
    (Claim, SetFence, Rule("I1"), Rule("I1")),
    // A SELECT, and an UPDATE that believes it.
    (Claim, OneStatement, Rule("I1"), Rule("I1")),
    (Renew, Owner, Rule("I3"), No),
    (Renew, Fence, No, Rule("I3")),
    (Renew, Done, Contract, Contract),
    (Renew, Until, Rule("I8"), Rule("I8")),
    (Renew, Boundary, Rule("I8"), Rule("I8")),
    (Renew, SetUntil, Contract, Contract),
    (Complete, Owner, Rule("I3"), No),
    (Complete, Fence, No, Rule("I3")),
    (Complete, Done, Rule("I4"), Rule("I4")),
    (Complete, Until, Rule("I8"), Rule("I8")),
    (Complete, Boundary, Rule("I8"), Rule("I8")),
    (Complete, SetResult, Contract, Contract),
    (Complete, SetDone, Contract, Contract),
    (Fail, Owner, Rule("I3"), No),
    (Fail, Fence, No, Rule("I3")),
    (Fail, Done, Rule("I4"), Rule("I4")),
    (Fail, Until, Rule("I8"), Rule("I8")),
    (Fail, Boundary, Rule("I8"), Rule("I8")),
    (Fail, SetResult, Contract, Contract),
    (Fail, SetDone, Contract, Contract),
    (Release, Owner, Rule("I3"), Rule("I3")),
    (Release, Fence, No, Rule("I3")),
    (Release, Done, Contract, Contract),
    (Release, SetOwner, Rule("I3"), Rule("I3")),
    (Release, SetUntil, Contract, Contract),
    (Requeue, Done, Contract, Contract),
    (Requeue, Last, Rule("I9"), Rule("I9")),
    (Requeue, SetOwner, Contract, Contract),
    (Requeue, SetUntil, Contract, Contract),
    (Requeue, SetFence, Rule("I4"), Rule("I4")),
    (Requeue, SetResult, Contract, Contract),
    (Requeue, SetDone, Contract, Contract),
    (Write, Owner, Contract, Contract),
    (Write, Fence, Rule("I3"), Rule("I3")),
    (Write, Done, Contract, Contract),
    // A look at the lease, and a write that believes it.
    (Write, OneStatement, Rule("I3"), Rule("I3")),
    (Enqueue, Exists, Rule("I1"), Rule("I1")),
    (Enqueue, Floor, Rule("I1"), Rule("I1")),
    (Delete, Floor, Rule("I1"), Rule("I1")),
    (Replace, Floor, Rule("I1"), Rule("I1")),
    (Restore, SetFence, Rule("I1"), Rule("I1")),
    (Restore, Floor, Rule("I1"), Rule("I1")),
    (Restore, SetUntil, Contract, Contract),
    (Restore, SetOwner, Contract, Contract),
    (Update, Done, Rule("I4"), Rule("I4")),
    (Update, Fence, Rule("I1"), Rule("I1")),
    // A worker that keeps the number of a claim that was rolled back: the reason why the Rust API
    // hands out a lease after the commit only.
    (Transaction, Forgotten, No, Rule("I2")),
    (Transaction, Undone, Rule("L3"), Rule("L3")),
    (State, Committed, Rule("I11"), Rule("I11")),
];
