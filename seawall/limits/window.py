"""Windows of time that limits count in, and what a limit's answer says of one.

Three algorithms (`window_fixed`, `window_sliding`, `window_gcra`), each a pure step on the fields of one hash
(`charge`), all arithmetic in whole numbers below 2^53 where the store's scripts repeat it: a Lua number is a double.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

MOST = 2**53 - 1
"""Counts and times stop here: the largest number that a Lua script counts exactly."""
US = 1_000_000
"""Microseconds a second."""


class Unit(IntEnum):
    """Unit of a limit; values are those of RateLimitResponse.RateLimit.Unit in Envoy's rls.proto."""

    SECOND = 1
    MINUTE = 2
    HOUR = 3
    DAY = 4
    MONTH = 5
    YEAR = 6
    WEEK = 7

    @property
    def seconds(self) -> int:
        """Length of the window in seconds."""
        return _SECONDS[self]


_SECONDS = {
    Unit.SECOND: 1,
    Unit.MINUTE: 60,
    Unit.HOUR: 3600,
    Unit.DAY: 86400,
    Unit.WEEK: 604800,
    Unit.MONTH: 2592000,
    Unit.YEAR: 31536000,
}
"""As in envoyproxy/ratelimit: a month is 30 days, a year 365, and a week begins on Thursday 00:00 UTC."""
LONGEST = _SECONDS[Unit.YEAR]
_BY_SECONDS = {seconds: unit for unit, seconds in _SECONDS.items()}


def unit_of(length: int) -> Unit | None:
    """Unit whose window is `length` seconds; None where there is none, such as for 30 s."""
    return _BY_SECONDS.get(length)


class Algorithm(StrEnum):
    """How hits are counted."""

    FIXED = "fixed"
    SLIDING = "sliding"
    GCRA = "gcra"


@dataclass(frozen=True, slots=True)
class Window:
    """`requests` hits in `length` seconds, counted by `algorithm`.

    `burst` is for GCRA only: the hits that may pass at once. `hidden`: told to nobody, in no header and no status.
    """

    algorithm: Algorithm
    requests: int
    length: int
    burst: int = 0
    hidden: bool = False

    @property
    def unit(self) -> Unit | None:
        """Unit of the window, None for a length that has none."""
        return unit_of(self.length)

    @property
    def capacity(self) -> int:
        """Most hits that the window holds at one moment."""
        return self.burst if self.algorithm is Algorithm.GCRA else self.requests


class Reading(NamedTuple):
    """What a window says after a step: hits `used` of its capacity, what remains, whole seconds until it resets.

    `over`: this window refused the step's hits (or would have).
    """

    over: bool
    used: int
    remaining: int
    reset: int


def window_start(now: float, length: int) -> int:
    """Start of the fixed window that holds `now`, in unix seconds: windows begin at multiples of their length."""
    whole = int(now)
    return whole - whole % length


def until_reset(now: float, length: int) -> int:
    """Whole seconds until the window ends: 1 to `length`, never 0."""
    return length - int(now) % length
