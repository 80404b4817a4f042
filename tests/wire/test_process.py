"""ext_proc over real gRPC: whole exchanges, and slots that are free again however a stream ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from seawall.proto.gen import ext_proc_pb2
from tests.wire.as_envoy import Process, set_headers
from tests.wire.carried import until
from tests.wire.rooms import Rooms, rooms

MODE = ext_proc_pb2.ProcessingMode
POLICY = """
prefilter: {body: {max: 1KiB}}
engines:
  one: {url: "http://127.0.0.1:1"}
pools:
  default: {concurrency: {max: 1}}
models:
  m:
    variants: {full: {name: inside}}
output: {max_tokens: 100}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def here() -> AsyncIterator[Rooms]:
    async with rooms(POLICY) as made:
        yield made
        # Whatever a test did: no stream is left, no slot is held, nothing failed.
        await until(lambda: made.gauge("seawall_streams") == 0, "no stream is left")
        assert await made.holders() == 0
        assert made.gate.slots.held() in ([], [("default", 0, 1)])
        assert made.faults == []


def refused(response: Any) -> tuple[int, str, str]:
    """Status, reason and details of an answer of our own."""
    answer = response.immediate_response
    return int(answer.status.code), set_headers(answer.headers)["x-seawall-reason"], answer.details


async def to_the_engine(here: Rooms, rid: str) -> Process:
    """A request that has its slot and was let on."""
    stream = Process(here.channel)
    assert (await stream.request_headers(rid=rid)).HasField("request_headers")
    assert (await stream.request_body()).HasField("request_body")
    return stream


async def freed(here: Rooms) -> None:
    async with asyncio.timeout(10):
        while await here.holders():
            await asyncio.sleep(0.005)


async def test_a_json_answer(here: Rooms) -> None:
    """Headers ask for the body, the body is rewritten and routed, the answer passes as it is, its usage is counted."""
    stream = Process(here.channel)
    asked = await stream.request_headers(rid="r1", **{"content-length": "77"})
    assert asked.mode_override.request_body_mode == MODE.BUFFERED
    assert asked.mode_override.response_header_mode == MODE.SEND
    on = (await stream.request_body(max_tokens=1000)).request_body.response
    assert on.clear_route_cache
    sent = json.loads(on.body_mutation.body)
    assert (sent["model"], sent["max_tokens"]) == ("inside", 100)
    headers = set_headers(on.header_mutation)
    assert headers["x-seawall-pool"] == "default"
    assert headers["content-length"] == str(len(on.body_mutation.body))
    assert await here.holders() == 1
    answer = await stream.response_headers()
    assert answer.mode_override.response_body_mode == MODE.FULL_DUPLEX_STREAMED
    assert set_headers(answer.response_headers.response.header_mutation) == {"x-seawall-changed": "max_tokens"}
    whole = b'{"model": "inside", "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}'
    sent_on, metadata = await stream.response_pieces(whole[:20], whole[20:])
    assert sent_on == whole.replace(b"inside", b"m")
    assert metadata == {"input_tokens": "11", "output_tokens": "7"}
    assert await stream.done() is grpc.StatusCode.OK
    await freed(here)
    assert here.counted("seawall_tokens_total", "input") == 11
    assert here.counted("seawall_tokens_total", "output") == 7
    assert here.counted("seawall_requests_total", "default", "vip", "ok") == 1


async def test_a_stream_of_events(here: Rooms) -> None:
    """Events cut anywhere pass but for the model's name; usage is read from the last."""
    stream = await to_the_engine(here, "r1")
    await stream.response_headers(kind="text/event-stream; charset=utf-8")
    usage = b'data: {"choices": [], "model": "inside", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\n'
    whole = b'data: {"choices": [{"delta": {"content": "\xe4\xbd\xa0"}}]}\n\n' * 3 + usage + b"data: [DONE]\n\n"
    sent_on, _ = await stream.response_pieces(*(whole[at : at + 7] for at in range(0, len(whole), 7)))
    assert sent_on == whole.replace(b"inside", b"m")
    assert await stream.done() is grpc.StatusCode.OK
    await freed(here)
    assert here.counted("seawall_tokens_total", "output") == 2


async def test_a_silent_stream_is_ended_when_its_time_is_over() -> None:
    """A cap on time needs no piece of the engine to come: what is there is ended as the protocol ends it."""
    policy = POLICY.replace("output: {max_tokens: 100}", "output: {max_time: 1s}")
    async with rooms(policy) as here:
        stream = await to_the_engine(here, "r1")
        await stream.response_headers(kind="text/event-stream")
        first = b'data: {"id": "c1", "model": "inside", "choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
        body = ext_proc_pb2.HttpBody(body=first)
        await stream.call.write(ext_proc_pb2.ProcessingRequest(response_body=body))
        sent_on, metadata = await stream.to_the_end()
        assert sent_on.startswith(first.replace(b"inside", b"m"))
        assert b'"finish_reason":"length"' in sent_on
        assert sent_on.endswith(b"data: [DONE]\n\n")
        assert metadata["truncated"] == "time"
        assert await stream.done() is grpc.StatusCode.OK
        await freed(here)
        assert here.counted("seawall_truncated_total", "default", "time") == 1


async def test_what_is_counted_of_tokens(here: Rooms) -> None:
    """Parts are told apart from totals, our own count from the engine's, and what nobody can read is told as that."""
    stream = await to_the_engine(here, "r1")
    await stream.response_headers()
    parts = b'"prompt_tokens_details": {"cached_tokens": 6}, "completion_tokens_details": {"reasoning_tokens": 4}'
    usage = b'{"prompt_tokens": 11, "completion_tokens": 7, %b}' % parts
    _, metadata = await stream.response_pieces(b'{"choices": [], "usage": %b}' % usage)
    assert (metadata["cached_tokens"], metadata["reasoning_tokens"]) == ("6", "4")
    assert await stream.done() is grpc.StatusCode.OK
    await freed(here)
    stream = await to_the_engine(here, "r2")
    await stream.response_headers()
    _, metadata = await stream.response_pieces(b'{"choices": [{"message": {"content": "one two"}}]}')
    assert (metadata["output_tokens"], metadata["estimated"]) == ("2", "true")
    assert await stream.done() is grpc.StatusCode.OK
    await freed(here)
    stream = await to_the_engine(here, "r3")
    unread = await stream.response_headers(**{"content-encoding": "br"})
    assert not unread.HasField("mode_override")
    assert await stream.done() is grpc.StatusCode.OK
    await freed(here)
    for name, label, number in (
        ("tokens", "output", 7),
        ("tokens_part", "cached", 6),
        ("tokens_part", "reasoning", 4),
        ("tokens_estimated", "output", 2),
        ("unread_answers", "default", 1),
        ("usage_unknown", "default", 1),
    ):
        assert here.counted(f"seawall_{name}_total", label) == number, name


@pytest.mark.parametrize(
    ("path", "headers", "body", "expected"),
    [
        ("/v1/chat/completions", {}, {"model": "nobody"}, (404, "model_not_found", "seawall.model_not_found")),
        ("/v1/chat/completions", {}, {"max_tokens": -1}, (400, "invalid_parameter", "seawall.invalid_parameter")),
        ("/v1/messages", {}, {"pad": "x" * 2000}, (413, "request_too_large", "seawall.request_too_large")),
        (
            "/v1/chat/completions",
            {"content-encoding": "br"},
            None,
            (415, "unsupported_encoding", "seawall.unsupported_encoding"),
        ),
        (
            "/v1/chat/completions",
            {"content-length": "5000"},
            None,
            (413, "request_too_large", "seawall.request_too_large"),
        ),
        ("/v1/chat/completions", {":method": "GET"}, None, (405, "method_not_allowed", "seawall.method_not_allowed")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)
async def test_refusals(here: Rooms, path: str, headers: dict[str, str], body: Any, expected: Any) -> None:
    """An answer of our own with details that Envoy's mappers leave alone; no slot was asked for."""
    stream = Process(here.channel)
    answer = await stream.request_headers(path, **headers)
    if body is not None:
        assert answer.HasField("request_headers")
        answer = await stream.request_body(**body)
    assert refused(answer) == expected
    assert ("type" in json.loads(answer.immediate_response.body)) is (path == "/v1/messages")
    # Envoy runs its own answer through the filters, and leaves.
    await stream.response_headers(str(expected[0]))
    assert await stream.done() is grpc.StatusCode.OK
    assert await here.holders() == 0


async def test_a_path_that_is_not_ours(here: Rooms) -> None:
    """Headers only: answered and done; Envoy leaves by a reset."""
    stream = Process(here.channel)
    answer = await stream.request_headers("/v1/models")
    assert answer.HasField("request_headers")
    assert not answer.HasField("mode_override")
    stream.call.cancel()


async def test_a_full_pool(here: Rooms) -> None:
    """The second request of a pool of one is told 503 with retry-after; the third gets the slot that was freed."""
    first = await to_the_engine(here, "r1")
    second = Process(here.channel)
    await second.request_headers(rid="r2")
    answer = await second.request_body()
    assert refused(answer) == (503, "overloaded", "seawall.overloaded")
    assert set_headers(answer.immediate_response.headers)["retry-after"] == "1"
    assert await second.done() is grpc.StatusCode.OK
    # The refused one gave nothing back that was not its own.
    assert await here.holders() == 1
    await first.done()
    await freed(here)
    third = await to_the_engine(here, "r3")
    assert await here.holders() == 1
    await third.done()


async def test_a_retried_call_shares_its_slot(here: Rooms) -> None:
    """The same rid on another stream is the same request: one slot, free when the last of them has gone."""
    first = await to_the_engine(here, "r1")
    again = await to_the_engine(here, "r1")
    assert await here.holders() == 1
    await first.done()
    await until(lambda: here.gauge("seawall_streams") == 1, "one stream is left")
    assert await here.holders() == 1
    await again.done()
    await freed(here)


@pytest.mark.parametrize("at", ["asked", "engine", "answer"])
@pytest.mark.parametrize("way", ["cancel", "half-close", "break"])
async def test_a_slot_is_freed(here: Rooms, at: str, way: str) -> None:
    """Whenever the client leaves and however: while the slot is asked for, while the engine works, while it answers."""
    go = asyncio.Event()
    if at == "asked":
        here.store.kept_back = go
    stream = Process(here.channel)
    await stream.request_headers(rid="r1")
    asked = asyncio.ensure_future(stream.request_body())
    if at != "asked":
        assert (await asked).HasField("request_body")
    if at == "answer":
        await stream.response_headers(kind="text/event-stream")
        await stream.response_body(b'data: {"choices": []}\n\n', end=False)
    async with asyncio.timeout(10):
        while not await here.holders():
            await asyncio.sleep(0.005)
    if way == "cancel":
        stream.call.cancel()
    elif way == "half-close":
        await stream.call.done_writing()
        go.set()
    else:
        await here.channel.close()
    await freed(here)
    await asyncio.gather(asked, return_exceptions=True)
    await until(lambda: here.gauge("seawall_streams") == 0, "the stream is over")
    assert here.counted("seawall_requests_total") == 1


async def test_many_that_leave(here: Rooms) -> None:
    """A hundred requests for one slot, most of them leaving at once: it is never held twice, and free at the end."""

    async def visit(n: int) -> None:
        stream = Process(here.channel)
        try:
            if n % 3:
                await stream.request_headers(rid=f"r{n}")
                if n % 2:
                    answer = await stream.request_body()
                    assert await here.holders() <= 1
                    if answer.HasField("request_body"):
                        await stream.response_headers()
        finally:
            stream.call.cancel()

    await asyncio.gather(*(visit(n) for n in range(100)))
    await freed(here)
    last = await to_the_engine(here, "last")
    assert await last.done() is grpc.StatusCode.OK
