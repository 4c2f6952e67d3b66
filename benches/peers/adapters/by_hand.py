"""The contract written by hand in Python: one kept connection, one guarded statement a step."""

import os
import sqlite3

from .base import WAIT, Base, job_id, now, pragmas

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs(
  id TEXT PRIMARY KEY, owner TEXT, until REAL NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0, result TEXT, done INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS due ON jobs(until) WHERE done = 0;
"""
CLAIM = """
UPDATE jobs SET owner = ?1, until = ?2 + ?3, fence = fence + 1
 WHERE rowid = (SELECT rowid FROM jobs WHERE done = 0 AND until <= ?2 ORDER BY until LIMIT 1)
RETURNING id, fence"""
COMPLETE = """
UPDATE jobs SET result = ?4, done = 1
 WHERE id = ?1 AND owner = ?2 AND fence = ?3 AND done = 0 AND until > ?5"""


class Peer(Base):
    def __init__(self, **options):
        super().__init__(**options)
        self.db = self.connect()
        self.db.execute("PRAGMA journal_mode = WAL")
        self.prepare()

    def connect(self):
        path = os.path.join(self.folder, "jobs.db")
        db = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
        db.execute("PRAGMA synchronous = %s" % ("FULL" if self.full else "NORMAL"))
        return db

    def prepare(self):
        self.db.executescript(SCHEMA)

    def version(self):
        return "Python 3 sqlite3, SQLite " + sqlite3.sqlite_version

    def durability(self):
        return pragmas(self.db)

    def enqueue(self, i):
        self.db.execute("INSERT OR IGNORE INTO jobs(id) VALUES (?)", (job_id(i),))

    def fill(self, n):
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO jobs(id) VALUES (?)", ((job_id(i),) for i in range(n)))
        self.db.execute("COMMIT")

    def claim(self):
        rows = self.db.execute(CLAIM, (self.worker, now(), self.ttl)).fetchall()
        return rows[0] if rows else None

    def complete(self, job, result):
        done = self.db.execute(COMPLETE, (job[0], self.worker, job[1], result, now()))
        return done.rowcount == 1

    def state(self):
        row = self.db.execute("SELECT owner, fence, result, done FROM jobs").fetchone()
        return "owner %s, fence %s, result %s, done %s" % row

    def close(self):
        self.db.close()
