"""A request body read so that nobody downstream can read it differently, and changed without being re-encoded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from seawall.decision import Refusal
from seawall.llm.spans import Path, changed, encoded, scalar_member, spliced
from seawall.llm.strict_json import MAX_DEPTH, deeper_than, read_strictly

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Removed:
    """A member that is to be taken out."""


REMOVED = _Removed()


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A parsed body: the bytes as sent, and what they say."""

    data: bytes
    value: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """Value of a top-level member, or None: a member that is null counts as absent."""
        return self.value.get(name)

    def changed(self, changes: Mapping[Path, object]) -> bytes:
        """Write the body with the values at these paths set, or REMOVED; all other bytes as they were."""
        written = {path: None if value is REMOVED else encoded(value) for path, value in changes.items()}
        edits = self._plain_edits(written)
        return changed(self.data, written) if edits is None else spliced(self.data, edits)

    def _plain_edits(self, changes: Mapping[Path, bytes | None]) -> list[tuple[int, int, bytes]] | None:
        """The short way for what nearly every request gets: scalars of the top in their place, and members more."""
        data = self.data
        edits: list[tuple[int, int, bytes]] = []
        added = []
        for path, new in changes.items():
            name = path[0]
            if len(path) > 1 or new is None or not isinstance(name, str):
                return None
            if name not in self.value:
                added.append(encoded(name) + b":" + new)
                continue
            span = scalar_member(data, name)
            if span is None:
                return None
            edits.append((*span, new))
        if added:
            close = data.rindex(b"}")
            edits.append((close, close, (b"," if self.value else b"") + b",".join(added)))
        return edits


def parse_object(body: bytes) -> JsonObject | Refusal:
    """Parse a body that must be one JSON object; a refusal names the place.

    A body that msgspec reads is what it seems, but for names given twice and depth. Written again without white space it
    has as many colons as before, unless a name was dropped: its colon is then missing. Only an escaped colon could hide
    that. Whatever isn't sure is read again slowly.
    """
    try:
        value = _decode(body)
        if type(value) is dict and _unambiguous(value, body):
            return JsonObject(body, value)
    except (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError, RecursionError):
        pass
    read = read_strictly(body)
    return read if isinstance(read, Refusal) else JsonObject(body, read)


def _unambiguous(value: dict[str, Any], body: bytes) -> bool:
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        return False
    again = _encode(value)
    # Clients that write no white space, and the official ones don't, are recognised by their very bytes.
    return again == body or (again.count(b":") == body.count(b":") and (b"\\" not in body or b"\\u003" not in body))
