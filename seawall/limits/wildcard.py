"""Which wildcard rule of a level matches an entry: the first in the file, found without looking at the others.

`*` stands for zero or more characters of any kind; everything else is literal, and the literal parts stand in order and
do not overlap. Key and value are matched apart: a rule without a value takes any.

Each pattern is filed under one of its literal parts, the one that fewest others of its level share: a prefix, a suffix,
or the first characters of a part in the middle. A look-up takes the prefixes, suffixes and substrings of a text that
patterns are filed under, so its cost grows with the length of the text and with the patterns that share the rarest part
*and* the text has: 10,000 siblings `/t/<n>/*` or `*.<n>.example` cost what ten do. Patterns that are filed under nothing
(stars only) and those that share all their parts with many others are tried one by one, in the order of the file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
GRAM = 8
"""Characters of a middle part that a pattern is filed under, at most."""


class Pattern:
    """One text with stars."""

    __slots__ = ("_head", "_least", "_middle", "_tail", "_text")

    def __init__(self, text: str):
        self._text = text
        self._head, *rest = text.split("*")
        self._tail = rest.pop() if rest else ""
        self._middle = [part for part in rest if part]
        self._least = len(text) - text.count("*")

    def matches(self, text: str) -> bool:
        """Whether the whole text is of this pattern."""
        if "*" not in self._text:
            return text == self._text
        if len(text) < self._least or not text.startswith(self._head) or not text.endswith(self._tail):
            return False
        at, end = len(self._head), len(text) - len(self._tail)
        for part in self._middle:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    def parts(self) -> list[tuple[str, str]]:
        """What the pattern can be filed under: (kind, literal)."""
        kinds = [("prefix", self._head), ("suffix", self._tail), *(("gram", part[:GRAM]) for part in self._middle)]
        return [part for part in kinds if part[1]]


class _Filed(NamedTuple, Generic[T]):
    order: int
    pattern: Pattern
    what: T


class PatternIndex(Generic[T]):
    """Patterns with what each stands for, in the order of the file."""

    def __init__(self, patterns: Sequence[tuple[int, str, T]]):
        """`patterns` are (place in the file, text, what it stands for)."""
        filed = [_Filed(order, Pattern(text), what) for order, text, what in patterns]
        shared = Counter(part for f in filed for part in set(f.pattern.parts()))
        files: dict[tuple[str, str], list[_Filed[T]]] = {}
        for f in filed:
            parts = f.pattern.parts()
            under = min(parts, key=lambda part: (shared[part], -len(part[1]))) if parts else ("any", "")
            files.setdefault(under, []).append(f)
        self._any = files.pop(("any", ""), [])
        self._by: dict[str, dict[str, list[_Filed[T]]]] = {"prefix": {}, "suffix": {}, "gram": {}}
        for (kind, literal), some in files.items():
            self._by[kind][literal] = some
        self._lengths = {kind: sorted({len(literal) for literal in by}) for kind, by in self._by.items()}

    def matching(self, text: str) -> Iterator[tuple[int, T]]:
        """(place, what) of every pattern that matches, in no order."""
        for some in self._candidates(text):
            for order, pattern, what in some:
                if pattern.matches(text):
                    yield order, what

    def first(self, text: str) -> tuple[int, T] | None:
        """The matching pattern that stands first in the file."""
        best: _Filed[T] | None = None
        for some in self._candidates(text):
            for f in some:
                if best is not None and f.order > best.order:
                    break
                if f.pattern.matches(text):
                    best = f
                    break
        return None if best is None else (best.order, best.what)

    def _candidates(self, text: str) -> Iterator[list[_Filed[T]]]:
        if self._any:
            yield self._any
        size = len(text)
        prefixes, suffixes, grams = self._by["prefix"], self._by["suffix"], self._by["gram"]
        for length in self._lengths["prefix"]:
            if length > size:
                break
            if some := prefixes.get(text[:length]):
                yield some
        for length in self._lengths["suffix"]:
            if length > size:
                break
            if some := suffixes.get(text[size - length :]):
                yield some
        if grams:
            for gram in self._grams_of(text):
                if some := grams.get(gram):
                    yield some

    def _grams_of(self, text: str) -> Iterable[str]:
        return {text[i : i + n] for n in self._lengths["gram"] for i in range(len(text) - n + 1)}


class Wildcards(Generic[T]):
    """The wildcard rules of one level: a star in the value, in the key, or in both."""

    def __init__(self, rules: Sequence[tuple[str, str, T]]):
        """`rules` are (key, value, what they stand for) in the order of the file; value "" is any."""
        by_key: dict[str, list[tuple[int, str, T]]] = {}
        star_keys: list[tuple[int, str, tuple[Pattern | None, T]]] = []
        for order, (key, value, what) in enumerate(rules):
            if "*" in key:
                star_keys.append((order, key, (Pattern(value) if value else None, what)))
            else:
                by_key.setdefault(key, []).append((order, value, what))
        self._by_key = {key: PatternIndex(patterns) for key, patterns in by_key.items()}
        self._star_keys = PatternIndex(star_keys) if star_keys else None

    def first(self, key: str, value: str) -> T | None:
        """What the first matching rule stands for."""
        index = self._by_key.get(key)
        found = index.first(value) if index is not None else None
        if self._star_keys is not None:
            for order, (pattern, what) in self._star_keys.matching(key):
                if (found is None or order < found[0]) and (pattern is None or pattern.matches(value)):
                    found = order, what
        return None if found is None else found[1]
