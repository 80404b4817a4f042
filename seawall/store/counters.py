"""Counters in memory. Of fixed windows alone: the executable definition of what scripts/charge.lua does in Redis."""

from collections.abc import Sequence

from seawall.limits.charge import Counter, Demand, Outcome, charge_all
from seawall.limits.window import US
from seawall.store.contract import Charge

MOST = 2**53 - 1
"""A count stops here: Redis' scripts count in doubles."""
SLACK = 5
"""Seconds that a counter outlives its window."""


class _Counter:
    __slots__ = ("expires", "windows")

    def __init__(self) -> None:
        self.windows: dict[int, int] = {}
        self.expires = 0.0


class Counters:
    """Counters by identity, at most `most` of them: beyond, those that end first are forgotten first."""

    def __init__(self, most: int = 1_000_000):
        self._most = most
        self._counters: dict[bytes, _Counter] = {}
        self._sweep_at = min(1024, most)

    def __len__(self) -> int:
        return len(self._counters)

    def charge(self, charges: Sequence[Charge], now: float) -> list[int]:
        """Add the hits, in order; the count of each window after its own hits. `now` is unix seconds."""
        return [self._one(charge, now) for charge in charges]

    def _one(self, charge: Charge, now: float) -> int:
        identity, start, length, hits = charge
        counter = self._counters.get(identity)
        if counter is not None and counter.expires <= now:
            del self._counters[identity]
            counter = None
        if hits == 0:
            return counter.windows.get(start, 0) if counter is not None else 0
        if counter is None:
            if len(self._counters) >= self._sweep_at:
                self._sweep(now)
            counter = self._counters[identity] = _Counter()
        windows = counter.windows
        if start not in windows:
            for other in [other for other in windows if other < start - length]:
                del windows[other]
            windows[start] = 0
            counter.expires = now + length + SLACK
        windows[start] = count = min(windows[start] + hits, MOST)
        return count

    def _sweep(self, now: float) -> None:
        """Forget what has ended; run each time the number has doubled, so a charge pays for it once."""
        live = {identity: counter for identity, counter in self._counters.items() if counter.expires > now}
        if len(live) >= self._most:
            soonest = sorted(live, key=lambda identity: live[identity].expires)
            for identity in soonest[: len(live) - self._most + self._most // 8 + 1]:
                del live[identity]
        self._counters = live
        self._sweep_at = min(self._most, max(1024, 2 * len(live)))


class Ledger:
    """Counters of any kind by key, at most about `most` of them: beyond, those that end first are forgotten first."""

    def __init__(self, most: int = 1_000_000):
        self._most = most
        self.counters: dict[bytes, Counter] = {}
        self._sweep_at = min(1024, most)

    def __len__(self) -> int:
        return len(self.counters)

    def charge_all(self, demands: Sequence[Demand], now: float, *, stop: bool = False) -> list[Outcome]:
        """Decide one call's demands; `now` is unix seconds."""
        if len(self.counters) >= self._sweep_at:
            self._sweep(now)
        return charge_all(self.counters, demands, int(now * US), stop=stop)

    def _sweep(self, now: float) -> None:
        """Forget what has ended; run each time the number has doubled, so a charge pays for it once."""
        live = {key: counter for key, counter in self.counters.items() if counter.expires > now}
        if len(live) >= self._most:
            soonest = sorted(live, key=lambda key: live[key].expires)
            for key in soonest[: len(live) - self._most + self._most // 8 + 1]:
                del live[key]
        self.counters = live
        self._sweep_at = min(self._most, max(1024, 2 * len(live)))
