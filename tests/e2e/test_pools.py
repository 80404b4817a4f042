"""Pools come, change their names and go under load; engines fail, and requests don't."""

import asyncio
import json
import os
import re
import signal
from collections import Counter

import httpx2 as httpx
import pytest

from tests.e2e.running_gate import PAUSE, RunningGate, running, until
from tests.e2e.test_faults import WIDE

pytestmark = pytest.mark.e2e


def with_pools(gate: RunningGate, pools: str, more: str = "") -> str:
    """The demo policy with engines of its own, named pools, and the model in the first of them."""
    urls = gate.told["engines"]
    engines = "".join(f"  e{i}: {{url: '{url}', health: {{interval: 1s}}}}\n" for i, url in enumerate(urls))
    first = first_of(pools)
    model = f"models: {{{gate.model}: {{variants: {{full: {{pool: {first}}}}}}}}}\n"
    return f"{WIDE}\nengines:\n{engines}pools: {{{pools}}}\n{model}{more}"


def first_of(pools: str) -> str:
    return pools.partition(":")[0]


async def chats(gate: RunningGate, stop: asyncio.Event, workers: int) -> Counter[object]:
    """Ask without pause until told to stop; what came of it."""
    seen: Counter[object] = Counter()
    sent = {"model": gate.model, "max_tokens": 3, "messages": [{"role": "user", "content": "load"}]}

    async def ask(client: httpx.AsyncClient) -> None:
        while not stop.is_set():
            try:
                response = await client.post(f"{gate.base}/v1/chat/completions", json=sent, headers=gate.headers("vip"))
                seen[response.status_code] += 1
            except httpx.HTTPError as e:
                seen[type(e).__name__] += 1

    async with httpx.AsyncClient(timeout=30) as client:
        await asyncio.gather(*(ask(client) for _ in range(workers)))
    return seen


def taking(gate: RunningGate, pool: str) -> None:
    """Wait until requests end in a pool."""
    before = gate.metric("seawall_requests_total", pool=pool)
    until(lambda: gate.metric("seawall_requests_total", pool=pool) > before + 20, f"requests go to {pool}")


def routed(gate: RunningGate) -> Counter[str]:
    """Requests by the route they took, out of Envoy's access log."""
    PAUSE.wait(1.5)
    return Counter(line["route"] for line in access_log(gate) if line["path"] == "/v1/chat/completions")


def access_log(gate: RunningGate) -> list[dict[str, object]]:
    return [json.loads(line) for line in gate.log("envoy").splitlines() if line.startswith("{")]


def test_pools_come_and_are_renamed_under_load() -> None:
    """A new pool, a renamed one, and one that is back: each push under load, and no request fails."""
    with running("--workers", "2", policy=WIDE) as gate:

        async def scenario() -> Counter[object]:
            stop = asyncio.Event()
            load = asyncio.get_running_loop().create_task(chats(gate, stop, 6))
            for pools in (
                "one: {engines: [e0]}, two: {engines: [e1]}",
                "three: {engines: [e1]}",
                "four: {}, two: {engines: [e0]}",
                "one: {engines: [e0]}",
            ):
                await asyncio.to_thread(gate.push, with_pools(gate, pools))
                await asyncio.to_thread(taking, gate, first_of(pools))
            stop.set()
            return await load

        seen = asyncio.run(scenario())
        assert set(seen) == {200}, seen
        by_route = routed(gate)
        assert {"default", "one", "three", "four"} <= set(by_route)
        assert "no_pool" not in by_route, by_route
        assert gate.metric("seawall_policy_unsure_total") == 0
        # Envoy had each file before workers used it, and keeps what requests of older policies may still ask for.
        assert gate.log().count("envoy=taken") == 4, re.findall("envoy files.*", gate.log())
        clusters = gate.get_admin("/clusters")
        assert all(f"pool_{name}::" in clusters for name in ("default", "one", "two", "three", "four"))
        # So does the next supervisor.
        supervisor = gate.pids["supervisor"]
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: gate.pids["supervisor"] != supervisor, "it was started again")
        gate.push(with_pools(gate, "five: {engines: [e1]}"))
        until(lambda: gate.chat(max_tokens=1).status_code == 200, "its workers serve")
        until(lambda: "pool_five::" in gate.get_admin("/clusters"), "Envoy has the new pool")
        clusters = gate.get_admin("/clusters")
        assert all(f"pool_{name}::" in clusters for name in ("default", "one", "two", "three", "four", "five"))


@pytest.mark.parametrize(("at_once", "slots"), [(1, 110), (20, 120), (100, 128)])
def test_an_engine_that_answers_503_costs_nobody_a_request(gate: RunningGate, at_once: int, slots: int) -> None:
    """One of two refuses all: 0 of 100 fail, one charge each, the attempts in the access log, no slot left."""
    # Other slots are another cluster, which has not ejected anyone yet.
    gate.push(f"{WIDE}\npools: {{default: {{concurrency: {{max: {slots}}}}}}}\n")
    until(lambda: gate.in_flight() == 0, "no slot is held")
    PAUSE.wait(1.5)
    charged, lines = left(gate), len(access_log(gate))
    gate.fault(0, error=503)

    async def ask() -> Counter[int]:
        turns = asyncio.Semaphore(at_once)
        sent = {"model": gate.model, "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]}

        async def one(client: httpx.AsyncClient) -> int:
            async with turns:
                response = await client.post(f"{gate.base}/v1/chat/completions", json=sent, headers=gate.headers("vip"))
            return response.status_code

        limits = httpx.Limits(max_connections=at_once)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            return Counter(await asyncio.gather(*(one(client) for _ in range(100))))

    assert asyncio.run(ask()) == {200: 100}
    # One more each for the looks before and after.
    assert charged - left(gate) == 101
    PAUSE.wait(1.5)
    chats_seen = [x for x in access_log(gate)[lines:] if x["path"] == "/v1/chat/completions"]
    attempts = Counter(x["attempts"] for x in chats_seen)
    assert sum(attempts.values()) == 100
    assert set(attempts) <= {1, 2, 3}, attempts
    assert attempts[2] > 0, attempts
    assert {x["engine"] for x in chats_seen} == {gate.told["engines"][1].removeprefix("http://")}
    until(lambda: gate.in_flight() == 0, "no slot is left")
    assert gate.metric("seawall_streams") == 0


def left(gate: RunningGate) -> int:
    """What is left of the tenant's limit after this look, which is charged too."""
    return int(gate.get("/v1/models").headers["x-ratelimit-remaining"])


def test_a_tenant_comes_back_to_its_engine(gate: RunningGate) -> None:
    """By what the gate says of the tenant, whatever the client says; the engines share the tenants."""
    gate.push(f"{WIDE}\npools: {{default: {{affinity: tenant}}}}\n")
    PAUSE.wait(1.5)
    seen = len(access_log(gate))
    for i in range(6):
        for class_ in ("vip", "standard", "batch"):
            body = json.dumps({"model": gate.model, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
            forged = {"x-seawall-tenant": f"demo-{i}"}
            assert gate.post("/v1/chat/completions", body, class_, **forged).status_code == 200
    PAUSE.wait(1.5)
    by_tenant: dict[object, set[object]] = {}
    for line in access_log(gate)[seen:]:
        by_tenant.setdefault(line["tenant"], set()).add(line["engine"])
    assert {"demo-vip", "demo-standard", "demo-batch"} <= set(by_tenant)
    assert all(len(engines) == 1 for engines in by_tenant.values()), by_tenant


def test_what_envoy_refuses_is_refused_by_all() -> None:
    """A policy whose pools Envoy does not take: workers stay on the last good one, and say why."""
    bad = f"{WIDE}\nengines: {{tls: {{url: 'https://127.0.0.1:1'}}}}\n"
    with running("--workers", "2", policy=WIDE, SEAWALL_ENGINE_CA="/nowhere.pem") as gate:
        assert gate.seawall("policy", "push", "-", stdin=bad).returncode == 0
        until(lambda: all("Envoy refused" in w["error"] for w in gate.status()["workers"]), "workers say why")
        assert {w["version"] for w in gate.status()["workers"]} == {1}
        assert "envoy refused a file" in gate.log()
        assert gate.chat(max_tokens=1).status_code == 200
        assert "pool_default::127.0.0.1:1::" not in gate.get_admin("/clusters")
        gate.push(f"{WIDE}\npools: {{default: {{}}, other: {{}}}}\n")
        assert gate.chat(max_tokens=1).status_code == 200
        assert "pool_other::" in gate.get_admin("/clusters")
