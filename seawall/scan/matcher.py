"""The exact matches of one pattern: those that `re.finditer` would give, found by RE2 in bounded work."""

from collections.abc import Iterator, Sequence

from seawall.scan.forms import exact, loose
from seawall.scan.pattern import Edge, Node, beginnings, edges_of, edges_together
from seawall.scan.re2_program import ANYWHERE, Program, program
from seawall.scan.view import View

Span = tuple[int, int]
"""Offsets of first byte and of the byte after the last."""

FIRST_WINDOW = 256
WORK_FACTOR = 32
WORK_FREE = 1 << 20
"""A pattern may look at 32 times the text, and a mebibyte more."""
_FEW = 50
_WORDS = frozenset({Edge.WORD, Edge.NO_WORD})


class TooMuchWork(Exception):
    """A text makes a pattern look at it over and over."""


class Matcher:
    """One pattern, compiled. Raises TooLarge where RE2 has no room for it."""

    __slots__ = ("_began", "_edges", "_marked", "_plain", "_together", "_unlike_in_text", "_unlike_last")

    def __init__(self, node: Node):
        self._plain: Program = program(exact(node))
        self._edges = edges_of(node)
        self._together = edges_together(node)
        # Where RE2's own assertions differ from Python's.
        self._unlike_in_text = bool(self._edges & _WORDS)
        self._unlike_last = Edge.LAST_LINE in self._edges
        needs_marks = self._unlike_in_text or self._unlike_last
        self._marked: Program | None = program(exact(node, marked=True)) if needs_marks else None
        self._began = program(undecided([node]))

    def first(self, view: View, start: int, end: int) -> Span | None:
        """Leftmost match that begins at `start` or later, as if the text ended at `end`."""
        size = len(view.data)
        if self._marked is not None and (
            (self._unlike_in_text and not view.ascii) or (self._unlike_last and view.ends and view.data.endswith(b"\n"))
        ):
            text = view.marked(self._edges, self._together)
            until = len(text.data) if end == size else text.inside(end)
            data = text.data if end == size else memoryview(text.data)[:until]
            found = self._marked.Match(ANYWHERE, data, text.inside(start), until)[0]
            return (text.outside(found[0]), text.outside(found[1])) if found[0] >= 0 else None
        data = view.data if end == size else memoryview(view.data)[:end]
        found = self._plain.Match(ANYWHERE, data, start, end)[0]
        return found if found[0] >= 0 else None

    def all(self, view: View, start: int = 0) -> Iterator[Span]:
        """Every match of a whole text, in order. Raises TooMuchWork.

        RE2 looks at windows of the text, so that the cost of a match doesn't grow with what follows it. A match counts
        once nothing before its end of the window is undecided; else the window grows.
        """
        size = len(view.data)
        left = WORK_FACTOR * (size - start) + WORK_FREE
        window = FIRST_WINDOW
        while start < size:
            end = min(size, start + window)
            while end < size and view.data[end] & 0xC0 == 0x80:
                end += 1  # windows end between characters
            left -= end - start
            if left < 0:
                raise TooMuchWork
            found = self.first(view, start, end)
            if end < size:
                open_from = leftmost(self._began, view.data, start, end)
                if found is None or found[0] >= open_from:
                    start, window = open_from, window * 4
                    continue
            if found is None:
                return
            yield found
            start, window = found[1], FIRST_WINDOW


def undecided(nodes: Sequence[Node]) -> bytes:
    """Expression over bytes for the longest end of a text that may be the beginning of a match.

    Counts are kept so that nothing waits that is already too long, unless many patterns would make it large.
    """
    copies = 64 if len(nodes) <= _FEW else 16
    found = dict.fromkeys(loose(b, copies) for node in nodes if (b := beginnings(node)) is not None)
    return b"(?:" + b"|".join(found) + b")\\z"


def leftmost(began: Program, data: bytes, start: int, end: int) -> int:
    """Where the earliest match may have begun that more text could still change; `end` if there is none."""
    view = data if end == len(data) else memoryview(data)[:end]
    at = began.Match(ANYWHERE, view, start, end)[0][0]
    return end if at < 0 else at
