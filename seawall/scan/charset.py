"""Sets of characters as Python's `re` means them, and how RE2 and Hyperscan are told of them.

RE2's and Hyperscan's own `\\w`, `\\d`, `\\s` and caseless modes follow other rules or other releases of Unicode. So a
set is worked out here, with `re` as the judge of single characters, and handed on as plain ranges. This runs while a
policy is compiled, never on a request.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

Ranges = tuple[tuple[int, int], ...]
"""Code points from, to (both included), sorted and apart."""

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
NEWLINE: Ranges = ((10, 10),)
ANY: Ranges = ((0, LAST),)
_LAST_LETTER, _LAST_CASED = 0x3FFFF, 0x1FFFF
"""No character behind these is of a category, or has a case."""
_FEW = 8


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and join those that touch."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return tuple(out)


def complement(ranges: Ranges) -> Ranges:
    """All code points that are not in the set."""
    out, at = [], 0
    for first, last in ranges:
        if at < first:
            out.append((at, first - 1))
        at = last + 1
    if at <= LAST:
        out.append((at, LAST))
    return tuple(out)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """Those of the first set that are not in the second."""
    return complement(merged([*complement(ranges), *taken]))


def contains(ranges: Ranges, point: int) -> bool:
    """Whether a code point is in the set."""
    return any(first <= point <= last for first, last in ranges)


@cache
def category(letter: str, flags: int) -> Ranges:
    r"""Set of `\w`, `\d`, `\s` and their opposites under these flags, as this Python has it."""
    if letter.isupper():
        return complement(category(letter.lower(), flags))
    found = re.compile(rf"\{letter}+", flags).finditer("".join(map(chr, range(_LAST_LETTER + 1))))
    return tuple((m.start(), m.end() - 1) for m in found)


@cache
def _cased() -> str:
    """Every character for which caselessness can make a difference."""
    points: set[str] = set()
    for point in range(_LAST_CASED + 1):
        char = chr(point)
        lower, upper = char.lower(), char.upper()
        if lower != char or upper != char or char.casefold() != char:
            points |= {char, *lower, *upper}
    return "".join(sorted(points))


@lru_cache(maxsize=4096)
def caseless(plain: Ranges, source: str, flags: int) -> Ranges:
    """Set that a class matches under IGNORECASE: `plain` is what it matches without, `source` the class itself."""
    cased = _cased()
    judged = re.compile(source, flags)
    found = [(ord(c), ord(c)) for c in cased if judged.fullmatch(c)]
    return merged([*without(plain, merged((ord(c), ord(c)) for c in cased)), *found])


@lru_cache(maxsize=1024)
def as_re2(ranges: Ranges) -> str:
    """Write a set as RE2's class, exactly; lone surrogates can't stand in UTF-8 and are left out."""
    parts = []
    for first, last in without(ranges, (_SURROGATES,)):
        parts.append(f"\\x{{{first:x}}}" if first == last else f"\\x{{{first:x}}}-\\x{{{last:x}}}")
    return f"[{''.join(parts)}]" if parts else "[^\\x00-\\x{10ffff}]"


@lru_cache(maxsize=1024)
def as_bytes(ranges: Ranges) -> bytes:
    """Write a set as an expression over the bytes of its UTF-8: exact for ASCII and for few characters, else wider.

    A wide set of other characters is told by the first bytes of their encodings alone: the expression finds all of
    them and maybe their neighbours, as a prefilter may.
    """
    ranges = without(ranges, (_SURROGATES,))
    ascii_part = [(first, min(last, 0x7F)) for first, last in ranges if first < 0x80]
    others = [(max(first, 0x80), last) for first, last in ranges if last >= 0x80]
    parts = [_byte_class(ascii_part)] if ascii_part else []
    if sum(last - first + 1 for first, last in others) <= _FEW:
        for first, last in others:
            parts += [_literal(chr(point).encode()) for point in range(first, last + 1)]
    else:
        for size, least, most in ((2, 0x80, 0x7FF), (3, 0x800, 0xFFFF), (4, 0x10000, LAST)):
            leads = []
            for first, last in others:
                low, high = max(first, least), min(last, most)
                if low <= high:
                    leads.append((_lead(low), _lead(high)))
            if leads:
                tail = b"[\\x80-\\xbf]" if size == 2 else b"[\\x80-\\xbf]{%d}" % (size - 1)
                parts.append(_byte_class(merged(leads)) + tail)
    if not parts:
        return b"[^\\x00-\\xff]"
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


def _lead(point: int) -> int:
    return chr(point).encode("utf-8", "surrogatepass")[0]


def _literal(data: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in data)


def _byte_class(ranges: Sequence[tuple[int, int]]) -> bytes:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return b"\\x%02x" % ranges[0][0]
    return b"[" + b"".join(b"\\x%02x-\\x%02x" % pair for pair in ranges) + b"]"
