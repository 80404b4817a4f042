"""Small services over the handler contract, carried by either transport on a Unix socket, and a real client."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from seawall.rpc.contract import Call, CloseReason, RpcService, Sender, Unary
from seawall.rpc.reference import GrpcioServer
from seawall.rpc.server import CodecServer

NAME = "test.Tiny"
MAX_MESSAGE = 1024 * 1024
Act = Callable[["Stream", bytes], Awaitable[None] | None]


class Stream:
    """A stream handler that keeps what it was told; `act` is what it does about a message."""

    def __init__(self, call: Call, sender: Sender, act: Act):
        self.call = call
        self.sender = sender
        self.got: list[bytes] = []
        self.ends: list[CloseReason] = []
        self.waiting = 0
        """Awaitables of ours that run now: none may when the end is told."""
        self.waiting_at_end = 0
        self.over = asyncio.Event()
        self._act = act

    def message(self, data: bytes) -> Awaitable[None] | None:
        self.got.append(data)
        return self._act(self, data)

    def closed(self, reason: CloseReason) -> None:
        self.ends.append(reason)
        self.waiting_at_end = self.waiting
        self.over.set()

    async def wait(self) -> None:
        """Wait for ever, as a queued request does."""
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1

    async def end(self) -> CloseReason:
        """How it ended: told once, and after what it waited for was cancelled."""
        async with asyncio.timeout(10):
            await self.over.wait()
        assert len(self.ends) == 1
        assert self.waiting_at_end == 0
        return self.ends[0]


class Tiny:
    """The service: `unary` by method name, and one bidirectional method `Talk`."""

    def __init__(self, act: Act = lambda stream, data: stream.sender.send(data), **unary: Unary):
        self.streams: list[Stream] = []
        self._act = act
        self.rpc = RpcService(NAME, unary, {"Talk": self._open})

    def _open(self, call: Call, sender: Sender) -> Stream:
        stream = Stream(call, sender, self._act)
        self.streams.append(stream)
        return stream

    async def stream(self, index: int = 0) -> Stream:
        """Wait until the server has opened it."""
        await until(lambda: len(self.streams) > index, "stream opened")
        return self.streams[index]

    def ends(self) -> Mapping[CloseReason, int]:
        return Counter(reason for stream in self.streams for reason in stream.ends)


class Chosen:
    """The transport that carries the services of the test that runs: see `conftest.transport`."""

    kind: type[GrpcioServer] | type[CodecServer] = CodecServer


transport = Chosen()


class Carried:
    """A running server, and a client of it. `faults` is what the server told its owner."""

    def __init__(self, folder: Path, services: Sequence[RpcService], max_message: int):
        self.socket = folder / "s"
        self.faults: list[tuple[str, BaseException]] = []
        self.server = transport.kind(
            services,
            [f"unix:{self.socket}"],
            max_message=max_message,
            on_error=lambda *fault: self.faults.append(fault),
        )

    def connect(self, socket: Path | None = None) -> grpc.aio.Channel:
        """A connection of its own: grpcio would share one between channels of equal options."""
        return grpc.aio.insecure_channel(
            f"unix:{socket or self.socket}",
            options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)],
        )


@asynccontextmanager
async def carried(*services: RpcService, max_message: int = MAX_MESSAGE) -> AsyncIterator[Carried]:
    # Not pytest's tmp_path: a socket's path must stay under 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sw-wire-"))
    running = Carried(folder, services, max_message)
    try:
        await running.server.start()
        yield running
    finally:
        async with asyncio.timeout(20):
            await running.server.drain(0)
        shutil.rmtree(folder, ignore_errors=True)


def call(channel: grpc.aio.Channel, method: str, data: bytes = b"", **options: Any) -> Any:
    """A unary call of bytes."""
    return channel.unary_unary(method if "/" in method else f"/{NAME}/{method}")(data, timeout=10, **options)


def talk(channel: grpc.aio.Channel, method: str = "Talk", **options: Any) -> Any:
    """A bidirectional call of bytes."""
    return channel.stream_stream(method if "/" in method else f"/{NAME}/{method}")(**options)


async def read_all(stream: Any) -> list[bytes]:
    """All messages up to the end; a status other than OK is raised."""
    return [message async for message in stream]


async def refusal(of: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """Status and text of a call that fails."""
    try:
        answer = await of
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError(f"answered {answer!r}")


async def until(holds: Callable[[], Any], what: str, seconds: float = 10) -> Any:
    """Wait until something holds: bounded, and told by name when it does not."""
    try:
        async with asyncio.timeout(seconds):
            while not (value := holds()):
                await asyncio.sleep(0.005)
            return value
    except TimeoutError:
        raise AssertionError(f"did not happen in {seconds} s: {what}") from None
