"""A rolling restart as a plan: who gets a successor next, when its predecessor may go, and when the roll stops.

One place after the other, so that never fewer than all serve: a place's successor serves before its predecessor is told
to leave, and the roll goes on to the next place while that one still ends its answers. A place has two processes at most:
one whose predecessor of an earlier roll still leaves is waited for. The first successor that does not become ready stops
the roll: what is left stays as it was.

Plain data in, commands out; the supervisor carries them out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """How far a roll is. STOPPED means given up, `why` says why."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class Act(StrEnum):
    """What the supervisor has to do for one place."""

    START = "start"
    """Start a successor beside the worker that serves."""
    REPLACE = "replace"
    """The successor serves: it has the place now, its predecessor leaves."""
    GIVE_UP = "give up"
    """End the successor, if there is one; its predecessor stays."""


class Step(NamedTuple):
    """A command for a place, by its number."""

    act: Act
    place: int


class Successor(StrEnum):
    """A place's next process."""

    NONE = "none"
    STARTING = "starting"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class Place:
    """A place as the supervisor sees it. `born` is when its worker was started; None while it has none."""

    born: float | None
    serving: bool
    successor: Successor = Successor.NONE
    leaving: bool = False
    """A predecessor still ends its answers."""
    trouble: str = ""
    """What the newest process waits for, or how it ended."""


class Roll:
    """One rolling restart. Times are seconds of one monotonic clock; a successor has `ready_time` to serve."""

    def __init__(self, began: float, places: int, ready_time: float):
        self.began = began
        self.places = places
        self.phase = Phase.RUNNING if places else Phase.DONE
        self.done = 0
        """Places that have been restarted; the next one is in turn."""
        self.why = ""
        self._ready_time = ready_time
        self._since: float | None = None
        """When the place in turn began to wait for its new worker."""

    def step(self, now: float, places: Sequence[Place]) -> Step | None:
        """Say what is to be done now; None: nothing, look again later."""
        if self.phase is not Phase.RUNNING:
            return None
        index = self.done
        place = places[index]
        # A worker that died since the roll began came back by itself, and is as new as any successor.
        fresh = place.born is None or place.born > self.began
        if self._since is None:
            if place.leaving:
                return None
            self._since = now
            return None if fresh else Step(Act.START, index)
        if place.successor is Successor.SERVING:
            self._next()
            return Step(Act.REPLACE, index)
        if place.successor is Successor.NONE:
            if fresh and place.serving:
                self._next()
                return None
            if not fresh:
                return self._stop(index, f"the successor of w{index} {place.trouble or 'has ended'}")
        if now - self._since > self._ready_time:
            waits = f": {place.trouble}" if place.trouble else ""
            return self._stop(index, f"the successor of w{index} was not ready in {self._ready_time:g} s{waits}")
        return None

    def _next(self) -> None:
        self.done += 1
        self._since = None
        if self.done == self.places:
            self.phase = Phase.DONE

    def _stop(self, index: int, why: str) -> Step:
        self.phase, self.why = Phase.STOPPED, why
        return Step(Act.GIVE_UP, index)
