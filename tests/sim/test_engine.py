"""Slots, counters and what is remembered of requests."""

import asyncio
import contextlib
import io
import json

import aiohttp
import pytest

ASK = {"model": "sim-chat", "messages": [{"role": "user", "content": "hello"}]}
ENDLESS = ASK | {"ignore_eos": True}


@pytest.fixture
def post(sim):
    """Post to the chat route of an engine, over a connection of its own."""

    @contextlib.asynccontextmanager
    async def post(document, engine=sim):
        connector = aiohttp.TCPConnector(force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.post(f"{engine.url}/v1/chat/completions", json=document) as response,
        ):
            yield response

    return post


async def left_plain(post, engine):
    """Ask for an endless answer that is not streamed, and return the task that waits for it."""

    async def wait():
        async with post(ENDLESS, engine):
            pass

    return asyncio.ensure_future(wait())


async def test_metrics_move(sim, post):
    """The counters of vLLM's names count prompt, output and endings; nothing runs afterwards."""
    async with post(ASK | {"max_tokens": 3}) as response:
        assert response.status == 200
    assert await sim.metric("vllm:prompt_tokens_total") == 6
    assert await sim.metric("vllm:generation_tokens_total") == 3
    assert await sim.metric("vllm:num_requests_running") == 0
    assert await sim.metric("vllm:num_requests_waiting") == 0
    line = 'vllm:request_success_total{engine="0",model_name="sim-chat",finished_reason="length"}'
    assert await sim.metric(line) == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "stream"])
async def test_a_client_that_leaves_frees_its_slot(start, post, streamed):
    """Whether it streamed or not, a request whose client has gone is aborted and makes no more tokens."""
    engine = await start(tpot=0.01)
    if streamed:
        async with post(ENDLESS | {"stream": True}, engine) as response:
            await response.content.readline()
    else:
        task = await left_plain(post, engine)
        await engine.until(running=1)
        task.cancel()
    state = await engine.until(running=0, aborted=1)
    assert (await engine.state())["generated_tokens"] == state["generated_tokens"]
    assert await engine.metric('vllm:request_success_total{engine="0",model_name="sim-chat",finished_reason="abort"}')


async def test_requests_wait_for_a_slot_and_leave_the_queue(start, post):
    """Over --max-num-seqs requests wait; one whose client leaves is taken out, the next gets the slot."""
    engine = await start(max_num_seqs=1, tpot=0.01)
    first = await left_plain(post, engine)
    await engine.until(running=1)
    second = await left_plain(post, engine)
    await engine.until(running=1, waiting=1)
    assert await engine.metric("vllm:num_requests_waiting") == 1
    third = await left_plain(post, engine)
    await engine.until(running=1, waiting=2)
    second.cancel()
    await engine.until(running=1, waiting=1, aborted=1)
    first.cancel()
    await engine.until(running=1, waiting=0, aborted=2)
    third.cancel()
    await engine.until(running=0, waiting=0, aborted=3, peak_running=1)


async def test_many_run_at_once(start, post):
    """The high-water mark of concurrency is kept."""
    engine = await start(tpot=0.01)
    tasks = [await left_plain(post, engine) for _ in range(20)]
    await engine.until(running=20)
    for task in tasks:
        task.cancel()
    await engine.until(running=0, peak_running=20, aborted=20)


async def test_what_arrived_is_kept(sim, post):
    """Headers and body of the last 50 requests can be read back, also of those that were refused."""
    for number in range(60):
        async with post({"model": "nope", "number": number}) as response:
            assert response.status == 404
    state = await sim.state()
    assert (state["requests"], len(state["recent"])) == (60, 50)
    last = state["recent"][-1]
    assert last["path"] == "/v1/chat/completions"
    assert last["headers"]["content-type"] == "application/json"
    assert last["body"] == '{"model": "nope", "number": 59}'
    assert last["body_bytes"] == len(last["body"])


async def test_large_requests_pass(sim):
    """16 MiB of body and a header of 96 KiB reach the engine; of the body 1 MiB is kept."""
    body = {"model": "sim-chat", "max_tokens": 1, "messages": [{"role": "user", "content": "x" * (16 << 20)}]}
    headers = {"x-large": "y" * (96 << 10)}
    data = io.BytesIO(json.dumps(body).encode())
    async with sim.http.post(f"{sim.url}/v1/chat/completions", data=data, headers=headers) as response:
        assert response.status == 200
        assert (await response.json())["usage"]["prompt_tokens"] == 4 + (4 << 20)
    last = (await sim.state())["recent"][-1]
    assert last["headers"]["x-large"] == headers["x-large"]
    assert last["body_bytes"] > 16 << 20
    assert len(last["body"]) == 1 << 20


@pytest.mark.parametrize(
    ("path", "status", "body"), [("/health", 200, ""), ("/v1/nope", 404, '{"detail":"Not Found"}')]
)
async def test_other_routes(sim, path, status, body):
    """/health is empty, an unknown route is a 404 of FastAPI's shape."""
    async with sim.http.get(sim.url + path) as response:
        assert (response.status, await response.text()) == (status, body)


async def test_version(sim):
    """/version names an engine version."""
    async with sim.http.get(f"{sim.url}/version") as response:
        assert "sim" in (await response.json())["version"]
