"""The scripts that charge and their Python twin agree on any sequence of calls."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seawall.limits.charge import Counter, Demand, charge_all
from seawall.limits.window import MOST, US, Algorithm, Window, window_start
from seawall.store import keys
from seawall.store.resp import command
from tests.store.line import Line
from tests.store.node import Valkey

pytestmark = pytest.mark.store

many = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.fixture
def line(shared_node: Valkey) -> Iterator[Line]:
    line = Line(shared_node)
    yield line
    line.close()


LENGTHS = (1, 30, 60)
fixed = st.builds(Window, st.just(Algorithm.FIXED), st.sampled_from([0, 1, 3, 2**32 - 1]), st.sampled_from(LENGTHS))
sliding = st.builds(Window, st.just(Algorithm.SLIDING), st.sampled_from([0, 1, 4, 2**32 - 1]), st.sampled_from(LENGTHS))
gcra = st.builds(
    Window, st.just(Algorithm.GCRA), st.sampled_from([0, 1, 3, 7, 1000]), st.sampled_from(LENGTHS), st.integers(1, 5)
)
windows = st.lists(st.one_of(fixed, sliding, gcra), min_size=1, max_size=3, unique_by=lambda w: (w.algorithm, w.length))
demands = st.builds(
    Demand,
    key=st.sampled_from([b"a", b"b"]),
    windows=windows.map(tuple),
    hits=st.one_of(st.integers(0, 4), st.sampled_from([2**32, MOST - 1, MOST])),
    give_back=st.sampled_from([False, False, True]),
    charge_refused=st.booleans(),
    exhausted=st.booleans(),
    text=st.just(False),
)
plain = st.builds(
    Demand,
    key=st.sampled_from([b"a", b"b"]),
    windows=fixed.map(lambda window: (window,)),
    hits=st.one_of(st.integers(0, 4), st.sampled_from([2**32, MOST - 1, MOST])),
    text=st.just(False),
)
# Mostly forward in small and large steps, a little back: another worker's clock.
moves = st.one_of(st.integers(0, 3_000_000), st.sampled_from([60_000_000, 119_999_999, 7_200_000_000, -900_000]))
# Calls of plain demands alone take the short script, between others on the same counters.
callables = st.one_of(st.lists(plain, min_size=1, max_size=4), st.lists(demands, max_size=4))


@many
@given(calls=st.lists(st.tuples(moves, callables, st.booleans()), max_size=12))
def test_all_windows(line: Line, calls: list[tuple[int, list[Demand], bool]]) -> None:
    """Any mix of algorithms, of windows on one counter and of demands in one call."""
    line.ask(command(b"FLUSHALL"))
    twin: dict[bytes, Counter] = {}
    now = 1_760_000_000_123_456
    for passed, call, stop in calls:
        now += passed
        assert line.charge_all(call, now, stop=stop) == charge_all(twin, call, now, stop=stop)


texts = st.builds(
    Demand,
    key=st.sampled_from([b"a", b"b"]),
    windows=st.sampled_from([0, 1, 3, 2**32 - 1]).map(lambda requests: (Window(Algorithm.FIXED, requests, 60),)),
    hits=st.one_of(st.integers(0, 4), st.sampled_from([2**32, MOST - 1, MOST])),
    give_back=st.sampled_from([False, False, False, True]),
    exhausted=st.sampled_from([False, False, True]),
    text=st.just(True),
)


@settings(many, max_examples=60)
@given(calls=st.lists(st.tuples(moves, st.lists(st.one_of(texts, demands), max_size=3), st.booleans()), max_size=8))
def test_plain_numbers(line: Line, calls: list[tuple[int, list[Demand], bool]]) -> None:
    """Counters under envoyproxy/ratelimit's keys, beside others and alone: the window's start is in the key."""
    line.ask(command(b"FLUSHALL"))
    twin: dict[bytes, Counter] = {}
    now = 1_760_000_000_123_456
    for passed, call, stop in calls:
        now += passed
        start = window_start(now // US, 60)
        call = [d._replace(key=b"%b_%d" % (d.key, start)) if d.text else d for d in call]
        assert line.charge_all(call, now, stop=stop) == charge_all(twin, call, now, stop=stop)


def test_life_of_a_counter(line: Line) -> None:
    """A key expires when its last window can matter no more; a look writes nothing."""
    now = 1_760_000_000_000_000
    for window, seconds in (
        (Window(Algorithm.FIXED, 5, 60), 65),
        (Window(Algorithm.SLIDING, 5, 60), 125),
        (Window(Algorithm.GCRA, 5, 60, 5), 12 + 120 + 5),
    ):
        line.ask(command(b"FLUSHALL"))
        line.charge_all([Demand(b"a", (window,), 0)], now)
        assert line.ask(command(b"DBSIZE")) == 0
        line.charge_all([Demand(b"a", (window,), 1)], now)
        assert line.ask(command(b"TTL", keys.counter(b"a"))) in {seconds, seconds - 1}
        for step in range(1, 200):
            line.charge_all([Demand(b"a", (window,), 1)], now + step * 30_000_000)
        assert len(line.ask(command(b"HKEYS", keys.counter(b"a")))) <= 4
