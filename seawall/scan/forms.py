"""A pattern's tree written for the engines.

*exact*: for RE2 over UTF-8, the same spans as Python's `re`. *marked*: for RE2 over a text into which each assertion
that holds is written as a character of its own (`marks`), since RE2's `\\b` is ASCII's and its `$` is `\\Z`. *loose*:
over bytes, at least all matches, for prefilters.
"""

from seawall.scan.charset import as_bytes, as_re2, merged, without
from seawall.scan.pattern import Alt, At, Chars, Edge, Node, Repeat, Seq, least_length

MARKS = {edge: 0xFDD0 + i for i, edge in enumerate(Edge)}
"""Noncharacters that stand for assertions; in a text they count as U+FFFD."""
_MARK = "[\\x{fdd0}-\\x{fdd8}]"
_MARK_RANGES = ((0xFDD0, 0xFDD8),)
_RE2_REPEAT = 1000

_EXACT = {
    Edge.BEGIN: "\\A",
    Edge.END: "\\z",
    Edge.LAST_LINE: "\\z",
    Edge.LINE_BEGIN: "(?m:^)",
    Edge.LINE_END: "(?m:$)",
    Edge.WORD: "\\b",
    Edge.NO_WORD: "\\B",
    Edge.ASCII_WORD: "\\b",
    Edge.NO_ASCII_WORD: "\\B",
}


def exact(node: Node, *, marked: bool = False) -> str:
    """Write for RE2 over UTF-8, or over a marked text."""
    match node:
        case Chars(ranges):
            return f"{_MARK}*{as_re2(without(ranges, _MARK_RANGES))}" if marked else as_re2(ranges)
        case At(edge):
            # As few marks as can be: the rest are for the assertions that follow.
            return f"{_MARK}*?\\x{{{MARKS[edge]:x}}}" if marked else _EXACT[edge]
        case Seq(items):
            return "".join(exact(item, marked=marked) for item in items)
        case Alt(items):
            return "(?:" + "|".join(exact(item, marked=marked) for item in items) + ")"
        case Repeat(item, least, most, greedy):
            inner = exact(item, marked=marked)
            limit = max(1, _RE2_REPEAT // max(1, _written(item)))
            return _counted(f"(?:{inner})", least, most, "" if greedy else "?", limit)


def loose(node: Node, most_copies: int) -> bytes:
    """Write over the bytes of UTF-8: assertions count as met, what would be more than so many copies as endless."""
    match node:
        case Chars(ranges):
            return as_bytes(ranges)
        case At():
            return b""
        case Seq(items):
            return b"".join(loose(item, most_copies) for item in items)
        case Alt(items):
            return b"(?:" + b"|".join(loose(item, most_copies) for item in items) + b")"
        case Repeat(item, least, most, _):
            inner = loose(item, most_copies)
            if not inner or most == 0:
                return b""
            copies = _written_loosely(item, most_copies)
            if most is None or most * copies > most_copies:
                if least == 0 or least_length(item) == 0:
                    return b"(?:%s)*" % inner
                times = max(1, min(least, most_copies // copies))
                return b"(?:%s)+" % inner if times == 1 else b"(?:%s){%d,}" % (inner, times)
            if (least, most) == (1, 1):
                return inner
            return b"(?:%s)?" % inner if (least, most) == (0, 1) else b"(?:%s){%d,%d}" % (inner, least, most)


def _counted(inner: str, least: int, most: int | None, lazy: str, limit: int) -> str:
    """Write a repeat for RE2, which counts to 1,000 at most, all repeats around it included.

    Counts are cut into a row of smaller ones; tried in order, the row goes through the same alternatives.
    """
    out = []
    while least > limit:
        out.append(f"{inner}{{{limit}}}")
        least, most = least - limit, None if most is None else most - limit
    if most is None:
        out.append(f"{inner}{{{least},}}{lazy}" if least > 1 else f"{inner}{'+' if least else '*'}{lazy}")
        return "".join(out)
    first = min(most, limit)
    out.append(f"{inner}{{{least},{first}}}{lazy}" if first else "")
    most -= first
    while most > 0:
        out.append(f"{inner}{{0,{min(most, limit)}}}{lazy}")
        most -= limit
    return "".join(out)


def _written(node: Node) -> int:
    """Product of the counts that RE2 will see in a node, at most."""
    match node:
        case Chars() | At():
            return 1
        case Seq(items) | Alt(items):
            return max((_written(item) for item in items), default=1)
        case Repeat(item, least, most):
            return min(max(least, most or 1, 1), _RE2_REPEAT) * _written(item)


def _written_loosely(node: Node, most_copies: int) -> int:
    match node:
        case Chars() | At():
            return 1
        case Seq(items) | Alt(items):
            return max(1, sum(_written_loosely(item, most_copies) for item in items))
        case Repeat(item, least, most):
            times = max(least, 1) if most is None else max(most, 1)
            return min(times * _written_loosely(item, most_copies), most_copies)


assert merged((mark, mark) for mark in MARKS.values()) == _MARK_RANGES
