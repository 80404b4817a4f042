"""How streams end over the reference transport: each end is told once, with its reason, and nothing is left."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from seawall.rpc.contract import CloseReason
from tests.wire.carried import Stream, Tiny, carried, read_all, refusal, talk, until

pytestmark = pytest.mark.usefixtures("transport")


def readers_left() -> list[str]:
    """Tasks of the server that read a stream."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().endswith(" reader")]


async def test_a_half_close_without_a_message() -> None:
    """A stream of nothing is a normal end."""
    tiny = Tiny()
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.done_writing()
        assert await read_all(stream) == []
        assert await stream.code() is grpc.StatusCode.OK
        assert await tiny.streams[0].end() is CloseReason.DONE


async def test_clients_that_leave() -> None:
    """300 streams, cancelled at random points: each handler that was opened is told once, and none is left."""
    draw = random.Random(20240611)

    def act(stream: Stream, data: bytes) -> Awaitable[None] | None:
        for _ in range(len(data) % 5):
            stream.sender.send(data)
        return stream.wait() if data == b"hold" else None

    tiny = Tiny(act)

    async def visit(channel: grpc.aio.Channel, steps: int, last: str) -> None:
        stream = talk(channel)
        try:
            for step in range(steps):
                await stream.write(b"m" * (step + 1))
                if last == "reads" and (step + 1) % 5:
                    await stream.read()
            if last.startswith("holds"):
                await stream.write(b"hold")
                while last == "holds to be seen" and await stream.read() != b"hold":
                    pass
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
        finally:
            stream.cancel()
        with suppress(asyncio.CancelledError):
            await stream.code()

    async with carried(tiny.rpc) as running, running.connect() as channel:
        ways = ["reads", "writes", "holds", "holds to be seen"]
        visits = [visit(channel, draw.randrange(6), draw.choice(ways)) for _ in range(300)]
        async with asyncio.timeout(30):
            await asyncio.gather(*visits)
        # One after them all, so that whatever they left on the connection was taken.
        await talk(channel).done_writing()
        await until(lambda: all(stream.ends for stream in tiny.streams), "all handlers were told")
        await until(lambda: not readers_left(), "no reader is left")
        assert all(len(stream.ends) == 1 for stream in tiny.streams)
        assert sum(stream.waiting for stream in tiny.streams) == 0
        assert sum(stream.waiting_at_end for stream in tiny.streams) == 0
        ends = tiny.ends()
        # grpcio takes a reset for a half-close now and then, but never while the handler waits.
        assert ends.keys() <= {CloseReason.CANCELLED, CloseReason.DONE}
        held = [stream for stream in tiny.streams if b"hold" in stream.got]
        assert held
        assert {stream.ends[0] for stream in held} == {CloseReason.CANCELLED}
        assert ends[CloseReason.CANCELLED] > 10 * ends[CloseReason.DONE]
        assert running.faults == []


async def test_a_client_that_stops_reading() -> None:
    """Answers that nobody takes don't keep a stream: the client goes, the handler is told."""

    def flood(stream: Stream, data: bytes) -> None:
        for _ in range(200):
            stream.sender.send(bytes(100_000))

    tiny = Tiny(flood)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"x")
        assert len(await stream.read()) == 100_000
        stream.cancel()
        assert await tiny.streams[0].end() is CloseReason.CANCELLED
        assert running.faults == []


async def test_a_deadline_that_passes() -> None:
    """The client has waited long enough: for the handler that is a client that left."""
    tiny = Tiny(lambda stream, _: stream.wait())
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel, timeout=0.2)
        await stream.write(b"x")
        assert (await refusal(read_all(stream)))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        if tiny.streams:  # on a machine that slow it never arrived
            assert await tiny.streams[0].end() is CloseReason.CANCELLED


@asynccontextmanager
async def breakable(to: Path) -> AsyncIterator[tuple[Path, Callable[[], None]]]:
    """A way to a socket that can be cut as a dying peer cuts it: (path, cut)."""
    open_ones: list[asyncio.StreamWriter] = []
    pumps: list[asyncio.Future[None]] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_unix_connection(str(to))
        open_ones.extend([writer, there_writer])
        pumps.extend(asyncio.ensure_future(p) for p in (pump(reader, there_writer), pump(there_reader, writer)))

    def cut() -> None:
        for writer in open_ones:
            writer.transport.abort()

    path = to.with_suffix(".way")
    server = await asyncio.start_unix_server(join, path)
    try:
        yield path, cut
    finally:
        cut()
        server.close()
        await asyncio.gather(*pumps)


async def test_a_connection_that_breaks() -> None:
    """Every stream of it is told, whether it waits for a message or holds one; other connections live on."""
    tiny = Tiny(lambda stream, data: stream.wait() if data == b"hold" else stream.sender.send(data))
    async with (
        carried(tiny.rpc) as running,
        breakable(running.socket) as (way, cut),
        running.connect(way) as channel,
        running.connect() as other,
    ):
        beside = talk(other)
        await beside.write(b"before")
        assert await beside.read() == b"before"
        streams = [talk(channel) for _ in range(20)]
        for n, stream in enumerate(streams):
            await stream.write(b"hold" if n % 2 else b"idle")
        await until(lambda: sum(len(stream.got) for stream in tiny.streams) == 21, "all streams are at work")
        cut()
        broken = tiny.streams[1:]
        ends = [await stream.end() for stream in broken]
        assert {end for stream, end in zip(broken, ends, strict=True) if stream.got == [b"hold"]} == {
            CloseReason.CANCELLED
        }
        assert set(ends) <= {CloseReason.CANCELLED, CloseReason.DONE}
        for stream in streams:
            assert (await refusal(read_all(stream)))[0] is grpc.StatusCode.UNAVAILABLE
        await beside.write(b"after")
        assert await beside.read() == b"after"
        assert tiny.streams[0].ends == []
        assert running.faults == []
