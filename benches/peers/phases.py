"""What is measured of one arm. Times are of the runner's or the worker's monotonic clock."""

import collections
import contextlib
import itertools
import os
import shutil
import statistics
import time

from processes import Worker

CLAIMS = 200  # timed ones
FEW, MANY, OUT = 1_000, 100_000, 10_000
SHORT = 1.0  # seconds, the lease that runs out
STALL = 2.3  # honker counts whole seconds

_numbers = itertools.count()


@contextlib.contextmanager
def folder(data):
    path = os.path.join(data, "run-%d" % next(_numbers))
    os.makedirs(path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextlib.contextmanager
def workers(arm, path, count=1, full=False, **options):
    with contextlib.ExitStack() as stack:
        found = []
        for i in range(count):
            place = dict(name="w%d" % i, fresh=i == 0, first=i, step=count)
            worker = Worker(arm, path, full, **{**place, **options})
            stack.callback(worker.end)
            found.append(worker)
        yield found


def throughput(arm, data, full, count, n):
    """Enqueue n, then claim and complete each, by `count` processes at once. Jobs per second."""
    with folder(data) as path, workers(arm, path, count, full) as found:
        enqueue = None
        if count == 1:
            enqueue = n / found[0].ask("enqueue", n=n)["seconds"]
        else:
            found[0].ask("fill", n=n)
        start = time.perf_counter()
        for worker in found:
            worker.send("drain")
        answers = [worker.receive() for worker in found]
        seconds = time.perf_counter() - start
    times = collections.Counter(id for answer in answers for id in answer["ids"])
    if len(times) != n:
        raise RuntimeError("%d of %d jobs were claimed" % (len(times), n))
    return {
        "enqueue": enqueue,
        "drain": n / seconds,
        "jobs": n,
        "busy": sum(answer["busy"] for answer in answers),
        "twice": sum(1 for claims in times.values() if claims > 1),
    }


def claim_cost(arm, data, pending, out=0):
    """Median seconds of a claim with so many jobs pending and so many leases out."""
    with folder(data) as path, workers(arm, path) as (worker,):
        worker.ask("fill", n=pending + out)
        worker.ask("hold", n=out)
        return statistics.median(worker.ask("claims", n=CLAIMS)["seconds"])


def growth(arm, data, scale, rounds):
    """How many times as long a claim takes: with a long queue, and with many leases out."""
    backlog, leases = [], []
    for _ in range(rounds):
        small = claim_cost(arm, data, FEW)
        backlog.append(claim_cost(arm, data, MANY // scale) / small)
        leases.append(claim_cost(arm, data, FEW, OUT // scale) / small)
    return {"backlog": statistics.median(backlog), "leases": statistics.median(leases)}


def stale(arm, data, same_name, after):
    """A claims and stalls; B comes to the job; A completes, while B holds it or after B's end."""
    place = dict(ttl=SHORT, first=0, step=0)
    with folder(data) as path, contextlib.ExitStack() as stack:
        a = Worker(arm, path, False, name="A", **place)
        stack.callback(a.end)
        b = Worker(arm, path, False, name="A" if same_name else "B", fresh=False, **place)
        stack.callback(b.end)
        a.ask("enqueue", n=1)
        if not a.ask("claim")["claimed"]:
            raise RuntimeError("A got nothing")
        time.sleep(STALL)
        b.ask("expire")
        if not b.ask("claim")["claimed"]:
            raise RuntimeError("B got nothing")
        if after:
            b.ask("finish")
        before = b.ask("state")["state"]
        answer = a.ask("complete", result="from A")["accepted"]
        return {"before": before, "answer": answer, "after": b.ask("state")["state"]}
