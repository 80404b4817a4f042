"""A worker's share of a pool while the store is away: never more, over all workers, than the limit that was.

At the loss each worker may keep what it holds and take its part of what was free; as answers end, a worker above the
even share comes down to it (DESIGN: cap = own holders + floor((limit - total) / workers), shrinking to
floor(limit / workers)).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalCap:
    """Cap of one worker on one pool. `share` is the even part that `cap` shrinks to, and never rises to."""

    cap: int
    share: int

    def admits(self, own: int) -> bool:
        """Say whether one more may start beside `own` requests in flight here."""
        return own < self.cap

    def after_release(self) -> "LocalCap":
        """One answer has ended."""
        return LocalCap(self.cap - 1, self.share) if self.cap > self.share else self


def cap_at_loss(*, limit: int, own: int, seen_total: int | None, workers: int) -> LocalCap:
    """Cap at the moment the store goes away.

    `own` are this worker's holders, `seen_total` the pool's holders when last seen (None: never seen), `workers` how
    many workers were alive then. A worker that has never seen the total takes the even share.
    """
    workers = max(1, workers)
    share = limit // workers
    if seen_total is None:
        return LocalCap(share, share)
    return LocalCap(own + max(0, limit - max(seen_total, own)) // workers, share)
