"""The reference transport: the handler contract on grpcio.

Its price is known (facts in docs/decisions): several times the CPU of a Go server for each call, nearly all of it in the
stack. It is here for what it is good at: strangers' clients, and a yardstick for any other transport.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import grpc
import grpc.aio

from seawall.rpc.contract import Call, CloseReason, RpcError, RpcService, Status, StreamHandler, StreamOpener, Unary
from seawall.rpc.tasks import ErrorSink, Tasks

_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_Context = grpc.aio.ServicerContext[bytes, bytes]

_RESET_FOLLOWS = 0.002
"""Seconds between an end of the messages and belief in it: grpcio reads one from a reset stream as well, and most often
cancels the call a moment later."""
_LAST_WORDS = 1.0
"""Seconds after the last call of a drained server in which handlers are told of the end."""


class GrpcioServer:
    """Carries services on one or more addresses (`unix:/path`, `host:port`)."""

    def __init__(
        self, services: Sequence[RpcService], addresses: Sequence[str], *, max_message: int, on_error: ErrorSink
    ):
        self._addresses = addresses
        self._tasks = Tasks(on_error)
        self._on_error = on_error
        self._out_of_grace = False
        self._running: set[asyncio.Task[Any]] = set()
        """Calls whose handler is not done: grpcio's server stops before them."""
        self.ports: list[int] = []
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", max_message),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
                # Envoy keeps connections alive by PINGs; grpcio's guard against them would close the connection.
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
                ("grpc.keepalive_permit_without_calls", 1),
            ]
        )
        for service in services:
            self._server.add_generic_rpc_handlers((self._handlers(service),))

    def _handlers(self, service: RpcService) -> Any:
        table: dict[str, Any] = {}
        for method, unary in service.unary.items():
            path = f"/{service.name}/{method}"
            table[method] = grpc.unary_unary_rpc_method_handler(self._unary(unary, path))
        for method, opener in service.streams.items():
            path = f"/{service.name}/{method}"
            table[method] = grpc.stream_stream_rpc_method_handler(self._stream(opener, path))
        return grpc.method_handlers_generic_handler(service.name, table)

    async def start(self) -> None:
        """Listen on all addresses; raises OSError that names the one that can't be had."""
        for address in self._addresses:
            try:
                self.ports.append(self._server.add_insecure_port(address))
            except RuntimeError:
                raise OSError(f"can't listen on {address}") from None
        await self._server.start()

    async def drain(self, grace: float) -> None:
        """Send GOAWAY, wait up to `grace` seconds for running calls, cancel the rest."""
        loop = asyncio.get_running_loop()
        self._out_of_grace = grace <= 0
        timer = loop.call_later(grace, setattr, self, "_out_of_grace", True)
        try:
            await self._server.stop(grace)
        finally:
            timer.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_LAST_WORDS)
        await self._tasks.cancel_all()

    def _register(self) -> None:
        call = asyncio.current_task()
        if call is not None:
            self._running.add(call)
            call.add_done_callback(self._running.discard)

    def _unary(self, handler: Unary, path: str) -> Callable[[bytes, _Context], Any]:
        async def run(request: bytes, context: _Context) -> bytes:
            self._register()
            try:
                answer = handler(request, _call(path, context))
                return answer if isinstance(answer, bytes) else await answer
            except RpcError as e:
                await context.abort(_CODES[e.status], e.message)
            except asyncio.CancelledError:
                raise
            except Exception as e:
                self._on_error(path, e)
                await context.abort(grpc.StatusCode.INTERNAL, "internal error")

        return run

    def _stream(self, opener: StreamOpener, path: str) -> Callable[[Any, _Context], Any]:
        async def run(_: Any, context: _Context) -> None:
            self._register()
            sender = _QueueSender()
            try:
                handler = opener(_call(path, context), sender)
            except RpcError as e:
                await context.abort(_CODES[e.status], e.message)
            except Exception as e:
                self._on_error(path, e)
                await context.abort(grpc.StatusCode.INTERNAL, "internal error")
            reader = self._tasks.start(self._read(handler, sender, context, path), f"{path} reader")
            try:
                await sender.write_to(context)
            finally:
                reason = self._reason(sender)
                sender.end(reason)
                reader.cancel()
                try:
                    await asyncio.gather(reader, return_exceptions=True)
                finally:
                    # grpcio may cancel a call twice, the second time right here.
                    self._close(handler, reason, path)
            if sender.status is not Status.OK:
                await context.abort(_CODES[sender.status], sender.details)

        return run

    def _reason(self, sender: "_QueueSender") -> CloseReason:
        """Why a stream's writer stopped. Who ends a stream out of grace can't be told apart: we do it to all."""
        if sender.finished and sender.reason is not None:
            return sender.reason
        if self._out_of_grace:
            return CloseReason.DRAINED
        return CloseReason.CANCELLED if sender.reason is None else sender.reason

    def _close(self, handler: StreamHandler, reason: CloseReason, path: str) -> None:
        try:
            handler.closed(reason)
        except Exception as e:
            self._on_error(path, e)

    async def _read(self, handler: Any, sender: "_QueueSender", context: _Context, path: str) -> None:
        try:
            while sender.reason is None:
                message: object = await context.read()
                if not isinstance(message, bytes):  # grpc.aio.EOF
                    await asyncio.sleep(_RESET_FOLLOWS)
                    sender.end(CloseReason.DONE)
                    return
                waiting = handler.message(message)
                if waiting is not None:
                    await waiting
        except RpcError as e:
            sender.finish(e.status, e.message, CloseReason.FAILED)
        except asyncio.CancelledError:
            # grpcio raises it out of read(), and then may cancel nobody else: the call's coroutine must be told.
            sender.end(CloseReason.CANCELLED)
            raise
        except Exception as e:
            self._on_error(path, e)
            sender.finish(Status.INTERNAL, "internal error", CloseReason.FAILED)


class _QueueSender:
    """Queues what a handler sends; the call's coroutine writes it out."""

    def __init__(self) -> None:
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self.reason: CloseReason | None = None
        self.finished = False
        """Ended from our side."""
        self.status = Status.OK
        self.details = ""

    def send(self, message: bytes) -> None:
        if self.reason is None:
            self._queue.append(message)
            self._wake.set()

    def finish(self, status: Status = Status.OK, message: str = "", reason: CloseReason = CloseReason.DONE) -> None:
        if self.reason is None:
            self.status, self.details, self.finished = status, message, True
            self.end(reason)

    def end(self, reason: CloseReason) -> None:
        """Take nothing more; the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self._wake.set()

    async def write_to(self, context: _Context) -> None:
        """Write until the stream has ended and the queue is empty."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await context.write(self._queue.popleft())
            if self.reason is not None:
                return


def _call(path: str, context: _Context) -> Call:
    # The stubs know neither a call without a deadline nor the bytes of "-bin" keys.
    remaining = cast("float | None", context.time_remaining())
    pairs = cast("tuple[tuple[str, Any], ...]", context.invocation_metadata() or ())
    metadata = {key: value for key, value in pairs if isinstance(value, str)}
    return Call(path, metadata, None if remaining is None else time.monotonic() + remaining)
