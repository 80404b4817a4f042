"""One step over any mix of counters and windows."""

from collections import Counter as Multiset

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.limits.charge import Counter, Demand, charge_all, charge_steps, ended
from seawall.limits.window import US, Algorithm, Window

MINUTE = Window(Algorithm.FIXED, 5, 60)
SLIDING = Window(Algorithm.SLIDING, 5, 60)
GCRA = Window(Algorithm.GCRA, 60, 60, 5)
NOW = 1_760_000_040 * US
"""A minute's start."""


def over(counters: dict[bytes, Counter], *demands: Demand, now: int = NOW, stop: bool = False) -> list[bool]:
    return [outcome.over for outcome in charge_all(counters, demands, now, stop=stop)]


@pytest.mark.parametrize("window", [MINUTE, SLIDING, GCRA])
def test_exactly_the_limit(window: Window) -> None:
    """Of seven hits five pass; a look at exactly the limit passes, unless that counts as exhausted."""
    counters: dict[bytes, Counter] = {}
    assert over(counters, *[Demand(b"a", (window,), 1, charge_refused=False)] * 7) == [False] * 5 + [True] * 2
    assert over(counters, Demand(b"a", (window,), 0)) == [False]
    assert over(counters, Demand(b"a", (window,), 0, exhausted=True)) == [True]
    assert over(counters, Demand(b"b", (window,), 0, exhausted=True)) == [False]


@pytest.mark.parametrize("window", [MINUTE, SLIDING, GCRA])
def test_charge_refused(window: Window) -> None:
    """Charged in full when told so: the next look is over too. Otherwise a refused call leaves all as it was."""
    charged: dict[bytes, Counter] = {}
    assert over(charged, Demand(b"a", (window,), 9), Demand(b"a", (window,), 0)) == [True, True]
    spared: dict[bytes, Counter] = {}
    demand = Demand(b"a", (window,), 9, charge_refused=False)
    assert over(spared, demand, demand._replace(hits=5)) == [True, False]


@pytest.mark.parametrize("window", [MINUTE, SLIDING, GCRA])
def test_give_back(window: Window) -> None:
    """Hits that are given back can be spent again, never more than were spent; it is never over and writes no new key."""
    counters: dict[bytes, Counter] = {}
    back = Demand(b"a", (window,), 3, give_back=True)
    assert over(counters, back) == [False]
    assert counters == {}
    charge_all(counters, [Demand(b"a", (window,), 9)], NOW)
    [outcome] = charge_all(counters, [back._replace(hits=1)], NOW)
    assert (outcome.over, outcome.charged, outcome.readings[0].over) == (False, -1, False)
    charge_all(counters, [back._replace(hits=100)], NOW)
    [outcome] = charge_all(counters, [Demand(b"a", (window,), 5)], NOW)
    assert (outcome.over, outcome.readings[0].remaining) == (False, 0)


def test_all_or_nothing() -> None:
    """A call that one window refuses charges none of them, and each says what it still has."""
    counters: dict[bytes, Counter] = {}
    both = (MINUTE, Window(Algorithm.SLIDING, 8, 3600), Window(Algorithm.GCRA, 600, 60, 100))
    demand = Demand(b"a", both, 5, charge_refused=False)
    assert over(counters, demand) == [False]
    [outcome] = charge_all(counters, [demand._replace(hits=2)], NOW)
    assert (outcome.over, outcome.charged) == (True, 0)
    assert [(r.over, r.used, r.remaining) for r in outcome.readings] == [(True, 5, 0), (False, 5, 3), (False, 5, 95)]
    [outcome] = charge_all(counters, [demand._replace(hits=3)], NOW + 60 * US)
    assert [(r.over, r.remaining) for r in outcome.readings] == [(False, 2), (False, 0), (False, 97)]


def test_stop_mode() -> None:
    """When one would be over, the others are looked at; those that are over are charged as they say."""
    counters: dict[bytes, Counter] = {}
    wide = Demand(b"b", (Window(Algorithm.FIXED, 20, 60),), 1)
    narrow = Demand(b"a", (MINUTE,), 1)
    for _ in range(5):
        assert over(counters, wide, narrow, stop=True) == [False, False]
    for _ in range(3):
        assert over(counters, wide, narrow, stop=True) == [False, True]
    assert counters[b"b"].fields == {f"f60:{NOW // US}": "5"}
    assert counters[b"a"].fields == {f"f60:{NOW // US}": "8"}
    gives = Demand(b"b", (Window(Algorithm.FIXED, 20, 60),), 2, give_back=True)
    charge_all(counters, [gives, narrow], NOW, stop=True)
    assert counters[b"b"].fields == {f"f60:{NOW // US}": "3"}


def test_the_same_counter_twice() -> None:
    """Each demand sees what those before it charged."""
    counters: dict[bytes, Counter] = {}
    first, second = charge_all(counters, [Demand(b"a", (MINUTE,), 2), Demand(b"a", (MINUTE,), 4)], NOW)
    assert (first.readings[0].remaining, second.over) == (3, True)


def test_a_changed_number_goes_on() -> None:
    """Another number keeps the count, another algorithm or length begins anew; all lie in one counter."""
    counters: dict[bytes, Counter] = {}
    for window in (MINUTE, SLIDING, GCRA):
        charge_all(counters, [Demand(b"a", (window,), 2)], NOW)
    assert set(counters) == {b"a"}
    assert len(counters[b"a"].fields) == 3
    for window, remaining in (
        (Window(Algorithm.FIXED, 3, 60), 1),
        (Window(Algorithm.SLIDING, 3, 60), 1),
        (Window(Algorithm.GCRA, 30, 60, 5), 4),
        (Window(Algorithm.FIXED, 3, 3600), 3),
    ):
        [outcome] = charge_all(counters, [Demand(b"a", (window,), 0)], NOW)
        assert outcome.readings[0].remaining == remaining


def test_old_windows_are_dropped() -> None:
    """Windows that ended a whole length ago go with the first hit of a newer one."""
    counters: dict[bytes, Counter] = {}
    for minute in range(50):
        charge_all(counters, [Demand(b"a", (MINUTE, SLIDING), 1)], NOW + minute * 60 * US)
        assert len(counters[b"a"].fields) <= 4
    assert ended("f60:60", 180 * US) and not ended("f60:60", 180 * US - 1)
    assert not ended("g60", NOW)


WINDOWS = st.one_of(
    st.builds(Window, st.just(Algorithm.FIXED), st.integers(0, 5), st.sampled_from([1, 10])),
    st.builds(Window, st.just(Algorithm.SLIDING), st.integers(0, 5), st.sampled_from([1, 10])),
    st.builds(Window, st.just(Algorithm.GCRA), st.integers(1, 5), st.sampled_from([1, 10]), st.integers(1, 5)),
)


@settings(max_examples=200)
@given(
    windows=st.lists(WINDOWS, min_size=1, max_size=3, unique_by=lambda w: (w.algorithm, w.length)),
    calls=st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 4)), max_size=25),
)
def test_no_window_admits_more(windows: list[Window], calls: list[tuple[int, int]]) -> None:
    """Refused is not charged: whatever the mix, no aligned window of a fixed or sliding limit admits more than it says."""
    counters: dict[bytes, Counter] = {}
    admitted: dict[Window, Multiset[int]] = {window: Multiset() for window in windows}
    now = NOW
    for passed, hits in calls:
        now += passed
        [outcome] = charge_all(counters, [Demand(b"a", tuple(windows), hits, charge_refused=False)], now)
        assert outcome.over == any(reading.over for reading in outcome.readings)
        for window, reading in zip(windows, outcome.readings, strict=True):
            assert 0 <= reading.remaining <= window.capacity
            if not outcome.over:
                admitted[window][now // US // window.length] += hits
    for window, counts in admitted.items():
        if window.algorithm is not Algorithm.GCRA:
            assert all(count <= window.requests for count in counts.values())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.booleans(),
            st.booleans(),
            st.booleans(),
            st.integers(0, 200 * US),
            st.sampled_from([5, 7]),
            st.sampled_from([10, 60]),
        ),
        max_size=30,
    )
)
def test_the_short_way_is_the_long_one(calls: list[tuple[int, bool, bool, bool, int, int, int]]) -> None:
    """One fixed window, decided by itself, is what it is among any mix of windows, state included."""
    short: dict[bytes, Counter] = {}
    long: dict[bytes, Counter] = {}
    now = NOW
    for hits, give_back, charge_refused, exhausted, later, requests, length in calls:
        now += later
        window = Window(Algorithm.FIXED, requests, length)
        demand = Demand(b"k", (window,), hits, give_back, charge_refused, exhausted)
        assert charge_all(short, [demand], now) == [charge_steps(long, demand, now, spare=False)]
        assert short == long
