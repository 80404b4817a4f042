"""Streams over the reference transport: messages and answers in order, and handlers that refuse, fail or wait."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from seawall.rpc.contract import Call, CloseReason, RpcError, RpcService, Sender, Status
from tests.wire.carried import MAX_MESSAGE, NAME, Stream, Tiny, carried, read_all, refusal, talk, until

pytestmark = pytest.mark.usefixtures("transport")


def fail(error: Exception) -> Any:
    raise error


async def fail_later(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def test_order() -> None:
    """Messages arrive in order; a message may have no answer or many, and all keep their order."""

    def repeat(stream: Stream, data: bytes) -> None:
        for n in range(int(data) % 4):
            stream.sender.send(b"%b.%d" % (data, n))

    tiny = Tiny(repeat)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        reading = asyncio.ensure_future(read_all(stream))
        sent = [b"%d" % n for n in range(500)]
        for message in sent:
            await stream.write(message)
        await stream.done_writing()
        assert await reading == [b"%b.%d" % (message, n) for message in sent for n in range(int(message) % 4)]
        assert await stream.code() is grpc.StatusCode.OK
        assert tiny.streams[0].got == sent
        assert await tiny.streams[0].end() is CloseReason.DONE


async def test_empty_and_large_messages() -> None:
    """An empty message is a message, and one of the largest size passes."""
    tiny = Tiny()
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        for message in (b"", bytes(MAX_MESSAGE), b""):
            await stream.write(message)
            assert await stream.read() == message
        await stream.done_writing()
        assert await tiny.streams[0].end() is CloseReason.DONE


async def test_a_message_too_large_ends_its_stream_alone() -> None:
    """The handler is told of the end; other streams of the connection go on."""
    tiny = Tiny()
    async with carried(tiny.rpc) as running, running.connect() as channel:
        beside = talk(channel)
        await beside.write(b"before")
        assert await beside.read() == b"before"
        stream = talk(channel)
        await stream.write(bytes(MAX_MESSAGE + 1))
        assert (await refusal(read_all(stream)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        opened = await tiny.stream(1)
        await opened.end()
        assert opened.got == []
        await beside.write(b"after")
        assert await beside.read() == b"after"
        assert running.faults == []


async def test_answers_out_of_band() -> None:
    """A handler sends when it likes, long after the message that made it: from timers, in their order."""

    def remember(stream: Stream, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        for n in range(3):
            loop.call_later(0.003 * n, stream.sender.send, b"%b %d" % (data, n))

    tiny = Tiny(remember)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"tick")
        assert [await stream.read() for _ in range(3)] == [b"tick 0", b"tick 1", b"tick 2"]
        # Nothing was sent by the client meanwhile, nothing needs to be for the next.
        opened = await tiny.stream()
        opened.sender.send(b"unasked")
        assert await stream.read() == b"unasked"
        stream.cancel()


async def test_an_answer_before_any_message() -> None:
    """A stream may be spoken to as soon as it is open."""

    def greet(call: Call, sender: Sender) -> Stream:
        sender.send(b"hello")
        return Stream(call, sender, lambda *_: None)

    async with carried(RpcService(NAME, {}, {"Talk": greet})) as running, running.connect() as channel:
        stream = talk(channel)
        assert await stream.read() == b"hello"
        stream.cancel()


@pytest.mark.parametrize("status", [Status.OK, Status.RESOURCE_EXHAUSTED], ids=lambda s: s.name)
async def test_finish(status: Status) -> None:
    """What was queued is delivered, then the status; what comes after is dropped."""

    def close(stream: Stream, data: bytes) -> None:
        stream.sender.send(b"last")
        stream.sender.finish(status, "genug 够了")
        stream.sender.send(b"too late")
        stream.sender.finish(Status.INTERNAL, "too late")

    tiny = Tiny(close)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"x")
        assert await stream.read() == b"last"
        with suppress(grpc.aio.AioRpcError):
            assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is getattr(grpc.StatusCode, status.name)
        if status is not Status.OK:
            assert await stream.details() == "genug 够了"
        assert await tiny.streams[0].end() is CloseReason.DONE
        tiny.streams[0].sender.send(b"far too late")
        tiny.streams[0].sender.finish()


async def test_finish_from_outside_cancels_what_waits() -> None:
    """A stream that is finished while its handler waits: the wait is cancelled, then the end is told."""
    tiny = Tiny(lambda stream, _: stream.wait())
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"x")
        opened = await tiny.stream()
        await until(lambda: opened.waiting, "the handler waits")
        opened.sender.finish(Status.UNAVAILABLE, "bye")
        assert await refusal(read_all(stream)) == (grpc.StatusCode.UNAVAILABLE, "bye")
        assert await opened.end() is CloseReason.DONE


async def test_an_opener_that_refuses() -> None:
    """The client sees status and text; there is no handler to be told anything."""

    def refuse(call: Call, sender: Sender) -> Stream:
        raise RpcError(Status.UNAVAILABLE, "no policy yet")

    async with carried(RpcService(NAME, {}, {"Talk": refuse})) as running, running.connect() as channel:
        assert await refusal(read_all(talk(channel))) == (grpc.StatusCode.UNAVAILABLE, "no policy yet")
        assert running.faults == []


async def test_an_opener_that_fails() -> None:
    """The text of the exception stays here."""

    def fail_to_open(call: Call, sender: Sender) -> Stream:
        raise KeyError("sk-secret")

    async with carried(RpcService(NAME, {}, {"Talk": fail_to_open})) as running, running.connect() as channel:
        assert await refusal(read_all(talk(channel))) == (grpc.StatusCode.INTERNAL, "internal error")
        assert [(where, repr(error)) for where, error in running.faults] == [(f"/{NAME}/Talk", "KeyError('sk-secret')")]


@pytest.mark.parametrize("how", [fail, fail_later], ids=["at once", "awaited"])
async def test_a_message_that_is_refused(how: Callable[[Exception], Any]) -> None:
    """RpcError out of `message` ends the stream with it, after what was sent before; no later message is taken."""

    def refuse(stream: Stream, data: bytes) -> Awaitable[None] | None:
        stream.sender.send(b"seen " + data)
        return how(RpcError(Status.INVALID_ARGUMENT, "not that")) if data == b"bad" else None

    tiny = Tiny(refuse)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        for message in (b"good", b"bad"):
            await stream.write(message)
        try:
            await stream.write(b"after")
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            pass  # a write that meets the end gives the call a status of the client's own
        else:
            assert [await stream.read(), await stream.read()] == [b"seen good", b"seen bad"]
            assert await refusal(stream.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "not that")
        assert await tiny.streams[0].end() is CloseReason.FAILED
        assert tiny.streams[0].got == [b"good", b"bad"]
        assert running.faults == []


@pytest.mark.parametrize("how", [fail, fail_later], ids=["at once", "awaited"])
async def test_a_message_that_breaks_the_handler(how: Callable[[Exception], Any]) -> None:
    """INTERNAL without the exception's text, which the server's owner gets; the handler is told FAILED."""
    tiny = Tiny(lambda stream, data: how(KeyError("sk-secret")))
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"x")
        assert await refusal(stream.read()) == (grpc.StatusCode.INTERNAL, "internal error")
        assert await tiny.streams[0].end() is CloseReason.FAILED
        assert [(where, repr(error)) for where, error in running.faults] == [(f"/{NAME}/Talk", "KeyError('sk-secret')")]


async def test_a_handler_that_fails_at_the_end() -> None:
    """An exception out of `closed` is told to the owner and changes nothing for the client."""

    class Sore(Stream):
        def closed(self, reason: CloseReason) -> None:
            super().closed(reason)
            raise KeyError("sk-secret")

    def open_sore(call: Call, sender: Sender) -> Stream:
        return Sore(call, sender, lambda stream, data: stream.sender.send(data))

    async with carried(RpcService(NAME, {}, {"Talk": open_sore})) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"x")
        await stream.done_writing()
        assert await read_all(stream) == [b"x"]
        assert await stream.code() is grpc.StatusCode.OK
        assert [repr(error) for _, error in running.faults] == ["KeyError('sk-secret')"]


async def test_what_waits_holds_the_next_message_back() -> None:
    """While an awaitable runs no message is taken; afterwards they come in order. The sender works meanwhile."""
    go = asyncio.Event()

    async def hold(stream: Stream) -> None:
        stream.sender.send(b"held")
        await go.wait()
        stream.sender.send(b"free")

    def act(stream: Stream, data: bytes) -> Awaitable[None] | None:
        if data == b"hold":
            return hold(stream)
        stream.sender.send(data)
        return None

    tiny = Tiny(act)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        for message in (b"hold", b"1", b"2"):
            await stream.write(message)
        assert await stream.read() == b"held"
        beside = talk(channel)
        # A message of another stream, sent later, is taken: the held one's wait is no wait of the server.
        await beside.write(b"other")
        assert await beside.read() == b"other"
        assert tiny.streams[0].got == [b"hold"]
        go.set()
        assert [await stream.read() for _ in range(3)] == [b"free", b"1", b"2"]
        beside.cancel()
        await stream.done_writing()
        assert await tiny.streams[0].end() is CloseReason.DONE


async def test_what_waits_outlives_the_half_close() -> None:
    """A client that has said all is answered by what still runs; then the stream is done."""
    go = asyncio.Event()

    async def answer(stream: Stream) -> None:
        await go.wait()
        stream.sender.send(b"answer")

    tiny = Tiny(lambda stream, _: answer(stream))
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"x")
        await stream.done_writing()
        await tiny.stream()
        go.set()
        assert await read_all(stream) == [b"answer"]
        assert await tiny.streams[0].end() is CloseReason.DONE
