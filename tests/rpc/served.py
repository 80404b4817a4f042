"""Our server on a socket, and a client on it that does only what it is told: it can stop reading, break off, lie."""

import asyncio
import functools
import inspect
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from seawall.rpc.codec import Limits
from seawall.rpc.contract import Call, RpcService, Sender
from seawall.rpc.server import CodecServer
from tests.rpc.frames import TALK
from tests.rpc.peer import Client
from tests.wire.carried import NAME, Stream, until

MAX_MESSAGE = 1 << 20


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on uvloop, as in production, and on asyncio's own loop."""

    @functools.wraps(test)
    def run(loop: Any, **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(test(**arguments))

    of = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = of.replace(parameters=[loop, *of.parameters.values()])  # type: ignore[attr-defined]
    factories = [uvloop.new_event_loop, asyncio.SelectorEventLoop]
    return pytest.mark.parametrize("loop", factories, ids=["uvloop", "asyncio"])(run)


def echo(message: bytes, _: Call) -> bytes:
    return message


class Loud(Stream):
    """Sends much, and keeps what it is told of pressure."""

    def __init__(self, call: Call, sender: Sender, act: Callable[["Loud", bytes], Awaitable[None] | None]):
        super().__init__(call, sender, act)  # type: ignore[arg-type]
        self.pressure: list[bool] = []
        sender.on_pressure = self.pressure.append  # type: ignore[attr-defined]


def loud(act: Callable[[Loud, bytes], Awaitable[None] | None]) -> tuple[RpcService, list[Loud]]:
    opened: list[Loud] = []

    def open_(call: Call, sender: Sender) -> Loud:
        opened.append(Loud(call, sender, act))
        return opened[-1]

    return RpcService(NAME, {"Echo": echo}, {"Talk": open_}), opened


class Served:
    """A running server. `faults` is what it told its owner."""

    def __init__(self, folder: Path, services: tuple[RpcService, ...], addresses: list[str], **options: Any):
        self.folder = folder
        self.socket = str(folder / "s")
        self.faults: list[tuple[str, BaseException]] = []
        self.server = CodecServer(
            services,
            addresses or [f"unix:{self.socket}"],
            max_message=MAX_MESSAGE,
            on_error=lambda *fault: self.faults.append(fault),
            **options,
        )

    @property
    def calls(self) -> int:
        return sum(connection.calls for connection in self.server.connections)

    async def idle_calls(self) -> None:
        """Wait until no call is left in a handler."""
        await until(lambda: self.calls == 0, "all calls are over")

    async def idle(self) -> None:
        """Wait until no call is left in a handler, and no stream in a codec."""
        connections = self.server.connections
        await self.idle_calls()
        await until(lambda: sum(c.codec.streams for c in connections) == 0, "all streams are gone")


@asynccontextmanager
async def served(*services: RpcService, addresses: list[str] | None = None, **options: Any) -> AsyncIterator[Served]:
    # Not pytest's tmp_path: a socket's path must stay under 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sw-rpc-"))
    running = Served(folder, services, addresses or [], **options)
    try:
        await running.server.start()
        yield running
    finally:
        async with asyncio.timeout(20):
            await running.server.drain(0)
        await until(lambda: not running.server.connections, "all connections are gone")
        shutil.rmtree(folder, ignore_errors=True)


class Wire:
    """A client's socket with ngh2's client role on it. Reads only while it waits for something."""

    def __init__(self, sock: socket.socket, **settings: int):
        self.sock = sock
        self.client = Client(**settings)
        self.over = False
        self.got = 0

    async def push(self, data: bytes | None = None) -> None:
        """Write what the client has to say, or these bytes."""
        out = self.client.http.data_to_send() if data is None else data
        if out:
            # A server that has closed is seen by reading.
            with suppress(ConnectionError):
                await asyncio.get_running_loop().sock_sendall(self.sock, out)

    async def read(self, most: int = 1 << 16) -> bytes:
        """One read; b"" at the end."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self.sock, most)
        except ConnectionError:
            data = b""
        self.over = not data
        self.got += len(data)
        return data

    async def wait(self, holds: Callable[[], Any], most: int = 1 << 16) -> None:
        """Speak and listen until something holds."""
        async with asyncio.timeout(20):
            await self.push()
            while not holds():
                if not (data := await self.read(most)):
                    raise AssertionError("the server has closed the connection")
                self.client.hear(data)
                await self.push()

    async def open(self, path: str = TALK, *more: tuple[bytes, bytes]) -> int:
        sid = self.client.open(path, *more)
        await self.push()
        return sid

    async def call(self, message: bytes, path: str) -> bytes:
        """A unary call, and its answer."""
        sid = self.client.call(message, path)
        answer = self.client.answers[sid]
        await self.wait(lambda: answer.status is not None)
        assert answer.status == 0
        return answer.messages[0]

    async def end(self) -> bytes:
        """What comes until the server closes."""
        out = b""
        async with asyncio.timeout(20):
            while data := await self.read():
                out += data
        return out


@asynccontextmanager
async def wire(running: Served, buffer: int = 0, raw: bool = False, **settings: int) -> AsyncIterator[Wire]:
    """A connection to a server; `buffer` bounds what the kernel keeps for a client that does not read."""
    sock = socket.socket(socket.AF_UNIX)
    if buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, running.socket)
        made = Wire(sock, **settings)
        if not raw:
            await made.wait(lambda: made.client.http.remote_settings.get(3) != 0xFFFFFFFF and made.got)
        yield made
    finally:
        sock.close()


async def gathered(work: list[Awaitable[Any]]) -> None:
    async with asyncio.timeout(60):
        await asyncio.gather(*work)


def strangers() -> Limits:
    return Limits(MAX_MESSAGE, resets=(1_000, 33))
