"""The same by hand, opening the file for every call."""

import contextlib

from . import by_hand


class Peer(by_hand.Peer):
    def __init__(self, **options):
        super().__init__(**options)
        self.db.close()

    def kept(self, method, *args):
        with contextlib.closing(self.connect()) as self.db:
            return method(self, *args)

    def durability(self):
        return self.kept(by_hand.Peer.durability)

    def enqueue(self, i):
        return self.kept(by_hand.Peer.enqueue, i)

    def claim(self):
        return self.kept(by_hand.Peer.claim)

    def complete(self, job, result):
        return self.kept(by_hand.Peer.complete, job, result)

    def fill(self, n):
        return self.kept(by_hand.Peer.fill, n)

    def hold(self, n):
        def claims(self):
            for _ in range(n):
                by_hand.Peer.claim(self)

        return self.kept(claims)

    def state(self):
        return self.kept(by_hand.Peer.state)
