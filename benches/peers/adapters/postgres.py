"""PostgreSQL, the contract by hand with FOR UPDATE SKIP LOCKED. Each run has its own schema."""

import os

import psycopg

from .base import Base, job_id, now

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS {0};
CREATE TABLE IF NOT EXISTS {0}.jobs(
  id text PRIMARY KEY, owner text, until double precision NOT NULL DEFAULT 0,
  fence bigint NOT NULL DEFAULT 0, result text, done boolean NOT NULL DEFAULT false);
CREATE INDEX IF NOT EXISTS due ON {0}.jobs(until) WHERE NOT done;
"""
CLAIM = """
UPDATE jobs SET owner = %s, until = %s, fence = fence + 1
 WHERE id = (SELECT id FROM jobs WHERE NOT done AND until <= %s ORDER BY until
              LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, fence"""
COMPLETE = """
UPDATE jobs SET result = %s, done = true
 WHERE id = %s AND owner = %s AND fence = %s AND NOT done AND until > %s"""


class Peer(Base):
    def __init__(self, **options):
        super().__init__(**options)
        schema = "run_" + os.path.basename(self.folder).replace("-", "_")
        self.db = psycopg.connect(os.environ["PEERS_POSTGRES"], autocommit=True)
        self.db.execute("SET synchronous_commit = " + ("on" if self.full else "off"))
        self.db.execute("SET client_min_messages = warning")
        if self.fresh:
            self.db.execute(SCHEMA.format(schema))
        self.db.execute("SET search_path = " + schema)
        self.prepared = self.db.cursor()

    def version(self):
        server = self.db.execute("SHOW server_version").fetchone()[0].split()[0]
        return "PostgreSQL %s, psycopg %s" % (server, psycopg.__version__)

    def durability(self):
        names = ("fsync", "synchronous_commit")
        return ", ".join("%s=%s" % (n, self.db.execute("SHOW " + n).fetchone()[0]) for n in names)

    def run(self, sql, *args):
        return self.prepared.execute(sql, args, prepare=True)

    def enqueue(self, i):
        self.run("INSERT INTO jobs(id) VALUES (%s) ON CONFLICT DO NOTHING", job_id(i))

    def fill(self, n):
        ids = "SELECT 'job' || lpad(i::text, 8, '0') FROM generate_series(0, %s) AS i"
        self.db.execute("INSERT INTO jobs(id) " + ids, (n - 1,))
        self.db.execute("VACUUM ANALYZE jobs")

    def claim(self):
        at = now()
        return self.run(CLAIM, self.worker, at + self.ttl, at).fetchone()

    def complete(self, job, result):
        return self.run(COMPLETE, result, job[0], self.worker, job[1], now()).rowcount == 1

    def state(self):
        row = self.db.execute("SELECT owner, fence, result, done FROM jobs").fetchone()
        return "owner %s, fence %s, result %s, done %s" % row

    def close(self):
        self.db.close()
