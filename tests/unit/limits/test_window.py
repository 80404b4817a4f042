"""Windows that begin at multiples of their length, and units."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.limits.window import Unit, unit_of, until_reset, window_start


@pytest.mark.parametrize(
    ("now", "length", "start", "reset"),
    [
        (0, 60, 0, 60),
        (59.999, 60, 0, 1),
        (60, 60, 60, 60),
        (86399, 86400, 0, 1),
        (1.5, 1, 1, 1),
        (3601, 3600, 3600, 3599),
    ],
)
def test_window(now: float, length: int, start: int, reset: int) -> None:
    """A window starts at a multiple of its length and is never 0 seconds from its end."""
    assert window_start(now, length) == start
    assert until_reset(now, length) == reset


@given(st.floats(0, 4e9), st.sampled_from(Unit))
@settings(max_examples=100)
def test_now_is_inside(now: float, unit: Unit) -> None:
    """Now is in its window, and the window ends where the reset says."""
    start = window_start(now, unit.seconds)
    assert start <= now < start + unit.seconds
    assert int(now) + until_reset(now, unit.seconds) == start + unit.seconds


def test_unit_of() -> None:
    """A length has a unit or none."""
    assert {unit_of(unit.seconds) for unit in Unit} == set(Unit)
    assert unit_of(30) is None


def test_units() -> None:
    """Units have the numbers of Envoy's rls.proto and the seconds of a clock."""
    assert {unit.name: (unit.value, unit.seconds) for unit in Unit} == {
        "SECOND": (1, 1),
        "MINUTE": (2, 60),
        "HOUR": (3, 3600),
        "DAY": (4, 86400),
        "MONTH": (5, 2592000),
        "YEAR": (6, 31536000),
        "WEEK": (7, 604800),
    }
