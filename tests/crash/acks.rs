//! What killed workers had been told, what the file says, and the rules between the two.
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// Keeps a record of every fence that was issued and every job that was purged, whoever did it,
/// in the same transaction.
pub const RECORDS: &str = "
    CREATE TABLE issued(id TEXT, fence INTEGER, owner TEXT);
    CREATE TRIGGER record_claim AFTER UPDATE OF fence ON jobs
    WHEN new.owner IS NOT NULL AND new.fence <> old.fence
    BEGIN INSERT INTO issued VALUES (new.id, new.fence, new.owner); END;
    CREATE TABLE purged(id TEXT, owner TEXT, until REAL, fence INTEGER, result TEXT, done INTEGER);
    CREATE TRIGGER record_purge AFTER DELETE ON jobs
    BEGIN INSERT INTO purged VALUES (old.id, old.owner, old.until, old.fence, old.result, old.done);
    END;";

/// Results of completions that came with a write of the worker's own begin so.
pub const WITH_EFFECT: &str = "effect ";

/// A generation of a job.
pub type Generation = (String, i64);

/// What workers said they were told.
#[derive(Clone, Default)]
pub struct Acks {
    /// Owner and end of the lease as the last answer to its holder set it.
    pub leases: BTreeMap<Generation, (String, f64)>,
    pub results: BTreeMap<Generation, String>,
    pub purged: usize,
    pub renewed: usize,
    pub lines: usize,
    twice: Option<Generation>,
}

impl Acks {
    /// Takes a line of a worker: the word, the job, its fence, and the rest.
    pub fn add(&mut self, line: &str) {
        self.lines += 1;
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let generation = || (words[1].to_owned(), words[2].parse::<i64>().expect(line));
        match words[0] {
            "claim" => {
                let (owner, until) = words[3].split_once(' ').expect(line);
                let lease = (owner.to_owned(), until.parse().expect(line));
                if self.leases.insert(generation(), lease).is_some() {
                    self.twice = Some(generation());
                }
            }
            "renew" => {
                let lease = self.leases.get_mut(&generation()).expect("claimed before");
                lease.1 = words[3].parse().expect(line);
                self.renewed += 1;
            }
            "complete" => {
                self.results.insert(generation(), words[3].to_owned());
            }
            "purge" => self.purged += 1,
            "enqueue" | "release" => {}
            _ => panic!("{line}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub id: String,
    pub owner: Option<String>,
    pub until: f64,
    pub fence: i64,
    pub result: Option<String>,
    pub done: i64,
}

/// The file at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub integrity: String,
    pub floor: i64,
    pub jobs: Vec<Row>,
    pub purged: Vec<Row>,
    pub issued: Vec<(String, i64, String)>,
    /// Job, generation and result of each effect.
    pub effects: Vec<(String, i64, String)>,
}

impl Snapshot {
    pub fn read(conn: &Connection) -> rusqlite::Result<Snapshot> {
        // One read transaction, though other workers go on.
        let conn = conn.unchecked_transaction()?;
        let three = |sql: &str| -> rusqlite::Result<Vec<(String, i64, String)>> {
            let mut statement = conn.prepare(sql)?;
            let rows =
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        };
        Ok(Snapshot {
            jobs: rows(&conn, "jobs")?,
            purged: rows(&conn, "purged")?,
            issued: three("SELECT id, fence, owner FROM issued")?,
            effects: three("SELECT job, generation, result FROM effects")?,
            floor: conn.query_row("SELECT fence FROM fence_floor", [], |row| row.get(0))?,
            integrity: conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?,
        })
    }
}

fn rows(conn: &Connection, table: &str) -> rusqlite::Result<Vec<Row>> {
    let sql = format!("SELECT id, owner, until, fence, result, done FROM {table}");
    let mut statement = conn.prepare(&sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Row {
            id: row.get(0)?,
            owner: row.get(1)?,
            until: row.get(2)?,
            fence: row.get(3)?,
            result: row.get(4)?,
            done: row.get(5)?,
        })
    })?;
    rows.collect()
}

/// Checks a file against all answers that were given before it was read.
pub fn check(acks: &Acks, file: &Snapshot) -> Result<(), String> {
    if file.integrity != "ok" {
        return Err(format!("integrity_check: {}", file.integrity));
    }
    fences(acks, file)?;
    leases(acks, file)?;
    results(acks, file)?;
    effects(file)
}

/// An acknowledged fence is in the file, never sinks and is never issued again.
fn fences(acks: &Acks, file: &Snapshot) -> Result<(), String> {
    if let Some((id, fence)) = &acks.twice {
        return Err(format!("fence {fence} of {id} was acknowledged twice"));
    }
    let mut issued = BTreeMap::new();
    for (id, fence, owner) in &file.issued {
        if issued.insert((id.clone(), *fence), owner).is_some() {
            return Err(format!("fence {fence} of {id} was issued twice"));
        }
    }
    for ((id, fence), (owner, _)) in &acks.leases {
        if issued.get(&(id.clone(), *fence)) != Some(&owner) {
            return Err(format!("the acknowledged fence {fence} of {id} was never stored"));
        }
        let row = file.jobs.iter().find(|row| row.id == *id);
        // Of a job that was deleted the floor remembers the fence.
        let now = row.map_or(file.floor, |row| row.fence);
        if now < *fence {
            return Err(format!("the acknowledged fence {fence} of {id} sank to {now}"));
        }
    }
    Ok(())
}

/// The row of the current generation has its holder's name and end, until that is released or
/// somebody's unacknowledged renewal sets a later one.
fn leases(acks: &Acks, file: &Snapshot) -> Result<(), String> {
    for row in &file.jobs {
        let lease = acks.leases.get(&(row.id.clone(), row.fence));
        let (Some((owner, until)), Some(holder)) = (lease, &row.owner) else { continue };
        if holder != owner || row.until < *until {
            return Err(format!("the lease of {owner} until {until} was acknowledged: {row:?}"));
        }
    }
    Ok(())
}

/// An acknowledged result stays, in the job or, once it is purged, in the record of it.
fn results(acks: &Acks, file: &Snapshot) -> Result<(), String> {
    if let Some(row) = file.purged.iter().find(|row| row.done != 1) {
        return Err(format!("an unfinished job was purged: {row:?}"));
    }
    for ((id, fence), result) in &acks.results {
        let mut rows = file.jobs.iter().chain(&file.purged);
        let stands = rows.any(|row| {
            (&row.id, row.fence, &row.result, row.done) == (id, *fence, &Some(result.clone()), 1)
        });
        if !stands {
            return Err(format!("the acknowledged result '{result}' of {id} ({fence}) is gone"));
        }
    }
    Ok(())
}

/// A worker's own write and its completion are there both or neither.
fn effects(file: &Snapshot) -> Result<(), String> {
    let completed: BTreeSet<(&str, i64, &str)> = file
        .jobs
        .iter()
        .chain(&file.purged)
        .filter(|row| row.done == 1)
        .map(|row| (&*row.id, row.fence, row.result.as_deref().unwrap_or("")))
        .filter(|(_, _, result)| result.starts_with(WITH_EFFECT))
        .collect();
    let written: BTreeSet<(&str, i64, &str)> =
        file.effects.iter().map(|(id, fence, result)| (&**id, *fence, &**result)).collect();
    if written.len() != file.effects.len() {
        return Err(format!("an effect is there twice: {:?}", file.effects));
    }
    if let Some(effect) = written.difference(&completed).next() {
        return Err(format!("an effect without its completion: {effect:?}"));
    }
    match completed.difference(&written).next() {
        Some(completion) => Err(format!("a completion without its effect: {completion:?}")),
        None => Ok(()),
    }
}
