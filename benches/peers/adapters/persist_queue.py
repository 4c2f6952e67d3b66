"""persist-queue's SQLiteAckQueue: get, ack. What is unacknowledged comes back when it is opened."""

import sqlite3
from importlib.metadata import version

from persistqueue import Empty, SQLiteAckQueue

from .base import WAIT, Base, pragmas


class Peer(Base):
    names = False
    expires = "no lease: auto_resume when B opens the file"

    def __init__(self, **options):
        super().__init__(**options)
        self.open(auto_resume=False)

    def open(self, auto_resume):
        self.queue = SQLiteAckQueue(self.folder, timeout=WAIT, auto_resume=auto_resume)
        synchronous = "FULL" if self.full else "NORMAL"
        self.queue._putter.execute("PRAGMA synchronous = " + synchronous)

    def version(self):
        return "persist-queue %s, SQLite %s" % (version("persist-queue"), sqlite3.sqlite_version)

    def durability(self):
        return pragmas(self.queue._putter)

    def enqueue(self, i):
        self.queue.put(i)

    def fill(self, n):
        rows = ((self.queue._serializer.dumps(i), 0.0) for i in range(n))
        with self.queue._putter as db:
            db.executemany(self.queue._sql_insert, rows)

    def claim(self):
        try:
            item = self.queue.get(block=False, raw=True)
        except Empty:
            return None
        return (item["pqid"],)

    def complete(self, job, result):
        return self.queue.ack(id=job[0]) is not None

    def finish(self, job):
        return self.queue.ack_failed(id=job[0]) is not None

    def expire(self):
        self.queue.close()
        self.open(auto_resume=True)

    def state(self):
        names = {0: "inited", 1: "ready", 2: "unacknowledged", 5: "acknowledged", 9: "failed"}
        return "status " + names[int(self.queue.queue()[0]["status"])]

    def close(self):
        self.queue.close()
