"""Server-sent events out of a byte stream cut anywhere (WHATWG HTML §9.2.6), without touching the bytes.

State lives for the whole stream, never for a chunk: a chunk may end inside `da|ta:`, inside a UTF-8 sequence, between CR
and LF. The unfinished event is bounded; past the bound the parser stops judging and says so.
"""

import re

MAX_EVENT = 1 << 20
"""Bytes of one unfinished event that are kept."""

_LINE_END = re.compile(rb"\r\n|\n|\r")


class SseParser:
    """Feed bytes, get the data of each finished event. `overflowed` once an event was too large: no events after it."""

    __slots__ = ("_data", "_first", "_rest", "_size", "overflowed")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._first = True
        self.overflowed = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; the data of events that they complete, `data:` lines joined with LF."""
        if self.overflowed:
            return []
        if chunk.endswith(b"\n\n") and not (self._rest or self._data or self._first):
            plain = _plain_events(chunk)
            if plain is not None:
                return plain
        text = self._rest + chunk if self._rest else chunk
        # What is kept has no line end but perhaps a CR at its end: it needn't be searched again.
        searched = max(0, len(self._rest) - 1)
        if self._first:
            if len(text) < 3 and b"\xef\xbb\xbf".startswith(text):
                self._rest = text
                return []
            self._first = False
            text = text.removeprefix(b"\xef\xbb\xbf")
            searched = 0
        events: list[bytes] = []
        at = 0
        end = len(text)
        for match in _LINE_END.finditer(text, searched):
            # A CR at the very end may be half of a CRLF: the next chunk tells.
            if match.end() == end and match.group() == b"\r":
                break
            if not self._fits(match.start() - at):
                return events
            self._line(text[at : match.start()], events)
            at = match.end()
        self._rest = text[at:]
        self._fits(len(self._rest) - self._rest.endswith(b"\r"))
        return events

    def finish(self) -> list[bytes]:
        """The stream has ended: an event whose empty line is missing still counts, since clients deliver it."""
        events: list[bytes] = []
        if not self.overflowed:
            if self._rest:
                self._line(self._rest.rstrip(b"\r"), events)
                self._rest = b""
            self._line(b"", events)
        return events

    def _fits(self, line: int) -> bool:
        """Bound the event by its lines, so that it makes no difference where its chunks were cut."""
        if line + self._size > MAX_EVENT:
            self.overflowed = True
            self._rest, self._data = b"", []
        return not self.overflowed

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data, self._size = [], 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            # An empty line of data costs memory too.
            self._size += len(value) + 1


def _plain_events(chunk: bytes) -> list[bytes] | None:
    """The short way for what engines send nearly always: whole events of one `data: ` line each, ended by LF LF."""
    events = []
    for event in chunk[:-2].split(b"\n\n"):
        if not event.startswith(b"data: ") or b"\n" in event or b"\r" in event or len(event) > MAX_EVENT:
            return None
        events.append(event[6:])
    return events
