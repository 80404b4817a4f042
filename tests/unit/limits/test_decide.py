"""One rate limit call: what it charges, and what it is told."""

from typing import Any

import pytest

from seawall.limits.build import Rule, build
from seawall.limits.call import MAX_DESCRIPTORS, MAX_ENTRY, MAX_HITS, Descriptor, InvalidCall, Override, hits_of
from seawall.limits.charge import Demand, Outcome
from seawall.limits.counter_key import identity
from seawall.limits.decide import Plan, Planned, Status, conclude, demand, local_share, overall, plan
from seawall.limits.descriptor import UNLIMITED, Limit
from seawall.limits.window import MOST, US, Algorithm, Reading, Window

MINUTE = Window(Algorithm.FIXED, 5, 60)
DAY = Window(Algorithm.FIXED, 100, 86400)
LIMIT, QUOTA = Limit("", (MINUTE,)), Limit("", (MINUTE,), quota=True)
TREE = build(
    [
        Rule("tenant", limit=LIMIT),
        Rule("model", limit=Limit("", (DAY,), name="daily")),
        Rule("free"),
        Rule("open", limit=Limit("", (), replaces=frozenset({"daily"}))),
        Rule("gcra", limit=Limit("", (Window(Algorithm.GCRA, 6, 60, 2),), charge_refused=False)),
    ]
)
ACME = (("tenant", "acme"),)
MODEL = (("model", "m"),)
NOW = (86400 * 20_000 + 125) * US
"""Two minutes and five seconds after midnight."""


def steps(descriptors: list[Descriptor], hits: int = 0) -> list[tuple[int, str, int]]:
    """Position, label and hits of what is charged."""
    return [(s.position, s.limit.label, s.hits) for s in plan("llm", TREE, descriptors, hits).steps]


def test_plan() -> None:
    """Each descriptor with a limit is charged; one without counts nowhere."""
    call = [
        Descriptor(MODEL),
        Descriptor((("unknown", "x"),)),
        Descriptor(ACME),
        Descriptor((("free", "x"),)),
        Descriptor((*ACME, ("more", "x"))),
        Descriptor(()),
    ]
    assert steps(call) == [(0, "model", 1), (2, "tenant", 1)]


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
        (MAX_HITS, 0, MOST),
        (None, 2**32 - 1, 2**32 - 1),
    ],
)
def test_hits(own: int | None, request_hits: int, hits: int) -> None:
    """A descriptor's own hits win over the request's, a written 0 is a look, and nothing written at all is one hit."""
    assert hits_of(Descriptor(ACME, own), request_hits) == hits


def test_replaced() -> None:
    """A named limit is not charged beside one that replaces it, wherever that stands, and also where it is unlimited."""
    found = plan("llm", TREE, [Descriptor(MODEL), Descriptor((("open", "x"),))], 0)
    assert found.steps == ()
    assert [limit and limit.label for limit in found.limits] == [None, "open"]
    assert conclude(found, []) == [Status(False), Status(False, remaining=UNLIMITED)]


def test_unknown_domain() -> None:
    """A domain without rules limits nothing, whatever limit a request brings."""
    assert plan("other", None, [Descriptor(ACME, override=Override(1, 99))], 1).steps == ()


def test_override() -> None:
    """A limit that comes with the request takes the place of the rules, in the same counter."""
    found = plan("llm", TREE, [Descriptor(MODEL, override=Override(7, 4)), Descriptor((), override=Override(1, 6))], 1)
    assert [step.limit.windows for step in found.steps] == [
        (Window(Algorithm.FIXED, 7, 86400),),
        (Window(Algorithm.FIXED, 1, 31536000),),
    ]
    assert {step.limit.label for step in found.steps} == {"(request)"}
    [mine] = plan("llm", TREE, [Descriptor(MODEL)], 1).steps
    assert demand(found.steps[0], "llm", NOW).key == demand(mine, "llm", NOW).key


@pytest.mark.parametrize(
    ("domain", "descriptors", "why"),
    [
        ("", [Descriptor(ACME)], "domain must not be empty"),
        ("llm", [], "descriptor list must not be empty"),
        ("llm", [Descriptor(ACME)] * (MAX_DESCRIPTORS + 1), "65 descriptors in one call; allowed are 64"),
        ("llm", [Descriptor((("tenant", "x" * MAX_ENTRY),))], "entry 'tenant' is longer than 4096"),
        ("llm", [Descriptor(ACME, MAX_HITS + 1)], "hits_addend 9223372036854775808 is above 9223372036854775807"),
        ("llm", [Descriptor(ACME, override=Override(5, 0))], "unit 0 .* allowed are SECOND, MINUTE, HOUR, DAY, MONTH"),
        ("llm", [Descriptor(ACME, override=Override(5, 7))], "unit 7"),
    ],
)
def test_invalid(domain: str, descriptors: list[Descriptor], why: str) -> None:
    """A call that can't be decided says why."""
    with pytest.raises(InvalidCall, match=why):
        plan(domain, TREE, descriptors, 1)


def test_bounds_are_allowed() -> None:
    """The largest call is decided."""
    value = "x" * (MAX_ENTRY - len("tenant"))
    assert len(steps([Descriptor((("tenant", value),))] * MAX_DESCRIPTORS)) == MAX_DESCRIPTORS


def test_keys() -> None:
    """With a prefix plain limits have the Go service's text; limits that are ours have keys of ours."""
    plain, ours = plan("llm", TREE, [Descriptor(ACME), Descriptor((("gcra", "x"),), 0)], 1).steps
    assert demand(plain, "llm", NOW) == Demand(identity("llm", ACME), (MINUTE,), 1)
    assert demand(plain, "llm", NOW, "p:").key == b"p:llm_tenant_acme_%d" % (86400 * 20_000 + 120)
    assert demand(ours, "llm", NOW, "p:") == demand(ours, "llm", NOW)
    assert not demand(ours, "llm", NOW).charge_refused


def step(limit: Limit) -> Planned:
    return Planned(0, limit, ACME, 1, False, None)


def told(limit: Limit, over: bool, *readings: Reading) -> Status:
    """Status of a call's only descriptor."""
    [status] = conclude(Plan("llm", (step(limit),), (limit,), (Status(False),)), [Outcome(over, 1, readings)])
    return status


def test_status() -> None:
    """A status says what its window says; a shadow limit is exceeded and never over; a hidden window is not described."""
    over, under = Reading(True, 6, 0, 55), Reading(False, 1, 4, 55)
    assert told(LIMIT, False, under) == Status(False, MINUTE, "", 4, 55, False)
    assert told(Limit("", (MINUTE,), name="n"), True, over) == Status(True, MINUTE, "n", 0, 55, True)
    assert told(Limit("", (MINUTE,), shadow=True), True, over) == Status(False, MINUTE, "", 0, 55, True)
    hidden = Window(Algorithm.FIXED, 5, 60, hidden=True)
    assert told(Limit("", (hidden,)), True, over) == Status(True, exceeded=True)
    assert told(Limit("", (hidden, DAY)), False, under, Reading(False, 1, 99, 7)) == Status(False, DAY, "", 99, 7)


def test_status_of_several_windows() -> None:
    """The window that refused is told, else the one with the least left, the first of equals."""
    both = Limit("", (MINUTE, DAY))
    minute, day = Reading(False, 1, 4, 55), Reading(False, 1, 99, 900)
    assert told(both, False, minute, day).window == MINUTE
    assert told(both, False, Reading(False, 1, 4, 55), Reading(False, 96, 4, 900)).window == MINUTE
    refused = told(both, True, Reading(False, 5, 0, 55), Reading(True, 90, 10, 900))
    assert refused == Status(True, DAY, "", 10, 900, True)


def test_a_reading_for_each_step() -> None:
    """A store that answers with another number of counters is a fault, never a guess."""
    with pytest.raises(ValueError, match="zip"):
        conclude(Plan("llm", (step(LIMIT),), (LIMIT,), (Status(False),)), [])


OPEN = Limit("", ())


@pytest.mark.parametrize(
    ("limits", "over", "quota_mode", "wanted"),
    [
        ([LIMIT], [True], False, True),
        ([LIMIT, LIMIT], [False, True], False, True),
        ([QUOTA], [True], False, True),
        ([QUOTA, QUOTA], [True, False], False, False),
        ([QUOTA, QUOTA], [True, True], False, True),
        ([QUOTA, LIMIT], [True, False], False, True),
        ([QUOTA, None], [True, False], False, True),
        ([QUOTA, OPEN], [True, False], False, True),
        ([QUOTA, LIMIT], [False, True], False, True),
        ([None], [False], False, False),
        ([LIMIT, LIMIT], [True, False], True, False),
        ([LIMIT, LIMIT], [True, True], True, True),
        ([LIMIT, None], [True, False], True, False),
        ([LIMIT, OPEN], [True, False], True, True),
        ([OPEN], [False], True, False),
    ],
)
def test_overall(limits: list[Any], over: list[bool], quota_mode: bool, wanted: bool) -> None:
    """Any hard limit that is over, or all quotas there are."""
    statuses = [Status(o) for o in over]
    assert overall(Plan("llm", (), tuple(limits), ()), statuses, quota_mode=quota_mode) == wanted


@pytest.mark.parametrize(
    ("limit", "workers", "share"),
    [(10, 1, 10), (10, 2, 5), (10, 3, 3), (10, 10, 1), (10, 11, 1), (1, 4, 1), (0, 4, 0), (0, 1, 0), (10, 0, 10)],
)
def test_local_share(limit: int, workers: int, share: int) -> None:
    """A worker may spend its part of the limit, at least 1 unless the limit is 0."""
    assert local_share(Window(Algorithm.FIXED, limit, 86400), workers).requests == share
    assert local_share(Window(Algorithm.GCRA, limit, 60, limit), workers).burst == share
