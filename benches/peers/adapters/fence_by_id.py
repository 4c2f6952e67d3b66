"""sqlite-fence, the loaded extension from Python: claims by id, without the queue's index."""

from . import fence_next
from .base import job_id


class Peer(fence_next.Peer):
    queue = False

    def claim(self):
        """Each worker takes every step-th id."""
        if not hasattr(self, "next"):
            self.next = self.first
        id = job_id(self.next)
        fence = self.call("fence_claim(?, ?, ?)", id, self.worker, self.ttl)
        if fence is None:
            return None
        self.next += self.step
        return id, fence
