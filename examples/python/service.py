"""Jobs with leases and fencing tokens, as eight functions over a loaded libfence.so.

A worker claims a job for some seconds and gets a fence, a number that grows with every claim of
that job. Only who shows the current fence can renew, complete or release, so a worker that
stalled and lost its lease cannot overwrite what its successor wrote.

    init_db("jobs.db")
    enqueue("jobs.db", "report")
    fence = claim("jobs.db", "report", "worker-1", time.time(), 30)
    if fence is not None:
        ...
        complete("jobs.db", "report", "worker-1", fence, time.time(), "the result")

ValueError: an argument is out of its range, and nothing was touched. sqlite3.OperationalError:
the database is busy, read-only or missing; after one from claim or complete, look at state()
before concluding that nothing happened. A refusal is no error: None or False.

Needs a Python whose sqlite3 can load extensions (Debian's /usr/bin/python3 can; builds by pyenv
and for macOS often cannot) and the library: FENCE_EXTENSION names it, without it
target/release/libfence of this project is taken.
"""

import contextlib
import json
import os
import pathlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor

BUSY_TIMEOUT = 5.0  # seconds that a call waits for another connection's lock
THREADS = 4  # of claim_many: only one writer at a time gets SQLite's lock

_BUILT = pathlib.Path(__file__).resolve().parents[2] / "target" / "release" / "libfence"


def connect(database, **options):
    """A connection with the fence_* functions; the caller closes it."""
    # isolation_level=None: otherwise Python opens a transaction of its own before a write, and
    # a claim would count only after commit().
    db = sqlite3.connect(database, timeout=BUSY_TIMEOUT, isolation_level=None, **options)
    try:
        if not hasattr(db, "enable_load_extension"):
            raise RuntimeError("this Python was built without support for SQLite extensions")
        db.enable_load_extension(True)
        db.load_extension(os.environ.get("FENCE_EXTENSION", str(_BUILT)))
        db.enable_load_extension(False)
        # An answered claim survives a power cut in every journal mode.
        db.execute("PRAGMA synchronous = EXTRA")
    except BaseException:
        db.close()
        raise
    return db


def _answer(db, function, args):
    marks = ", ".join("?" * len(args))
    # fetchall: the statement is stepped to its end.
    return db.execute("SELECT %s(%s)" % (function, marks), args).fetchall()[0][0]


def _check(function, *args):
    """Tries the arguments on an empty database in memory, where nothing else can go wrong."""
    with contextlib.closing(connect(":memory:")) as db:
        db.execute("SELECT fence_init()").fetchall()
        try:
            _answer(db, function, args)
        except (sqlite3.Error, OverflowError) as e:
            raise ValueError(str(e)) from e


def _call(path, function, *args):
    _check(function, *args)
    # mode=rw: a file that is missing is an error, not a new empty database.
    uri = pathlib.Path(path).absolute().as_uri() + "?mode=rw"
    with contextlib.closing(connect(uri, uri=True)) as db:
        return _answer(db, function, args)


def init_db(path):
    """Creates the database and the job table where they are missing."""
    with contextlib.closing(connect(os.fspath(path))) as db:
        _answer(db, "fence_init", ())


def enqueue(path, id):
    """Adds a job. True if it is new, False if it was there already."""
    return bool(_call(path, "fence_enqueue", id))


def state(path, id):
    """The job as a dict (id, owner, until, fence, result, done), or None if there is none."""
    found = _call(path, "fence_state", id)
    return None if found is None else json.loads(found)


def claim(path, id, owner, now, ttl):
    """Takes a job for ttl seconds. Its fence, or None if it is missing, done or leased."""
    return _call(path, "fence_claim", id, owner, now, ttl)


def renew(path, id, owner, fence, now, ttl):
    """Sets the end of the lease to now + ttl. False if it is not held any more."""
    return bool(_call(path, "fence_renew", id, owner, fence, now, ttl))


def complete(path, id, owner, fence, now, result):
    """Stores the result and finishes the job. False if the lease is not held any more."""
    return bool(_call(path, "fence_complete", id, owner, fence, now, result))


def release(path, id, owner, fence):
    """Gives the job back. False if it is not, or no longer, this owner's with this fence."""
    return bool(_call(path, "fence_release", id, owner, fence))


def claim_many(path, id, owners, now, ttl):
    """Lets several owners claim one job at once; at most one of them gets a fence.

    Answers a list in the order of owners: the fence, None, or, where an owner's call failed, its
    exception, so that one failure does not hide that another owner won. A bad id, now or ttl is
    raised instead.
    """
    _check("fence_claim", id, "any owner", now, ttl)

    def attempt(owner):
        try:
            return claim(path, id, owner, now, ttl)
        except Exception as e:
            return e

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(attempt, owners))
