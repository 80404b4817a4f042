"""Sliding window counter: the hits of this fixed window, and of the one before as far as it still lies in sight.

    used = current + ceil(previous × share),  share = (length − elapsed) / length of the window before that is in sight

The approximation is Cloudflare's ("How we built rate limiting capable of scaling to millions of domains", 2017), as in
the package `limits` (SlidingWindowCounterRateLimiter): it takes the previous hits as evenly spread. Any length of time
that begins with a window admits at most the limit; any other one at most twice that, which only a burst at the very end
of a window followed by one at the very end of the next one reaches.

Arithmetic: what is in sight is counted in milliseconds, in windows of over nine hours in seconds, so that a window has
fewer than 2^25 such parts; rounded up here (Python's integers have no bound) and handed to the script, which knows no
time. ceil(previous × part ÷ parts) is taken in two pieces, previous ÷ parts and its rest, so each product stays below
2^53 and is exact in a double. All rounding is up: never a hit more than the formula admits.

State: hits of the current window and of the one before, two fields of one name that differ in the start.
"""

from collections.abc import Mapping

from seawall.limits.window import MOST, US, Reading, Window, window_start

FINE = (1 << 25) // 1000
"""Seconds of the longest window whose parts are milliseconds."""


def parts(window: Window) -> int:
    """Parts that the window before is counted in."""
    return window.length * 1000 if window.length <= FINE else window.length


def field_names(window: Window, now: int) -> tuple[str, str]:
    """Names of the current and the previous count in the counter's hash: `s<length>:<start>`, both in seconds."""
    start = window_start(now // US, window.length)
    return f"s{window.length}:{start}", f"s{window.length}:{start - window.length}"


def share(window: Window, now: int) -> int:
    """Parts of the window before that are still in sight, rounded up: all of them at a window's start."""
    length = window.length * US
    return -(-(length - now % length) * parts(window) // length)


def in_sight(previous: int, part: int, of: int) -> int:
    """ceil(previous × part ÷ of), exact in doubles: both products are below 2^53."""
    high, low = divmod(previous, of)
    return high * part + -(-low * part // of)


def used(current: int, previous: int, window: Window, now: int) -> int:
    """Hits that count now."""
    return min(current + in_sight(previous, share(window, now), parts(window)), MOST)


def is_over(current: int, previous: int, hits: int, window: Window, now: int) -> bool:
    """Whether `hits` more (0: a look) are more than the limit lets through."""
    return used(current, previous, window, now) + hits > window.requests


def add(current: int, previous: int, hits: int) -> tuple[int, int]:
    """Both counts after the hits; negative ones are taken from the current window, the rest from the one before."""
    after = current + hits
    return max(0, min(after, MOST)), max(0, previous + min(0, after))


def read(current: int, previous: int, over: bool, hits: int, window: Window, now: int) -> Reading:
    """Tell the state. Until it resets: to the end of the window; when over, until these hits would pass."""
    count = used(current, previous, window, now)
    wait = (
        until_passes(current, previous, hits, window, now) if over else window.length * US - now % (window.length * US)
    )
    return Reading(over, count, max(0, window.requests - count), -(-wait // US))


def until_passes(current: int, previous: int, hits: int, window: Window, now: int) -> int:
    """Microseconds until `hits` would pass if nobody else came; until all is out of sight if they never can."""
    length = window.length * US
    left = length - now % length
    room = window.requests - max(1, hits)
    if room < 0:
        return left + length
    if current <= room:
        # Within this window: wait until what is in sight of the previous one fits beside current.
        return max(1, left - _last(room - current, previous, window))
    # The current window has become the previous one, and has to sink to the room.
    return max(1, left + length - _last(room, current, window))


def _last(room: int, previous: int, window: Window) -> int:
    """Longest stretch of the window before, in µs, whose hits fit in the room."""
    of = parts(window)
    part = min(of, room * of // previous) if previous else of
    return part * (window.length * US // of)


class Step:
    """One step on the state: see `charge.Step`."""

    __slots__ = ("_current", "_names", "_now", "_previous", "over", "window")

    def __init__(self, fields: Mapping[str, str], window: Window, hits: int, now: int):
        self.window, self._now = window, now
        self._names = field_names(window, now)
        self._current, self._previous = (int(fields.get(name, "0")) for name in self._names)
        self.over = is_over(self._current, self._previous, hits, window, now)

    def charge(self, hits: int) -> dict[str, str]:
        """See `charge.Step`."""
        before = self._current, self._previous
        self._current, self._previous = after = add(*before, hits)
        changed = zip(self._names, before, after, strict=True)
        return {name: str(new) for name, old, new in changed if new != old}

    def life(self) -> int:
        """See `charge.Step`."""
        return 2 * self.window.length * US

    def read(self, over: bool, hits: int) -> Reading:
        """See `charge.Step`."""
        return read(self._current, self._previous, over, hits, self.window, self._now)
