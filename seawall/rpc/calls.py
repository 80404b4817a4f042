"""One call on our transport: unary, or a stream with its inbox, its back-pressure and its one end."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from seawall.rpc.codec import Codec
from seawall.rpc.contract import Call, CloseReason, RpcError, Status, StreamHandler, Unary
from seawall.rpc.waiting import Wait, begin, drop

STREAM_HIGH = 256 * 1024
"""Bytes of one stream that wait for its client above which its handler gets no more messages."""
STREAM_LOW = STREAM_HIGH // 4


class Carrier(Protocol):
    """What a call needs of its connection."""

    codec: Codec
    loop: asyncio.AbstractEventLoop

    def touch(self) -> None:
        """Write what was sent at the end of this tick."""

    def over(self, sid: int) -> None:
        """Forget a call."""

    def fault(self, sid: int, path: str, error: BaseException) -> None:
        """End a call whose handler raised."""

    def report(self, path: str, error: BaseException) -> None:
        """Tell of an exception whose client can't be told."""

    def congested(self, call: "StreamCall") -> None:
        """Look at a call again at each write."""

    def relieved(self, call: "StreamCall") -> None:
        """Stop doing so."""


class UnaryCall:
    """A call with one message and one answer."""

    __slots__ = ("_call", "_connection", "_data", "_handler", "_sid", "_timer", "_work")

    def __init__(self, connection: Carrier, sid: int, call: Call, handler: Unary):
        self._connection = connection
        self._sid = sid
        self._call = call
        self._handler = handler
        self._data: bytes | None = None
        self._work: Wait | None = None
        self._timer: asyncio.TimerHandle | None = None

    def message(self, data: bytes) -> None:
        """Keep the one message until the client has half-closed."""
        if self._data is None:
            self._data = data
        else:
            self._connection.codec.finish(self._sid, Status.INTERNAL, "more than one message in a unary call")
            self._over()

    def half_closed(self) -> None:
        """Ask the handler; its answer goes out at once, or when it is there."""
        connection, sid = self._connection, self._sid
        if self._data is None:
            connection.codec.finish(sid, Status.INTERNAL, "no message in a unary call")
            self._over()
            return
        try:
            answer = self._handler(self._data, self._call)
        except RpcError as e:
            connection.codec.finish(sid, e.status, e.message)
        except Exception as e:
            connection.fault(sid, self._call.path, e)
        else:
            if isinstance(answer, bytes):
                connection.codec.answer(sid, answer)
            else:
                self._work = begin(connection.loop, answer, self._answered)
                if self._work is not None and self._call.deadline is not None:
                    left = max(0.0, self._call.deadline - time.monotonic())
                    self._timer = connection.loop.call_later(left, self._too_late)
                return
        self._over()

    def _answered(self, answer: Any, error: BaseException | None) -> None:
        connection, sid = self._connection, self._sid
        if error is None:
            connection.codec.answer(sid, answer)
        elif isinstance(error, RpcError):
            connection.codec.finish(sid, error.status, error.message)
        elif isinstance(error, asyncio.CancelledError):
            connection.codec.finish(sid, Status.CANCELLED, "cancelled")
        else:
            connection.fault(sid, self._call.path, error)
        self._over()
        connection.touch()

    def _too_late(self) -> None:
        self._connection.codec.finish(self._sid, Status.DEADLINE_EXCEEDED, "deadline exceeded")
        self.gone(CloseReason.CANCELLED)
        self._connection.touch()

    def gone(self, reason: CloseReason) -> None:
        """Cancel what the client does not wait for any more."""
        del reason
        if self._work is not None:
            self._work.cancel()
        self._over()

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._connection.over(self._sid)


class StreamCall:
    """A bidirectional call; also the sender that its handler writes through."""

    __slots__ = (
        "_begun",
        "_call",
        "_closed",
        "_connection",
        "_finished",
        "_full",
        "_inbox",
        "_paused",
        "_queued",
        "_sid",
        "_timer",
        "_work",
        "handler",
        "on_pressure",
    )

    handler: StreamHandler

    def __init__(self, connection: Carrier, sid: int, call: Call):
        self._connection = connection
        self._sid = sid
        self._call = call
        self._inbox: deque[bytes | None] = deque()
        """What came while the handler was busy or its client did not read; None is the half-close."""
        self._work: Wait | None = None
        self._begun = False
        """There is a handler."""
        self._finished: CloseReason | None = None
        self._closed = False
        self._full = False
        self._paused = False
        """The client gets no window for more messages."""
        self._queued = 0
        """Bytes that may wait for the client at most."""
        self._timer: asyncio.TimerHandle | None = None
        self.on_pressure: Callable[[bool], None] | None = None

    def begin(self, handler: StreamHandler) -> None:
        """Serve it from now on, until its deadline at most."""
        self.handler = handler
        self._begun = True
        if self._finished is not None:
            # Already finished, as it was opened.
            self._close(self._finished)
        elif self._call.deadline is not None:
            left = max(0.0, self._call.deadline - time.monotonic())
            self._timer = self._connection.loop.call_later(left, self._too_late)

    def _too_late(self) -> None:
        self._finish(Status.DEADLINE_EXCEEDED, "deadline exceeded", CloseReason.CANCELLED)

    def send(self, message: bytes) -> None:
        """See `contract.Sender`."""
        if self._finished is not None or self._closed:
            return
        connection = self._connection
        connection.codec.send(self._sid, message)
        self._queued += len(message)
        if self._queued > STREAM_HIGH and not self._full:
            self._look()
        connection.touch()

    def _look(self) -> None:
        """Ask how much really waits: what was sent meanwhile may have left."""
        codec = self._connection.codec
        self._queued = codec.queued(self._sid)
        if self._queued > STREAM_HIGH:
            self._full = True
            self._connection.congested(self)
            self._pause()
            self._press(True)

    def _pause(self) -> None:
        self._paused = True
        self._connection.codec.pause(self._sid)

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """See `contract.Sender`."""
        self._finish(status, message, CloseReason.DONE)

    def _finish(self, status: Status, message: str, reason: CloseReason) -> None:
        if self._finished is not None or self._closed:
            return
        self._finished = reason
        self._connection.codec.finish(self._sid, status, message)
        self._connection.touch()
        self._end(reason)

    def message(self, data: bytes) -> None:
        """Give a message to the handler, or keep it until the handler is free and the client reads."""
        if self._finished is not None:
            return
        if self._work is not None or self._full:
            self._inbox.append(data)
            self._pause()
        else:
            self._deliver(data)

    def half_closed(self) -> None:
        """End the call once every message before it has been taken."""
        if self._work is not None or self._full:
            self._inbox.append(None)
        else:
            self._finish(Status.OK, "", CloseReason.DONE)

    def _deliver(self, data: bytes) -> None:
        try:
            waiting = self.handler.message(data)
        except RpcError as e:
            self._finish(e.status, e.message, CloseReason.FAILED)
        except Exception as e:
            self._failed(e)
        else:
            if waiting is None:
                return
            if self._closed:
                drop(waiting)
                return
            work = begin(self._connection.loop, waiting, self._awaited)
            if work is None:
                return
            if self._finished is not None:
                # It finished its own call before its first wait.
                work.cancel()
            else:
                self._work = work

    def _awaited(self, _: Any, error: BaseException | None) -> None:
        self._work = None
        if self._finished is not None:
            if error is not None and not isinstance(error, (asyncio.CancelledError, RpcError)):
                self._connection.report(self._call.path, error)
            self._close(self._finished)
        elif error is None:
            if self._inbox or self._paused:
                self._empty()
        elif isinstance(error, RpcError):
            self._finish(error.status, error.message, CloseReason.FAILED)
        elif isinstance(error, asyncio.CancelledError):
            self._finish(Status.CANCELLED, "cancelled", CloseReason.FAILED)
        else:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._connection.fault(self._sid, self._call.path, error)
        self._finished = CloseReason.FAILED
        self._connection.touch()
        self._end(CloseReason.FAILED)

    def _empty(self) -> None:
        """Go through what waited, as far as the handler takes it at once."""
        while self._inbox and self._work is None and not self._full and self._finished is None:
            data = self._inbox.popleft()
            if data is None:
                self._finish(Status.OK, "", CloseReason.DONE)
            else:
                self._deliver(data)
        if self._paused and not self._inbox and not self._full:
            self._paused = False
            if self._connection.codec.resume(self._sid):
                self._connection.touch()

    def relieve(self) -> None:
        """Bytes have left: take up again if the client reads."""
        if self._connection.codec.queued(self._sid) <= STREAM_LOW:
            self._full = False
            self._connection.relieved(self)
            self._press(False)
            self._empty()

    def _press(self, high: bool) -> None:
        if self.on_pressure is None:
            return
        try:
            self.on_pressure(high)
        except Exception as e:
            self._connection.report(self._call.path, e)

    def gone(self, reason: CloseReason) -> None:
        """The client, the connection or our time is over."""
        if self._finished is None:
            self._finished = reason
            self._end(reason)

    def _end(self, reason: CloseReason) -> None:
        """Tell the handler, after what it waits for has been cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        work, self._work = self._work, None
        if work is None:
            self._close(reason)
            return
        # `_awaited` tells the handler.
        work.cancel()

    def _close(self, reason: CloseReason) -> None:
        if self._closed or not self._begun:
            return
        self._closed = True
        self._inbox.clear()
        self._connection.relieved(self)
        self._connection.over(self._sid)
        try:
            self.handler.closed(reason)
        except Exception as e:
            self._connection.report(self._call.path, e)
