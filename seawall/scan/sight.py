"""A text as rules see it: as it is, and without its disguises where it has any."""

from collections.abc import Iterable
from functools import cache

from seawall.scan.fold import Folded, disguised
from seawall.scan.view import View


class Sight:
    """One form of a text. `folded` is None for the text as it is; `serves` says for which rules it stands."""

    __slots__ = ("folded", "serves", "view")

    def __init__(self, view: View, folded: Folded | None, serves: frozenset[bool]):
        self.view = view
        self.folded = folded
        self.serves = serves

    def offset(self, index: int) -> int:
        """Offset here of a character of the text."""
        return self.view.offset(index if self.folded is None else self.folded.inside(index))

    def spans(self, offsets: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Characters of the text that spans of bytes here stand for."""
        every = list(offsets)
        indices = self.view.indices({offset for pair in every for offset in pair})
        found = [(indices[start], indices[end]) for start, end in every]
        if self.folded is None:
            return found
        return [(self.folded.outside(start), self.folded.end_outside(end)) for start, end in found]

    def start(self, offset: int) -> int:
        """Index in the text of the character at an offset here."""
        index = self.view.indices((offset,))[offset]
        return index if self.folded is None else self.folded.outside(index)


def sights_of(text: str, *, folds: bool, begins: bool = True, ends: bool = True, context: int = 0) -> tuple[Sight, ...]:
    """One sight where the text has no disguise, or no rule looks behind it; else two."""
    text = without_surrogates(text)
    plain = View(text, begins=begins, ends=ends, context=context)
    if not folds or not disguised(text, plain.data):
        return (Sight(plain, None, _ALL),)
    folded = Folded(text)
    behind = View(folded.text, begins=begins, ends=ends, context=folded.inside(context))
    return (Sight(plain, None, _AS_IT_IS), Sight(behind, folded, _BEHIND))


_ALL, _AS_IT_IS, _BEHIND = frozenset({False, True}), frozenset({False}), frozenset({True})


@cache
def _replacements() -> dict[int, int]:
    return dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


def without_surrogates(text: str) -> str:
    """Put U+FFFD in place of each lone surrogate, which UTF-8 has no bytes for; the length stays."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.translate(_replacements())
    return text
