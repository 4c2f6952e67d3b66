"""What every adapter has: open (the constructor), enqueue, claim, complete, close, and the rest."""

import time

WAIT = 30.0  # seconds that a call waits for SQLite's lock, where the peer lets us choose

SYNCHRONOUS = ["OFF", "NORMAL", "FULL", "EXTRA"]


class Base:
    names = True  # a claim carries the name of its worker
    expires = "the lease runs out"  # how B comes to the job that A holds

    def __init__(self, folder, full, ttl, worker, fresh, first, step):
        """Opens the queue in `folder`. `fresh`: the first one to do so. Who claims by id takes
        every `step`-th from the `first` on."""
        self.folder, self.full, self.ttl, self.worker = folder, full, ttl, worker
        self.fresh, self.first, self.step = fresh, first, step

    def version(self):
        raise NotImplementedError

    def durability(self):
        """The settings in force, as the peer's own connection tells them."""
        raise NotImplementedError

    def enqueue(self, i):
        raise NotImplementedError

    def claim(self):
        """The next job, its id first, or None."""
        raise NotImplementedError

    def complete(self, job, result):
        """True: accepted, False: refused, None: the peer does not tell."""
        raise NotImplementedError

    def close(self):
        pass

    def state(self):
        """What is stored about the only job, for a person to read."""
        raise NotImplementedError

    # What is measured is the peer's ordinary way; the following may be quicker ways round.

    def done(self, job):
        self.complete(job, "ok")

    def finish(self, job):
        """B's outcome: one that A's late completion would visibly change."""
        return self.complete(job, "from B")

    def fill(self, n):
        for i in range(n):
            self.enqueue(i)

    def hold(self, n):
        for _ in range(n):
            self.claim()

    def expire(self):
        """Gives overdue jobs back, where the peer does not do so at a claim."""


def pragmas(db):
    """Of a sqlite3 connection."""
    journal = db.execute("PRAGMA journal_mode").fetchone()[0]
    synchronous = db.execute("PRAGMA synchronous").fetchone()[0]
    return "%s, synchronous=%s" % (journal, SYNCHRONOUS[synchronous])


def now():
    return time.time()


def job_id(i):
    return "job%08d" % i
