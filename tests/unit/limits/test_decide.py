"""One rate limit call: what it charges, and what it is told."""

import pytest

from seawall.limits.build import Rule, build
from seawall.limits.decide import (
    MAX_DESCRIPTORS,
    MAX_ENTRY_BYTES,
    MAX_HITS,
    Descriptor,
    InvalidCall,
    Planned,
    Status,
    conclude,
    local_share,
    plan,
)
from seawall.limits.descriptor import Limit, counter_identity
from seawall.limits.window import Unit

TENANT = Limit("tenant", 5, Unit.MINUTE)
MODEL = Limit("model", 100, Unit.DAY)
NONE_AT_ALL = Limit("key", 0, Unit.SECOND)
TREE = build(
    [
        Rule("tenant", rate=(5, Unit.MINUTE)),
        Rule("model", rate=(100, Unit.DAY)),
        Rule("key", rate=(0, Unit.SECOND)),
        Rule("free"),
    ]
)
ACME = (("tenant", "acme"),)
NOW = 86400 * 20_000 + 125.75
"""Two minutes and five and three quarter seconds after midnight."""


def planned(position: int, entries: tuple[tuple[str, str], ...], limit: Limit, start: int, hits: int) -> Planned:
    """Step of a plan."""
    return Planned(position, limit, counter_identity("llm", entries, limit), start, hits)


def step(position: int, limit: Limit) -> Planned:
    """Step whose counter doesn't matter."""
    return Planned(position, limit, b"", 0, 1)


def test_plan() -> None:
    """Each descriptor with a limit is charged in the window of its limit; one without counts nowhere."""
    call = [
        Descriptor((("model", "m"),)),
        Descriptor((("unknown", "x"),)),
        Descriptor(ACME),
        Descriptor((("free", "x"),)),
        Descriptor((*ACME, ("more", "x"))),
        Descriptor(()),
    ]
    assert plan("llm", TREE, call, 0, NOW) == [
        planned(0, (("model", "m"),), MODEL, 86400 * 20_000, 1),
        planned(2, ACME, TENANT, 86400 * 20_000 + 120, 1),
    ]


@pytest.mark.parametrize(
    ("own", "request_hits", "hits"),
    [
        (None, 0, 1),
        (None, 1, 1),
        (None, 7, 7),
        (0, 0, 0),
        (0, 7, 0),
        (3, 0, 3),
        (3, 7, 3),
        (MAX_HITS, 0, MAX_HITS),
        (None, 2**32 - 1, 2**32 - 1),
    ],
)
def test_hits(own: int | None, request_hits: int, hits: int) -> None:
    """A descriptor's own hits win over the request's, a written 0 is a look, and nothing written at all is one hit."""
    assert [p.hits for p in plan("llm", TREE, [Descriptor(ACME, own)], request_hits, NOW)] == [hits]


def test_same_descriptor_twice() -> None:
    """A descriptor that stands twice is charged twice, and each is told what its own hits came to."""
    steps = plan("llm", TREE, [Descriptor(ACME, 3), Descriptor(ACME, 4)], 0, NOW)
    assert steps[0].identity == steps[1].identity
    assert [(p.position, p.hits) for p in steps] == [(0, 3), (1, 4)]
    assert [(s.over, s.remaining) for s in conclude(steps, [3, 7], 2, NOW)] == [(False, 2), (True, 0)]


def test_unknown_domain() -> None:
    """A domain without rules limits nothing."""
    assert plan("other", None, [Descriptor(ACME)], 1, NOW) == []


@pytest.mark.parametrize(
    ("domain", "descriptors", "why"),
    [
        ("", [Descriptor(ACME)], "domain must not be empty"),
        ("llm", [], "descriptor list must not be empty"),
        ("llm", [Descriptor(ACME)] * (MAX_DESCRIPTORS + 1), "65 descriptors in one call; allowed are 64"),
        ("llm", [Descriptor((("tenant", "x" * MAX_ENTRY_BYTES),))], "entry 'tenant' is longer than 4096"),
        ("llm", [Descriptor(ACME, MAX_HITS + 1)], "hits_addend 9223372036854775808 is above 9223372036854775807"),
    ],
)
def test_invalid(domain: str, descriptors: list[Descriptor], why: str) -> None:
    """A call that can't be decided says why."""
    with pytest.raises(InvalidCall, match=why):
        plan(domain, TREE, descriptors, 1, NOW)


def test_bounds_are_allowed() -> None:
    """The largest call is decided."""
    value = "x" * (MAX_ENTRY_BYTES - len("tenant"))
    assert len(plan("llm", TREE, [Descriptor((("tenant", value),))] * MAX_DESCRIPTORS, 1, NOW)) == MAX_DESCRIPTORS


@pytest.mark.parametrize(
    ("limit", "count", "status"),
    [
        (TENANT, 1, Status(False, TENANT, 4, 55)),
        (TENANT, 4, Status(False, TENANT, 1, 55)),
        (TENANT, 5, Status(False, TENANT, 0, 55)),
        (TENANT, 6, Status(True, TENANT, 0, 55)),
        (TENANT, 2**53 - 1, Status(True, TENANT, 0, 55)),
        (TENANT, 0, Status(False, TENANT, 5, 55)),
        (MODEL, 100, Status(False, MODEL, 0, 86275)),
        (MODEL, 101, Status(True, MODEL, 0, 86275)),
        (NONE_AT_ALL, 0, Status(False, NONE_AT_ALL, 0, 1)),
        (NONE_AT_ALL, 1, Status(True, NONE_AT_ALL, 0, 1)),
    ],
)
def test_status(limit: Limit, count: int, status: Status) -> None:
    """The last hit under a limit passes, the next is over; the reset is the whole seconds that the window has left."""
    assert conclude([step(0, limit)], [count], 1, NOW) == [status]


def test_positions() -> None:
    """Each descriptor has its status in its place; without a limit it is not over."""
    free = Status(False)
    assert conclude([], [], 2, NOW) == [free, free]
    assert conclude([step(1, TENANT), step(3, MODEL)], [9, 9], 4, NOW) == [
        free,
        Status(True, TENANT, 0, 55),
        free,
        Status(False, MODEL, 91, 86275),
    ]


def test_a_count_for_each_step() -> None:
    """A store that answers with another number of counters is a fault, never a guess."""
    with pytest.raises(ValueError, match="zip"):
        conclude([step(0, TENANT)], [], 1, NOW)


@pytest.mark.parametrize(
    ("limit", "workers", "share"),
    [(10, 1, 10), (10, 2, 5), (10, 3, 3), (10, 10, 1), (10, 11, 1), (1, 4, 1), (0, 4, 0), (0, 1, 0), (10, 0, 10)],
)
def test_local_share(limit: int, workers: int, share: int) -> None:
    """A worker may spend its part of the limit, at least 1 unless the limit is 0."""
    assert local_share(Limit("x", limit, Unit.DAY), workers) == share
