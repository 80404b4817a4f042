"""Where a value stands in the bytes of a JSON text, and the text with some values changed: every other byte stays.

Nothing is ever encoded again, so digits of numbers, order of keys, escapes and white space survive. Values are skipped by
msgspec (`Raw`), only keys are looked at.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

Path = tuple[str | int, ...]
"""Keys and indices from the top to a value."""


class Member(NamedTuple):
    """Byte offsets of one member of an object: its name with the quotes begins at `name`, its value is start:end."""

    name: int
    start: int
    end: int


_encode = msgspec.json.Encoder().encode
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_NAME = re.compile(rb'[ \t\n\r,]*("(?:[^"\\]|\\.)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_SCALAR = re.compile(rb'[ \t\n\r]*("(?:[^"\\]|\\.)*+"|[-+.0-9A-Za-z]++)', re.DOTALL)
_TRIES = 4
"""Times that a name is looked for further down before all members are gone through."""
_BETWEEN = re.compile(rb"[ \t\n\r,]*")
_SPACE = re.compile(rb"[ \t\n\r]*")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]", re.DOTALL)
_ESCAPED = re.compile(r"[\ud800-\udfff]")


def members(data: bytes, start: int = 0, end: int | None = None) -> dict[str, Member] | None:
    """Members of the object that stands at start:end (white space around it allowed), in order; None for anything else.

    None too for an object that has a name twice: then it isn't known which value a reader would take.
    """
    text = data[start:end] if start or end is not None else data
    try:
        values = _OBJECT.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Half of a surrogate pair is legal in a name; other digits in its place change no offset.
        text = _SURROGATE.sub(rb"\\u0041", text)
        try:
            values = _OBJECT.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    found: dict[str, Member] = {}
    at = text.index(b"{") + 1
    for name, raw in values.items():
        # The usual spellings, then any.
        begin = at + text.startswith(b",", at)
        begin += text.startswith(b" ", begin)
        key = b'"%b":' % name.encode("utf-8", "surrogatepass")
        if text.startswith(key, begin) and b"\\" not in key:
            at = begin + len(key)
            at += text.startswith(b" ", at)
            if text[at] <= 0x20:
                at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        else:
            match = _NAME.match(text, at)
            if match is None or _decoded(match[1]) != name:
                return None
            begin, at = match.start(1), match.end()
        first, at = at, at + memoryview(raw).nbytes
        found[name] = Member(start + begin, start + first, start + at)
    close = _SPACE.match(text, at)
    return found if close is not None and text[close.end() : close.end() + 1] == b"}" else None


def items(data: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, int]] | None:
    """Byte offsets of the values of the array that stands at start:end; None for anything else."""
    text = data[start:end] if start or end is not None else data
    try:
        values = _ARRAY.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found = []
    at = text.index(b"[") + 1
    for raw in values:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        size = memoryview(raw).nbytes
        found.append((start + at, start + at + size))
        at += size
    return found


def scalar_member(data: bytes, name: str) -> tuple[int, int] | None:
    """Byte offsets of the value of a top-level member that is a scalar and spelled as usual; None where that isn't sure.

    `data` is one JSON object that has no name twice. A name stands at the top where what is before it, with a member more
    and closed, is an object.
    """
    if not name.isidentifier() or not name.isascii():
        return None
    key = b'"%b":' % name.encode()
    at = data.find(key)
    for _ in range(_TRIES):
        if at < 0:
            return None
        if not _is_at_the_top(data, at):
            at = data.find(key, at + 1)
            continue
        value = _SCALAR.match(data, at + len(key))
        return None if value is None else value.span(1)
    return None


def _is_at_the_top(data: bytes, at: int) -> bool:
    if data[at - 1] == 0x5C:
        # The quote is escaped: it stands in a name that ends alike.
        return False
    try:
        _OBJECT.decode(data[:at] + b'"":0}')
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def locate(data: bytes, path: Path) -> tuple[int, int] | None:
    """Byte offsets of the value at a path, or None where there is none."""
    start, end = 0, len(data)
    for step in path:
        if isinstance(step, str):
            inside = members(data, start, end)
            member = inside.get(step) if inside is not None else None
            if member is None:
                return None
            start, end = member.start, member.end
        else:
            values = items(data, start, end)
            if values is None or not -len(values) <= step < len(values):
                return None
            start, end = values[step]
    return start, end


def spliced(data: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Put other bytes in the place of some ranges, which must not overlap."""
    parts: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += (data[at:start], new)
        at = end
    parts.append(data[at:])
    return b"".join(parts)


def changed(data: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    """Write a JSON text with the values at these paths set, or with None their members taken out.

    A member that isn't there is added at the end of its object. Raises ValueError where a path leads nowhere, or to an
    element of an array that isn't there. No path may lead into the value of another.
    """
    parents: dict[Path, dict[str | int, bytes | None]] = {}
    for path, value in changes.items():
        parents.setdefault(path[:-1], {})[path[-1]] = value
    edits: list[tuple[int, int, bytes]] = []
    for parent, inside in parents.items():
        span = locate(data, parent) if parent else (0, len(data))
        if span is None:
            raise ValueError(f"nothing at {parent}")
        if isinstance(next(iter(inside)), int):
            values = items(data, *span) or []
            for index, value in inside.items():
                start, end = values[index]  # type: ignore[index]
                edits.append((start, end, value if value is not None else b"null"))
        else:
            edits += _of_object(data, span, inside)  # type: ignore[arg-type]
    return spliced(data, edits)


def _of_object(data: bytes, span: tuple[int, int], changes: Mapping[str, bytes | None]) -> list[tuple[int, int, bytes]]:
    there = members(data, *span)
    if there is None:
        raise ValueError(f"no object at byte {span[0]}")
    edits = []
    names = list(there)
    kept_before = False
    for i, name in enumerate(names):
        if name not in changes:
            kept_before = True
            continue
        member, value = there[name], changes[name]
        if value is not None:
            edits.append((member.start, member.end, value))
            kept_before = True
        elif kept_before:
            # With the comma before it, else with the one after it.
            edits.append((there[names[i - 1]].end, member.end, b""))
        else:
            after = there[names[i + 1]].name if i + 1 < len(names) else member.end
            edits.append((member.name, after, b""))
    added = [encoded(name) + b":" + value for name, value in changes.items() if value is not None and name not in there]
    if added:
        comma = b"," if any(changes.get(name, b"") is not None for name in names) else b""
        close = data.rindex(b"}", span[0], span[1])
        edits.append((close, close, comma + b",".join(added)))
    return edits


def encoded(value: object) -> bytes:
    """JSON of a value, ASCII only; bytes are JSON already."""
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[return-value]
    if kind is int or kind is bool or (kind is str and value.isascii()):  # type: ignore[attr-defined]
        return _encode(value)
    return json.dumps(value).encode()


def text_spliced(token: bytes, edits: Sequence[tuple[int, int, str]]) -> bytes:
    """Change a JSON string by places in its text: `token` has its quotes and escapes, `edits` are (start, end, new).

    start:end count characters of the unescaped text, sorted and not overlapping. What is outside stays as it is written.
    """
    inner = token[1:-1]
    if b"\\" not in inner and inner.isascii():
        return b'"' + spliced(inner, [(start, end, _escaped(new)) for start, end, new in edits]) + b'"'
    written = inner.decode("utf-8", "surrogateescape")
    borders = [0]
    last = max((end for _, end, _ in edits), default=0)
    for match in _CHARACTER.finditer(written):
        if len(borders) > last:
            break
        borders.append(match.end())
    parts: list[bytes] = []
    at = 0
    for start, end, new in edits:
        left, right = (borders[min(i, len(borders) - 1)] for i in (start, end))
        parts += (written[at:left].encode("utf-8", "surrogateescape"), _escaped(new))
        at = right
    parts.append(written[at:].encode("utf-8", "surrogateescape"))
    return b'"' + b"".join(parts) + b'"'


def _escaped(text: str) -> bytes:
    return _ESCAPED.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(text, ensure_ascii=False)[1:-1]).encode()


def _decoded(name: bytes) -> str | None:
    if b"\\" not in name:
        return name[1:-1].decode("utf-8", "replace")
    try:
        return str(msgspec.json.decode(name, type=str))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
