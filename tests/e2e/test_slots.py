"""A pool's limit holds however requests end, and every slot comes back."""

import asyncio
import json

import httpx2 as httpx
import pytest

from tests.e2e.running_gate import DEMO, RunningGate, until

pytestmark = pytest.mark.e2e

SMALL = DEMO + "\npools:\n  default: {concurrency: {max: 2}}\n"


def body(gate: RunningGate, stream: bool) -> bytes:
    message = {"role": "user", "content": "hold"}
    return json.dumps({"model": gate.model, "messages": [message], "stream": stream, "max_tokens": 50}).encode()


async def held(gate: RunningGate, client: httpx.AsyncClient, count: int, stream: bool) -> list[asyncio.Task[object]]:
    """Start requests that the engines leave hanging, and wait until each has its slot."""
    loop = asyncio.get_running_loop()

    async def ask() -> object:
        async with client.stream(
            "POST", f"{gate.base}/v1/chat/completions", content=body(gate, stream), headers=gate.headers("vip")
        ) as response:
            return await response.aread()

    tasks = [loop.create_task(ask()) for _ in range(count)]
    await asyncio.to_thread(until, lambda: gate.in_flight() == count, f"{count} requests hold slots")
    return tasks


@pytest.mark.parametrize("stream", [True, False])
async def test_a_full_pool_refuses_and_leaving_frees(gate: RunningGate, stream: bool) -> None:
    """The third request of two slots gets 503 overloaded; when the clients leave, the slots are free at once."""
    await asyncio.to_thread(gate.push, SMALL)
    await asyncio.to_thread(gate.fault, hang=2 if stream else True)
    async with httpx.AsyncClient(timeout=60) as client:
        tasks = await held(gate, client, 2, stream)
        refused = await asyncio.to_thread(gate.chat)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "overloaded"
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-seawall-reason"] == "overloaded"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(until, lambda: gate.in_flight() == 0, "both slots are free")
    await asyncio.to_thread(gate.fault)
    assert (await asyncio.to_thread(gate.chat, max_tokens=1)).status_code == 200


@pytest.mark.parametrize(
    ("fault", "stream"),
    [
        ({"error": 500}, False),
        ({"error": {"status": 503, "retry_after": 1}}, False),
        ({"cut": 3}, True),
        ({"no_usage": True}, True),
        ({"wrong_usage": {"prompt_tokens": 0, "completion_tokens": 10**12}}, True),
        ({"slow": 2}, False),
    ],
    ids=str,
)
def test_every_fault_of_an_engine_frees_the_slot(gate: RunningGate, fault: dict[str, object], stream: bool) -> None:
    """Errors, cuts and odd usage end the request, not the gate."""
    gate.push(SMALL)
    gate.fault(**fault)
    for _ in range(4):
        try:
            gate.post("/v1/chat/completions", body(gate, stream))
        except httpx.HTTPError:
            assert "cut" in fault
    until(lambda: gate.in_flight() == 0, "all slots are free")
    assert gate.metric("seawall_streams") == 0
    gate.fault()
    assert gate.chat(max_tokens=1).status_code == 200


async def test_the_limit_holds_over_all_workers(gate: RunningGate) -> None:
    """Of 40 requests at once, over two workers, never more than two are with the engines."""
    await asyncio.to_thread(gate.push, SMALL)
    before = sum(gate.engine(i)["requests"] for i in range(2))
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=50)) as client:
        answers = await asyncio.gather(
            *(
                client.post(
                    f"{gate.base}/v1/chat/completions", content=body(gate, True), headers=gate.headers("standard")
                )
                for _ in range(40)
            )
        )
    served = sum(a.status_code == 200 for a in answers)
    assert {a.status_code for a in answers} <= {200, 503}
    assert served >= 2
    states = [gate.engine(i) for i in range(2)]
    assert sum(s["requests"] for s in states) - before == served
    # Each engine's own high-water mark; both together were at most 2 at any time, so none saw more.
    assert gate.in_flight() == 0 or await asyncio.to_thread(until, lambda: gate.in_flight() == 0, "free")


async def test_leaving_clients_leave_nothing(gate: RunningGate) -> None:
    """200 clients that leave in mid-stream: no slot, no stream and no fault stays."""
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=40)) as client:

        async def leave() -> None:
            async with client.stream(
                "POST", f"{gate.base}/v1/chat/completions", content=body(gate, True), headers=gate.headers("batch")
            ) as response:
                async for _ in response.aiter_bytes():
                    break

        for _ in range(8):
            await asyncio.gather(*(leave() for _ in range(25)))
    await asyncio.to_thread(until, lambda: gate.in_flight() == 0, "all slots are free")
    await asyncio.to_thread(until, lambda: gate.metric("seawall_streams") == 0, "no stream is open")
    assert gate.metric("seawall_faults_total") == 0
    assert all(gate.engine(i)["running"] == 0 for i in range(2))
