"""Back-pressure both ways: clients that do not read, handlers that are busy."""

import asyncio
from collections.abc import Callable

import pytest

from seawall.rpc import connection as connections
from seawall.rpc.calls import STREAM_HIGH, STREAM_LOW
from seawall.rpc.codec import Limits
from seawall.rpc.connection import Connection
from seawall.rpc.contract import CloseReason
from tests.rpc.frames import (
    ECHO,
    data,
)
from tests.rpc.served import (
    MAX_MESSAGE,
    Served,
    echo,
    loud,
    on_both_loops,
    served,
    wire,
)
from tests.wire.carried import Stream, Tiny, until


def transports(running: Served) -> int:
    """Bytes that wait in the server's transports."""
    return sum(c._transport.get_write_buffer_size() for c in running.server.connections if c._transport is not None)


def until_at_rest(connection: Connection, narrow: str) -> Callable[[], bool]:
    """Whether a client that does not read has been given all that it has room for."""
    if narrow == "socket":
        return lambda: not connection._writable
    return lambda: connection.codec.queued(1) > STREAM_LOW and transport_of(connection).get_write_buffer_size() == 0


def transport_of(connection: Connection) -> asyncio.WriteTransport:
    assert connection._transport is not None
    return connection._transport


@on_both_loops
@pytest.mark.parametrize("narrow", ["stream window", "socket"])
async def test_a_client_that_stops_reading(narrow: str) -> None:
    """The handler is told, its next messages wait, memory is bounded; when the client reads again all come in order."""
    size = 10_000
    service, opened = loud(lambda stream, message: stream.sender.send(message * size))
    window = 1 << 16 if narrow == "stream window" else 1 << 26
    async with served(service) as running, wire(running, buffer=4096, INITIAL_WINDOW_SIZE=window) as client:
        client.client.http.set_local_window_size(1 << 26)
        sid = await client.open()
        asked = [b"%d" % (n % 10) for n in range(1000)]
        for message in asked:
            client.client.send(sid, message)
        await client.push()
        (connection,) = running.server.connections
        at_rest = until_at_rest(connection, narrow)
        await until(lambda: opened and opened[0].pressure and at_rest(), "the client's place is full")
        # Nothing is read, so nothing more is asked of the handler.
        assert len(opened[0].got) < 1000
        assert opened[0].pressure[-1] is True
        assert connection.codec.queued(sid) <= STREAM_HIGH + size + 5
        assert transports(running) <= 2 * connections.WRITE_HIGH
        answer = client.client.answers[sid]
        await client.wait(lambda: len(answer.body) == 1000 * (size + 5), most=1 << 20)
        assert answer.messages == [message * size for message in asked]
        assert opened[0].got == asked
        assert opened[0].pressure[::2] == [True] * (len(opened[0].pressure) // 2)
        assert opened[0].pressure[1::2] == [False] * (len(opened[0].pressure) // 2)
        client.client.http.end_stream(sid)
        await client.wait(lambda: answer.status == 0)
        assert await opened[0].end() is CloseReason.DONE
        await running.idle()


@on_both_loops
async def test_no_pressure_without_need() -> None:
    """A message under the bound is none, however large; one beyond it is, until it has left."""
    sizes = [STREAM_HIGH - 100, STREAM_HIGH + 100]
    service, opened = loud(lambda stream, message: stream.sender.send(bytes(int(message))))
    async with served(service) as running, wire(running, INITIAL_WINDOW_SIZE=1 << 26) as client:
        client.client.http.set_local_window_size(1 << 26)
        for size, pressure in zip(sizes, ([], [True, False]), strict=True):
            sid = await client.open()
            answer = client.client.answers[sid]
            client.client.send(sid, b"%d" % size)
            await client.wait(lambda a=answer, s=size: len(a.body) == s + 5)
            assert opened[-1].pressure == pressure


@on_both_loops
async def test_one_client_does_not_read_others_do() -> None:
    """A stream under pressure stops neither other streams of its connection nor other connections."""
    service, opened = loud(lambda stream, message: stream.sender.send(message * 100_000))
    async with served(service) as running, wire(running) as client, wire(running) as other:
        client.client.http.set_local_window_size(1 << 24)
        slow = await client.open()
        for _ in range(20):
            client.client.send(slow, b"x")
        # 64 KiB of its window is all that the slow stream gets: the client library does not read its body on.
        client.client.http.set_local_window_size(1 << 24)
        await client.push()
        await until(lambda: opened and opened[0].pressure, "pressure")
        assert await other.call(b"beside", ECHO) == b"beside"
        assert await client.call(b"beside", ECHO) == b"beside"


@on_both_loops
async def test_a_handler_that_is_told_of_pressure_and_fails() -> None:
    """Its fault is its owner's, and the connection goes on."""
    service, opened = loud(lambda stream, message: stream.sender.send(bytes(STREAM_HIGH + 1)))
    async with served(service) as running, wire(running, INITIAL_WINDOW_SIZE=1 << 26) as client:
        sid = await client.open()
        await until(lambda: opened, "opened")

        def fail(high: bool) -> None:
            raise KeyError(high)

        opened[0].sender.on_pressure = fail  # type: ignore[attr-defined]
        client.client.send(sid, b"x")
        answer = client.client.answers[sid]
        await client.wait(lambda: len(answer.body) == STREAM_HIGH + 6)
        assert await client.call(b"on", ECHO) == b"on"
        assert [repr(e) for _, e in running.faults] == ["KeyError(True)", "KeyError(False)"]


@on_both_loops
async def test_pressure_from_a_handler_that_sends_unasked() -> None:
    """A handler that heeds what it is told keeps to the bound, and gets all through."""
    total = 300
    service, opened = loud(lambda stream, message: None)
    async with served(service) as running, wire(running, buffer=4096, INITIAL_WINDOW_SIZE=1 << 16) as client:
        client.client.http.set_local_window_size(1 << 26)
        sid = await client.open()
        await until(lambda: opened, "opened")
        stream, (connection,) = opened[0], running.server.connections
        most, sent = 0, 0

        def go(high: bool) -> None:
            nonlocal sent, most
            stream.pressure.append(high)
            while not stream.pressure[-1] and sent < total:
                sent += 1
                stream.sender.send(b"%03d" % sent + bytes(10_000))
                most = max(most, connection.codec.queued(sid))

        stream.sender.on_pressure = go  # type: ignore[attr-defined]
        go(False)
        assert sent < total
        answer = client.client.answers[sid]
        await client.wait(lambda: len(answer.body) == total * 10_008)
        assert [message[:3] for message in answer.messages] == [b"%03d" % n for n in range(1, total + 1)]
        assert most <= STREAM_HIGH + 10_008
        assert most > STREAM_LOW


@on_both_loops
async def test_a_handler_that_waits_holds_its_client_back() -> None:
    """While it awaits, its client may send one window; nothing is lost, and others are served."""
    go = asyncio.Event()

    async def take(stream: Stream) -> None:
        await go.wait()

    tiny = Tiny(lambda stream, _: take(stream), Echo=echo)
    window = 1 << 16
    bounds = Limits(MAX_MESSAGE, stream_window=window)
    async with served(tiny.rpc, limits=bounds) as running, wire(running) as client:
        sid = await client.open()
        messages = [b"%04d" % n + bytes(1000) for n in range(500)]
        for message in messages:
            client.client.send(sid, message)
        await client.push()
        stream = await tiny.stream()
        assert await client.call(b"beside", ECHO) == b"beside"
        (connection,) = running.server.connections
        assert stream.got == messages[:1]
        left = client.client.http.queued_body_size(sid)
        # What came before the first pause is given back: two windows at most are on our side.
        assert left >= 500 * 1009 - 2 * window - 16_384
        assert client.client.http.stream_remote_window_size(sid) <= window
        go.set()
        client.client.http.end_stream(sid)
        answer = client.client.answers[sid]
        await client.wait(lambda: answer.status == 0)
        assert stream.got == messages
        assert await stream.end() is CloseReason.DONE
        assert connection.codec.streams == 0


@on_both_loops
async def test_a_client_that_never_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after a time, whatever it has said meanwhile; its handlers are told."""
    monkeypatch.setattr(connections, "STALL", 0.05)
    service, opened = loud(lambda stream, message: stream.sender.send(bytes(1 << 20)))
    async with served(service) as running, wire(running, buffer=4096, INITIAL_WINDOW_SIZE=1 << 26) as client:
        client.client.http.set_local_window_size(1 << 26)
        sid = await client.open()
        client.client.send(sid, b"x")
        await client.push()
        await until(lambda: opened and opened[0].pressure, "it does not read")
        await client.push(data(99, b"x"))
        assert await opened[0].end() is CloseReason.CANCELLED
        await until(lambda: not running.server.connections, "it is forgotten")
