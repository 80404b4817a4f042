"""Numbers and names of statistics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seawall.limits.build import Rule, build
from seawall.limits.call import Descriptor, Override
from seawall.limits.charge import Outcome
from seawall.limits.decide import Planned, plan
from seawall.limits.descriptor import Limit
from seawall.limits.statistics import Hits, cached, count, name, near_threshold, safe
from seawall.limits.window import Algorithm, Reading, Window


@pytest.mark.parametrize(
    ("limit", "ratio", "near"),
    [
        (10, 0.8, 8),
        (8, 0.8, 6),
        (20, 0.8, 16),
        (1, 0.8, 0),
        (0, 0.8, 0),
        (15, 0.8, 12),
        (5, 0.8, 4),
        (2**32 - 1, 1, 2**32),
    ],
)
def test_near_threshold(limit: int, ratio: float, near: int) -> None:
    """In 32-bit floats, as the Go service: 15 × 0.8 is 12 there and 12.000000000000002 or 11.99… elsewhere."""
    assert near_threshold(limit, ratio) == near


def step(limit: int, hits: int, *, shadow: bool = False, give_back: bool = False) -> Planned:
    rule = Limit("x", (Window(Algorithm.FIXED, limit, 60),), shadow=shadow)
    return Planned(0, rule, (), hits, give_back, None)


def outcome(over: bool, charged: int, used: int) -> Outcome:
    return Outcome(over, charged, (Reading(over, used, 0, 1),))


@given(st.integers(0, 30), st.integers(0, 40), st.integers(0, 40))
def test_hits_are_split(limit: int, before: int, hits: int) -> None:
    """Counted one by one: a hit is over above the limit; else within when none of its call is, near above the threshold."""
    after, near = before + hits, near_threshold(limit, 0.8)
    told = count(step(limit, hits), outcome(after > limit, hits, after))
    each = range(before + 1, after + 1)
    assert told.total == hits
    assert told.over == sum(n > limit for n in each)
    assert told.near == sum(near < n <= limit for n in each)
    assert told.within == (hits if after <= limit else 0)
    assert told.shadow == told.over_with_local_cache == 0


def test_what_was_not_charged() -> None:
    """Refused and not charged is over; spared by stop mode is in the total only; given back is in none."""
    assert count(step(5, 3), outcome(True, 0, 4)) == Hits(total=3, over=3)
    assert count(step(5, 3, shadow=True), outcome(True, 0, 4)) == Hits(total=3, over=3, shadow=3)
    assert count(step(5, 3), outcome(False, 0, 4)) == Hits(total=3)
    assert count(step(5, 3, give_back=True), outcome(False, -3, 1)) == Hits()
    assert count(step(5, 3, shadow=True), outcome(True, 3, 7)) == Hits(total=3, near=1, over=2, shadow=2)
    assert cached(step(5, 3, shadow=True)) == Hits(total=3, over=3, shadow=3, over_with_local_cache=3)


LIMIT = Limit("", (Window(Algorithm.FIXED, 1, 60),))
TREE = build(
    [
        Rule("route", value_named=True, below=(Rule("who", limit=LIMIT), Rule("w", "x", limit=LIMIT, detailed=True))),
        Rule("file", "d/*", share=True, detailed=True, limit=LIMIT),
        Rule("dir", "d/*", share=True, value_named=True, limit=LIMIT),
        Rule("path", "p*", value_named=True, limit=LIMIT),
        Rule("plain", "p*", limit=LIMIT, below=(Rule("deep", limit=LIMIT, detailed=True),)),
        Rule("hdr*", limit=LIMIT, detailed=True),
    ]
)


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([("route", "r"), ("who", "1")], "d.route_r.who"),
        ([("route", ""), ("who", "1")], "d.route.who"),
        ([("route", "r"), ("w", "x")], "d.route_r.w_x"),
        ([("file", "d/1")], "d.file_d/*"),
        ([("dir", "d/1")], "d.dir_d/*"),
        ([("path", "p1")], "d.path_p1"),
        ([("plain", "p1")], "d.plain_p*"),
        ([("plain", "p1"), ("deep", "v")], "d.plain_p1.deep_v"),
        ([("hdrs", "v")], "d.hdrs_v"),
    ],
)
def test_names(entries: list[tuple[str, str]], named: str) -> None:
    """Keys and the rule's values, the request's where the rule says so; a shared wildcard by its pattern."""
    [found] = plan("d", TREE, [Descriptor(entries)], 1).steps
    assert name(found, "d", entries) == named


def test_name_of_an_override() -> None:
    """By all values of the request."""
    entries = [("plain", "p1"), ("x", "")]
    [found] = plan("d", TREE, [Descriptor(entries, override=Override(1, 2))], 1).steps
    assert name(found, "d", entries) == "d.plain_p1.x"


def test_safe() -> None:
    """What statsd would read as more than a name is replaced."""
    assert safe("d.ip_10.1.2.3.u_a:b|c") == "d.ip_10_1_2_3.u_a_b_c"
