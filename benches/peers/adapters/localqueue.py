"""localqueue: get, ack; the lease has a receipt."""

from importlib.metadata import version

from localqueue import DeliveryPolicy, DurabilityMode, Empty, LocalQueueError, SimpleQueue

from .base import SYNCHRONOUS, Base


class Peer(Base):
    names = False

    def __init__(self, **options):
        super().__init__(**options)
        self.queue = SimpleQueue(
            self.folder,
            delivery=DeliveryPolicy(lease_seconds=self.ttl, max_retries=1000),
            durability=DurabilityMode.DURABLE if self.full else DurabilityMode.RELAXED,
        )

    def version(self):
        sqlite = self.queue._native.diagnostics().sqlite_version
        return "localqueue %s, its own SQLite %s" % (version("localqueue"), sqlite)

    def durability(self):
        found = self.queue._native.diagnostics()
        return "%s, synchronous=%s" % (found.journal_mode, SYNCHRONOUS[found.synchronous])

    def enqueue(self, i):
        self.queue.put(i)

    def fill(self, n):
        self.queue.put_many(list(range(n)))

    def claim(self):
        try:
            # timeout=0 waits for the lock; block=False would take a lock for an empty queue.
            job = self.queue.get(timeout=0)
        except Empty:
            return None
        return job.id, job

    def complete(self, job, result):
        try:
            self.queue.ack(job[1])
            return True
        except LocalQueueError as e:
            if "locked" in str(e) or "busy" in str(e):
                raise
            return False

    def state(self):
        stats = self.queue.stats()
        return ", ".join("%s %s" % (key, n) for key, n in dict(stats).items() if n)

    def close(self):
        self.queue.close()
