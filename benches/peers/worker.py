"""One worker process of a Python peer: a JSON request a line in, a JSON answer a line out."""

import importlib
import json
import sys
import time


def main():
    peer_class = importlib.import_module("adapters." + sys.argv[1]).Peer
    worker = Worker(peer_class)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except NotImplementedError as e:
            answer = {"unsupported": str(e)}
        except Exception as e:
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(answer), flush=True)


class Worker:
    def __init__(self, peer_class):
        self.peer_class = peer_class
        self.busy = 0

    def open(self, **options):
        self.peer = self.peer_class(**options)
        facts = {key: getattr(self.peer, key) for key in ("names", "expires")}
        told = {"version": self.peer.version(), "durability": self.peer.durability()}
        return {**told, **facts}

    def patiently(self, method, *args):
        """Repeats a call that the file's lock turned away."""
        while True:
            try:
                return method(*args)
            except Exception as e:
                if "locked" not in str(e) and "busy" not in str(e):
                    raise
                self.busy += 1

    def enqueue(self, n):
        start = time.perf_counter()
        for i in range(n):
            self.patiently(self.peer.enqueue, i)
        return {"seconds": time.perf_counter() - start}

    def fill(self, n):
        self.peer.fill(n)
        return {}

    def hold(self, n):
        self.peer.hold(n)
        return {}

    def drain(self):
        ids = []
        self.busy = 0
        while (job := self.patiently(self.peer.claim)) is not None:
            ids.append(job[0])
            self.patiently(self.peer.done, job)
        return {"ids": ids, "busy": self.busy}

    def claims(self, n):
        seconds = []
        for _ in range(n):
            start = time.perf_counter()
            job = self.peer.claim()
            seconds.append(time.perf_counter() - start)
            if job is None:
                raise RuntimeError("nothing to claim")
        return {"seconds": seconds}

    def claim(self):
        self.job = self.peer.claim()
        return {"claimed": self.job is not None}

    def complete(self, result):
        return {"accepted": self.peer.complete(self.job, result)}

    def finish(self):
        return {"accepted": self.peer.finish(self.job)}

    def expire(self):
        self.peer.expire()
        return {}

    def state(self):
        return {"state": self.peer.state()}

    def close(self):
        self.peer.close()
        return {}


if __name__ == "__main__":
    main()
