"""Unary calls and the end of a server, over the reference transport."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import grpc
import pytest

from seawall.rpc.contract import Call, CloseReason, RpcError, RpcService, Status, Unary
from seawall.rpc.reference import GrpcioServer
from tests.wire.carried import MAX_MESSAGE, NAME, Tiny, call, carried, read_all, refusal, talk, until

pytestmark = pytest.mark.usefixtures("transport")


def later(handler: Callable[[bytes, Call], bytes]) -> Unary:
    """The same handler, answering by an awaitable."""

    async def answer(data: bytes, of: Call) -> bytes:
        await asyncio.sleep(0)
        return handler(data, of)

    return lambda data, of: answer(data, of)


both = pytest.mark.parametrize("when", [lambda handler: handler, later], ids=["at once", "awaited"])


@both
async def test_an_answer(when: Callable[[Unary], Unary]) -> None:
    """A handler answers at once or by an awaitable; the client can't tell."""
    seen: list[Call] = []

    def echo(data: bytes, of: Call) -> bytes:
        seen.append(of)
        return data[::-1]

    async with carried(Tiny(Echo=when(echo)).rpc) as running, running.connect() as channel:
        for data in (b"", b"abc", bytes(range(256)) * 100):
            assert await call(channel, "Echo", data) == data[::-1]
        assert {of.path for of in seen} == {f"/{NAME}/Echo"}
        assert running.faults == []


@both
@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK], ids=lambda s: s.name)
async def test_an_error_of_the_service(when: Callable[[Unary], Unary], status: Status) -> None:
    """Status and text of an RpcError reach the client as they are, whatever the letters."""
    text = "größer als erlaubt: 请求 🌊 100%25\n"

    def refuse(data: bytes, of: Call) -> bytes:
        raise RpcError(status, text)

    async with carried(Tiny(Refuse=when(refuse)).rpc) as running, running.connect() as channel:
        assert await refusal(call(channel, "Refuse")) == (getattr(grpc.StatusCode, status.name), text)
        assert running.faults == []


@both
async def test_a_fault_keeps_its_text(when: Callable[[Unary], Unary]) -> None:
    """An exception that nobody meant is INTERNAL, told to the server's owner and not to the client."""

    def fail(data: bytes, of: Call) -> bytes:
        raise KeyError("sk-secret")

    service = Tiny(Fail=when(fail), Echo=when(lambda data, _: data))
    async with carried(service.rpc) as running, running.connect() as channel:
        assert await refusal(call(channel, "Fail")) == (grpc.StatusCode.INTERNAL, "internal error")
        assert [(where, repr(error)) for where, error in running.faults] == [(f"/{NAME}/Fail", "KeyError('sk-secret')")]
        assert await call(channel, "Echo", b"still here") == b"still here"


@pytest.mark.parametrize("path", [f"/{NAME}/Nothing", "/test.Nobody/Echo", f"/{NAME}/", "/"])
async def test_unknown_names(path: str) -> None:
    """A method or service that is not there is UNIMPLEMENTED, asked as a call or as a stream."""
    async with carried(Tiny(Echo=lambda data, _: data).rpc) as running, running.connect() as channel:
        assert (await refusal(call(channel, path)))[0] is grpc.StatusCode.UNIMPLEMENTED
        assert (await refusal(talk(channel, path).read()))[0] is grpc.StatusCode.UNIMPLEMENTED
        assert await call(channel, "Echo", b"x") == b"x"


async def test_several_services_share_a_server() -> None:
    """Each is found by its own name."""
    other = RpcService("test.Other", {"Echo": lambda data, _: b"other " + data}, {})
    async with carried(Tiny(Echo=lambda data, _: b"tiny " + data).rpc, other) as running, running.connect() as channel:
        assert await call(channel, "Echo", b"x") == b"tiny x"
        assert await call(channel, "/test.Other/Echo", b"x") == b"other x"


async def test_a_message_too_large() -> None:
    """It is RESOURCE_EXHAUSTED, the handler never sees it, and the connection lives on."""
    sizes: list[int] = []

    def measure(data: bytes, _: Call) -> bytes:
        sizes.append(len(data))
        return b"%d" % len(data)

    tiny = Tiny(Measure=measure)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        beside = talk(channel)
        await beside.write(b"before")
        assert await beside.read() == b"before"
        assert await call(channel, "Measure", bytes(MAX_MESSAGE)) == b"%d" % MAX_MESSAGE
        assert (await refusal(call(channel, "Measure", bytes(MAX_MESSAGE + 1))))[
            0
        ] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert sizes == [MAX_MESSAGE]
        # A stream of the same connection has noticed nothing.
        await beside.write(b"after")
        assert await beside.read() == b"after"
        assert running.faults == []


async def test_an_answer_may_be_larger_than_a_request() -> None:
    """The bound is for what we receive."""
    tiny = Tiny(Grow=lambda data, _: data * 5)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        assert await call(channel, "Grow", bytes(MAX_MESSAGE)) == bytes(5 * MAX_MESSAGE)


async def test_what_a_call_knows() -> None:
    """Metadata by lower-case name, the last value of each, text only; the deadline on our own clock, or None."""
    seen: list[Call] = []

    def look(data: bytes, of: Call) -> bytes:
        seen.append(of)
        return b""

    sent = [("x-tenant", "one"), ("x-tenant", "two"), ("x-key-bin", b"\xff\x00"), ("x-empty", "")]
    tiny = Tiny(Look=look)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        method = channel.unary_unary(f"/{NAME}/Look")
        before = time.monotonic()
        await method(b"", metadata=sent, timeout=1000)
        await method(b"")
        with_deadline, without = seen
        assert with_deadline.metadata["x-tenant"] == "two"
        assert with_deadline.metadata["x-empty"] == ""
        assert "x-key-bin" not in with_deadline.metadata
        assert all(name == name.lower() for name in with_deadline.metadata)
        assert with_deadline.deadline is not None
        # gRPC sends what is left, rounded; the clock of this process is the server's.
        assert before + 900 < with_deadline.deadline < time.monotonic() + 1100
        assert without.deadline is None
        stream = talk(channel, metadata=sent, timeout=1000)
        opened = await tiny.stream()
        assert opened.call.path == f"/{NAME}/Talk"
        assert opened.call.metadata["x-tenant"] == "two"
        assert opened.call.deadline is not None
        stream.cancel()


@pytest.mark.parametrize("leaves", ["cancelled", "out of time"])
async def test_a_call_whose_client_is_gone(leaves: str) -> None:
    """What it awaits is cancelled, which is no fault."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait(data: bytes, _: Call) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async with carried(Tiny(Wait=wait).rpc) as running, running.connect() as channel:
        timeout = 0.05 if leaves == "out of time" else None
        asked = channel.unary_unary(f"/{NAME}/Wait")(b"", timeout=timeout)
        if timeout is None:
            await started.wait()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        else:
            assert (await refusal(asked))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: ended.is_set() or not started.is_set(), "the handler was cancelled")
        assert running.faults == []


async def test_a_burst_of_calls() -> None:
    """A thousand at once, each answered with its own answer."""

    async def half(data: bytes, _: Call) -> bytes:
        await asyncio.sleep(0)
        return data + data

    tiny = Tiny(Echo=lambda data, _: data, Half=half)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        calls: list[Awaitable[bytes]] = [call(channel, ("Echo", "Half")[n % 2], b"%d" % n) for n in range(1000)]
        answers = await asyncio.gather(*calls)
        assert answers == [b"%d" % n * (1 + n % 2) for n in range(1000)]


async def test_an_address_that_is_taken() -> None:
    """It is an OSError that names the address."""
    async with carried(Tiny().rpc) as running:
        second = GrpcioServer([], [f"unix:{running.socket}/x"], max_message=1, on_error=lambda *_: None)
        with pytest.raises(OSError, match=r"can't listen on unix:.*/x"):
            await second.start()


async def test_draining_refuses_new_calls_and_lets_running_ones_end() -> None:
    """Within the grace a running call is answered and a running stream ends as its client wishes."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(data: bytes, _: Call) -> bytes:
        asked.set()
        await go.wait()
        return data

    tiny = Tiny(Slow=slow, Echo=lambda data, _: data)
    async with carried(tiny.rpc) as running, running.connect() as channel, running.connect() as other:
        await call(other, "Echo")
        running_call = asyncio.ensure_future(call(channel, "Slow", b"answer"))
        stream = talk(channel)
        await stream.write(b"one")
        assert await stream.read() == b"one"
        await asked.wait()
        draining = asyncio.ensure_future(running.server.drain(60))
        # Nobody tells when GOAWAY is out, so ask until it is felt: on both connections, then on a new one.
        for old in (channel, other):
            async with asyncio.timeout(10):
                while True:
                    try:
                        await call(old, "Echo")
                    except grpc.aio.AioRpcError as refused:
                        # CANCELLED: it was on its way when GOAWAY left.
                        assert refused.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
                        break
        async with running.connect() as new:
            assert (await refusal(call(new, "Echo")))[0] is grpc.StatusCode.UNAVAILABLE
        assert not draining.done()
        await stream.write(b"two")
        assert await stream.read() == b"two"
        go.set()
        assert await running_call == b"answer"
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
        async with asyncio.timeout(10):
            await draining
        assert tiny.ends() == {CloseReason.DONE: 1}
        assert running.faults == []


@pytest.mark.parametrize("grace", [0, 0.05])
async def test_draining_beyond_the_grace(grace: float) -> None:
    """What still runs is ended: a stream is told DRAINED, a call is cancelled, the client hears of it."""
    ended: list[int] = []

    async def wait(data: bytes, _: Call) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)
        return b""

    # Streams that wait for their next message, and streams that hold one.
    tiny = Tiny(lambda stream, data: stream.wait() if data == b"hold" else stream.sender.send(data), Wait=wait)
    async with carried(tiny.rpc) as running, running.connect() as channel:
        calls = [asyncio.ensure_future(refusal(call(channel, "Wait"))) for _ in range(10)]
        streams = [talk(channel) for _ in range(50)]
        for n, stream in enumerate(streams):
            await stream.write(b"hold" if n % 2 else b"reply")
        await until(lambda: sum(len(s.got) for s in tiny.streams) == 50, "all streams are at work")
        async with asyncio.timeout(10):
            await running.server.drain(grace)
        # All are told before drain returns: what they give back needs a store that is still open.
        assert tiny.ends() == {CloseReason.DRAINED: 50}
        assert len(ended) == 10
        for stream in streams:
            assert (await refusal(read_all(stream)))[0] in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        assert {(await asked)[0] for asked in calls} <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        assert running.faults == []


async def test_a_drain_cut_short() -> None:
    """A second drain without grace ends what the first one waits for."""
    tiny = Tiny(lambda stream, _: stream.wait())
    async with carried(tiny.rpc) as running, running.connect() as channel:
        stream = talk(channel)
        await stream.write(b"x")
        opened = await tiny.stream()
        draining = asyncio.ensure_future(running.server.drain(1000))
        await asyncio.sleep(0)
        draining.cancel()
        async with asyncio.timeout(10):
            await running.server.drain(0)
        assert await opened.end() is CloseReason.DRAINED
        assert draining.cancelled()
