"""The sliding window counter: its formula in exact fractions, its bounds, and the package `limits` as oracle."""

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from seawall.limits.window import MOST, US, Algorithm, Window
from seawall.limits.window_sliding import Step, add, in_sight, is_over, parts, share, until_passes, used

START = 1_760_000_040 * US
COUNTS = st.one_of(st.integers(0, 20), st.integers(0, MOST))
LENGTHS = st.sampled_from([1, 7, 30, 60, 3600, 86400, 31536000])


def sliding(requests: int, length: int) -> Window:
    return Window(Algorithm.SLIDING, requests, length)


def lua(previous: int, part: int, of: int) -> float:
    """`in_sight` as charge_all.lua computes it, in doubles."""
    low = float(previous % of)
    return (float(previous) - low) / of * float(part) + math.ceil(low * float(part) / of)


@settings(max_examples=300)
@given(COUNTS, st.one_of(LENGTHS, st.integers(1, 31536000)), st.integers(0, 31536000 * US))
def test_doubles_are_exact(previous: int, length: int, now: int) -> None:
    """Both products fit in a double, whatever the length."""
    window = sliding(1, length)
    part, of = share(window, now), parts(window)
    assert 1 <= part <= of < 2**25
    assert in_sight(previous, part, of) == -(-previous * part // of)
    assert lua(previous, part, of) == in_sight(previous, part, of)


@given(LENGTHS, st.integers(0, 31536000 * US), st.integers(0, 10**6), st.integers(0, 10**6))
def test_formula(length: int, elapsed: int, current: int, previous: int) -> None:
    """The exact formula rounded up, with time in whole parts: never less, and at most one part of the window more."""
    window = sliding(1, length)
    now = START - START % (length * US) + elapsed % (length * US)
    exact = previous * Fraction(length * US - now % (length * US), length * US)
    counted = used(current, previous, window, now) - current
    assert math.ceil(exact) <= counted <= math.ceil(exact + Fraction(previous, parts(window)))
    if now % (US if length > 33554 else 1000) == 0:
        assert counted == math.ceil(exact)


@given(LENGTHS, st.integers(0, 10**12), COUNTS, COUNTS, st.integers(0, 9), st.integers(0, 30))
def test_until_passes(length: int, elapsed: int, current: int, previous: int, hits: int, requests: int) -> None:
    """Hits pass after the wait that is told and not a microsecond earlier, if nobody else comes."""
    window, now = sliding(requests, length), START + elapsed
    if not is_over(current, previous, max(1, hits), window, now):
        return
    wait = until_passes(current, previous, hits, window, now)
    if max(1, hits) > requests:
        assert wait == 2 * length * US - now % (length * US)
        return

    def passes(at: int) -> bool:
        fields = {
            f"s{length}:{start // US}": str(count)
            for start, count in (
                (now - now % (length * US), current),
                (now - now % (length * US) - length * US, previous),
            )
        }
        return not Step(fields, window, max(1, hits), at).over

    assert passes(now + wait)
    assert wait == 1 or not passes(now + wait - 1)


@given(COUNTS, COUNTS, st.integers(-30, 30))
def test_give_back(current: int, previous: int, hits: int) -> None:
    """What is given back comes off the current window first, then the one before; neither falls below 0."""
    after, before = add(current, previous, hits)
    if hits < 0:
        assert after + before == max(0, current + previous + hits)
        assert before == previous or after == 0
    else:
        assert (after, before) == (min(MOST, current + hits), previous)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [START / US]
    monkeypatch.setattr("limits.storage.memory.time.time", lambda: now[0])
    yield now
    monkeypatch.undo()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 80).map(lambda n: n / 8), st.integers(1, 4)), max_size=40))
def test_oracle(clock: list[float], requests: int, calls: list[tuple[float, int]]) -> None:
    """What we admit the package `limits` admits, and it says at most one hit more remains: it rounds down, we up.

    Times are eighths of a second, which its floats hold; its products are not always whole where they should be.
    """
    window, fields, clock[0] = sliding(requests, 10), dict[str, str](), START / US
    limiter, item = SlidingWindowCounterRateLimiter(MemoryStorage()), RateLimitItemPerSecond(requests, 10)
    for passed, hits in calls:
        clock[0] += passed
        step = Step(fields, window, hits, int(clock[0] * US))
        if not step.over:
            fields.update(step.charge(hits))
            assert limiter.hit(item, "x", cost=hits)
        ours = step.read(step.over, hits).remaining
        assert ours <= limiter.get_window_stats(item, "x").remaining <= ours + 1


@settings(max_examples=200)
@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 12_000_000), st.integers(1, 3)), max_size=40))
def test_bounds(requests: int, calls: list[tuple[int, int]]) -> None:
    """A window that starts where ours do admits at most the limit, any other one at most twice that."""
    window, fields, now = sliding(requests, 10), dict[str, str](), START
    admitted: list[tuple[int, int]] = []
    for passed, hits in calls:
        now += passed
        step = Step(fields, window, hits, now)
        if not step.over:
            fields.update(step.charge(hits))
            admitted.append((now, hits))
    for at, _ in admitted:
        aligned = at - at % (10 * US)
        assert sum(h for t, h in admitted if aligned <= t < aligned + 10 * US) <= requests
        assert sum(h for t, h in admitted if at <= t < at + 10 * US) <= 2 * requests
