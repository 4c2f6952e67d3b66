"""A worker of tests/processes.rs, which explains the rules. Claims through the loaded extension.

Usage: worker.py EXTENSION DATABASE WORKER OWNER JOBS TTL
Prints what it did, one word list a line.
"""
import json
import sqlite3
import sys

extension, database, worker, owner, jobs, ttl = sys.argv[1:]
worker, jobs, ttl = int(worker), int(jobs), float(ttl)

conn = sqlite3.connect(database, isolation_level=None)
conn.enable_load_extension(True)
conn.load_extension(extension)
conn.execute("PRAGMA synchronous = FULL")


def call(function, *arguments):
    marks = ", ".join("?" * len(arguments))
    while True:
        try:
            return conn.execute(f"SELECT fence_{function}({marks})", arguments).fetchone()[0]
        except sqlite3.OperationalError as error:
            if "database is locked" not in str(error):
                raise
            print("busy")


def wake(job, fence, now):
    """Goes on as if nothing had happened since the claim."""
    renewed = call("renew", job, owner, fence, now, ttl)
    completed = call("complete", job, owner, fence, now, f"{worker}/{fence}")
    released = call("release", job, owner, fence)
    print("late", job, fence, renewed, completed, released)


now, asleep = 4.0 * worker, {}
print("ready", flush=True)
sys.stdin.readline()
for pass_ in range(10_000):
    claimed, ends, unfinished = 0, [], 0
    for i in range(jobs):
        job = f"job-{i}"
        state = json.loads(call("state", job))
        if job in asleep and state["fence"] > asleep[job][0]:
            wake(job, *asleep.pop(job))
        if state["done"]:
            continue
        unfinished += 1
        if job in asleep:
            continue
        if state["until"] > now:
            ends.append(state["until"])
            if pass_ > 0:
                continue
        fence = call("claim", job, owner, now, ttl)
        if fence is None:
            continue
        claimed += 1
        print("claim", job, fence, now)
        if i % 4 == 0 and fence <= 1 + i // 4 % 3:
            asleep[job] = (fence, now)
        else:
            completed = call("complete", job, owner, fence, now, f"{worker}/{fence}")
            again = call("complete", job, owner, fence, now, "again")
            print("complete", job, fence, completed, again)
    if not unfinished and not asleep:
        break
    if not claimed and ends:
        now = min(ends)
else:
    sys.exit("no progress in 10,000 passes")
conn.close()
