"""Matching descriptors to limits, labels, and names of counters."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.limits.build import Rule, build, limits_of
from seawall.limits.descriptor import Limit, Node, counter_identity, match
from seawall.limits.window import Unit

MINUTE = (1, Unit.MINUTE)
TREE = build(
    [
        Rule("tenant", rate=MINUTE, below=(Rule("class", rate=MINUTE), Rule("class", "batch", rate=MINUTE))),
        Rule("tenant", "acme", below=(Rule("key", "prod", rate=MINUTE),)),
        Rule("tenant", "free"),
        Rule("a_b", "c", rate=MINUTE),
    ]
)


@pytest.mark.parametrize(
    ("entries", "label"),
    [
        ([("tenant", "x")], "tenant"),
        ([("tenant", "")], "tenant"),
        ([("tenant", "x"), ("class", "vip")], "tenant.class"),
        ([("tenant", "x"), ("class", "batch")], "tenant.class_batch"),
        ([("tenant", "acme"), ("key", "prod")], "tenant_acme.key_prod"),
        ([("a_b", "c")], "a_b_c"),
        # No limit on the branch, and no way back from it.
        ([("tenant", "acme")], None),
        ([("tenant", "acme"), ("class", "vip")], None),
        ([("tenant", "free")], None),
        # One entry more or fewer, another order, another case.
        ([("tenant", "x"), ("class", "vip"), ("key", "k")], None),
        ([("class", "vip")], None),
        ([("class", "vip"), ("tenant", "x")], None),
        ([("Tenant", "x")], None),
        ([("a", "b_c")], None),
        ([], None),
    ],
)
def test_match(entries: list[tuple[str, str]], label: str | None) -> None:
    """A descriptor has the limit where it ends, or none."""
    limit = match(TREE, entries)
    assert (limit.label if limit else None) == label


def test_empty_tree() -> None:
    """A domain without rules limits nothing."""
    assert match(Node(), [("tenant", "x")]) is None


def test_limits_of() -> None:
    """A tree says which limits it holds, with the keys that reach them."""
    assert {(keys, limit.label) for keys, limit in limits_of(TREE)} == {
        (("tenant",), "tenant"),
        (("tenant", "class"), "tenant.class"),
        (("tenant", "class"), "tenant.class_batch"),
        (("tenant", "key"), "tenant_acme.key_prod"),
        (("a_b",), "a_b_c"),
    }


def test_counter_keeps_its_count() -> None:
    """A changed number is the same counter; another unit, domain or value is another one."""
    entries = [("tenant", "acme")]
    base = counter_identity("llm", entries, Limit("tenant", 1, Unit.MINUTE))
    assert base == counter_identity("llm", entries, Limit("renamed", 999, Unit.MINUTE))
    others = [
        counter_identity("llm", entries, Limit("tenant", 1, Unit.HOUR)),
        counter_identity("other", entries, Limit("tenant", 1, Unit.MINUTE)),
        counter_identity("llm", [("tenant", "acmf")], Limit("tenant", 1, Unit.MINUTE)),
        counter_identity("llm", [*entries, ("class", "")], Limit("tenant", 1, Unit.MINUTE)),
    ]
    assert all(a != b for a, b in combinations([base, *others], 2))


WORDS = st.text(alphabet="a_:1", max_size=3)
DESCRIPTORS = st.lists(st.tuples(WORDS, WORDS), max_size=3)


@given(WORDS, DESCRIPTORS, WORDS, DESCRIPTORS)
@settings(max_examples=100)
def test_counters_do_not_collide(d1: str, e1: list[tuple[str, str]], d2: str, e2: list[tuple[str, str]]) -> None:
    """Different callers have different counters, however their values are spelled."""
    limit = Limit("x", 1, Unit.DAY)
    assert (counter_identity(d1, e1, limit) == counter_identity(d2, e2, limit)) == ((d1, e1) == (d2, e2))
