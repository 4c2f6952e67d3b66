"""sqlite-fence, the loaded extension from Python: claims whatever is due."""

import json
import os

from . import by_hand
from .base import job_id


class Peer(by_hand.Peer):
    queue = True

    def connect(self):
        db = super().connect()
        db.enable_load_extension(True)
        db.load_extension(os.environ["PEERS_FENCE"])
        return db

    def prepare(self):
        self.call("fence_init()")
        if self.queue:
            self.call("fence_init_queue()")

    def call(self, call, *args):
        return self.db.execute("SELECT " + call, args).fetchall()[0][0]

    def version(self):
        return "sqlite-fence %s, %s" % (self.call("fence_version()"), super().version())

    def enqueue(self, i):
        self.call("fence_enqueue(?)", job_id(i))

    def fill(self, n):
        self.call("fence_enqueue_batch(?)", json.dumps([job_id(i) for i in range(n)]))

    def claim(self):
        # The function, not the table of the same name: it waits for another writer.
        jobs = json.loads(self.call("fence_claim_batch(?, ?, 1)", self.worker, self.ttl))
        return jobs[0] if jobs else None

    def complete(self, job, result):
        return self.call("fence_complete(?, ?, ?, ?)", job[0], self.worker, job[1], result) == 1
