"""Server-sent events out of a byte stream cut anywhere (WHATWG HTML §9.2.6), each with the bytes that it came in.

State lives for the whole stream, never for a chunk: a chunk may end inside `da|ta:`, inside a UTF-8 sequence, between CR
and LF. Joined, the bytes of all events and `rest` are the stream. The unfinished event is bounded; past the bound the
bytes pass unread, and `overflowed` says so.
"""

import re

MAX_EVENT = 1 << 20
"""Bytes of one event that are kept."""

Event = tuple[bytes, bytes | None]
"""The bytes of an event with the empty line that ends it, and its `data:` lines joined with LF. No data: nothing to read,
as comments, empty lines and events without data."""

TAIL: Event = (b"\n", None)
"""LF of the CRLF that ended the event before: it came in a later chunk, and goes where that event went."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LINE = re.compile(rb"([^\r\n]*+)(\r\n|\n|\r|$)")


class SseEvents:
    """Feed bytes, get the events that they finish."""

    __slots__ = ("_cr", "_data", "_line", "_lines", "_size", "_started", "overflowed")

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        """Finished lines of the unfinished event; `_size` bytes, with the values of its data lines in `_data`."""
        self._data: list[bytes] = []
        self._size = 0
        self._line = bytearray()
        self._cr = False
        self._started = False
        self.overflowed = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes."""
        if chunk.endswith(b"\n\n") and not (self._lines or self._line or self._cr or self.overflowed):
            plain = _plain_events(chunk)
            if plain is not None:
                self._started = True
                return plain
        if self.overflowed:
            return [(chunk, None)] if chunk else []
        events: list[Event] = []
        at = 0
        if self._cr and chunk:
            self._cr = False
            if chunk.startswith(b"\n"):
                at = 1
                if self._lines:
                    self._lines[-1] += b"\n"
                    self._size += 1
                else:
                    events.append(TAIL)
        for match in _LINE_END.finditer(chunk, at):
            line, at = chunk[at : match.end()], match.end()
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            # A CR at the very end may be half of a CRLF: the line is over all the same.
            self._cr = at == len(chunk) and match[0] == b"\r"
            if self._size + len(line) > MAX_EVENT:
                self._lines.append(line)
                events.append((self._given_up() + chunk[at:], None))
                return events
            self._take(line, line[: -len(match[0])], events)
        self._line += chunk[at:]
        if self._size + len(self._line) > MAX_EVENT:
            events.append((self._given_up(), None))
        return events

    def passes(self, chunk: bytes) -> bool:
        """Take a chunk that is one whole event of one `data: ` line, if it is that: its data are `chunk[6:-2]`."""
        if not _is_plain_event(chunk) or self._lines or self._line or self._cr or self.overflowed:
            return False
        self._started = True
        return True

    def finish(self) -> list[Event]:
        """The stream has ended: an event whose empty line is missing still counts, since clients deliver it."""
        events: list[Event] = []
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._take(line, line, events)
        if self._lines:
            self._end(events)
        return events

    @property
    def rest(self) -> bytes:
        """Bytes of the unfinished event."""
        return b"".join(self._lines) + self._line

    def _take(self, line: bytes, content: bytes, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            content = content.removeprefix(b"\xef\xbb\xbf")
        if not self._lines and (not content or content.startswith(b":")):
            # A comment or an empty line between two events waits for nothing.
            events.append((line, None))
            return
        self._lines.append(line)
        self._size += len(line)
        if not content:
            self._end(events)
            return
        name, _, value = content.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))

    def _end(self, events: list[Event]) -> None:
        events.append((b"".join(self._lines), b"\n".join(self._data) if self._data else None))
        self._lines, self._data, self._size = [], [], 0

    def _given_up(self) -> bytes:
        self.overflowed = True
        raw = self.rest
        self._lines, self._data, self._line, self._size, self._cr = [], [], bytearray(), 0, False
        return raw


def _is_plain_event(chunk: bytes) -> bool:
    """Whether a chunk is one whole event of one `data: ` line, ended by LF LF."""
    return (
        chunk.startswith(b"data: ")
        and chunk.endswith(b"\n\n")
        and chunk.find(b"\n") == len(chunk) - 2
        and b"\r" not in chunk
        and len(chunk) <= MAX_EVENT
    )


def _plain_events(chunk: bytes) -> list[Event] | None:
    """The short way for what engines send nearly always: whole events of one `data: ` line each, ended by LF LF."""
    if chunk.startswith(b"data: "):
        if _is_plain_event(chunk):
            return [(chunk, chunk[6:-2])]
    elif chunk.startswith(b"event: "):
        name = chunk.find(b"\n")
        if (
            chunk.startswith(b"data: ", name + 1)
            and chunk.find(b"\n", name + 1) == len(chunk) - 2
            and b"\r" not in chunk
            and len(chunk) <= MAX_EVENT
        ):
            return [(chunk, chunk[name + 7 : -2])]
        return None
    else:
        return None
    if b"\r" in chunk:
        return None
    events: list[Event] = []
    for event in chunk[:-2].split(b"\n\n"):
        if not event.startswith(b"data: ") or b"\n" in event or len(event) > MAX_EVENT - 2:
            return None
        events.append((event + b"\n\n", event[6:]))
    return events


def with_data(raw: bytes, data: bytes, new: bytes) -> bytes:
    """Write an event with other data: what is around its `data:` lines stays."""
    at = raw.find(data)
    if at >= 0:
        return raw[:at] + new + raw[at + len(data) :]
    # Its data stands on several lines; a change adds no line end, so the new data has at most as many.
    lines = new.split(b"\n")
    written = []
    for match in _LINE.finditer(raw):
        content, end = match.groups()
        if content == b"data" or content.startswith(b"data:"):
            if lines:
                written.append(b"data: " + lines.pop(0) + end)
        else:
            written.append(content + end)
    return b"".join(written)
