"""Windows of time that limits count in: the executable definition, of which `store/scripts/charge.lua` is the twin."""

from enum import IntEnum


class Unit(IntEnum):
    """Unit of a limit; values are those of RateLimitResponse.RateLimit.Unit in Envoy's rls.proto."""

    SECOND = 1
    MINUTE = 2
    HOUR = 3
    DAY = 4

    @property
    def seconds(self) -> int:
        """Length of the window in seconds."""
        return _SECONDS[self]


_SECONDS = {Unit.SECOND: 1, Unit.MINUTE: 60, Unit.HOUR: 3600, Unit.DAY: 86400}


def window_start(now: float, length: int) -> int:
    """Start of the fixed window that holds `now`, in unix seconds: windows begin at multiples of their length."""
    whole = int(now)
    return whole - whole % length


def until_reset(now: float, length: int) -> int:
    """Whole seconds until the window ends: 1 to `length`, never 0."""
    return length - int(now) % length
