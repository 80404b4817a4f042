"""gRPC over HTTP/2 without I/O: bytes in, events and bytes out.

HTTP/2 is nghttp2's (through ngh2); the gRPC framing on it is ours (grpc/doc/PROTOCOL-HTTP2.md): length-prefixed messages
over any split, trailers and trailers-only answers, time-outs, the identity encoding.

Two traps are handled here. nghttp2's state is ahead of its events: an answer to an event may meet a stream that a later
frame of the same read has reset, so every call on a stream may find it gone. And a peer's error ends at most its own
connection: nothing raises out of `receive`.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import ngh2

from seawall.rpc.contract import Status
from seawall.rpc.framing import Headers, Metadata, framed, parse_timeout, trailers

_HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_OK = [(b"grpc-status", b"0")]
SURPLUS = 1 << 20
"""Bytes that a client may send after our answer, before its stream is reset."""
_IDENTITY = [(b"grpc-accept-encoding", b"identity")]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may cost. Sizes are bytes.

    `resets`: (burst, per second) of RST_STREAM frames from the peer before the connection is closed. Envoy resets every
    finished headers-only ext_proc stream, so a socket that only Envoy reaches has no such limit; a public port has.
    """

    max_message: int
    max_metadata: int = 64 * 1024
    max_streams: int = 10_000
    stream_window: int = 1 << 20
    connection_window: int = 1 << 24
    resets: tuple[int, int] = (1 << 40, 1 << 40)


PUBLIC_RESETS = (1_000, 33)
"""nghttp2's own guard against rapid resets (CVE-2023-44487): for ports that strangers reach."""


class Opened(NamedTuple):
    """A call of a known method. `timeout` is in seconds, None without a grpc-timeout."""

    stream: int
    path: str
    metadata: Mapping[str, str]
    timeout: float | None


class Message(NamedTuple):
    """One whole message. Its bytes count against the peer's window until `consumed`."""

    stream: int
    data: bytes


class HalfClosed(NamedTuple):
    """The peer has sent its last message."""

    stream: int


class Closed(NamedTuple):
    """A stream that we had not finished is over: reset by the peer, or ended by a fault of either side."""

    stream: int


Event = Opened | Message | HalfClosed | Closed


class _Stream:
    """One call: bytes of an unfinished message, and how far our answer is."""

    __slots__ = ("answered", "chunks", "done", "done_at", "half_closed", "have", "held", "need", "paused", "surplus")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.have = 0
        self.need = 5
        """Bytes of the next step: the prefix, or prefix and message."""
        self.answered = False
        """Response headers are sent."""
        self.done = False
        """Our trailers are sent: what still comes is dropped."""
        self.done_at = 0
        self.surplus = 0
        """Bytes that came after our answer."""
        self.half_closed = False
        self.paused = False
        self.held = 0
        """Bytes received while paused, which the peer does not get back into its window yet."""


class Codec:
    """One server connection. `paths` are the methods that exist, as in `/package.Service/Method`."""

    def __init__(self, paths: Container[str], limits: Limits):
        self._paths = paths
        self._limits = limits
        self._streams: dict[int, _Stream] = {}
        self._last_stream = 0
        self._takes = 0
        """How often bytes were taken: tells what was sent before from what waits."""
        self._draining = False
        self.failed = False
        """The connection is at its end: write what `take` gives, then close."""
        self._connection = ngh2.Connection(
            ngh2.Role.SERVER,
            ngh2.Configuration(
                auto_window_update=False,
                stream_reset_rate_limit=limits.resets,
                max_inbound_header_list_size=limits.max_metadata,
            ),
        )
        self._connection.initiate_connection(
            {
                ngh2.Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
                ngh2.Setting.MAX_CONCURRENT_STREAMS: limits.max_streams,
                ngh2.Setting.MAX_HEADER_LIST_SIZE: limits.max_metadata,
            }
        )
        self._connection.set_local_window_size(limits.connection_window)

    @property
    def streams(self) -> int:
        """Calls that are not over."""
        return len(self._streams)

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes from the peer; the events that they complete, in order. Raises nothing for what a peer sends."""
        if self.failed:
            return []
        connection = self._connection
        try:
            connection.receive_data(data)
        except ngh2.NGH2Error:
            self.failed = True
        events: list[Event] = []
        for event in connection.events():
            if isinstance(event, ngh2.DataReceived):
                self._data(event.stream_id, event.data, event.end_stream, events)
            elif isinstance(event, ngh2.RequestReceived):
                self._request(event.stream_id, event.headers, event.end_stream, events)
            elif isinstance(event, ngh2.StreamClosed):
                self._over(event.stream_id, events)
            elif isinstance(event, ngh2.TrailersReceived):
                self._half_closed(event.stream_id, events)
            elif isinstance(event, ngh2.PingAcknowledged):
                self._drained()
            elif isinstance(event, ngh2.ConnectionClosed):
                self.failed = True
        if self.failed:
            events += self.lost()
        return events

    def lost(self) -> list[Event]:
        """The connection is gone: the end of every call that is not over."""
        self.failed = True
        events: list[Event] = [Closed(sid) for sid, stream in self._streams.items() if not stream.done]
        self._streams.clear()
        return events

    def take(self, amount: int | None = None) -> bytes:
        """Bytes to write now, at most about `amount`."""
        self._takes += 1
        try:
            return self._connection.data_to_send(amount)
        except ngh2.NGH2Error:
            # A peer that does not speak HTTP/2 at all: nothing can be said to it.
            self.failed = True
            return b""

    def answer(self, sid: int, message: bytes) -> None:
        """Send the one message of a unary call, and status OK."""
        stream = self._streams.get(sid)
        if stream is None or stream.done:
            return
        connection = self._connection
        stream.done, stream.done_at = True, self._takes
        try:
            connection.send_response(sid, _HEAD)
            connection.send_data(sid, framed(message))
            connection.send_trailers(sid, _OK)
        except ngh2.NGH2Error:
            # Reset meanwhile: nghttp2 knew before its events told us.
            return

    def send(self, sid: int, message: bytes) -> None:
        """Send one message of a stream."""
        stream = self._streams.get(sid)
        if stream is None or stream.done:
            return
        try:
            if not stream.answered:
                stream.answered = True
                self._connection.send_response(sid, _HEAD)
            self._connection.send_data(sid, framed(message))
        except ngh2.NGH2Error:
            return

    def finish(self, sid: int, status: Status, message: str = "", extra: Headers = ()) -> None:
        """End a call: by trailers, or by trailers alone where nothing was sent."""
        stream = self._streams.get(sid)
        if stream is None or stream.done:
            return
        stream.done, stream.done_at = True, self._takes
        fields = [*trailers(status, message), *extra]
        try:
            if stream.answered:
                self._connection.send_trailers(sid, fields)
            else:
                self._connection.send_response(sid, [*_HEAD, *fields], end_stream=True)
        except ngh2.NGH2Error:
            return

    def pause(self, sid: int) -> None:
        """Give the peer no more window for a call: its handler is busy."""
        if (stream := self._streams.get(sid)) is not None:
            stream.paused = True

    def resume(self, sid: int) -> None:
        """Undo `pause`."""
        if (stream := self._streams.get(sid)) is not None and stream.paused:
            stream.paused = False
            held, stream.held = stream.held, 0
            self._give_back(sid, held)

    def queued(self, sid: int) -> int:
        """Bytes of a call that wait for the peer's window, or for `take`."""
        if sid not in self._streams:
            return 0
        try:
            return self._connection.queued_body_size(sid)
        except ngh2.NGH2Error:
            return 0

    def drain(self) -> None:
        """Tell the peer to open no more calls here; those that it had opened by then are served (RFC 9113 §6.8)."""
        if self._draining or self.failed:
            return
        self._draining = True
        try:
            self._connection.send_shutdown_notice()
            self._connection.ping()
        except ngh2.NGH2Error:
            self.failed = True

    def _drained(self) -> None:
        # The peer has seen the notice: what it opened before is here by now.
        if self._draining and not self.failed:
            try:
                self._connection.send_goaway(0, last_stream_id=self._last_stream)
            except ngh2.NGH2Error:
                self.failed = True

    def _request(self, sid: int, headers: Headers, ended: bool, events: list[Event]) -> None:
        stream = self._streams[sid] = _Stream()
        self._last_stream = sid
        fields = dict(headers)
        refused = self._unreadable(fields)
        if refused is not None:
            http, status, message = refused
            if http:
                self._refuse_http(sid, stream, http)
            else:
                self.finish(sid, status, message, _IDENTITY if status is Status.UNIMPLEMENTED else ())
            return
        timeout = None
        if (text := fields.get(b"grpc-timeout")) is not None:
            timeout = parse_timeout(text)
            if timeout is None:
                self.finish(sid, Status.INVALID_ARGUMENT, "malformed grpc-timeout")
                return
        events.append(Opened(sid, fields[b":path"].decode("latin-1"), Metadata(headers), timeout))
        if ended:
            self._half_closed(sid, events)

    def _unreadable(self, fields: Mapping[bytes, bytes]) -> tuple[bytes, Status, str] | None:
        if fields.get(b":method") != b"POST":
            return b"405", Status.OK, ""
        kind = fields.get(b"content-type", b"")
        if not kind.startswith(b"application/grpc") or kind[16:17] not in (b"", b"+", b";"):
            return b"415", Status.OK, ""
        path = fields.get(b":path", b"").decode("latin-1")
        if path not in self._paths:
            return b"", Status.UNIMPLEMENTED, f"unknown method {path[:200]}"
        encoding = fields.get(b"grpc-encoding", b"identity")
        if encoding != b"identity":
            return b"", Status.UNIMPLEMENTED, "only the identity encoding is supported"
        return None

    def _refuse_http(self, sid: int, stream: _Stream, status: bytes) -> None:
        stream.done, stream.done_at = True, self._takes
        try:
            self._connection.send_response(sid, [(b":status", status)], end_stream=True)
        except ngh2.NGH2Error:
            return

    def _data(self, sid: int, data: bytes, ended: bool, events: list[Event]) -> None:
        stream = self._streams.get(sid)
        if data:
            if stream is not None and stream.paused:
                stream.held += len(data)
            else:
                self._give_back(sid, len(data))
        if stream is None:
            return
        if stream.done:
            stream.surplus += len(data)
            if stream.surplus > SURPLUS and self._takes > stream.done_at and not self.queued(sid):
                # Our answer is complete and out, and the client goes on: stop it (RFC 9113 §8.1). Before the answer is out
                # a reset would overtake it.
                self._reset(sid, ngh2.ErrorCode.NO_ERROR)
            return
        if data:
            self._messages(sid, stream, data, events)
        if ended:
            self._half_closed(sid, events)

    def _messages(self, sid: int, stream: _Stream, data: bytes, events: list[Event]) -> None:
        stream.have += len(data)
        if stream.have < stream.need:
            stream.chunks.append(data)
            return
        if stream.chunks:
            stream.chunks.append(data)
            data = b"".join(stream.chunks)
            stream.chunks = []
        at, end = 0, len(data)
        need = 5
        while end - at >= 5:
            flag = data[at]
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            if flag:
                status = Status.UNIMPLEMENTED if flag == 1 else Status.INTERNAL
                self._fault(sid, status, "compressed message, only identity is supported", events)
                return
            if size > self._limits.max_message:
                why = f"message of {size} bytes, allowed are {self._limits.max_message}"
                self._fault(sid, Status.RESOURCE_EXHAUSTED, why, events)
                return
            if end - at < 5 + size:
                need = 5 + size
                break
            events.append(Message(sid, data[at + 5 : at + 5 + size]))
            at += 5 + size
        stream.need = need
        stream.have = end - at
        if at < end:
            stream.chunks.append(data[at:])

    def _half_closed(self, sid: int, events: list[Event]) -> None:
        stream = self._streams.get(sid)
        if stream is None or stream.done or stream.half_closed:
            return
        stream.half_closed = True
        if stream.have:
            self._fault(sid, Status.INTERNAL, "the request ended inside a message", events)
        else:
            events.append(HalfClosed(sid))

    def _fault(self, sid: int, status: Status, message: str, events: list[Event]) -> None:
        """End a call that its peer has spoilt; the handler is told that it is over."""
        self.finish(sid, status, message, _IDENTITY if status is Status.UNIMPLEMENTED else ())
        events.append(Closed(sid))

    def _over(self, sid: int, events: list[Event]) -> None:
        stream = self._streams.pop(sid, None)
        if stream is None:
            return
        if stream.held:
            self._give_back(sid, stream.held)
        if not stream.done:
            events.append(Closed(sid))

    def _give_back(self, sid: int, amount: int) -> None:
        try:
            self._connection.acknowledge_received_data(amount, sid)
        except ngh2.NGH2Error:
            return

    def _reset(self, sid: int, code: int) -> None:
        try:
            self._connection.reset_stream(sid, code)
        except ngh2.NGH2Error:
            return
