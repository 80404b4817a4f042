"""The pipelined connection, over a transport that only remembers."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.store.connection import Connection
from seawall.store.contract import StoreUnavailable
from seawall.store.resp import bulk, command
from seawall.store.scripts import load

ACQUIRE = load("acquire")


class Wire(asyncio.Transport):
    """Remembers each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


class Line:
    """A connection, its wire, and what it told its pipe."""

    def __init__(self, timeout: float = 1000.0, most_pending: int = 100) -> None:
        self.answered: list[bool] = []
        self.lost: list[tuple[str, int]] = []
        self.wire = Wire()
        self.connection = Connection(
            timeout=timeout,
            most_pending=most_pending,
            answered=self.answered.append,
            lost=lambda _, kind, pending: self.lost.append((kind, pending)),
        )
        self.connection.connection_made(self.wire)


async def tick() -> None:
    await asyncio.sleep(0)


async def test_commands_of_one_tick_leave_in_one_write() -> None:
    line = Line()
    for n in range(50):
        line.connection.call(command(b"GET", b"%d" % n))
    line.connection.tell(command(b"PING"))
    assert line.wire.writes == []
    await tick()
    assert line.wire.writes == [b"".join(command(b"GET", b"%d" % n) for n in range(50)) + command(b"PING")]
    await tick()
    line.connection.call(command(b"PING"))
    await tick()
    assert len(line.wire.writes) == 2
    line.connection.abort("end")


async def test_replies_go_to_their_commands_in_order() -> None:
    line = Line()
    first = line.connection.call(b"a", int)
    line.connection.tell(b"b")
    second = line.connection.call(b"c")
    third = line.connection.call(b"d")
    line.connection.data_received(b"$1\r\n7\r\n:2\r\n*2\r\n:1\r\n$-1\r\n-WRONGTYPE no\r\n")
    assert await first == 7
    assert await second == [1, None]
    with pytest.raises(StoreUnavailable, match=r"^replied WRONGTYPE$"):
        await third
    assert line.answered == [True]
    line.connection.abort("end")


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_replies(cuts: list[int]) -> None:
    stream = b":1\r\n$5\r\na\r\nb\r\r\n*2\r\n:3\r\n*1\r\n:4\r\n-OOM x\r\n$0\r\n\r\n+OK\r\n"

    async def replies() -> list[object]:
        line = Line()
        futures = [line.connection.call(b"x") for _ in range(6)]
        edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
        for start, end in itertools.pairwise(edges):
            line.connection.data_received(stream[start:end])
        line.connection.abort("end")
        return [
            str(r) if isinstance(r, Exception) else r for r in await asyncio.gather(*futures, return_exceptions=True)
        ]

    assert asyncio.run(replies()) == [1, b"a\r\nb\r", [3, [4]], "replied OOM", b"", b"OK"]


async def test_a_cancelled_caller_keeps_the_order() -> None:
    line = Line()
    gone, stays = line.connection.call(b"a"), line.connection.call(b"b")
    gone.cancel()
    line.connection.data_received(b":1\r\n:2\r\n")
    assert await stays == 2
    line.connection.abort("end")


async def test_errors_of_the_node_are_told_and_those_of_a_command_are_not() -> None:
    line = Line()
    futures = [line.connection.call(b"a") for _ in range(3)]
    line.connection.data_received(b"-ERR no\r\n")
    line.connection.data_received(b"-LOADING Valkey is loading\r\n:1\r\n")
    assert line.answered == [True, False]
    await asyncio.gather(*futures, return_exceptions=True)
    line.connection.abort("end")


async def test_an_unknown_script_is_loaded_and_called_once_more() -> None:
    line = Line()
    call = ACQUIRE.call([b"k"], [b"1"])
    first = line.connection.call(call, None, ACQUIRE)
    second = line.connection.call(call, None, ACQUIRE)
    await tick()
    line.connection.data_received(b"-NOSCRIPT No matching script.\r\n-NOSCRIPT No matching script.\r\n")
    await tick()
    assert line.wire.writes[1] == ACQUIRE.load + call + call
    line.connection.data_received(bulk(ACQUIRE.sha) + b":1\r\n:2\r\n")
    assert [await first, await second] == [1, 2]
    assert line.answered == [True, True]
    line.connection.abort("end")


async def test_a_script_that_stays_unknown_fails() -> None:
    line = Line()
    answer = line.connection.call(b"x", None, ACQUIRE)
    line.connection.data_received(b"-NOSCRIPT no\r\n")
    line.connection.data_received(b"-OOM no\r\n-NOSCRIPT no\r\n")
    with pytest.raises(StoreUnavailable, match="replied NOSCRIPT"):
        await answer
    assert line.answered == [True, False]
    line.connection.abort("end")


async def test_beyond_its_bound_a_command_is_refused() -> None:
    line = Line(most_pending=2)
    waiting = [line.connection.call(b"a") for _ in range(2)]
    with pytest.raises(StoreUnavailable, match="too many commands pending"):
        await line.connection.call(b"a")
    line.connection.tell(b"dropped")
    line.connection.data_received(b":1\r\n:2\r\n")
    assert [await answer for answer in waiting] == [1, 2]
    assert line.lost == []
    line.connection.abort("end")


async def test_the_oldest_command_overdue_ends_the_connection() -> None:
    line = Line(timeout=0.01)
    first, second = line.connection.call(b"a"), line.connection.call(b"b")
    async with asyncio.timeout(20):
        for answer in (first, second):
            with pytest.raises(StoreUnavailable, match=r"^timed out$"):
                await answer
    assert line.wire.aborted
    assert line.lost == [("timed out", 2)]
    with pytest.raises(StoreUnavailable, match="connection lost"):
        await line.connection.call(b"c")
    line.connection.connection_lost(None)
    assert line.lost == [("timed out", 2)]


async def test_a_command_that_was_answered_is_never_overdue() -> None:
    line = Line(timeout=0.01)
    first = line.connection.call(b"a")
    line.connection.data_received(b":1\r\n")
    await asyncio.sleep(0.05)
    assert await first == 1
    assert not line.wire.aborted
    second = line.connection.call(b"b")
    line.connection.data_received(b":2\r\n")
    assert await second == 2
    line.connection.abort("end")


async def test_a_lost_connection_fails_what_is_pending() -> None:
    line = Line()
    answer = line.connection.call(b"a")
    line.connection.connection_lost(ConnectionResetError("by 10.0.0.1"))
    with pytest.raises(StoreUnavailable, match=r"^connection lost \(ConnectionResetError\)$"):
        await answer
    assert line.lost == [("connection lost (ConnectionResetError)", 1)]


@pytest.mark.parametrize("bytes_", [b"HTTP/1.1 400 Bad Request\r\n", b":1\r\n:2\r\n"])
async def test_what_is_no_reply_ends_the_connection(bytes_: bytes) -> None:
    line = Line()
    answer = line.connection.call(b"a")
    line.connection.data_received(bytes_)
    await asyncio.gather(answer, return_exceptions=True)
    assert line.connection.closed
    assert len(line.lost) == 1


async def test_a_reply_of_another_shape_fails_its_command_alone() -> None:
    line = Line()
    first, second = line.connection.call(b"a", int), line.connection.call(b"b", int)
    line.connection.data_received(b"*0\r\n:2\r\n")
    with pytest.raises(StoreUnavailable, match="unexpected reply"):
        await first
    assert await second == 2
    line.connection.abort("end")
