"""Names of counters."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.limits.counter_key import identity, text

WORDS = st.text(alphabet="a_:1", max_size=3)
DESCRIPTORS = st.lists(st.tuples(WORDS, WORDS), max_size=3)


def test_identity() -> None:
    """Another domain, key, value or entry is another counter; 16 bytes each."""
    named = [
        identity("llm", [("tenant", "acme")]),
        identity("other", [("tenant", "acme")]),
        identity("llm", [("tenant", "acmf")]),
        identity("llm", [("tenants", "acme")]),
        identity("llm", [("tenant", "acme"), ("class", "")]),
        identity("llm", []),
    ]
    assert all(a != b for a, b in combinations(named, 2))
    assert {len(name) for name in named} == {16}


@given(WORDS, DESCRIPTORS, WORDS, DESCRIPTORS)
@settings(max_examples=200)
def test_no_collisions(d1: str, e1: list[tuple[str, str]], d2: str, e2: list[tuple[str, str]]) -> None:
    """Different callers have different counters, however their values are spelled."""
    assert (identity(d1, e1) == identity(d2, e2)) == ((d1, e1) == (d2, e2))


def test_text() -> None:
    """The text of envoyproxy/ratelimit, with its collision."""
    assert text("", "domain", [("key", "value")], 1234) == b"domain_key_value_1234"
    assert text("p:", "dom", [("model", "")], 1200) == b"p:dom_model__1200"
    assert text("", "d", [("u", "x_ip_1")], 0) == text("", "d", [("u", "x"), ("ip", "1")], 0)
