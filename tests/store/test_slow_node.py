"""A node that greets but does not answer calls: each call that waits costs its time-out, so few may wait."""

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator

import hiredis
import pytest
import uvloop

from seawall.store.address import parse
from seawall.store.breaker import Rule
from seawall.store.contract import Charge, StoreUnavailable
from seawall.store.redis import RedisStore

HIT = [Charge(b"slow", 600, 60, 1)]


class SlowNode:
    """Speaks enough of Redis for a greeting; answers calls only while `quick`."""

    def __init__(self) -> None:
        self.quick = False
        self.calls = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self, path: str) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        parser = hiredis.Reader()
        while data := await reader.read(65536):
            parser.feed(data)
            while (words := parser.gets()) is not False:
                if words[0] == b"EVALSHA":
                    self.calls += 1
                    if self.quick:
                        writer.write(b"*1\r\n:%d\r\n" % self.calls)
                else:
                    writer.write(b"*2\r\n$1\r\n7\r\n$1\r\n0\r\n" if words[0] == b"TIME" else b"+OK\r\n")
        writer.close()


@pytest.fixture
async def slow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[SlowNode, str]]:
    node, path = SlowNode(), str(tmp_path_factory.mktemp("s") / "s")
    server = await node.start(path)
    yield node, f"unix://{path}"
    server.close()
    for writer in node.writers:
        writer.close()
    await server.wait_closed()


async def outcomes(store: RedisStore, calls: int) -> list[str]:
    """What calls one after the other are told; a call waits until there is a connection, so that each could be sent."""
    told = []
    for _ in range(calls):
        async with asyncio.timeout(20):
            while "not connected" in store.trouble:
                await asyncio.sleep(0.005)
        try:
            await store.charge(HIT)
            told.append("answered")
        except StoreUnavailable as error:
            told.append(str(error))
    return told


async def test_after_two_time_outs_the_breaker_answers_at_once(slow: tuple[SlowNode, str]) -> None:
    node, url = slow
    store = RedisStore(parse(url), owner="w", timeout=0.05, rule=Rule(failures=2, first=1000, longest=1000))
    await store.start()
    told = await outcomes(store, 300)
    assert told[:2] == ["timed out", "timed out"]
    assert set(told[2:]) == {"breaker open (timed out)"}
    assert node.calls == 2
    assert not store.healthy
    await store.close()


async def test_one_probe_at_a_time_and_a_good_one_closes_it(slow: tuple[SlowNode, str]) -> None:
    node, url = slow
    store = RedisStore(parse(url), owner="w", timeout=0.05, rule=Rule(failures=1, first=0.01, longest=0.01))
    await store.start()
    assert await outcomes(store, 1) == ["timed out"]
    async with asyncio.timeout(20):
        while not store.healthy:
            await asyncio.sleep(0.005)
    together = [store.charge(HIT) for _ in range(100)]
    told = [str(error) for error in await asyncio.gather(*together, return_exceptions=True)]
    assert told == ["timed out"] + ["breaker open (timed out)"] * 99
    node.quick = True
    async with asyncio.timeout(20):
        while not store.healthy:
            await asyncio.sleep(0.005)
    assert await outcomes(store, 3) == ["answered"] * 3
    assert store.trouble == ""
    await store.close()


async def test_a_release_passes_an_open_breaker(slow: tuple[SlowNode, str]) -> None:
    node, url = slow
    store = RedisStore(parse(url), owner="w", timeout=0.05, rule=Rule(failures=1, first=1000, longest=1000))
    await store.start()
    told = await outcomes(store, 2)
    assert told == ["timed out", "breaker open (timed out)"]
    store.release("big", "r1")
    async with asyncio.timeout(20):
        while node.calls < 2:
            await asyncio.sleep(0.005)
    await store.close()


def test_all_of_it_holds_on_uvloop(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def main() -> list[str]:
        node, path = SlowNode(), str(tmp_path_factory.mktemp("u") / "s")
        server = await node.start(path)
        store = RedisStore(parse(f"unix://{path}"), owner="w", timeout=0.05, rule=Rule(failures=9))
        await store.start()
        told = await outcomes(store, 2)
        node.quick = True
        told += await outcomes(store, 2)
        await store.close()
        server.close()
        return told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == ["timed out", "timed out", "answered", "answered"]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_stall_of_our_own_loop_is_no_time_out(
    tmp_path_factory: pytest.TempPathFactory, loop_factory: type[asyncio.AbstractEventLoop]
) -> None:
    """The reply lies in the socket by the time the loop looks: it counts, though its deadline is over."""
    path = str(tmp_path_factory.mktemp("st") / "s")

    async def main() -> list[int]:
        process = await asyncio.create_subprocess_exec(*_echo_node(path), stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        await process.stdout.readline()
        store = RedisStore(parse(f"unix://{path}"), owner="w", timeout=0.2)
        await store.start()
        assert store.healthy, store.trouble
        here, there = socket.socketpair()
        answer = store.charge(HIT)
        await asyncio.sleep(0)  # the command is out; now another reader takes the loop for itself
        asyncio.get_running_loop().add_reader(here, _stall, here)
        there.send(b"x")
        try:
            return list(await answer)
        finally:
            await store.close()
            process.kill()
            await process.wait()
            asyncio.get_running_loop().remove_reader(here)
            here.close()
            there.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(main()) == [1]


def _stall(reader: socket.socket) -> None:
    """Block the loop beyond the deadline, as a long garbage collection would."""
    reader.recv(1)
    threading.Event().wait(0.4)


def _echo_node(path: str) -> list[str]:
    """A quick node in a process of its own, since the loop of this one stands still."""
    code = (
        "import asyncio, sys\n"
        "from tests.store.test_slow_node import SlowNode\n"
        "async def main():\n"
        "    node = SlowNode(); node.quick = True\n"
        "    server = await node.start(sys.argv[1])\n"
        "    print('up', flush=True)\n"
        "    await server.serve_forever()\n"
        "asyncio.run(main())\n"
    )
    return [sys.executable, "-c", code, path]
