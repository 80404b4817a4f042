"""Matching descriptors to limits: the compiled tree against the rules of matching, read from the rules as they stand."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seawall.limits.build import Rule, build, limits_of
from seawall.limits.descriptor import Limit, Node, match
from seawall.limits.window import Algorithm, Window

MINUTE = Limit("", (Window(Algorithm.FIXED, 1, 60),))
TREE = build(
    [
        Rule("tenant", limit=MINUTE, below=(Rule("class", limit=MINUTE), Rule("class", "batch", limit=MINUTE))),
        Rule("tenant", "acme", below=(Rule("key", "prod", limit=MINUTE),)),
        Rule("tenant", "free"),
        Rule("a_b", "c", limit=MINUTE),
        Rule("tenant", "t*", limit=MINUTE, share=True, below=(Rule("class", limit=MINUTE),)),
        Rule("hdr*", limit=MINUTE, share=True),
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
        ([("tenant", "t1")], "tenant_t*"),
        ([("tenant", "t1"), ("class", "vip")], "tenant_t*.class"),
        ([("hdr", "")], "hdr*"),
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
    found = match(TREE, entries)
    assert (found.limit.label if found else None) == label


def test_shared() -> None:
    """A shared wildcard is counted by its pattern, level by level; others by the values of the request."""
    counted = {
        (("tenant", "t1"),): [("tenant", "t*")],
        (("tenant", "t1"), ("class", "vip")): [("tenant", "t*"), ("class", "vip")],
        (("hdrs", "x"),): [("hdr*", "")],
        (("tenant", "x"),): [("tenant", "x")],
    }
    for entries, wanted in counted.items():
        found = match(TREE, entries)
        assert found is not None
        assert list(found.counted) == wanted


def test_empty_tree() -> None:
    """A domain without rules limits nothing."""
    assert match(Node(), [("tenant", "x")]) is None


def test_limits_of() -> None:
    """A tree says which limits it holds in the order of its rules, with the keys that reach them."""
    assert [(keys, limit.label) for keys, limit in limits_of(TREE)] == [
        (("tenant",), "tenant"),
        (("tenant", "class"), "tenant.class"),
        (("tenant", "class"), "tenant.class_batch"),
        (("tenant", "key"), "tenant_acme.key_prod"),
        (("a_b",), "a_b_c"),
        (("tenant",), "tenant_t*"),
        (("tenant", "class"), "tenant_t*.class"),
        (("hdr*",), "hdr*"),
    ]


def as_pattern(text: str) -> "re.Pattern[str]":
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def fits(rule: Rule, key: str, value: str) -> bool:
    """Whether a wildcard rule takes an entry."""
    if "*" not in rule.key + rule.value:
        return False
    return bool(as_pattern(rule.key).fullmatch(key) and (not rule.value or as_pattern(rule.value).fullmatch(value)))


def walk(rules: Sequence[Rule], entries: Sequence[tuple[str, str]]) -> str | None:
    """Naive reference: the rules of matching, sentence by sentence, over the rules as they stand in the file."""
    label, limit = "", None
    for key, value in entries:
        exact = [r for r in rules if (r.key, r.value) == (key, value) and r.value]
        wild = [r for r in rules if fits(r, key, value)]
        bare = [r for r in rules if r.key == key and not r.value]
        chosen = next(iter([*exact, *wild, *bare]), None)
        if chosen is None:
            return None
        own = f"{chosen.key}_{chosen.value}" if chosen.value else chosen.key
        label, limit, rules = f"{label}.{own}" if label else own, chosen.limit, chosen.below
    return label if limit and entries else None


LETTERS = st.text(alphabet="ab*", max_size=5)
KEYS = st.sampled_from(["k", "kk", "j", "k*", "*", "a*b", "*k"])


def rule_lists(depth: int) -> st.SearchStrategy[tuple[Rule, ...]]:
    below = rule_lists(depth - 1) if depth else st.just(())
    rule = st.builds(Rule, key=KEYS, value=LETTERS, limit=st.sampled_from([None, MINUTE]), below=below)
    return st.lists(rule, max_size=6, unique_by=lambda r: (r.key, r.value)).map(tuple)


ENTRIES = st.lists(
    st.tuples(st.sampled_from(["k", "kk", "j", "ab", "axb", "k*"]), st.text(alphabet="ab\n*", max_size=6)), max_size=3
)


@settings(max_examples=200)
@given(rules=rule_lists(2), entries=ENTRIES)
@example(rules=(Rule("k", "ab*ba", MINUTE), Rule("k", limit=MINUTE)), entries=[("k", "aba")])
@example(rules=(Rule("k", "*", MINUTE), Rule("k", "a*", MINUTE)), entries=[("k", "a*")])
def test_the_tree_is_the_rules(rules: tuple[Rule, ...], entries: list[tuple[str, str]]) -> None:
    """Compiled or not, the same rule is found."""
    found = match(build(rules), entries)
    assert (found.limit.label if found else None) == walk(rules, entries)
