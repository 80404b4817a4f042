"""Our gRPC client: streams to a real server, and every way in which one can end."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from seawall.rpc.client import Stream, StreamEnded
from seawall.rpc.tls import ClientTls
from tests.certificates import authority, signed
from tests.wire.processes import free_port

# grpcio still tells a loop of calls that a test is done with: one loop for all, as in tests/wire.
pytestmark = pytest.mark.asyncio(loop_scope="session")
METHOD = "/x.Y/Z"
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="no openssl command to make certificates with"
)


async def serve(_: Any, context: Any) -> None:
    """Echo; `end`, `fail` and `big` do as they say."""
    while (message := await context.read()) is not grpc.aio.EOF:
        if message == b"end":
            return
        if message == b"fail":
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
        headers = dict(context.invocation_metadata())
        answers = {b"big": b"x" * 5000, b"header": headers.get("x-a", "").encode()}
        await context.write(answers.get(message, message))


@asynccontextmanager
async def server(credentials: grpc.ServerCredentials | None = None, port: int = 0) -> AsyncIterator[str]:
    made = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    method = grpc.stream_stream_rpc_method_handler(serve)
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x.Y", {"Z": method}),))
    address = f"127.0.0.1:{port}"
    port = made.add_secure_port(address, credentials) if credentials else made.add_insecure_port(address)
    await made.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await made.stop(0)


async def echo(address: str, tls: ClientTls | None = None) -> bytes:
    stream = await Stream.open(address, METHOD, tls=tls, timeout=10)
    try:
        await stream.send(b"hello")
        return await stream.receive()
    finally:
        await stream.close()


async def ended(*asked: bytes, address: str, **options: Any) -> StreamEnded:
    """Send these, and read until the end."""
    stream = await Stream.open(address, options.pop("method", METHOD), timeout=10, **options)
    try:
        for message in asked:
            await stream.send(message)
        while True:
            await stream.receive()
    except StreamEnded as end:
        return end
    finally:
        await stream.close()


async def test_messages_and_headers() -> None:
    async with server() as address:
        assert await echo(address) == b"hello"
        stream = await Stream.open(address, METHOD, metadata=[("x-a", "b")], timeout=10)
        await stream.send(b"header")
        assert await stream.receive() == b"b"
        await stream.close()


async def test_how_a_stream_ends() -> None:
    """The status of the server, and its words."""
    async with server() as address:
        assert str(await ended(b"end", address=address)) == "OK: the server has ended the stream"
        assert str(await ended(b"fail", address=address)) == "PERMISSION_DENIED: not you"
        assert (await ended(b"x", address=address, method="/x.Y/Unknown")).status == "UNIMPLEMENTED"
        assert (await ended(b"big", address=address, max_message=1000)).status == "RESOURCE_EXHAUSTED"
        stream = await Stream.open(address, METHOD, timeout=10)
        await stream.send(b"end")
        with pytest.raises(StreamEnded, match=r"^OK"):
            await stream.receive()
        # Nor can anything be sent then.
        with pytest.raises(StreamEnded, match=r"^OK"):
            await stream.send(b"x")
        await stream.close()


async def test_a_server_that_dies() -> None:
    async with server() as address:
        stream = await Stream.open(address, METHOD, timeout=10)
        await stream.send(b"hello")
        assert await stream.receive() == b"hello"
    with pytest.raises(StreamEnded) as end:
        await stream.receive()
    assert end.value.status in {"UNAVAILABLE", "CANCELLED"}
    await stream.close()


async def test_no_server() -> None:
    """Told at once, with the reason; and when there is one, the next try finds it."""
    port = free_port()
    with pytest.raises(StreamEnded, match=r"Connection refused") as end:
        await Stream.open(f"127.0.0.1:{port}", METHOD, timeout=10)
    assert end.value.status == "UNAVAILABLE"
    async with server(port=port) as address:
        assert await echo(address) == b"hello"


async def test_a_server_that_says_nothing() -> None:
    """The time to connect is bounded."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StreamEnded, match=rf"^UNAVAILABLE: {address} gave no answer in 0\.2 s$"):
            await Stream.open(address, METHOD, timeout=0.2)


async def test_cancelled_while_it_connects() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        opening = asyncio.ensure_future(Stream.open(f"127.0.0.1:{silent.getsockname()[1]}", METHOD, timeout=60))
        await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening


def credentials(ca: str, clients: str | None = None) -> grpc.ServerCredentials:
    cert, key = signed(ca, "server")
    trusted = authority(clients)[0] if clients else None
    return grpc.ssl_server_credentials([(key, cert)], trusted, clients is not None)


def written(folder: Path, name: str, content: bytes) -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


@needs_openssl
async def test_tls(tmp_path: Path) -> None:
    """The server is checked by CA and name; the file is read for each connection."""
    ca = written(tmp_path, "ca", authority("one")[0])
    async with server(credentials("one")) as address:
        assert await echo(address, ClientTls(ca)) == b"hello"
        assert await echo(address, ClientTls(ca, server_name="localhost")) == b"hello"
        for wrong in (ClientTls(ca, server_name="other.example"), ClientTls()):
            with pytest.raises(StreamEnded, match=r"^UNAVAILABLE: "):
                await echo(address, wrong)
        written(tmp_path, "ca", authority("two")[0])
        with pytest.raises(StreamEnded, match=r"^UNAVAILABLE: "):
            await echo(address, ClientTls(ca))
        with pytest.raises(StreamEnded, match=rf"^INVALID_ARGUMENT: {tmp_path}/none: No such file or directory$"):
            await echo(address, ClientTls(f"{tmp_path}/none"))
        with pytest.raises(StreamEnded):
            await echo(address)


@needs_openssl
async def test_mutual_tls(tmp_path: Path) -> None:
    """Who we are is shown where files say it."""
    ca = written(tmp_path, "ca", authority("one")[0])
    cert, key = signed("clients", "client")
    us = ClientTls(ca, written(tmp_path, "cert", cert), written(tmp_path, "key", key))
    async with server(credentials("one", "clients")) as address:
        assert await echo(address, us) == b"hello"
        with pytest.raises(StreamEnded, match=r"^UNAVAILABLE: "):
            await echo(address, ClientTls(ca))
        written(tmp_path, "key", b"no key")
        with pytest.raises(StreamEnded) as end:
            await echo(address, us)
        assert "no key" not in str(end.value)
