"""The slow reader of a body: it decides where the fast one is not sure, and says what is wrong and where.

Engines read JSON leniently (duplicate keys: the last wins; NaN), each in its own way. What the gate judged must be what
the engine executes, so a body that two parsers could read differently is refused: duplicate keys at any depth, NaN and
Infinity, bytes after the end, anything but UTF-8.
"""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from seawall.decision import Reason, Refusal

MAX_DEPTH = 128
"""Containers inside one another; deeper is refused. Real requests stay below 20."""

_SPACE = re.compile(r"[ \t\n\r]*")


class _Refused(Exception):
    def __init__(self, refusal: Refusal):
        self.refusal = refusal


class _NotJson(ValueError):
    """NaN or Infinity, which many parsers take."""


def read_strictly(body: bytes) -> dict[str, Any] | Refusal:
    """Read a body that must be one JSON object; a refusal names the place."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as e:
        return _malformed(f"the body is not valid UTF-8: byte {e.start}")
    if not text.strip(" \t\r\n"):
        return _malformed("the body is empty")
    try:
        return _members(text)
    except _Refused as e:
        return e.refusal
    except (ValueError, RecursionError) as e:
        return _told(e)


def _members(text: str) -> dict[str, Any]:
    at = _skip(text, 0)
    if text[at] != "{":
        _DECODER.decode(text)
        raise _Refused(_malformed("the body must be a JSON object"))
    members: dict[str, Any] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            if text[at : at + 1] != '"':
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
            name, at = scanstring(text, at + 1, True)
            if name in members:
                raise _Refused(_duplicate(name))
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
            start = _skip(text, at + 1)
            value, end = _value(text, start, name)
            members[name] = value
            at = _skip(text, end)
            mark = text[at : at + 1]
            if mark == "}":
                at += 1
                break
            if mark != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _skip(text, at + 1)
    if _skip(text, at) != len(text):
        raise json.JSONDecodeError("Extra data", text, _skip(text, at))
    if text.count("[") + text.count("{") > MAX_DEPTH:
        for name, value in members.items():
            if deeper_than(value, MAX_DEPTH - 1):
                raise _Refused(_too_deep(name))
    return members


def _value(text: str, start: int, name: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as e:
        raise _Refused(_told(e, name)) from None


def _told(error: ValueError | RecursionError, param: str = "body") -> Refusal:
    if isinstance(error, RecursionError):
        return _too_deep(param)
    if isinstance(error, json.JSONDecodeError):
        return _malformed(f"{error.msg} at line {error.lineno} column {error.colno}", param)
    if isinstance(error, _NotJson):
        return _malformed(f"{error} is not JSON", param)
    # int() of more digits than Python converts (sys.set_int_max_str_digits)
    return _malformed("a number has too many digits", param)


def _skip(text: str, at: int) -> int:
    if text[at : at + 1] > " ":
        return at
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def deeper_than(value: Any, depth: int) -> bool:
    """Whether containers stand inside one another more than `depth` times."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return bool(level)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Refused(_duplicate(name))
            seen.add(name)
    return members


def _no_constant(name: str) -> Any:
    raise _NotJson(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)


def _malformed(why: str, param: str = "body") -> Refusal:
    return Refusal(Reason.MALFORMED, f"We could not parse the body of your request: {why}.", _shown(param))


def _shown(name: str) -> str:
    return name if len(name) <= 64 else name[:61] + "..."


def _duplicate(name: str) -> Refusal:
    shown = _shown(name)
    return Refusal(Reason.MALFORMED, f"The key {json.dumps(shown)} is given twice in one object.", shown)


def _too_deep(param: str = "body") -> Refusal:
    return Refusal(Reason.MALFORMED, f"The body nests more than {MAX_DEPTH} levels deep.", _shown(param))
