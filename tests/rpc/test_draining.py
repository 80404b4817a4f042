"""The end of a server, for clients with calls, with calls on their way, and with nothing to say."""

import asyncio

from seawall.rpc.contract import Call
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    ECHO,
    END_STREAM,
    GOAWAY,
    PING,
    PREFACE,
    data,
    frame,
    opening,
    settings,
    split,
)
from tests.rpc.served import (
    echo,
    loud,
    on_both_loops,
    served,
    wire,
)
from tests.wire.carried import Tiny, until


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
