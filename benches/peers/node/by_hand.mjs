// better-sqlite3, the contract by hand: prepared statements, one guarded statement a step.
import { connect, durability, sqlite } from "./packages.mjs";

const SCHEMA = `
CREATE TABLE IF NOT EXISTS jobs(
  id TEXT PRIMARY KEY, owner TEXT, until REAL NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0, result TEXT, done INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS due ON jobs(until) WHERE done = 0`;
const CLAIM = `
UPDATE jobs SET owner = ?, until = ?, fence = fence + 1
 WHERE rowid = (SELECT rowid FROM jobs WHERE done = 0 AND until <= ? ORDER BY until LIMIT 1)
RETURNING id, fence`;
const COMPLETE = `
UPDATE jobs SET result = ?, done = 1
 WHERE id = ? AND owner = ? AND fence = ? AND done = 0 AND until > ?`;

export function open(options) {
  const { ttl, worker } = options;
  const db = connect(options);
  db.exec(SCHEMA);
  const insert = db.prepare("INSERT OR IGNORE INTO jobs(id) VALUES (?)");
  const claim = db.prepare(CLAIM);
  const complete = db.prepare(COMPLETE);
  const enqueue = (i) => insert.run(`job${String(i).padStart(8, "0")}`);
  const now = () => Date.now() / 1000;
  const peer = {
    version: sqlite(db),
    durability: durability(db),
    names: true,
    enqueue,
    fill: db.transaction((n) => {
      for (let i = 0; i < n; i++) enqueue(i);
    }),
    claim() {
      const at = now();
      return claim.get(worker, at + ttl, at);
    },
    complete: (job, result) => complete.run(result, job.id, worker, job.fence, now()).changes === 1,
    finish: (job) => peer.complete(job, "from B"),
    state() {
      const row = db.prepare("SELECT owner, fence, result, done FROM jobs").get();
      return `owner ${row.owner}, fence ${row.fence}, result ${row.result}, done ${row.done}`;
    },
    close: () => db.close(),
  };
  return peer;
}
