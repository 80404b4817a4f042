"""Random patterns of the dialect and random texts, Chinese and ASCII mixed, for the properties."""

import re
from typing import Any

from hypothesis import strategies as st

ALPHABET = "ab1_ -\n中文，１é\u212aſKs"
"""Among them a Kelvin sign and a long s, which equal k and s where case doesn't count."""
_ATOMS = st.one_of(
    st.sampled_from("ab1_ -Ks中文，é."),
    st.sampled_from([r"\w", r"\d", r"\s", r"\W", r"\D", r"\n", r"\u4e2d", "[ab]", "[^a]", "[一-龥]", "[a-c1]"]),
)
_EDGES = st.sampled_from([r"\b", r"\B", "^", "$", r"\A", r"\Z"])
_COUNTS = st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "{0,3}", "*?", "+?", "??", "{1,3}?", "{2,}"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, _COUNTS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: f"(?:{'|'.join(items)})"),
        # Not `(?a:…)`: at the front of a pattern Python itself forgets it when it looks for a first character.
        st.tuples(st.sampled_from(["i", "m", "s", "im"]), inner).map(lambda pair: f"(?{pair[0]}:{pair[1]})"),
        inner.map(lambda text: f"({text})"),
    )


_BODIES: st.SearchStrategy[str] = st.recursive(st.one_of(_ATOMS, _ATOMS, _ATOMS, _EDGES), _larger, max_leaves=8)
PATTERNS: st.SearchStrategy[str] = st.tuples(st.sampled_from(["", "", "(?a)", "(?i)", "(?m)"]), _BODIES).map("".join)
TEXTS: st.SearchStrategy[str] = st.text(alphabet=ALPHABET, max_size=30)


def by_python(pattern: str, text: str) -> list[tuple[int, int]]:
    """Spans that Python's `re` gives, empty ones left out."""
    return [m.span() for m in re.finditer(pattern, text) if m.end() > m.start()]


def spans(hits: Any) -> list[tuple[int, int]]:
    return [(hit.start, hit.end) for hit in hits]
