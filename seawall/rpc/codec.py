"""gRPC over HTTP/2 without I/O: bytes in, events and bytes out.

HTTP/2 is nghttp2's (through ngh2); the gRPC framing on it is ours (grpc/doc/PROTOCOL-HTTP2.md): length-prefixed messages
over any split, trailers and trailers-only answers, time-outs, the identity encoding.

Two traps are handled here. nghttp2's state is ahead of its events: an answer to an event may meet a stream that a later
frame of the same read has reset, so every call on a stream may find it gone. And a peer's error ends at most its own
connection: nothing raises out of `receive`.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import ngh2

from seawall.rpc.contract import Status
from seawall.rpc.events import Closed, Event, HalfClosed, Message, Opened
from seawall.rpc.framing import (
    PREFIX,
    Assembly,
    Headers,
    Metadata,
    framed,
    goaway,
    parse_timeout,
    prefix_of,
    refusal,
    size_of,
    trailers,
)

_HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_OK = [(b"grpc-status", b"0")]
SURPLUS = 1 << 20
"""Bytes that a client may send after our answer, before its stream is reset."""
_IDENTITY = [(b"grpc-accept-encoding", b"identity")]
CREDIT = 32 * 1024
"""Bytes of a call after which the peer gets window back: each time costs, and a call's window is far larger."""
_ATTACK = 4
"""Metadata of this many times the limit ends the connection: below, one call is refused."""


UNLIMITED_RESETS = (1 << 40, 1 << 40)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may cost. Sizes are bytes.

    `connection_window` is far above `stream_window`: calls whose handlers are busy keep what they were sent, and must not
    stop the calls beside them, for whose end they may be waiting.

    `resets`: (burst, per second) of RST_STREAM frames from the peer before the connection is closed. Envoy resets every
    finished headers-only ext_proc stream, so a socket that only Envoy reaches has no such limit; a public port has.
    """

    max_message: int
    max_metadata: int = 64 * 1024
    max_streams: int = 10_000
    stream_window: int = 1 << 20
    connection_window: int = 1 << 30
    resets: tuple[int, int] = UNLIMITED_RESETS


PUBLIC_RESETS = (1_000, 33)
"""nghttp2's own guard against rapid resets (CVE-2023-44487): for ports that strangers reach."""


_message = Message._make
"""Half the price of calling Message."""


class _Stream(Assembly):
    """One call: bytes of an unfinished message, and how far our answer is."""

    __slots__ = ("answered", "done", "done_at", "half_closed", "held", "paused", "spoilt", "surplus")

    def __init__(self) -> None:
        super().__init__()
        self.answered = False
        """Response headers are sent."""
        self.done = False
        """Our trailers are sent: what still comes is dropped."""
        self.done_at = 0
        self.surplus = 0
        """Bytes that came after our answer."""
        self.half_closed = False
        self.spoilt = False
        """What still comes is dropped, and the handler knows."""
        self.paused = False
        self.held = 0
        """Bytes received that the peer has not got back into its window yet: few, or while paused."""


class Codec:
    """One server connection. `paths` are the methods that exist, as in `/package.Service/Method`."""

    def __init__(self, paths: Iterable[str], limits: Limits):
        self._paths = {path.encode("latin-1"): path for path in paths}
        self._max_message = limits.max_message
        self._max_metadata = limits.max_metadata
        self._streams: dict[int, _Stream] = {}
        self._last_stream = 0
        self._takes = 0
        """How often bytes were taken: tells what was sent before from what waits."""
        self._draining = self._drained = False
        self._within_frame = False
        """What was taken last ended where its reader said, perhaps inside a frame."""
        self._last_words = b""
        self.failed = False
        """The connection is at its end: write what `take` gives, then close."""
        self._connection = ngh2.Connection(
            ngh2.Role.SERVER,
            ngh2.Configuration(
                auto_window_update=False,
                stream_reset_rate_limit=limits.resets,
                max_inbound_header_list_size=limits.max_metadata * _ATTACK,
                max_inbound_header_count=limits.max_metadata * _ATTACK // 32,
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
        try:
            self._connection.receive_data(data)
        except ngh2.NGH2Error as e:
            self.failed = True
            if not self._within_frame:
                flood = isinstance(e, ngh2.DenialOfServiceError)
                self._last_words = goaway(
                    self._last_stream, ngh2.ErrorCode.ENHANCE_YOUR_CALM if flood else ngh2.ErrorCode.PROTOCOL_ERROR
                )
        return self.settle()

    def settle(self) -> list[Event]:
        """After `take`: the events that our own frames led to, such as the reset of a stream or the end of it all."""
        events: list[Event] = []
        for event in self._connection.events():
            if isinstance(event, ngh2.DataReceived):
                self._data(event.stream_id, event.data, event.end_stream, events)
            elif isinstance(event, ngh2.RequestReceived):
                self._request(event.stream_id, event.headers, event.end_stream, events)
            elif isinstance(event, ngh2.StreamClosed):
                self._over(event.stream_id, events)
            elif isinstance(event, ngh2.TrailersReceived):
                self._half_closed(event.stream_id, events)
            elif isinstance(event, ngh2.PingAcknowledged):
                self.drained()
            elif isinstance(event, ngh2.ConnectionClosed):
                self.failed = True
        if self.failed:
            events += self.lost()
        return events

    def lost(self) -> list[Event]:
        """The connection is gone: the end of every call that is not over."""
        self.failed = True
        events: list[Event] = [
            Closed(sid) for sid, stream in self._streams.items() if not stream.done and not stream.spoilt
        ]
        self._streams.clear()
        return events

    @property
    def wants_write(self) -> bool:
        """Whether `take` and `settle` may have anything: a look that costs less than they do."""
        return self.failed or bool(self._last_words) or self._connection.want_write

    def take(self, amount: int | None = None) -> bytes:
        """Bytes to write now, at most `amount`; see `settle`."""
        self._takes += 1
        if self._last_words:
            out, self._last_words = self._last_words, b""
            return out
        try:
            out = self._connection.data_to_send(amount)
        except ngh2.NGH2Error:
            self.failed = True
            return b""
        self._within_frame = len(out) == amount
        return out

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
            return  # Reset meanwhile: nghttp2 knew before its events told us.

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

    def finish(self, sid: int, status: Status, message: str = "") -> None:
        """End a call: by trailers, or by trailers alone where nothing was sent."""
        stream = self._streams.get(sid)
        if stream is None or stream.done:
            return
        stream.done, stream.done_at = True, self._takes
        stream.chunks.clear()
        self.resume(sid)
        fields = trailers(status, message)
        if status is Status.UNIMPLEMENTED:
            fields += _IDENTITY
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

    def resume(self, sid: int) -> bool:
        """Undo `pause`; True when the peer was given window back, which is to be written."""
        stream = self._streams.get(sid)
        if stream is None or not stream.paused:
            return False
        stream.paused = False
        held, stream.held = stream.held, 0
        self._give_back(sid, held)
        return held > 0

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

    def drained(self) -> None:
        """The peer has seen the notice: what it opened before is here by now. The connection ends after the last call."""
        if not self._draining or self._drained or self.failed:
            return
        self._drained = True
        try:
            self._connection.send_goaway()
        except ngh2.NGH2Error:
            self.failed = True

    def _request(self, sid: int, headers: Headers, ended: bool, events: list[Event]) -> None:
        stream = self._streams[sid] = _Stream()
        self._last_stream = sid
        fields = dict(headers)
        if (size := size_of(headers)) > self._max_metadata:
            self.finish(sid, Status.RESOURCE_EXHAUSTED, f"{size} bytes of metadata, allowed are {self._max_metadata}")
            return
        if (refused := refusal(fields, self._paths)) is not None:
            http, why = refused
            if http:
                self._refuse_http(sid, stream, http)
            else:
                self.finish(sid, Status.UNIMPLEMENTED, why)
            return
        timeout = None
        if (text := fields.get(b"grpc-timeout")) is not None:
            timeout = parse_timeout(text)
            if timeout is None:
                self.finish(sid, Status.INVALID_ARGUMENT, "malformed grpc-timeout")
                return
        events.append(Opened(sid, self._paths[fields[b":path"]], Metadata(headers), timeout))
        if ended:
            self._half_closed(sid, events)

    def _refuse_http(self, sid: int, stream: _Stream, status: bytes) -> None:
        stream.done, stream.done_at = True, self._takes
        try:
            self._connection.send_response(sid, [(b":status", status)], end_stream=True)
        except ngh2.NGH2Error:
            return

    def _data(self, sid: int, data: bytes, ended: bool, events: list[Event]) -> None:
        stream = self._streams.get(sid)
        size = len(data)
        if stream is None:
            self._give_back(sid, size)
            return
        stream.held += size
        if stream.held > CREDIT and not stream.paused:
            credit, stream.held = stream.held, 0
            self._give_back(sid, credit)
        if stream.done:
            stream.surplus += size
            if stream.surplus > SURPLUS and self._takes > stream.done_at and not self.queued(sid):
                # Our answer is complete and out, and the client goes on: stop it (RFC 9113 §8.1). Before the answer is out
                # a reset would overtake it.
                with suppress(ngh2.NGH2Error):
                    self._connection.reset_stream(sid, ngh2.ErrorCode.NO_ERROR)
            return
        if stream.spoilt:
            return
        if size > PREFIX and not stream.have and prefix_of(data) == (0, size - PREFIX) and size <= self._max_message:
            # One whole message, as nearly always.
            events.append(_message((sid, data[PREFIX:])))
        elif size:
            events += [_message((sid, message)) for message in stream.add(data, self._max_message)]
            if stream.fault is not None:
                stream.spoilt = True
                events.append(Closed(sid, *stream.fault))
                return
        if ended:
            self._half_closed(sid, events)

    def _half_closed(self, sid: int, events: list[Event]) -> None:
        stream = self._streams.get(sid)
        if stream is None or stream.done or stream.spoilt or stream.half_closed:
            return
        if stream.have:
            stream.spoilt = True
            events.append(Closed(sid, Status.INTERNAL, "the request ended inside a message"))
        else:
            stream.half_closed = True
            events.append(HalfClosed(sid))

    def _over(self, sid: int, events: list[Event]) -> None:
        stream = self._streams.pop(sid, None)
        if stream is None:
            return
        if stream.held:
            self._give_back(sid, stream.held)
        if not stream.done and not stream.spoilt:
            events.append(Closed(sid))

    def _give_back(self, sid: int, amount: int) -> None:
        try:
            self._connection.acknowledge_received_data(amount, sid)
        except ngh2.NGH2Error:
            return
