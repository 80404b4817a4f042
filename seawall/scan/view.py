"""A piece of text as the engines see it: UTF-8 bytes, and the way back to characters."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cache

from seawall.scan import charset
from seawall.scan.forms import MARKS
from seawall.scan.pattern import Edge
from seawall.scan.re2_program import ANYWHERE, Program, program

_LINES = {Edge.LINE_BEGIN, Edge.LINE_END}
_MARK_AS_TEXT = dict.fromkeys(MARKS.values(), 65533)


class View:
    """Text to look for matches in, a str without lone surrogates.

    `begins`: nothing stands before it. `ends`: nothing will follow. `context` characters at the front are only looked
    back at: no match starts there.
    """

    __slots__ = ("_marked", "ascii", "begins", "context", "data", "ends", "text")

    def __init__(self, text: str, *, begins: bool = True, ends: bool = True, context: int = 0):
        self.text = text
        self.ascii = text.isascii()
        self.data = text.encode()
        self.begins = begins
        self.ends = ends
        self.context = context
        self._marked: dict[tuple[frozenset[Edge], int], Marked] = {}

    def offset(self, index: int) -> int:
        """Offset in bytes of a character."""
        return index if self.ascii else len(self.text[:index].encode())

    def indices(self, offsets: Iterable[int]) -> dict[int, int]:
        """Characters that stand at these offsets, found in one pass over the text."""
        if self.ascii:
            return {offset: offset for offset in offsets}
        found: dict[int, int] = {}
        at = index = 0
        for offset in sorted(offsets):
            index += len(self.data[at:offset].decode())
            found[offset], at = index, offset
        return found

    def marked(self, edges: frozenset[Edge], together: int) -> "Marked":
        """The text with its assertions written into it, each `together` times."""
        made = self._marked.get((edges, together))
        if made is None:
            made = self._marked[edges, together] = Marked(self, edges, together)
        return made


class Marked:
    """A view's text into which each assertion that holds is written as a character."""

    __slots__ = ("_from", "_places", "_shifts", "data")

    def __init__(self, view: View, edges: frozenset[Edge], together: int):
        text = view.data if view.ascii else view.text.translate(_MARK_AS_TEXT).encode()
        holds = _places_of(view, edges)
        pieces: list[bytes] = []
        at = 0
        self._places = sorted(holds)
        """Offsets in the view that marks stand at."""
        self._from: list[int] = []
        """Offsets here of the first mark of each place."""
        self._shifts = [0]
        """Bytes of marks before each place, and in all."""
        for offset in self._places:
            marks = (holds[offset] * together).encode()
            pieces += (text[at:offset], marks)
            self._from.append(offset + self._shifts[-1])
            self._shifts.append(self._shifts[-1] + len(marks))
            at = offset
        pieces.append(text[at:])
        self.data = b"".join(pieces)

    def inside(self, offset: int) -> int:
        """Where an offset of the view is found here: before the marks that stand at it."""
        return offset + self._shifts[bisect_left(self._places, offset)]

    def outside(self, offset: int) -> int:
        """Offset of the view that an offset here stands for."""
        i = bisect_right(self._from, offset)
        return max(self._places[i - 1], offset - self._shifts[i]) if i else offset


@cache
def _words(flags: int) -> Program:
    return program(f"{charset.as_re2(charset.category('w', flags))}+")


def _places_of(view: View, edges: frozenset[Edge]) -> dict[int, str]:
    """Marks by the offset at which their assertions hold."""
    data, size = view.data, len(view.data)
    holds: dict[int, str] = {}

    def mark(edge: Edge, offsets: Iterable[int]) -> None:
        if edge in edges:
            for offset in offsets:
                holds[offset] = holds.get(offset, "") + chr(MARKS[edge])

    for edge, opposite, flags in (
        (Edge.WORD, Edge.NO_WORD, re.UNICODE),
        (Edge.ASCII_WORD, Edge.NO_ASCII_WORD, re.ASCII),
    ):
        if edge in edges or opposite in edges:
            borders = set(_ends_of(_words(int(flags)), data))
            mark(edge, borders)
            if opposite in edges:
                mark(
                    opposite, (i for i in range(size + 1) if i not in borders and (i == size or data[i] & 0xC0 != 0x80))
                )
    newlines = [i for i, byte in enumerate(data) if byte == 10] if edges & _LINES else []
    begin, end = [0] * view.begins, [size] * view.ends
    mark(Edge.BEGIN, begin)
    mark(Edge.END, end)
    mark(Edge.LAST_LINE, [size - 1, size] if end and data.endswith(b"\n") else end)
    mark(Edge.LINE_BEGIN, [*begin, *(i + 1 for i in newlines)])
    mark(Edge.LINE_END, [*newlines, *end])
    return holds


def _ends_of(words: Program, data: bytes) -> Iterator[int]:
    at, size = 0, len(data)
    while True:
        start, at = words.Match(ANYWHERE, data, at, size)[0]
        if start < 0:
            return
        yield start
        yield at
