"""Our server and grpcio's clients: many that leave at any point, and one that reads slowly."""

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress

import grpc
import grpc.aio
import pytest

from seawall.rpc.contract import Call
from tests.rpc.served import Served, gathered, served
from tests.wire.carried import NAME, Stream, Tiny, call, read_all, talk, until

# grpcio still tells a loop of calls that a test is done with: one loop for all, as in tests/wire.
pytestmark = pytest.mark.asyncio(loop_scope="session")


def connect(running: Served) -> grpc.aio.Channel:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    return grpc.aio.insecure_channel(f"unix:{running.socket}", options=options)


async def test_a_client_that_reads_slowly() -> None:
    """More than fits anywhere on the way comes in order, and the handler is asked no faster than it is read."""
    tiny = Tiny(lambda stream, message: stream.sender.send(message * 5_000))
    async with served(tiny.rpc) as running, connect(running) as channel:
        stream = talk(channel)
        asked = [b"%04d" % n for n in range(2_000)]

        async def ask() -> None:
            for message in asked:
                await stream.write(message)
            await stream.done_writing()

        asking = asyncio.ensure_future(ask())
        opened = await tiny.stream()
        (connection,) = running.server.connections
        for n, message in enumerate(asked):
            if n % 100 == 0:
                for _ in range(50):
                    await asyncio.sleep(0)
                assert connection.codec.queued(1) < 1 << 20
            assert await stream.read() == message * 5_000
        await asking
        assert await stream.code() is grpc.StatusCode.OK
        await opened.end()
        assert opened.got == asked
        await running.idle()


async def crowd(count: int, seed: int) -> None:
    """Streams and unary calls, half of each cancelled at random points: the server comes back to its start."""
    draw = random.Random(seed)
    waiting = 0

    async def later(message: bytes, _: Call) -> bytes:
        nonlocal waiting
        waiting += 1
        try:
            for _ in range(len(message) % 5):
                await asyncio.sleep(0)
            if message == b"hold":
                await asyncio.Event().wait()
            return message
        finally:
            waiting -= 1

    def act(stream: Stream, message: bytes) -> Awaitable[None] | None:
        for _ in range(len(message) % 4):
            stream.sender.send(message)
        return stream.wait() if message == b"hold" else None

    tiny = Tiny(act, Echo=lambda message, _: message, Later=later)

    async def unary(channel: grpc.aio.Channel) -> None:
        message = b"hold" if draw.random() < 0.1 else b"m" * draw.randrange(3_000)
        asked = call(channel, draw.choice(["Echo", "Later"]), message)
        if message == b"hold" or draw.random() < 0.5:
            for _ in range(draw.randrange(6)):
                await asyncio.sleep(0)
            asked.cancel()
        with suppress(asyncio.CancelledError):
            assert await asked == message

    async def stream(channel: grpc.aio.Channel) -> None:
        made = talk(channel)
        sent = [b"m" * draw.randrange(4, 2_000) for _ in range(draw.randrange(5))]
        leaves = draw.random() < 0.5
        with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
            for message in sent:
                await made.write(message)
                if leaves and draw.random() < 0.2:
                    made.cancel()
            if leaves:
                if draw.random() < 0.5:
                    await made.write(b"hold")
                for _ in range(draw.randrange(6)):
                    await asyncio.sleep(0)
                made.cancel()
            await made.done_writing()
            assert await read_all(made) == [message for message in sent for _ in range(len(message) % 4)]

    async with served(tiny.rpc) as running:
        tasks = len(asyncio.all_tasks())
        for _ in range(0, count, 200):
            async with connect(running) as channel, connect(running) as other:
                work = [draw.choice([unary, stream])(draw.choice([channel, other])) for _ in range(200)]
                await gathered(list(work))
                await running.idle_calls()
                assert all(len(stream.ends) == 1 for stream in tiny.streams)
                assert sum(s.waiting + s.waiting_at_end for s in tiny.streams) == waiting == 0
                tiny.streams.clear()
        await until(lambda: not running.server.connections, "all connections are gone")
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "all tasks are over")
        assert running.faults == []
        assert await call(connect(running), f"/{NAME}/Echo", b"on") == b"on"


async def test_a_crowd() -> None:
    """2,000 calls."""
    await crowd(2_000, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_large_crowd() -> None:
    """100,000 calls."""
    await crowd(100_000, 5)
