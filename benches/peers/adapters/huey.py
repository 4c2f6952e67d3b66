"""huey's SqliteHuey: dequeue takes the task out of the file, put_result stores its result."""

import os
from importlib.metadata import version

from huey import SqliteHuey

from .base import WAIT, Base, pragmas


class Peer(Base):
    names = False
    expires = "no lease: the task is enqueued again under its id"

    def __init__(self, **options):
        super().__init__(**options)
        path = os.path.join(self.folder, "jobs.db")
        self.huey = SqliteHuey(filename=path, timeout=WAIT)
        synchronous = "FULL" if self.full else "NORMAL"
        self.huey.storage.conn.execute("PRAGMA synchronous = " + synchronous)
        self.task = self.huey.task()(int).task_class

    def version(self):
        sqlite = self.huey.storage.sql("SELECT sqlite_version()", results=True)[0][0]
        return "huey %s, SQLite %s" % (version("huey"), sqlite)

    def durability(self):
        return pragmas(self.huey.storage.conn)

    def enqueue(self, i):
        self.huey.enqueue(self.task((i,), id=str(i)))

    def fill(self, n):
        tasks = (self.task((i,), id=str(i)) for i in range(n))
        rows = [(self.huey.name, self.huey.serialize_task(task)) for task in tasks]
        with self.huey.storage.db(commit=True) as cursor:
            cursor.executemany("INSERT INTO task(queue, data) VALUES (?, ?)", rows)

    def claim(self):
        task = self.huey.dequeue()
        return task and (task.id,)

    def complete(self, job, result):
        self.huey.put_result(job[0], result)

    def expire(self):
        self.enqueue(0)

    def state(self):
        return "result %s" % self.huey.result("0", preserve=True)

    def close(self):
        self.huey.storage.close()
