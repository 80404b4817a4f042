"""GCRA against the same law in exact fractions, and its bounds."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.limits.window import MOST, US, Algorithm, Window
from seawall.limits.window_gcra import Step, Tat, move, parse, settle, span, tolerance

START = 1_760_000_040 * US
SMALL = st.builds(
    Window, st.just(Algorithm.GCRA), st.integers(1, 30), st.sampled_from([1, 7, 60, 3600]), st.integers(1, 12)
)
LARGE = st.builds(
    Window,
    st.just(Algorithm.GCRA),
    st.integers(1, 2**32 - 1),
    st.sampled_from([1, 60, 31536000]),
    st.integers(1, 10),
)
CALLS = st.lists(st.tuples(st.integers(0, 90_000_000), st.integers(0, 6)), max_size=40)


def name(window: Window) -> str:
    return f"g{window.length}"


@settings(max_examples=300)
@given(st.one_of(SMALL, LARGE), CALLS)
def test_exact(window: Window, calls: list[tuple[int, int]]) -> None:
    """Decided as by fractions of a microsecond: rounding neither admits nor refuses a hit."""
    fields: dict[str, str] = {}
    interval = Fraction(window.length * US, window.requests)
    tat, now = Fraction(0), START
    for passed, hits in calls:
        now += passed
        step = Step(fields, window, hits, now)
        moved = max(tat, Fraction(now)) + hits * interval
        assert step.over == (moved > now + window.burst * interval)
        if not step.over:
            tat = moved
            fields.update(step.charge(hits))
        reading = step.read(step.over, hits)
        assert reading.remaining == (now + window.burst * interval - max(tat, Fraction(now))) // interval
        for field, value in fields.items():
            assert field == name(window)
            state = parse(value)
            assert 0 <= state.rest < state.requests and state.whole <= MOST


@settings(max_examples=200)
@given(SMALL, CALLS)
def test_bound(window: Window, calls: list[tuple[int, int]]) -> None:
    """No span of time admits more than the burst and what the rate brings in it."""
    fields: dict[str, str] = {}
    now, admitted = START, list[tuple[int, int]]()
    for passed, hits in calls:
        now += passed
        step = Step(fields, window, hits, now)
        if not step.over:
            fields.update(step.charge(hits))
            admitted.append((now, hits))
    for i, (begin, _) in enumerate(admitted):
        total = 0
        for end, hits in admitted[i:]:
            total += hits
            assert total <= window.burst + Fraction((end - begin) * window.requests, window.length * US)


@given(SMALL, CALLS, st.integers(1, 6))
def test_reset(window: Window, calls: list[tuple[int, int]], hits: int) -> None:
    """Refused hits pass after the seconds that are told; never if they are more than the burst."""
    fields: dict[str, str] = {}
    now = START
    for passed, n in calls:
        now += passed
        fields.update(Step(fields, window, n, now).charge(n))
    step = Step(fields, window, hits, now)
    if not step.over:
        return
    wait = step.read(True, hits).reset
    assert wait >= 1
    assert Step(fields, window, hits, now + wait * US).over == (hits > window.burst)
    if hits <= window.burst:
        assert wait == 1 or Step(fields, window, hits, now + (wait - 1) * US - 1).over


def test_seven_a_minute() -> None:
    """An interval that is no whole number of microseconds: seven at once pass, the eighth waits for 60/7 s."""
    window, fields = Window(Algorithm.GCRA, 7, 60, 7), dict[str, str]()
    for hit in range(8):
        step = Step(fields, window, 1, START)
        assert step.over == (hit == 7)
        if not step.over:
            fields.update(step.charge(1))
    assert fields == {"g60": f"{START + 60 * US} 0 7"}
    assert Step(fields, window, 1, START + 8_571_428).over
    assert not Step(fields, window, 1, START + 8_571_429).over


def test_debt_has_a_bound() -> None:
    """Hits charged although refused, and a clock that was set back, cost at most the burst and one length of waiting."""
    window, fields = Window(Algorithm.GCRA, 10, 60, 5), dict[str, str]()
    fields.update(Step(fields, window, 10**6, START).charge(10**6))
    assert parse(fields["g60"]).whole == START + 30 * US + 60 * US
    assert Step(fields, window, 1, START).read(True, 1).reset == 66
    back = Step(fields, window, 1, START - 3600 * US)
    assert back.over and back.read(True, 1).reset == 66


def test_no_requests() -> None:
    """A window of nothing lets no hit through, and a look passes."""
    window = Window(Algorithm.GCRA, 0, 60, 0)
    assert Step({}, window, 1, START).over
    assert not Step({}, window, 0, START).over
    assert Step({}, window, 1, START).read(True, 1).reset == 60


def test_another_number() -> None:
    """The arrival time stays when the number changes; a rest in other terms counts as one microsecond."""
    old = Tat(START + 5, 3, 7)
    window = Window(Algorithm.GCRA, 9, 60, 9)
    assert settle(old, START, tolerance(window), window) == Tat(START + 6, 0, 9)
    assert settle(Tat(START + 5, 0, 7), START, tolerance(window), window) == Tat(START + 5, 0, 9)
    assert move(Tat(START + 5, 1, 9), span(1, window), back=True, now=START) == Tat(START, 0, 9)
