"""The server on real sockets: clients that keep to the rules, and clients that stop reading or break off."""

import asyncio
import random
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from seawall.rpc import connection as connections
from seawall.rpc.calls import STREAM_HIGH, STREAM_LOW
from seawall.rpc.codec import Limits
from seawall.rpc.contract import Call, CloseReason, RpcError, RpcService, Sender, Status
from seawall.rpc.framing import framed
from seawall.rpc.server import CodecServer
from tests.rpc.frames import (
    CANCEL,
    ECHO,
    END_STREAM,
    GOAWAY,
    PING,
    PREFACE,
    TALK,
    data,
    fields,
    frame,
    opening,
    rst,
    settings,
    split,
)
from tests.rpc.served import MAX_MESSAGE, Served, Wire, gathered, on_both_loops, served, strangers, wire
from tests.wire.carried import NAME, Stream, Tiny, until


def echo(message: bytes, _: Call) -> bytes:
    return message


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
        said = b"".join(opening(sid, ECHO) + data(sid, framed(b"m"), END_STREAM) for sid in range(1, 201, 2))
        connection.data_received(said)
        assert len(writes) == 1
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


def transports(running: Served) -> int:
    """Bytes that wait in the server's transports."""
    return sum(c._transport.get_write_buffer_size() for c in running.server.connections if c._transport is not None)


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
        await until(lambda: opened and opened[0].pressure, "the handler is told of pressure")
        (connection,) = running.server.connections
        # Nothing is read, and nothing more may happen until it is.
        told = len(opened[0].got)
        assert opened[0].pressure == [True]
        assert told < 1000
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
        assert STREAM_LOW < most


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
async def test_an_error_whose_client_does_not_read() -> None:
    """Such a connection is gone after a moment, whatever waits in it."""
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
async def test_deadlines() -> None:
    """A call that awaits beyond its deadline is told so and cancelled; an absurd deadline is no harm."""
    ended = asyncio.Event()

    async def wait(message: bytes, _: Call) -> bytes:
        try:
            if message == b"wait":
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            return message
        finally:
            ended.set()

    async with served(Tiny(Echo=wait).rpc) as running, wire(running) as client:
        sid = client.client.call(b"wait", ECHO, (b"grpc-timeout", b"10m"))
        answer = client.client.answers[sid]
        await client.wait(lambda: answer.status is not None)
        assert answer.status == Status.DEADLINE_EXCEEDED
        await until(ended.is_set, "it is cancelled")
        sid = client.client.call(b"now", ECHO, (b"grpc-timeout", b"99999999H"))
        answer = client.client.answers[sid]
        await client.wait(lambda: answer.status is not None)
        assert answer.messages == [b"now"]
        await running.idle()


@on_both_loops
async def test_unary_calls_that_are_none() -> None:
    """No message or two are INTERNAL; the handler is not asked, the connection goes on."""
    asked: list[bytes] = []

    def keep(message: bytes, _: Call) -> bytes:
        asked.append(message)
        return message

    async with served(Tiny(Echo=keep).rpc) as running, wire(running) as client:
        none, two = client.client.open(ECHO), client.client.open(ECHO)
        client.client.http.end_stream(none)
        client.client.send(two, b"a", b"b", end=True)
        answers = client.client.answers
        await client.wait(lambda: answers[none].status is not None and answers[two].status is not None)
        assert [answers[sid].status for sid in (none, two)] == [Status.INTERNAL] * 2
        assert asked == []
        assert await client.call(b"on", ECHO) == b"on"
        await running.idle()


@on_both_loops
async def test_messages_before_a_fault_count() -> None:
    """What was good is answered, then the fault; in one read as in two."""
    tiny = Tiny()
    async with served(tiny.rpc) as running, wire(running) as client:
        for cut in (True, False):
            sid = client.client.open()
            client.client.send(sid, b"good")
            if cut:
                await client.push()
            client.client.http.send_data(sid, b"\1\0\0\0\0")
            answer = client.client.answers[sid]
            await client.wait(lambda a=answer: a.status is not None)
            assert answer.messages == [b"good"]
            assert answer.status == Status.UNIMPLEMENTED
            assert await tiny.streams[-1].end() is CloseReason.CANCELLED


@on_both_loops
async def test_draining() -> None:
    """Answers that wait for their client's window are delivered before the connection ends."""
    service, opened = loud(lambda stream, message: stream.sender.send(bytes(500_000)))
    async with served(service) as running, wire(running) as client:
        sid = client.client.open()
        client.client.send(sid, b"x", end=True)
        unary = client.client.call(bytes(300_000), ECHO)
        await client.push()
        await until(lambda: opened and opened[0].got, "it is asked")
        draining = asyncio.ensure_future(running.server.drain(60))
        answers = client.client.answers
        await client.wait(lambda: answers[sid].status == 0 and answers[unary].status == 0)
        assert answers[sid].messages == [bytes(500_000)]
        assert answers[unary].messages == [bytes(300_000)]
        async with asyncio.timeout(10):
            await draining
        assert await client.end() == b""
        assert [last for last, _ in client.client.goaways] == [(1 << 31) - 1, unary]


@on_both_loops
async def test_draining_serves_what_was_on_its_way() -> None:
    """A call that the client opened before it saw the notice is answered, though nothing else ran."""
    async with served(Tiny(Echo=echo).rpc) as running, wire(running) as client:
        draining = asyncio.ensure_future(running.server.drain(60))
        await until(lambda: all(c.draining for c in running.server.connections), "the notice is out")
        assert await client.call(b"late", ECHO) == b"late"
        async with asyncio.timeout(10):
            await draining


@on_both_loops
async def test_draining_without_an_answer() -> None:
    """A client that says nothing, or has not even greeted, is waited for no longer than a round trip may take."""
    async with served(Tiny(Echo=echo).rpc) as running, wire(running, raw=True) as mute, wire(running) as still:
        await until(lambda: len(running.server.connections) == 2, "both are there")
        async with asyncio.timeout(10):
            await running.server.drain(1000)
        for client in (mute, still):
            assert [f.payload[:4] for f in split(await client.end()) if f.kind == GOAWAY][-1] == bytes(4)


@on_both_loops
async def test_calls_after_the_drain_are_not_touched() -> None:
    """What a client opens after the last stream's number is not handled at all, and may be asked elsewhere."""
    asked: list[bytes] = []

    async def slow(message: bytes, _: Call) -> bytes:
        asked.append(message)
        await go.wait()
        return message

    go = asyncio.Event()
    async with served(Tiny(Echo=slow).rpc) as running, wire(running, raw=True) as client:
        await client.push(PREFACE + settings() + opening(1, ECHO) + data(1, framed(b"first"), END_STREAM))
        await until(lambda: asked, "asked")
        draining = asyncio.ensure_future(running.server.drain(60))
        got = b""
        while not (pings := [f for f in split(got) if f.kind == PING]):
            got += await client.read()
        await client.push(frame(PING, 1, 0, pings[0].payload))
        while len([f for f in split(got) if f.kind == GOAWAY]) < 2:
            got += await client.read()
        await client.push(opening(3, ECHO) + data(3, framed(b"second"), END_STREAM))
        go.set()
        got += await client.end()
        assert {f.stream for f in split(got)} == {0, 1}
        assert asked == [b"first"]
        async with asyncio.timeout(10):
            await draining


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


class Visitor:
    """A client that does something at random, and may leave at any point."""

    def __init__(self, draw: random.Random, client: Wire):
        self.draw, self.client = draw, client

    async def visit(self) -> None:
        draw, http = self.draw, self.client.client.http
        if not http.can_send_request:
            return
        sid = self.client.client.open(draw.choice([TALK, ECHO, ECHO.replace("Echo", "Later")]))
        for _ in range(draw.randrange(4)):
            with suppress(Exception):
                self.client.client.send(sid, draw.choice([b"", b"short", b"hold", bytes(20_000)]))
            if draw.random() < 0.3:
                await self.client.push()
        last = draw.randrange(5)
        with suppress(Exception):
            if last == 0:
                http.end_stream(sid)
            elif last == 1:
                http.reset_stream(sid, CANCEL)
            elif last == 2:
                http.end_stream(sid)
                await self.client.push()
                http.reset_stream(sid, CANCEL)
            elif last == 3:
                http.send_data(sid, framed(b"cut short")[:-2], end_stream=True)
            else:
                http.end_stream(sid)
        await self.client.push()


async def crowd(calls: int, seed: int) -> None:
    """Clients at random: calls and streams, reset, left half read, or given up with their connection."""
    draw = random.Random(seed)
    opened: list[Loud] = []

    def act(stream: Loud, message: bytes) -> Awaitable[None] | None:
        stream.sender.send(message)
        if message == b"hold":
            return stream.wait()
        if not message and len(stream.got) > 2:
            raise RpcError(Status.UNAVAILABLE, "enough")
        return None

    def open_(call: Call, sender: Sender) -> Loud:
        opened.append(Loud(call, sender, act))
        return opened[-1]

    waiting = 0

    async def later(message: bytes, _: Call) -> bytes:
        nonlocal waiting
        waiting += 1
        try:
            await (asyncio.Event().wait() if message == b"hold" else asyncio.sleep(0))
            return message
        finally:
            waiting -= 1

    service = RpcService(NAME, {"Echo": echo, "Later": later}, {"Talk": open_})
    async with served(service) as running:
        tasks = len(asyncio.all_tasks())

        async def connect(visits: int) -> None:
            async with wire(running) as client:
                visitor = Visitor(draw, client)
                for _ in range(visits):
                    await visitor.visit()
                    if draw.random() < 0.3:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(0):
                                client.client.hear(await client.read(draw.choice([10, 1000, 100_000])))
                    # A client that reads nothing for long is held back by its own socket.
                    while len(client.client.answers) % 20 == 0 and client.client.http.want_write:
                        await client.push()
                if draw.random() < 0.5:
                    for sid in list(client.client.answers):
                        client.client.http.reset_stream(sid, CANCEL)
                    await client.push()

        left = calls
        while left > 0:
            batch = [min(left, draw.randrange(1, 60)) for _ in range(8)]
            left -= sum(batch)
            await gathered([connect(visits) for visits in batch])
        await until(lambda: not running.server.connections, "all connections are gone")
        await until(lambda: all(stream.ends for stream in opened), "all streams are told")
        assert {len(stream.ends) for stream in opened} == {1}
        assert sum(stream.waiting_at_end + stream.waiting for stream in opened) == 0
        await until(lambda: waiting == 0 and len(asyncio.all_tasks()) == tasks, "all tasks are over")
        assert running.faults == []
        # Whoever is told of pressure is told of its end, or has ended.
        for stream in opened:
            assert stream.pressure == [n % 2 == 0 for n in range(len(stream.pressure))]


@on_both_loops
async def test_a_crowd() -> None:
    """2,000 calls and streams that end in all ways: all are told once, and all comes back to the start."""
    await crowd(2_000, 7)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@on_both_loops
async def test_a_large_crowd() -> None:
    """100,000 of them."""
    await crowd(100_000, 11)
