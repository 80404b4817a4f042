"""One client connection: bytes to the codec, its events to their calls, and one write for all that they answer."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import cast

from seawall.rpc.calls import StreamCall, UnaryCall
from seawall.rpc.codec import Codec, Limits
from seawall.rpc.contract import Call, CloseReason, RpcError, Status, StreamOpener, Unary
from seawall.rpc.events import Event, HalfClosed, Message, Opened
from seawall.rpc.tasks import ErrorSink

WRITE_HIGH = 256 * 1024
"""Bytes in the transport's buffer above which nothing more is taken from the codec."""
LINGER = 0.05
"""Seconds that a drained client has to tell that it has seen our notice."""
LAST_WORDS = 1.0
"""Seconds that a client of a connection that has failed has to read why."""
STALL = 60.0
"""Seconds in which a client must read something of what waits for it, or it is given up."""
Method = tuple[Unary | None, StreamOpener | None]


class Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(
        self, methods: Mapping[str, Method], limits: Limits, open_connections: "set[Connection]", on_error: ErrorSink
    ):
        self._methods = methods
        self._open_connections = open_connections
        self._on_error = on_error
        self.loop = asyncio.get_running_loop()
        self.codec = Codec(methods, limits)
        self._calls: dict[int, UnaryCall | StreamCall] = {}
        self._congested: set[StreamCall] = set()
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._stalled: asyncio.TimerHandle | None = None
        self._flushing = False
        self._reading = False
        self.draining = False
        self.on_lost: Callable[[], None] | None = None
        """Called once when the connection has ended."""

    @property
    def calls(self) -> int:
        """Calls that are not over."""
        return len(self._calls)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)
        self._open_connections.add(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Called by the loop: events to their calls, then one write."""
        self._reading = True
        try:
            for event in self.codec.receive(data):
                self._dispatch(event)
        finally:
            self._reading = False
        self.flush()

    def _dispatch(self, event: Event) -> None:
        call = self._calls.get(event.stream)
        if isinstance(event, Message):
            if call is not None:
                call.message(event.data)
        elif isinstance(event, HalfClosed):
            if call is not None:
                call.half_closed()
        elif isinstance(event, Opened):
            self._open(event)
        else:
            if event.status is not None:
                self.codec.finish(event.stream, event.status, event.message)
            if call is not None:
                call.gone(CloseReason.CANCELLED)

    def _open(self, event: Opened) -> None:
        unary, opener = self._methods[event.path]
        deadline = None if event.timeout is None else time.monotonic() + event.timeout
        call = Call(event.path, event.metadata, deadline)
        if unary is not None:
            self._calls[event.stream] = UnaryCall(self, event.stream, call, unary)
            return
        assert opener is not None
        stream = StreamCall(self, event.stream, call)
        try:
            handler = opener(call, stream)
        except RpcError as e:
            self.codec.finish(event.stream, e.status, e.message)
        except Exception as e:
            self.fault(event.stream, call.path, e)
        else:
            self._calls[event.stream] = stream
            stream.begin(handler)

    def fault(self, sid: int, path: str, error: BaseException) -> None:
        """A handler raised: the log is told what, the client only that."""
        self._on_error(path, error)
        self.codec.finish(sid, Status.INTERNAL, "internal error")

    def report(self, path: str, error: BaseException) -> None:
        """A handler raised where its client can't be told."""
        self._on_error(path, error)

    def over(self, sid: int) -> None:
        """A call has ended."""
        self._calls.pop(sid, None)

    def touch(self) -> None:
        """Something was sent outside of a read: write at the end of this tick."""
        if not self._reading and not self._flushing:
            self._flushing = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what the codec has, as far as the client reads."""
        self._flushing = False
        transport, codec = self._transport, self.codec
        if transport is None or transport.is_closing() or not codec.wants_write:
            return
        while self._writable:
            out = codec.take(WRITE_HIGH)
            if not out:
                break
            transport.write(out)
            if len(out) < WRITE_HIGH:
                break
        for event in codec.settle():
            self._dispatch(event)
        if codec.failed:
            transport.close()
            self.loop.call_later(LAST_WORDS, transport.abort)
        elif self._congested:
            for call in list(self._congested):
                call.relieve()

    def congested(self, call: "StreamCall") -> None:
        """Look at a call again at each write."""
        self._congested.add(call)

    def relieved(self, call: "StreamCall") -> None:
        """A call's client reads again, or the call is over."""
        self._congested.discard(call)

    def pause_writing(self) -> None:
        """Called by the loop: the client does not read."""
        self._writable = False
        if self._transport is not None:
            self._stalled = self.loop.call_later(STALL, self._transport.abort)

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._writable = True
        self._stop_waiting()
        self.flush()

    def _stop_waiting(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop: every call hears of it once."""
        del exc
        self._transport = None
        self._stop_waiting()
        self.forget()

    def forget(self) -> None:
        """End what the connection stood for; also for one that never came to be."""
        self._open_connections.discard(self)
        self.codec.lost()
        self.lost(CloseReason.CANCELLED)
        tell, self.on_lost = self.on_lost, None
        if tell is not None:
            tell()

    def lost(self, reason: CloseReason) -> None:
        """End all calls."""
        for call in list(self._calls.values()):
            call.gone(reason)

    def drain(self) -> None:
        """Open no more calls; close once those that run are over."""
        if not self.draining:
            self.draining = True
            self.codec.drain()
            self.flush()
            self.loop.call_later(LINGER, self._leave)

    def _leave(self) -> None:
        self.codec.drained()
        self.flush()

    def cut(self) -> None:
        """Give up what still runs."""
        self.lost(CloseReason.DRAINED)
        if self._transport is not None:
            self._transport.abort()
