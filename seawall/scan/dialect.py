"""From a pattern's text to its tree: Python's `re` without look-around and back-references.

The tree comes from Python's own parser. It alone knows exactly what a pattern means to Python: where flags hold, what
`\\10` or `{,5}` is, which alternatives share a beginning. Its module is private, so `tests/unit/scan/test_dialect.py`
compares spans with `re` on every Python that we support. Only positions are missing in its tree: what is refused is
looked for in the text once more.
"""

import re
import warnings
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from seawall.scan import charset
from seawall.scan.charset import ANY, NEWLINE, Ranges
from seawall.scan.pattern import Alt, At, Chars, Edge, Node, Repeat, Seq, edges_together, least_length

MAX_PATTERN = 4096
"""Longest pattern, characters."""
MAX_REPEAT = 10_000
"""Largest count of a repeat."""
MAX_SIZE = 200_000
"""Largest pattern once its repeats are written out, in characters to match."""
MAX_WEIGHT = 600_000
"""Largest pattern for RE2, in ranges of characters: `\\w` alone has 734, and `\\w{1,600}` is near the bound."""
MAX_EDGES = 8

_TYPES = re.ASCII | re.LOCALE | re.UNICODE
_BACK = "a back-reference"
_AROUND = "look-around"
_POSSESSIVE = "a possessive quantifier"
_ATOMIC = "an atomic group"
_CONDITION = "a conditional group"

_PLACES: dict[str, Any] = {
    _AROUND: r"\(\?<?[=!]",
    _BACK: r"\\[1-9]|\(\?P=",
    _POSSESSIVE: r"[*+?}]\+",
    _ATOMIC: r"\(\?>",
    _CONDITION: r"\(\?\(",
}
_SKIPPED = r"\\[^1-9]|\[\^?\]?(?:[^\]\\]|\\.)*\]"


class Refused(ValueError):
    """A pattern that is none, or is beyond the dialect; `position` counts characters from 0, None if it has no place."""

    def __init__(self, why: str, position: int | None = None):
        self.why = why
        self.position = position
        super().__init__(why if position is None else f"{why} at position {position}")


def parse(pattern: str) -> Node:
    """Read a pattern. Raises Refused with what is wrong and where."""
    if len(pattern) > MAX_PATTERN:
        raise Refused(f"a pattern of more than {MAX_PATTERN} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parser.parse(pattern)
        flags = re.compile("").flags | tree.state.flags
        if flags & re.ASCII:
            flags &= ~re.UNICODE
        node = _Reader(pattern).sequence(tree, flags)
        if least_length(node) == 0:
            raise Refused("matches the empty text, so every place would be a hit")
        if _size(node) > MAX_SIZE:
            raise Refused("repeats inside repeats make it too large")
        if _weight(node) > MAX_WEIGHT:
            raise Refused("too many repeats of wide sets such as \\w make it too large")
        if edges_together(node) > MAX_EDGES:
            raise Refused(f"more than {MAX_EDGES} assertions in a row")
    except re.error as e:
        raise Refused(f"is no pattern: {e.msg}", e.pos) from None
    except (RecursionError, OverflowError):
        raise Refused("is nested too deeply or repeats too often") from None
    return node


class _Reader:
    """Turns Python's tree into ours."""

    def __init__(self, pattern: str):
        self.pattern = pattern

    def refuse(self, construct: str) -> Refused:
        found = re.compile(f"(?s:{_SKIPPED}|(?P<it>{_PLACES[construct]}))").finditer(self.pattern)
        # The plus of a possessive quantifier is what is too much, not the star before it.
        at = next((m.end() - 1 if construct is _POSSESSIVE else m.start() for m in found if m["it"]), None)
        return Refused(f"{construct} is beyond the dialect", at)

    def sequence(self, tree: Any, flags: int) -> Node:
        items = tuple(self.one(code, value, flags) for code, value in tree)
        return items[0] if len(items) == 1 else Seq(items)

    def one(self, code: Any, value: Any, flags: int) -> Node:
        if code in {op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN}:
            return Chars(_characters(code, value, flags))
        if code is op.AT:
            return At(_edge(value, flags))
        if code is op.BRANCH:
            return Alt(tuple(self.sequence(branch, flags) for branch in value[1]))
        if code is op.SUBPATTERN:
            _, added, removed, tree = value
            return self.sequence(tree, ((flags & ~_TYPES if added & _TYPES else flags) | added) & ~removed)
        if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
            least, most, tree = value
            highest = None if most is op.MAXREPEAT else int(most)
            if max(int(least), highest or 0) > MAX_REPEAT:
                raise Refused(f"repeats more than {MAX_REPEAT} times")
            return Repeat(self.sequence(tree, flags), int(least), highest, code is op.MAX_REPEAT)
        if code in {op.GROUPREF, op.GROUPREF_EXISTS}:
            raise self.refuse(_BACK if code is op.GROUPREF else _CONDITION)
        if code is op.POSSESSIVE_REPEAT:
            raise self.refuse(_POSSESSIVE)
        if code is op.ATOMIC_GROUP:
            raise self.refuse(_ATOMIC)
        # ASSERT, ASSERT_NOT, and FAILURE, which an empty negative look-ahead becomes.
        raise self.refuse(_AROUND)


def _edge(code: Any, flags: int) -> Edge:
    lines, ascii_only = bool(flags & re.MULTILINE), bool(flags & re.ASCII)
    return {
        op.AT_BEGINNING: Edge.LINE_BEGIN if lines else Edge.BEGIN,
        op.AT_BEGINNING_STRING: Edge.BEGIN,
        op.AT_END: Edge.LINE_END if lines else Edge.LAST_LINE,
        op.AT_END_STRING: Edge.END,
        op.AT_BOUNDARY: Edge.ASCII_WORD if ascii_only else Edge.WORD,
        op.AT_NON_BOUNDARY: Edge.NO_ASCII_WORD if ascii_only else Edge.NO_WORD,
    }[code]


def _characters(code: Any, value: Any, flags: int) -> Ranges:
    if code is op.ANY:
        return ANY if flags & re.DOTALL else charset.complement(NEWLINE)
    items = value if code is op.IN else [(op.LITERAL, value)]
    negated = code is op.NOT_LITERAL
    kind = int(flags & (re.ASCII | re.UNICODE))
    ranges: list[tuple[int, int]] = []
    source = ""
    for inner, detail in items:
        if inner is op.NEGATE:
            negated = True
        elif inner is op.LITERAL:
            ranges.append((detail, detail))
            source += f"\\U{detail:08x}"
        elif inner is op.RANGE:
            ranges.append((detail[0], detail[1]))
            source += f"\\U{detail[0]:08x}-\\U{detail[1]:08x}"
        else:
            letter = _CATEGORIES[detail]
            ranges += charset.category(letter, kind)
            source += f"\\{letter}"
    plain = charset.merged(ranges)
    if negated:
        plain = charset.complement(plain)
    if flags & re.IGNORECASE:
        return charset.caseless(plain, f"[{'^' if negated else ''}{source}]", kind | re.IGNORECASE)
    return plain


_CATEGORIES = {
    op.CATEGORY_DIGIT: "d",
    op.CATEGORY_NOT_DIGIT: "D",
    op.CATEGORY_SPACE: "s",
    op.CATEGORY_NOT_SPACE: "S",
    op.CATEGORY_WORD: "w",
    op.CATEGORY_NOT_WORD: "W",
}


def _size(node: Node) -> int:
    match node:
        case Chars() | At():
            return 1
        case Seq(items) | Alt(items):
            return sum(_size(item) for item in items)
        case Repeat(item, least, most):
            return _size(item) * max(least, most or 1, 1)


def _weight(node: Node) -> int:
    match node:
        case Chars(ranges):
            return len(ranges)
        case At():
            return 1
        case Seq(items) | Alt(items):
            return sum(_weight(item) for item in items)
        case Repeat(item, least, most):
            return _weight(item) * max(least, most or 1, 1)
