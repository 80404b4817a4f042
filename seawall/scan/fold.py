"""Disguises taken off a text: invisible characters go, full-width letters and digits of any script become ASCII.

One character becomes one or none, so that a place is mapped back by counting the characters that went.
"""

import unicodedata
from bisect import bisect_left, bisect_right
from functools import cache

from seawall.scan.charset import as_re2, merged
from seawall.scan.re2_program import ANYWHERE, Program, program

INVISIBLE = merged(
    [
        (0x00AD, 0x00AD),  # soft hyphen
        (0x034F, 0x034F),  # combining grapheme joiner
        (0x061C, 0x061C),
        (0x180B, 0x180F),
        (0x200B, 0x200F),  # zero-width space and joiners, direction marks
        (0x202A, 0x202E),
        (0x2060, 0x206F),
        (0xFE00, 0xFE0F),  # variation selectors
        (0xFEFF, 0xFEFF),
    ]
)
_WIDE = ((0xFF0B, 0xFF0B), (0xFF0D, 0xFF0E), (0xFF10, 0xFF19), (0xFF20, 0xFF3A), (0xFF3F, 0xFF3F), (0xFF41, 0xFF5A))
"""Full-width letters, digits and + - . @ _; not the punctuation that all Chinese text has."""

_LAST_DIGIT = 0x1FFFF
_HIDDEN = frozenset(chr(point) for first, last in INVISIBLE for point in range(first, last + 1))


@cache
def _table() -> dict[int, int | None]:
    """What `str.translate` needs; built when the first rule asks for it."""
    table: dict[int, int | None] = {
        point: 0x30 + unicodedata.decimal(char)
        for point in range(0x80, _LAST_DIGIT + 1)
        if (char := chr(point)).isdecimal()
    }
    table |= {point: point - 0xFEE0 for first, last in _WIDE for point in range(first, last + 1)}
    return table | {ord(char): None for char in _HIDDEN}


@cache
def _disguises() -> Program:
    return program(as_re2(merged((point, point) for point in _table())))


class Folded:
    """A text without its disguises."""

    __slots__ = ("_gone", "_kept_before", "text")

    def __init__(self, text: str):
        self.text = text.translate(_table())
        gone = [i for i, char in enumerate(text) if char in _HIDDEN] if len(self.text) < len(text) else []
        self._gone = gone
        # How many characters were kept before each that went: rises, and so can be searched.
        self._kept_before = [i - nth for nth, i in enumerate(gone)]

    def inside(self, index: int) -> int:
        """Index here of a character of the original, or of the next that was kept."""
        return index - bisect_left(self._gone, index)

    def outside(self, index: int) -> int:
        """Index in the original of a character here; of its end, for the length."""
        return index + bisect_right(self._kept_before, index)

    def end_outside(self, index: int) -> int:
        """Index in the original of the end of a piece that ends here."""
        return self.outside(index - 1) + 1 if index else 0


def invisible(char: str) -> bool:
    """Whether a character is one that a fold takes out."""
    return char in _HIDDEN


def disguised(text: str, data: bytes) -> bool:
    """Whether a text, given with its UTF-8, has anything to take off."""
    return not text.isascii() and _disguises().Match(ANYWHERE, data, 0, len(data))[0][0] >= 0
