"""The index of wildcard rules: right, and no slower for ten thousand siblings than for ten."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.limits.wildcard import Pattern, PatternIndex, Wildcards

TEXTS = st.text(alphabet="ab/*\n", max_size=8)


@settings(max_examples=400)
@given(TEXTS, st.text(alphabet="ab/\n", max_size=12))
def test_pattern(pattern: str, text: str) -> None:
    """A star is any characters, everything else stands for itself."""
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert Pattern(pattern).matches(text) == bool(re.fullmatch(expression, text, re.DOTALL))


@settings(max_examples=400)
@given(st.lists(TEXTS, max_size=12), st.text(alphabet="ab/", max_size=10))
def test_first(patterns: list[str], text: str) -> None:
    """The index finds what trying one after the other finds."""
    index = PatternIndex([(order, pattern, pattern) for order, pattern in enumerate(patterns)])
    matching = [(order, p) for order, p in enumerate(patterns) if Pattern(p).matches(text)]
    assert index.first(text) == (matching[0] if matching else None)
    assert sorted(index.matching(text)) == matching


def tried(siblings: list[str], value: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many patterns are compared with a value."""
    index: Wildcards[str] = Wildcards([("k", pattern, pattern) for pattern in siblings])
    count = 0
    right = Pattern.matches

    def counting(self: Pattern, text: str) -> bool:
        nonlocal count
        count += 1
        return right(self, text)

    with monkeypatch.context() as patch:
        patch.setattr(Pattern, "matches", counting)
        index.first("k", value)
    return count


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ("/tenants/{}/*", "/tenants/7/x/y"),
        ("*.{}.example.com", "a.7.example.com"),
        ("/v1/*/m{}", "/v1/chat/m7"),
        ("*-part-{}-*", "x-part-7-y"),
        ("{}*", "zzz"),
        ("/v1/*/{}/*.json", "/v1/a/7/b.json"),
    ],
)
def test_siblings_cost_nothing(shape: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: of ten thousand siblings hardly one is compared."""
    siblings = [shape.format(n) for n in range(10_000)]
    assert tried(siblings, value, monkeypatch) <= 30
    assert tried(siblings[:10], value, monkeypatch) <= 10
