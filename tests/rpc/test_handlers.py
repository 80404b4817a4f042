"""Handlers that wait, finish early, fail or are asked what is no question: what their clients see."""

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable

import pytest

from seawall.rpc.calls import STREAM_HIGH
from seawall.rpc.contract import Call, CloseReason, RpcError, RpcService, Sender, Status
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    ECHO,
    END_STREAM,
    PREFACE,
    TALK,
    data,
    opening,
    rst,
    settings,
)
from tests.rpc.served import (
    on_both_loops,
    served,
    wire,
)
from tests.wire.carried import NAME, Stream, Tiny, until


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
async def test_awaitables_that_nobody_waits_for() -> None:
    """A call that is over before its awaitable has begun, or a handler that finishes first, leaves no warning."""
    ran: list[str] = []
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work(name: str) -> bytes:
        ran.append(name)
        return b""

    def finish(stream: Stream, message: bytes) -> Awaitable[None] | None:
        if message == b"wait":
            return work("stream")  # type: ignore[return-value]
        stream.sender.finish()
        return future if message == b"future" else work("finished")  # type: ignore[return-value]

    tiny = Tiny(finish, Later=lambda *_: work("unary"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with served(tiny.rpc) as running, wire(running, raw=True) as client:
            later = opening(1, f"/{NAME}/Later") + data(1, framed(b""), END_STREAM) + rst(1)
            stream = opening(3) + data(3, framed(b"wait")) + rst(3)
            finished = opening(5) + data(5, framed(b"x")) + opening(7) + data(7, framed(b"future"))
            await client.push(PREFACE + settings() + later + stream + finished)
            await until(lambda: len(tiny.streams) == 3, "opened")
            await running.idle_calls()
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert future.cancelled()
    assert "finished" not in ran
    assert running.faults == []


@on_both_loops
async def test_the_deadline_of_a_stream() -> None:
    """Beyond it the client is told so, and the handler that its client does not wait any more."""
    tiny = Tiny(lambda stream, _: stream.wait())
    async with served(tiny.rpc) as running, wire(running) as client:
        idle = client.client.open(TALK, (b"grpc-timeout", b"10m"))
        busy = client.client.open(TALK, (b"grpc-timeout", b"10m"))
        client.client.send(busy, b"x")
        answers = client.client.answers
        await client.wait(lambda: answers[idle].status is not None and answers[busy].status is not None)
        assert [answers[sid].status for sid in (idle, busy)] == [Status.DEADLINE_EXCEEDED] * 2
        assert [await stream.end() for stream in tiny.streams] == [CloseReason.CANCELLED] * 2
        done = client.client.open(TALK, (b"grpc-timeout", b"1H"))
        client.client.http.end_stream(done)
        await client.wait(lambda: answers[done].status is not None)
        assert answers[done].status == Status.OK


def much(sender: Sender) -> None:
    sender.send(bytes(STREAM_HIGH))
    sender.finish()


OPENERS: dict[str, Callable[[Sender], None]] = {
    "sends": lambda sender: sender.send(b"hello"),
    "finishes": lambda sender: sender.finish(Status.NOT_FOUND, "none"),
    "sends much and finishes": much,
}


@on_both_loops
@pytest.mark.parametrize("how", OPENERS)
async def test_openers_that_speak(how: str) -> None:
    """A stream may be answered, and even finished, while it is opened; its handler is told of the end once."""
    opened: list[Stream] = []

    def open_(call: Call, sender: Sender) -> Stream:
        OPENERS[how](sender)
        opened.append(Stream(call, sender, lambda stream, _: stream.sender.finish(Status.NOT_FOUND)))
        return opened[-1]

    async with served(RpcService(NAME, {}, {"Talk": open_})) as running, wire(running) as client:
        sid = client.client.open(TALK, (b"grpc-timeout", b"1H"))
        client.client.send(sid, b"x", end=True)
        answer = client.client.answers[sid]
        await client.wait(lambda: answer.status is not None)
        assert answer.status == (Status.OK if "much" in how else Status.NOT_FOUND)
        assert await opened[0].end() is CloseReason.DONE
        assert opened[0].got == ([b"x"] if how == "sends" else [])
        await running.idle()
        assert running.faults == []


@on_both_loops
@pytest.mark.parametrize("error", [KeyError("late"), RpcError(Status.INTERNAL, "late")], ids=["fault", "RpcError"])
async def test_a_handler_that_finishes_and_then_raises(error: Exception) -> None:
    """The client has its status; a fault is the owner's; the end is told once."""

    def act(stream: Stream, message: bytes) -> None:
        stream.sender.finish(Status.OK)
        raise error

    tiny = Tiny(act)
    async with served(tiny.rpc) as running, wire(running) as client:
        sid = client.client.open()
        client.client.send(sid, b"x", b"y", end=True)
        answer = client.client.answers[sid]
        await client.wait(lambda: answer.status is not None)
        assert answer.status == Status.OK
        assert await tiny.streams[0].end() is CloseReason.DONE
        assert tiny.streams[0].got == [b"x"]
        await running.idle()
        assert [fault for _, fault in running.faults] == ([error] if isinstance(error, KeyError) else [])


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
