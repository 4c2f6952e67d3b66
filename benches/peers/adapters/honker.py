"""honker: claim_batch of one, ack."""

import os
from importlib.metadata import version

import honker

from .base import SYNCHRONOUS, Base


class Peer(Base):
    def __init__(self, **options):
        super().__init__(**options)
        self.db = honker.open(os.path.join(self.folder, "jobs.db"))
        # NORMAL is what it sets; its writer's synchronous has no switch.
        if self.full:
            raise NotImplementedError("no setting for synchronous=FULL")
        self.queue = self.db.queue("q", visibility_timeout_s=int(self.ttl), max_attempts=1000)

    def version(self):
        rows = self.db.query("SELECT sqlite_version() AS v")
        return "honker %s, SQLite %s" % (version("honker"), rows[0]["v"])

    def durability(self):
        with self.db.transaction() as tx:
            journal, synchronous = (
                list(tx.query("PRAGMA " + name)[0].values())[0]
                for name in ("journal_mode", "synchronous")
            )
        return "%s, synchronous=%s" % (journal, SYNCHRONOUS[synchronous])

    def enqueue(self, i):
        self.queue.enqueue(i)

    def fill(self, n):
        with self.db.transaction() as tx:
            for i in range(n):
                self.queue.enqueue(i, tx=tx)

    def claim(self):
        job = self.queue.claim_one(self.worker)
        return job and (job.id, job)

    def done(self, job):
        job[1].ack()

    def complete(self, job, result):
        """As its own worker does with save_result=True."""
        self.queue.save_result(job[0], result)
        return job[1].ack()

    def state(self):
        result = self.queue.get_result(1)
        held = self.queue.get_job(1)
        row = "held by %s" % held["worker_id"] if held else "gone"
        return "job %s, result %s" % (row, result[1] if result[0] else None)

    def close(self):
        self.db.close()
