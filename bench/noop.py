"""A server that does nothing but carry: parse the request, build and serialise a fresh answer. One transport a process.

    python -m bench.noop KIND SOCKET

KIND: own (our transport, handlers that answer at once), own-await (handlers that wait once), grpcio (our reference
transport, the handlers of `own`), aio (grpc.aio with nothing of ours around it).
"""

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable
from typing import Any

import grpc
import grpc.aio
import uvloop

from seawall.proto.gen import ext_authz_pb2, ext_proc_pb2, ratelimit_pb2
from seawall.rpc.contract import Call, CloseReason, RpcService, Sender
from seawall.rpc.reference import GrpcioServer
from seawall.rpc.server import CodecServer

KINDS = ("own", "own-await", "grpcio", "aio")
MAX_MESSAGE = 8 * 2**20 + 256 * 1024
LIMIT = 1 << 30
RATELIMIT = "envoy.service.ratelimit.v3.RateLimitService"
AUTHZ = "envoy.service.auth.v3.Authorization"
EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"

counts: dict[Any, int] = {}


def should_rate_limit(data: bytes) -> bytes:
    """Count one hit for each descriptor."""
    request = ratelimit_pb2.RateLimitRequest.FromString(data)
    ok = ratelimit_pb2.RateLimitResponse.OK
    answer = ratelimit_pb2.RateLimitResponse(overall_code=ok)
    for descriptor in request.descriptors:
        key = (request.domain, *((entry.key, entry.value) for entry in descriptor.entries))
        n = counts[key] = counts.get(key, 0) + 1
        answer.statuses.add(code=ok, limit_remaining=max(0, LIMIT - n))
    return answer.SerializeToString()


def check(data: bytes) -> bytes:
    """Let everything pass."""
    ext_authz_pb2.CheckRequest.FromString(data)
    answer = ext_authz_pb2.CheckResponse()
    answer.ok_response.SetInParent()
    return answer.SerializeToString()


def process(data: bytes) -> bytes:
    """Answer headers and trailers with nothing, and send a piece of a body back."""
    request = ext_proc_pb2.ProcessingRequest.FromString(data)
    kind = request.WhichOneof("request") or "request_headers"
    answer = ext_proc_pb2.ProcessingResponse()
    if kind in {"request_body", "response_body"}:
        body = getattr(request, kind)
        piece = getattr(answer, kind).response.body_mutation.streamed_response
        piece.body = body.body
        piece.end_of_stream = body.end_of_stream
    else:
        getattr(answer, kind).SetInParent()
    return answer.SerializeToString()


async def once() -> None:
    """Wait for the next turn of the loop, as for an answer of a store."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    loop.call_soon(waiting.set_result, None)
    await waiting


class Echo:
    """A stream whose messages are answered at once."""

    def __init__(self, _: Call, sender: Sender):
        self.sender = sender

    def message(self, data: bytes) -> Awaitable[None] | None:
        self.sender.send(process(data))
        return None

    def closed(self, reason: CloseReason) -> None:
        pass


class LateEcho(Echo):
    """A stream whose messages are waited for."""

    def message(self, data: bytes) -> Awaitable[None]:
        return self._answer(data)

    async def _answer(self, data: bytes) -> None:
        await once()
        self.sender.send(process(data))


async def late_should_rate_limit(data: bytes, _: Call) -> bytes:
    await once()
    return should_rate_limit(data)


async def late_check(data: bytes, _: Call) -> bytes:
    await once()
    return check(data)


def services(waiting: bool) -> list[RpcService]:
    """All three services under the contract of seawall.rpc."""
    if waiting:
        return [
            RpcService(RATELIMIT, {"ShouldRateLimit": late_should_rate_limit}, {}),
            RpcService(AUTHZ, {"Check": late_check}, {}),
            RpcService(EXT_PROC, {}, {"Process": LateEcho}),
        ]
    return [
        RpcService(RATELIMIT, {"ShouldRateLimit": lambda data, _: should_rate_limit(data)}, {}),
        RpcService(AUTHZ, {"Check": lambda data, _: check(data)}, {}),
        RpcService(EXT_PROC, {}, {"Process": Echo}),
    ]


def plain_aio(address: str) -> Any:
    """grpc.aio with the same answers and the cheapest handlers that it has."""

    async def limited(data: bytes, _: Any) -> bytes:
        return should_rate_limit(data)

    async def checked(data: bytes, _: Any) -> bytes:
        return check(data)

    async def processed(_: Any, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            await context.write(process(data))

    methods: Any = [
        (RATELIMIT, {"ShouldRateLimit": grpc.unary_unary_rpc_method_handler(limited)}),
        (AUTHZ, {"Check": grpc.unary_unary_rpc_method_handler(checked)}),
        (EXT_PROC, {"Process": grpc.stream_stream_rpc_method_handler(processed)}),
    ]
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, table) for name, table in methods])
    server.add_insecure_port(address)
    return server


async def serve(kind: str, socket: str) -> None:
    """Serve until SIGTERM."""
    address = f"unix:{socket}"

    def failed(where: str, error: BaseException) -> None:
        print(where, repr(error), flush=True)

    server: Any
    if kind == "aio":
        server = plain_aio(address)
    elif kind == "grpcio":
        server = GrpcioServer(services(False), [address], max_message=MAX_MESSAGE, on_error=failed)
    else:
        server = CodecServer(services(kind == "own-await"), [address], max_message=MAX_MESSAGE, on_error=failed)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await server.start()
    # As a worker does once it is ready.
    gc.collect()
    gc.freeze()
    await stop.wait()


def main() -> None:
    kind, socket = sys.argv[1:]
    if kind not in KINDS:
        raise SystemExit(f"no such kind: {kind}; there are {', '.join(KINDS)}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(kind, socket))


if __name__ == "__main__":
    main()
