"""The server on real sockets: calls, errors, addresses, and clients that break off."""

import asyncio
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from seawall.rpc.contract import CloseReason
from seawall.rpc.framing import framed
from seawall.rpc.server import CodecServer
from tests.rpc.frames import (
    ECHO,
    END_STREAM,
    GOAWAY,
    PING,
    PREFACE,
    TALK,
    data,
    frame,
    opening,
    rst,
    settings,
    split,
)
from tests.rpc.served import (
    Wire,
    echo,
    on_both_loops,
    served,
    strangers,
    wire,
)
from tests.wire.carried import Tiny, until


@on_both_loops
async def test_calls_and_streams() -> None:
    """A unary call and a stream over one connection; nothing is left of them."""
    tiny = Tiny(Echo=echo)
    async with served(tiny.rpc) as running, wire(running) as client:
        assert await client.call(b"ping", ECHO) == b"ping"
        sid = await client.open()
        answer = client.client.answers[sid]
        for n in range(10):
            client.client.send(sid, b"%d" % n)
            await client.wait(lambda n=n: len(answer.messages) == n + 1)
        client.client.http.end_stream(sid)
        await client.wait(lambda: answer.status == 0)
        assert answer.messages == [b"%d" % n for n in range(10)]
        assert await tiny.streams[0].end() is CloseReason.DONE
        await running.idle()
        assert running.faults == []


@on_both_loops
async def test_one_write_for_a_read() -> None:
    """A thousand calls that arrive together are answered together, without a task."""
    tiny = Tiny(Echo=echo)
    async with served(tiny.rpc) as running, wire(running) as client:
        (connection,) = running.server.connections
        transport = connection._transport
        writes: list[int] = []

        class Counting:
            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def write(self, out: bytes) -> None:
                writes.append(len(out))
                transport.write(out)  # type: ignore[union-attr]

        connection._transport = Counting()  # type: ignore[assignment]
        tasks = len(asyncio.all_tasks())
        said = b"".join(
            opening(sid, path) + data(sid, framed(b"m"), END_STREAM)
            for sid, path in zip(range(1, 201, 2), [ECHO, TALK] * 50, strict=True)
        )
        connection.data_received(said)
        assert len(writes) == 1
        assert not connection._flushing
        assert len(asyncio.all_tasks()) == tasks
        connection._transport = transport
        assert await client.read()


@on_both_loops
async def test_ping() -> None:
    """It is answered while a handler waits."""
    tiny = Tiny(lambda stream, _: stream.wait())
    async with served(tiny.rpc) as running, wire(running, raw=True) as client:
        await client.push(PREFACE + settings() + opening(1) + data(1, framed(b"hold")))
        await until(lambda: tiny.streams and tiny.streams[0].waiting, "the handler waits")
        await client.push(frame(PING, 0, 0, b"12345678"))
        got = b""
        while frame(PING, 1, 0, b"12345678") not in got:
            got += await client.read()


@on_both_loops
async def test_a_read_split_anywhere() -> None:
    """Bytes that come one by one are the same call."""
    tiny = Tiny(Echo=echo)
    async with served(tiny.rpc) as running, wire(running, raw=True) as client:
        for byte in PREFACE + settings() + opening(1, ECHO) + data(1, framed(b"slow"), END_STREAM):
            await client.push(bytes([byte]))
        got = b""
        while framed(b"slow") not in got:
            got += await client.read()


@on_both_loops
async def test_errors_close_the_connection() -> None:
    """After GOAWAY the socket is closed, handlers are told, and other connections live."""
    tiny = Tiny(Echo=echo)
    async with served(tiny.rpc) as running, wire(running) as other, wire(running, raw=True) as client:
        await client.push(PREFACE + settings() + opening(1))
        stream = await tiny.stream()
        await client.push(data(99, b"x"))
        got = await client.end()
        assert [f.code for f in split(got) if f.kind == GOAWAY] == [1]
        assert await stream.end() is CloseReason.CANCELLED
        assert await other.call(b"on", ECHO) == b"on"
        await until(lambda: len(running.server.connections) == 1, "it is forgotten")


@on_both_loops
async def test_rapid_resets() -> None:
    """A stranger is stopped; Envoy's socket bears it."""
    tiny = Tiny(Echo=echo)
    cycles = b"".join(opening(sid) + rst(sid) for sid in range(1, 6001, 2))
    async with served(tiny.rpc, limits=strangers()) as running, wire(running, raw=True) as client:
        with suppress(ConnectionError):
            await client.push(PREFACE + settings() + cycles)
        await client.end()
        await until(lambda: not running.server.connections, "the stranger is gone")
    async with served(tiny.rpc) as running, wire(running, raw=True) as client:
        await client.push(PREFACE + settings() + cycles + opening(6001, ECHO) + data(6001, framed(b"on"), END_STREAM))
        got = b""
        while framed(b"on") not in got:
            got += await client.read()
        await running.idle()
    assert all(len(stream.ends) == 1 for stream in tiny.streams)


@on_both_loops
async def test_a_client_that_breaks_off() -> None:
    """Closed, half closed or reset by the kernel: every call is told once, and nothing is left."""
    tiny = Tiny(lambda stream, m: stream.wait() if m == b"hold" else stream.sender.send(m * 50_000))
    async with served(tiny.rpc) as running:
        for how in ("close", "shutdown", "unread"):
            before = len(tiny.streams)
            async with wire(running) as client:
                for n in range(10):
                    sid = await client.open()
                    client.client.send(sid, b"hold" if n % 2 else b"much")
                    client.client.send(sid, b"more")
                await client.push()
                await until(lambda b=before: sum(bool(s.got) for s in tiny.streams[b:]) == 10, "all are at work")
                if how == "shutdown":
                    client.sock.shutdown(socket.SHUT_WR)
                    await until(lambda: not running.server.connections, "the end is seen")
            ends = [await stream.end() for stream in tiny.streams[before:]]
            assert set(ends) == {CloseReason.CANCELLED}
            await until(lambda: not running.server.connections, "the connection is gone")
        assert running.faults == []
        assert sum(stream.waiting for stream in tiny.streams) == 0


@on_both_loops
async def test_tcp_and_port_0() -> None:
    """Port 0 is any free one, and the server knows which."""
    tiny = Tiny(Echo=echo)
    async with served(tiny.rpc, addresses=["127.0.0.1:0", "127.0.0.1:0"]) as running:
        first, second = running.server.ports
        assert 0 < first != second > 0
        for port in (first, second):
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            with sock:
                assert await Wire(sock).call(b"x", ECHO) == b"x"


@on_both_loops
async def test_a_socket_that_was_left_behind() -> None:
    """A server that died leaves its file: the next one takes its place, and removes its own file when it goes."""
    async with served(Tiny(Echo=echo).rpc) as running:
        path = running.folder / "t"
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        left.close()
        second = CodecServer([], [f"unix:{path}"], max_message=1, on_error=lambda *_: None)
        await second.start()
        assert stat.S_ISSOCK(path.stat().st_mode)
        await second.drain(0)
        assert not path.exists()


@on_both_loops
async def test_a_file_that_is_no_socket() -> None:
    """It is not removed: the address can't be had."""
    async with served(Tiny(Echo=echo).rpc) as running:
        path = running.folder / "t"
        path.write_text("precious")
        second = CodecServer([], [f"unix:{path}"], max_message=1, on_error=lambda *_: None)
        with pytest.raises(OSError, match=f"can't listen on unix:{path}: .*in use"):
            await second.start()
        assert path.read_text() == "precious"


ADDRESSES: dict[str, Callable[[int, Path], tuple[str, str]]] = {
    "a port in use": lambda port, _: (f"127.0.0.1:{port}", "in use"),
    "no such folder": lambda _, folder: (f"unix:{folder}/no/s", "No such file"),
    "a path too long": lambda _, folder: (f"unix:{folder}/{'x' * 200}", "too long"),
    "an address of others": lambda *_: ("192.0.2.1:0", "assign"),
}


@on_both_loops
@pytest.mark.parametrize("how", ADDRESSES)
async def test_addresses_that_cannot_be_had(how: str) -> None:
    """It is an OSError that names the address and the reason."""
    async with served(Tiny(Echo=echo).rpc, addresses=["127.0.0.1:0"]) as running:
        address, reason = ADDRESSES[how](running.server.ports[0], running.folder)
        second = CodecServer([], [address], max_message=1, on_error=lambda *_: None)
        with pytest.raises(OSError, match=f"^can't listen on {address}: .*{reason}"):
            await second.start()
