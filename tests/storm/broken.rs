//! Workers that are broken on purpose: a check that passes them is no check.
#![allow(dead_code)] // each test program uses its own part

use rusqlite::{params, Connection, OptionalExtension, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    /// Looks whether the job is claimable and claims it by a second statement.
    ClaimsInTwoSteps,
    /// Claims without regard to the end of the lease.
    ClaimsLiveLeases,
    /// Takes the fence from the first step of its statement and drops what the reset says.
    ClaimStepsOnce,
    /// Completes without its fence.
    CompletesWithoutFence,
    /// Commits its own write before the completion.
    WritesThenCompletes,
}

impl Fault {
    pub fn named(name: &str) -> Fault {
        use Fault::*;
        let all = [
            None,
            ClaimsInTwoSteps,
            ClaimsLiveLeases,
            ClaimStepsOnce,
            CompletesWithoutFence,
            WritesThenCompletes,
        ];
        *all.iter().find(|fault| format!("{fault:?}") == name).expect("the name of a fault")
    }

    /// The broken claim, if this fault is one of claims.
    pub fn claim(
        self,
        conn: &Connection,
        id: &str,
        owner: &str,
        now: f64,
        ttl: f64,
    ) -> Option<Result<Option<i64>>> {
        let until = now + ttl;
        match self {
            Fault::ClaimsInTwoSteps => Some(claim_in_two_steps(conn, id, owner, now, until)),
            Fault::ClaimsLiveLeases => {
                let sql = "UPDATE jobs SET owner = ?2, until = ?3, fence = fence + 1
                            WHERE id = ?1 AND done = 0 RETURNING fence";
                let claimed = conn.prepare_cached(sql).and_then(|mut statement| {
                    let mut rows = statement.query(params![id, owner, until])?;
                    let fence = rows.next()?.map(|row| row.get(0)).transpose()?;
                    while rows.next()?.is_some() {}
                    Ok(fence)
                });
                Some(claimed)
            }
            Fault::ClaimStepsOnce => {
                let sql = "UPDATE jobs SET owner = ?2, until = ?3, fence = fence + 1
                            WHERE id = ?1 AND done = 0 AND until <= ?4 RETURNING fence";
                // rusqlite's query_row steps once; the commit is left to the reset.
                let claimed = conn.prepare_cached(sql).and_then(|mut statement| {
                    let row = statement.query_row(params![id, owner, until, now], |row| row.get(0));
                    row.optional()
                });
                Some(claimed)
            }
            _ => None,
        }
    }

    /// The broken completion, if this fault is one of completions.
    pub fn complete(self, conn: &Connection, id: &str, result: &str) -> Option<Result<bool>> {
        if self != Fault::CompletesWithoutFence {
            return None;
        }
        let sql = "UPDATE jobs SET result = ?2, done = 1 WHERE id = ?1 AND done = 0";
        let run =
            conn.prepare_cached(sql).and_then(|mut statement| statement.execute([id, result]));
        Some(run.map(|changed| changed == 1))
    }
}

fn claim_in_two_steps(
    conn: &Connection,
    id: &str,
    owner: &str,
    now: f64,
    until: f64,
) -> Result<Option<i64>> {
    let sql = "SELECT fence FROM jobs WHERE id = ?1 AND done = 0 AND until <= ?2";
    let found: Option<i64> =
        conn.prepare_cached(sql)?.query_row(params![id, now], |row| row.get(0)).optional()?;
    let Some(fence) = found else { return Ok(None) };
    let sql = "UPDATE jobs SET owner = ?2, until = ?3, fence = ?4 WHERE id = ?1";
    match conn.prepare_cached(sql)?.execute(params![id, owner, until, fence + 1]) {
        // The file itself refuses a fence that falls.
        Err(e) if e.sqlite_error().is_some_and(|e| e.extended_code & 0xff == 19) => Ok(None),
        answer => answer.map(|_| Some(fence + 1)),
    }
}
