"""GCRA, the token bucket without a timer: one hit each `length ÷ requests`, and `burst` of them at once.

The generic cell rate algorithm in its virtual scheduling form (ITU-T I.371, annex A; ATM Forum TM 4.0). The state is the
theoretical arrival time (TAT): when the bucket will be full again. A call of n hits moves it by n intervals, and passes
when that is at most `burst` intervals ahead of now. No window of length W admits more than burst + W × requests ÷ length.

Arithmetic: time in whole microseconds and a fraction counted in 1/requests of one, so an interval that is no whole number
(7 a minute) neither loses nor gains: `hits × length` = whole × requests + rest. Python's integers make whole and rest; the
script only adds and compares them. Unix microseconds are below 2^51 until the year 2041 and below 2^53 until 2255; the
fraction is below 2^32. What would come to more stops at MOST.

Debt is bounded: a TAT that is further ahead than burst and one `length` (hits charged although refused, a clock that was
set back) counts as exactly that far, so that nobody waits for longer.

State: (whole, rest, requests). Another number of requests keeps the whole microseconds and rounds the rest up to one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from seawall.limits.window import MOST, US, Reading, Window


class Tat(NamedTuple):
    """Theoretical arrival time: unix microseconds and `rest` / `requests` of one."""

    whole: int
    rest: int
    requests: int


class Move(NamedTuple):
    """A span of time in the same notation."""

    whole: int
    rest: int


def field(window: Window) -> str:
    """Name of the state in the counter's hash, `g<length>`; its value is `<whole> <rest> <requests>`."""
    return f"g{window.length}"


def span(hits: int, window: Window) -> Move:
    """`hits` intervals. A window of 0 requests never lets a hit through: as far as can be."""
    if window.requests == 0:
        return Move(MOST if hits else 0, 0)
    whole, rest = divmod(hits * window.length * US, window.requests)
    return Move(whole, rest) if whole < MOST else Move(MOST, 0)


def tolerance(window: Window) -> Move:
    """How far ahead of now the arrival time may be: the burst's span, none for a window that lets nothing through."""
    return span(window.burst, window) if window.requests else Move(0, 0)


def settle(tat: Tat | None, now: int, allowed: Move, window: Window) -> Tat:
    """Give the state as of now: a full bucket is at `now`, debt has its bound, the rest is in this window's terms."""
    if tat is None or tat.whole < now:
        return Tat(now, 0, window.requests)
    whole, rest = tat.whole, tat.rest
    if rest and tat.requests != window.requests:
        whole, rest = whole + 1, 0
    if whole >= (far := now + allowed.whole + window.length * US):
        whole, rest = far, 0
    return Tat(min(whole, MOST), rest, window.requests)


def move(tat: Tat, by: Move, *, back: bool, now: int) -> Tat:
    """Move the arrival time ahead, or `back` when hits are given back: never before now."""
    if back:
        whole, rest = tat.whole - by.whole, tat.rest - by.rest
        if rest < 0:
            whole, rest = whole - 1, rest + tat.requests
        return Tat(whole, rest, tat.requests) if whole >= now else Tat(now, 0, tat.requests)
    whole, rest = tat.whole + by.whole, tat.rest + by.rest
    if rest >= tat.requests > 0:
        whole, rest = whole + 1, rest - tat.requests
    return Tat(whole, rest, tat.requests) if whole < MOST else Tat(MOST, 0, tat.requests)


def is_over(tat: Tat, now: int, allowed: Move) -> bool:
    """Whether an arrival time is further ahead of now than the burst allows."""
    return (tat.whole, tat.rest) > (now + allowed.whole, allowed.rest)


def read(tat: Tat, over: bool, hits: int, window: Window, now: int) -> Reading:
    """Tell the state. Until it resets: until the bucket is full; when over, until these hits would pass."""
    if window.requests == 0:
        return Reading(over, 0, 0, window.length)
    ahead = max(0, (tat.whole - now) * window.requests + tat.rest)  # in 1/requests µs
    interval = window.length * US
    remaining = max(0, (window.burst * interval - ahead) // interval)
    wait = ahead
    if over:
        # More than the burst never passes: then until the bucket is full.
        wait = max(1, min(ahead, ahead + (max(1, hits) - window.burst) * interval))
    seconds = -(-wait // (window.requests * US))
    return Reading(over, -(-ahead // interval), remaining, seconds)


def parse(text: str) -> Tat:
    """Read a field's value."""
    whole, rest, requests = text.split(" ")
    return Tat(int(whole), int(rest), int(requests))


class Step:
    """One step on the state: see `charge.Step`."""

    __slots__ = ("_name", "_now", "_tat", "_tolerance", "over", "window")

    def __init__(self, fields: Mapping[str, str], window: Window, hits: int, now: int):
        self.window, self._now = window, now
        self._name = field(window)
        self._tolerance = tolerance(window)
        text = fields.get(self._name)
        self._tat = settle(parse(text) if text else None, now, self._tolerance, window)
        self.over = is_over(move(self._tat, span(hits, window), back=False, now=now), now, self._tolerance)

    def charge(self, hits: int) -> dict[str, str]:
        """See `charge.Step`."""
        moved = move(self._tat, span(abs(hits), self.window), back=hits < 0, now=self._now)
        before, self._tat = self._tat, settle(moved, self._now, self._tolerance, self.window)
        return {self._name: " ".join(map(str, self._tat))} if self._tat != before else {}

    def life(self) -> int:
        """See `charge.Step`."""
        return self._tat.whole - self._now + self.window.length * US

    def read(self, over: bool, hits: int) -> Reading:
        """See `charge.Step`."""
        return read(self._tat, over, hits, self.window, self._now)
