"""litequeue: pop, done. Overdue messages come back through list_locked and retry."""

import os
from importlib.metadata import version

import litequeue

from .base import WAIT, Base, pragmas


class Peer(Base):
    names = False
    expires = "list_locked() and retry()"

    def __init__(self, **options):
        super().__init__(**options)
        self.queue = litequeue.LiteQueue(os.path.join(self.folder, "jobs.db"), timeout=WAIT)
        if self.full:
            self.queue.conn.execute("PRAGMA synchronous = FULL")

    def version(self):
        sqlite = self.queue.conn.execute("SELECT sqlite_version()").fetchone()[0]
        return "litequeue %s, SQLite %s" % (version("litequeue"), sqlite)

    def durability(self):
        return pragmas(self.queue.conn)

    def enqueue(self, i):
        self.queue.put(str(i))

    def fill(self, n):
        with self.queue.transaction():
            super().fill(n)

    def claim(self):
        message = self.queue.pop()
        return message and (message.message_id,)

    def complete(self, job, result):
        self.queue.done(job[0])

    def finish(self, job):
        self.queue.mark_failed(job[0])

    def expire(self):
        for message in list(self.queue.list_locked(self.ttl)):
            self.queue.retry(message.message_id)

    def state(self):
        status = self.queue.conn.execute("SELECT status FROM Queue").fetchone()[0]
        return "status " + litequeue.MessageStatus(status).name

    def close(self):
        self.queue.close()
