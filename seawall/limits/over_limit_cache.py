"""Counters known to be used up: they are refused without asking the store.

Kept by counter and by the number of the limit, so a limit that was raised, or that a request brings along, asks the store
again (in envoyproxy/ratelimit it stays refused to the window's end). An entry ends when its window would let something
through. Hits given back drop it here; other workers learn of them when their entry ends. A worker drops all of them when
its policy changes.
"""

from seawall.limits.charge import Demand, Outcome
from seawall.limits.window import US, Algorithm, Reading, Window

Key = tuple[bytes, Algorithm, int, int, int]


class OverLimitCache:
    """At most `most` counters; beyond that, the oldest is forgotten."""

    def __init__(self, most: int):
        self._most = most
        self._until: dict[Key, tuple[int, bool]] = {}

    def __len__(self) -> int:
        return len(self._until)

    def clear(self) -> None:
        """Forget all: another policy is in force."""
        self._until.clear()

    def refuses(self, demand: Demand, now: int) -> Outcome | None:
        """Answer for the store where a window of the demand is known to be used up. `now` is unix microseconds."""
        if demand.give_back or not self._until:
            return None
        for window in demand.windows:
            key = _key(demand.key, window)
            entry = self._until.get(key)
            if entry is None:
                continue
            until, looks_too = entry
            if until <= now:
                del self._until[key]
            elif demand.hits or looks_too:
                wait = -(-(until - now) // US)
                # Only the window that is known can be told.
                return Outcome(True, 0, tuple(_told(w, w is window, wait) for w in demand.windows))
        return None

    def learn(self, demand: Demand, outcome: Outcome, now: int) -> None:
        """Keep what an answer of the store says: the counter is used up, or hits were given back."""
        for window, reading in zip(demand.windows, outcome.readings, strict=True):
            key = _key(demand.key, window)
            if demand.give_back:
                self._until.pop(key, None)
            elif outcome.over and reading.over and reading.remaining == 0 and _for_one(demand, window):
                if key not in self._until and len(self._until) >= self._most:
                    if not self._most:
                        return
                    del self._until[next(iter(self._until))]
                looks_too = demand.exhausted or reading.used > window.capacity
                self._until[key] = (_until(window, reading.reset, now), looks_too)


def _key(counter: bytes, window: Window) -> Key:
    return counter, window.algorithm, window.length, window.requests, window.burst


def _for_one(demand: Demand, window: Window) -> bool:
    """Whether the reading says when a single hit would pass: windows that move tell when the hits asked for would."""
    return window.algorithm is Algorithm.FIXED or demand.hits <= 1


def _until(window: Window, reset: int, now: int) -> int:
    if window.algorithm is Algorithm.FIXED:
        return (now // US + reset) * US
    # Whole seconds, rounded down: never refused for longer than the store would.
    return now + max(0, reset - 1) * US


def _told(window: Window, known: bool, wait: int) -> Reading:
    return Reading(known, window.capacity if known else 0, 0 if known else window.capacity, wait)
