"""Each fault does what it says, and stops when it is told to."""

import aiohttp
import openai
import pytest

CHAT = {"model": "sim-chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


async def stream_of(sim, **change):
    """Open a stream and return the response, unread."""
    document = CHAT | {"stream": True, "stream_options": {"include_usage": True}} | change
    return await sim.http.post(f"{sim.url}/v1/chat/completions", json=document)


async def test_an_error_with_retry_after(client, sim):
    """The next N requests fail with the status, then all is well."""
    await sim.fault(error={"status": 503, "retry_after": 2}, times=2)
    for _ in range(2):
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(**CHAT)
        assert caught.value.status_code == 503
        assert caught.value.response.headers["retry-after"] == "2"
        assert caught.value.response.json()["error"]["code"] == 503
    assert (await client.chat.completions.create(**CHAT)).usage.completion_tokens == 5


async def test_a_short_error_until_cleared(client, sim):
    """A bare status has no retry-after; without `times` it stays until DELETE."""
    await sim.fault(error=429)
    for _ in range(3):
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(**CHAT)
        assert "retry-after" not in caught.value.response.headers
    async with sim.http.delete(f"{sim.url}/sim/faults") as response:
        assert await response.json() == {}
    assert await client.chat.completions.create(**CHAT)


async def test_slow_multiplies_the_service_times(start):
    """With a factor of a million the first token, else due after a millisecond, does not come; then all is well."""
    engine = await start(ttft=1e-3)
    await engine.fault(slow=1e6, times=1)
    response = await stream_of(engine)
    await engine.until(running=1, generated_tokens=0)
    response.close()
    await engine.until(running=0, aborted=1)
    async with await stream_of(engine) as response:
        assert b"[DONE]" in await response.read()


async def test_hang_before_the_headers(client, sim):
    """A hanging engine says nothing and keeps the slot until the client leaves."""
    await sim.fault(hang=True, times=2)
    for change in ({}, {"stream": True}):
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(timeout=0.2).chat.completions.create(**CHAT | change)
    await sim.until(running=0, aborted=2, generated_tokens=0)


async def test_hang_in_the_middle(sim):
    """With a number it hangs after so many chunks, the connection open and the slot taken."""
    await sim.fault(hang=3, times=1)
    async with await stream_of(sim) as response:
        for _ in range(3):
            assert (await response.content.readuntil(b"\n\n")).startswith(b"data: ")
        await sim.until(running=1, generated_tokens=2)
    await sim.until(running=0, aborted=1)


async def test_hold_until_it_is_over(sim):
    """After so many chunks it waits, and goes on to a whole answer when the fault is cleared."""
    await sim.fault(hold=3)
    async with await stream_of(sim, max_tokens=5) as response:
        for _ in range(3):
            assert (await response.content.readuntil(b"\n\n")).startswith(b"data: ")
        await sim.until(running=1, generated_tokens=2)
        await sim.fault()
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n")
    await sim.until(running=0, aborted=0, generated_tokens=5)


@pytest.mark.parametrize("chunks", [0, 1, 3])
async def test_cut_in_a_stream(sim, chunks):
    """Exactly N chunks arrive, then the connection is closed without an end; this is no abort of the client."""
    await sim.fault(cut=chunks, times=1)
    got = b""
    with pytest.raises(aiohttp.ClientPayloadError):
        async with await stream_of(sim) as response:
            async for part in response.content.iter_any():
                got += part
    assert got.count(b"data: ") == chunks
    await sim.until(running=0, aborted=0)


async def test_cut_in_a_plain_answer(sim):
    """Half of the body arrives."""
    await sim.fault(cut=0, times=1)
    async with sim.http.post(f"{sim.url}/v1/chat/completions", json=CHAT) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    await sim.until(running=0)


async def test_wrong_usage(client, sim):
    """The claimed numbers replace the true ones, alone or together, in every place."""
    await sim.fault(wrong_usage={"completion_tokens": 1})
    chat = await client.chat.completions.create(**CHAT)
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens, chat.usage.total_tokens) == (6, 1, 7)
    await sim.fault(wrong_usage={"prompt_tokens": 0, "completion_tokens": 99})
    async with await stream_of(sim) as response:
        assert b'"usage":{"prompt_tokens":0,"completion_tokens":99,"total_tokens":99}' in await response.read()


async def test_no_usage(client, sim):
    """Usage is missing although the client asked."""
    await sim.fault(no_usage=True)
    assert (await client.chat.completions.create(**CHAT)).usage is None
    async with await stream_of(sim) as response:
        text = await response.read()
    assert b"usage" not in text
    assert text.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ('{"slo": 1}', "slo"),
        ('{"slow": 0}', "$.slow"),
        ('{"hang": "yes"}', "$.hang"),
        ('{"error": 200}', "$.error"),
        ('{"error": {"status": 503, "retry": 1}}', "retry"),
        ('{"cut": -1}', "$.cut"),
        ('{"wrong_usage": {"completion_tokens": "1"}}', "$.wrong_usage.completion_tokens"),
        ('{"times": 0}', "$.times"),
        ("{", "truncated"),
    ],
)
async def test_a_bad_fault_is_refused_by_name(sim, document, named):
    """A mistake in a fault is a 400 that names the field, and what was in force stays."""
    await sim.fault(slow=2.0)
    async with sim.http.put(f"{sim.url}/sim/faults", data=document) as response:
        assert response.status == 400
        assert named in (await response.json())["error"]["message"]
    async with sim.http.get(f"{sim.url}/sim/faults") as response:
        assert await response.json() == {"slow": 2.0}


async def test_the_fault_shows_how_often_it_is_left(client, sim):
    """GET counts down with the requests."""
    await sim.fault(no_usage=True, times=3)
    await client.chat.completions.create(**CHAT)
    async with sim.http.get(f"{sim.url}/sim/faults") as response:
        assert await response.json() == {"no_usage": True, "times": 2}
