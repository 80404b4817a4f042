"""Fixed windows: a count that begins anew at each multiple of the window's length. As envoyproxy/ratelimit counts.

State: one number, the hits of the window that holds `now`; None when nothing was counted in it. A call at a window's
end and one at the next one's start may together admit twice the limit within any one length of time, never more.
"""

from collections.abc import Mapping

from seawall.limits.window import MOST, US, Reading, Window, until_reset


def field(window: Window, now: int) -> str:
    """Name of the state in the counter's hash: `f<length>:<start>`, both in seconds. `now` is in unix microseconds."""
    return place(window, now)[0]


def place(window: Window, now: int) -> tuple[str, int]:
    """Name of the state, and whole seconds until it resets."""
    seconds, length = now // US, window.length
    into = seconds % length
    return f"f{length}:{seconds - into}", length - into


def is_over(count: int, hits: int, window: Window) -> bool:
    """Whether `hits` more (0: a look) are more than the limit lets through."""
    return count + hits > window.requests


def add(count: int, hits: int) -> int:
    """Count after the hits; negative ones give back, down to 0."""
    return max(0, min(count + hits, MOST))


def read(count: int, over: bool, window: Window, now: int) -> Reading:
    """Tell the state."""
    return Reading(over, count, max(0, window.requests - count), until_reset(now // US, window.length))


class Step:
    """One step on the state: see `charge.Step`."""

    __slots__ = ("_count", "_name", "_now", "over", "window")

    def __init__(self, fields: Mapping[str, str], window: Window, hits: int, now: int):
        self.window, self._now = window, now
        self._name = field(window, now)
        self._count = int(fields.get(self._name, "0"))
        self.over = is_over(self._count, hits, window)

    def charge(self, hits: int) -> dict[str, str]:
        """See `charge.Step`."""
        before, self._count = self._count, add(self._count, hits)
        return {self._name: str(self._count)} if self._count != before else {}

    def life(self) -> int:
        """See `charge.Step`."""
        return self.window.length * US

    def read(self, over: bool, hits: int) -> Reading:
        """See `charge.Step`."""
        return read(self._count, over, self.window, self._now)
