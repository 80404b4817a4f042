"""Many clients at once that call, reset, half read and leave: everything returns to the start."""

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from seawall.rpc.contract import Call, RpcError, RpcService, Sender, Status
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    CANCEL,
    ECHO,
    TALK,
)
from tests.rpc.served import (
    Loud,
    Wire,
    echo,
    gathered,
    on_both_loops,
    served,
    wire,
)
from tests.wire.carried import NAME, until


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
    """5,000 calls and streams that end in all ways: all are told once, and all comes back to the start."""
    await crowd(5_000, 7)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@on_both_loops
async def test_a_large_crowd() -> None:
    """100,000 of them."""
    await crowd(100_000, 11)
