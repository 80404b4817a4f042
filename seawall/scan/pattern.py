"""A pattern as a tree of our own, and what can be worked out from it."""

from dataclasses import dataclass
from enum import Enum

from seawall.scan.charset import NEWLINE, Ranges, merged


class Edge(Enum):
    """What an assertion asks of a place between two characters."""

    BEGIN = r"\A"
    END = r"\Z"
    LAST_LINE = "$"
    LINE_BEGIN = "(?m)^"
    LINE_END = "(?m)$"
    WORD = r"\b"
    NO_WORD = r"\B"
    ASCII_WORD = r"(?a)\b"
    NO_ASCII_WORD = r"(?a)\B"


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class At:
    """A place, no character."""

    edge: Edge


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Alt:
    """The first that leads to a match."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times (None: without end), as often as possible if `greedy`, else as seldom."""

    item: "Node"
    least: int
    most: int | None
    greedy: bool


Node = Chars | At | Seq | Alt | Repeat
NOTHING = Seq(())


def least_length(node: Node) -> int:
    """Fewest characters of a match."""
    match node:
        case Chars():
            return 1
        case At():
            return 0
        case Seq(items):
            return sum(least_length(item) for item in items)
        case Alt(items):
            return min(least_length(item) for item in items)
        case Repeat(item, least):
            return least * least_length(item)


def most_length(node: Node) -> int | None:
    """Most characters of a match, None if there is no bound."""
    match node:
        case Chars():
            return 1
        case At():
            return 0
        case Seq(items) | Alt(items):
            lengths = [most_length(item) for item in items]
            known = [n for n in lengths if n is not None]
            if len(known) < len(lengths):
                return None
            return sum(known) if isinstance(node, Seq) else max(known)
        case Repeat(item, _, most):
            once = most_length(item)
            return 0 if once == 0 else None if once is None or most is None else once * most


def known_after(node: Node) -> int | None:
    """Most characters that a text can have of a match before it is one, None if there is no bound.

    What a match may go on with counts for nothing: `sk-[a-z]{20,}` is one after 23.
    """
    match node:
        case Seq(items):
            for i in range(len(items) - 1, -1, -1):
                last = known_after(items[i])
                if last != 0 or edges_of(items[i]):
                    before = most_length(Seq(items[:i]))
                    return None if last is None or before is None else before + last
            return 0
        case Alt(items):
            lengths = [known_after(item) for item in items]
            known = [n for n in lengths if n is not None]
            return max(known) if len(known) == len(lengths) else None
        case Repeat(item, least):
            once, whole = known_after(item), most_length(item)
            if least == 0:
                return 0
            return None if once is None or (whole is None and least > 1) else (whole or 0) * (least - 1) + once
    return most_length(node)


def widest(node: Node) -> int:
    """Most bytes of UTF-8 that one character of a match has."""
    match node:
        case Chars(ranges):
            return len(chr(ranges[-1][1]).encode("utf-8", "surrogatepass")) if ranges else 1
        case At():
            return 1
        case Seq(items) | Alt(items):
            return max((widest(item) for item in items), default=1)
        case Repeat(item):
            return widest(item)


def edges_of(node: Node) -> frozenset[Edge]:
    """Every kind of assertion in a pattern."""
    match node:
        case Chars():
            return frozenset()
        case At(edge):
            return frozenset({edge})
        case Seq(items) | Alt(items):
            return frozenset().union(*(edges_of(item) for item in items))
        case Repeat(item):
            return edges_of(item)


def edges_together(node: Node) -> int:
    """At most how many assertions a match may ask of one place."""
    match node:
        case Chars():
            return 0
        case At():
            return 1
        case Seq(items):
            return sum(edges_together(item) for item in items)
        case Alt(items):
            return max((edges_together(item) for item in items), default=0)
        case Repeat(item, least):
            return edges_together(item) * max(1, least if least_length(item) == 0 else 1)


def beginnings(node: Node) -> Node | None:
    """Pattern of what a longer match may begin with: text that ends in one of these is not decided yet.

    Assertions count as met, and one at the very end as open: whether it holds depends on the text to come. The result
    may match more than the true beginnings (which costs a delay), never less. None: no text is a beginning.
    """
    match node:
        case Chars():
            return NOTHING
        case At(edge):
            # Before a last newline `$` holds only if nothing follows.
            return Repeat(Chars(NEWLINE), 0, 1, greedy=True) if edge is Edge.LAST_LINE else NOTHING
        case Seq(items):
            rest: Node | None = None
            for item in reversed(items):
                here = beginnings(item)
                after = Seq((item, rest)) if rest is not None else None
                rest = after if here is None else here if after is None else Alt((here, after))
            return rest
        case Alt(items):
            found = tuple(b for b in map(beginnings, items) if b is not None)
            return Alt(found) if found else None
        case Repeat(item, _, most, greedy):
            inner = beginnings(item)
            if inner is None or most == 0:
                return None
            return Seq((Repeat(item, 0, None if most is None else most - 1, greedy), inner))


SEPARATORS = Chars(merged((ord(c), ord(c)) for c in " -\u00a0\u2007\u2009\u2010\u2011\u2012\u2013\u2014\u202f\u2212"))
"""What people write between the digits of a number."""
_BETWEEN = Repeat(SEPARATORS, 0, 1, greedy=True)


def digits_only(node: Node) -> bool:
    """Whether this is one character, and always a decimal digit."""
    return isinstance(node, Chars) and all(chr(point).isdecimal() for pair in node.ranges for point in pair)


def with_separators(node: Node) -> Node:
    """Let one space or hyphen stand between two digits that follow each other."""
    match node:
        case Seq(items):
            out: list[Node] = []
            for item in items:
                if out and _ends_in_digit(out[-1]) and _begins_with_digit(item):
                    out.append(_BETWEEN)
                out.append(with_separators(item))
            return Seq(tuple(out))
        case Alt(items):
            return Alt(tuple(with_separators(item) for item in items))
        case Repeat(item, least, most, greedy) if digits_only(item) and most != 1:
            again = Repeat(Seq((_BETWEEN, item)), max(least - 1, 0), None if most is None else most - 1, greedy)
            once = Seq((item, again))
            return once if least else Repeat(once, 0, 1, greedy)
        case Repeat(item, least, most, greedy):
            inner = with_separators(item)
            if most != 1 and _begins_with_digit(item) and _ends_in_digit(item):
                again = Repeat(Seq((_BETWEEN, inner)), max(least - 1, 0), None if most is None else most - 1, greedy)
                once = Seq((inner, again))
                return once if least else Repeat(once, 0, 1, greedy)
            return Repeat(inner, least, most, greedy)
    return node


def _begins_with_digit(node: Node) -> bool:
    match node:
        case Seq(items):
            return bool(items) and _begins_with_digit(items[0])
        case Alt(items):
            return all(_begins_with_digit(item) for item in items)
        case Repeat(item, least):
            return least > 0 and _begins_with_digit(item)
    return digits_only(node)


def _ends_in_digit(node: Node) -> bool:
    match node:
        case Seq(items):
            return bool(items) and _ends_in_digit(items[-1])
        case Alt(items):
            return all(_ends_in_digit(item) for item in items)
        case Repeat(item, least):
            return least > 0 and _ends_in_digit(item)
    return digits_only(node)
