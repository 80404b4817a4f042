"""What an outage costs, and that it ends: Redis gone, a worker killed, a worker drained, an engine dead."""

import asyncio
import json
import os
import signal
import socket
from collections import Counter
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from tests.e2e.running_gate import DEMO, RunningGate, alive, running, until

pytestmark = pytest.mark.e2e


WIDE = DEMO.replace("requests_per_unit: 600", "requests_per_unit: 1000000").replace("unit: minute", "unit: day")
"""The demo policy with limits that no test meets, in a window whose end no test meets."""


async def load(gate: RunningGate, stop: asyncio.Event, path: str = "/v1/models", workers: int = 8) -> Counter[object]:
    """Ask without pause until told to stop; counts of statuses, and of exceptions by name."""
    seen: Counter[object] = Counter()

    async def ask(client: httpx.AsyncClient) -> None:
        while not stop.is_set():
            try:
                if path == "/v1/models":
                    response = await client.get(gate.base + path, headers=gate.headers("vip"))
                else:
                    sent = {"model": gate.model, "max_tokens": 3, "messages": [{"role": "user", "content": "load"}]}
                    response = await client.post(gate.base + path, json=sent, headers=gate.headers("vip"))
                seen[response.status_code] += 1
            except httpx.HTTPError as e:
                seen[type(e).__name__] += 1

    async with httpx.AsyncClient(timeout=30) as client:
        await asyncio.gather(*(ask(client) for _ in range(workers)))
    return seen


def test_redis_killed_under_load() -> None:
    """Requests go on by `store_loss.limits: share`; none waits over its deadline; counting resumes on return."""
    with running("--workers", "2", policy=WIDE) as gate:

        async def scenario() -> Counter[object]:
            stop = asyncio.Event()
            running_load = asyncio.get_running_loop().create_task(load(gate, stop, "/v1/chat/completions"))
            await asyncio.to_thread(until, lambda: gate.metric("seawall_limit_hits_total") > 50, "load runs")
            os.kill(gate.pids["redis"], signal.SIGKILL)
            await asyncio.to_thread(until, lambda: gate.metric("seawall_limit_local_total") > 50, "share in force")
            await asyncio.to_thread(until, lambda: gate.metric("seawall_store_up") == 2, "Redis is back", 60)
            local = gate.metric("seawall_limit_local_total")
            hits = gate.metric("seawall_limit_hits_total", outcome="ok")
            await asyncio.to_thread(
                until,
                lambda: gate.metric("seawall_limit_hits_total", outcome="ok") > hits + 200,
                "counting goes on",
            )
            # a call or two may still have met the end of the outage
            assert gate.metric("seawall_limit_local_total") - local < 50
            stop.set()
            return await running_load

        seen = asyncio.run(scenario())
        assert set(seen) == {200}, seen
        assert gate.metric("seawall_slots_local_total") > 0
        until(lambda: gate.in_flight() == 0, "no slot is left")
        assert gate.get("/v1/models").headers["x-ratelimit-limit"].startswith("1000000")
        assert int(gate.get("/v1/models").headers["x-ratelimit-remaining"]) < 1000000
        ready = httpx.get(gate.told["metrics"].replace("/metrics", "/readyz")).json()
        assert {w["store"] for w in ready["workers"].values()} == {"up"}


def test_redis_hung_is_told_and_survived() -> None:
    """A stopped Redis costs its time-out once a while: requests are served, /readyz tells, health stays SERVING."""
    with running("--workers", "1") as gate:
        redis = gate.pids["redis"]
        os.kill(redis, signal.SIGSTOP)
        try:
            answers = [gate.chat(max_tokens=1).status_code for _ in range(20)]
            assert answers == [200] * 20
            until(lambda: gate.metric("seawall_store_up") == 0, "the metric tells")
            ready = httpx.get(gate.told["metrics"].replace("/metrics", "/readyz"))
            assert ready.status_code == 200
            assert ready.json()["workers"]["w0"]["store"] == "down"
            # far fewer time-outs than requests: the breaker answers the rest
            assert gate.metric("seawall_limit_local_total") >= 20
        finally:
            os.kill(redis, signal.SIGCONT)
        until(lambda: gate.metric("seawall_store_up") == 1, "the metric tells")
        until(lambda: gate.get("/v1/models").headers.get("x-ratelimit-remaining", "0") != "0", "counting is back")


def test_a_killed_worker_costs_what_it_held() -> None:
    """SIGKILL: answers it carried are cut, calls without an answer are retried elsewhere, its slots come back."""
    with running("--workers", "2", policy=WIDE, SEAWALL_SLOT_LEASE="3") as gate:
        gate.fault(hang=2)

        async def carried() -> tuple[Counter[object], Counter[object]]:
            seen: Counter[object] = Counter()
            loop = asyncio.get_running_loop()

            async def stream(client: httpx.AsyncClient) -> None:
                sent = {"model": gate.model, "stream": True, "messages": [{"role": "user", "content": "carried"}]}
                try:
                    async with client.stream(
                        "POST", f"{gate.base}/v1/chat/completions", json=sent, headers=gate.headers("vip")
                    ) as response:
                        await response.aread()
                    seen["ended"] += 1
                except httpx.HTTPError:
                    seen["cut"] += 1

            async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=30)) as client:
                streams = [loop.create_task(stream(client)) for _ in range(12)]
                await asyncio.to_thread(until, lambda: gate.in_flight() == 12, "12 streams hold slots")
                stop = asyncio.Event()
                other = loop.create_task(load(gate, stop, workers=4))
                await asyncio.to_thread(until, lambda: gate.metric("seawall_limit_hits_total") > 100, "load runs")
                victim = gate.workers()[0]
                os.kill(victim, signal.SIGKILL)
                await asyncio.to_thread(until, lambda: gate.in_flight() < 12, "the dead worker's slots are free")
                await asyncio.to_thread(
                    until, lambda: gate.metric("seawall_workers", state="serving") == 2, "two workers serve"
                )
                left = gate.in_flight()
                assert 0 < left < 12
                assert seen["cut"] == 12 - left
                stop.set()
                unary = await other
                await asyncio.to_thread(gate.fault)
                for task in streams:
                    task.cancel()
                await asyncio.gather(*streams, return_exceptions=True)
            return seen, unary

        _, unary = asyncio.run(carried())
        # ext_authz, ratelimit and the first answer of ext_proc are retried: nobody else notices.
        assert set(unary) == {200}, unary
        assert gate.metric("seawall_worker_restarts_total") == 1
        until(lambda: gate.in_flight() == 0, "all slots are free")


def test_a_drained_worker_costs_nothing() -> None:
    """SIGTERM to a worker under load: running streams end as they would, and no request fails."""
    with running("--workers", "2", policy=WIDE) as gate:

        async def scenario() -> tuple[Counter[object], list[str]]:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            loads = loop.create_task(load(gate, stop, "/v1/chat/completions", workers=6))
            gate.fault(slow=40)
            ends: list[str] = []

            def stream() -> None:
                chunks = gate.openai("standard").chat.completions.create(
                    model=gate.model,
                    stream=True,
                    max_tokens=30,
                    messages=[{"role": "user", "content": "slow"}],
                    extra_body={"ignore_eos": True},
                )
                ends.append([c.choices[0].finish_reason for c in chunks if c.choices][-1] or "")

            streams = [asyncio.to_thread(stream) for _ in range(4)]
            waiting = asyncio.gather(*streams)
            await asyncio.to_thread(until, lambda: gate.in_flight() >= 4, "streams run")
            first = gate.workers()[0]
            os.kill(first, signal.SIGTERM)
            await waiting
            gate.fault()
            await asyncio.to_thread(until, lambda: not alive(first), "the worker has drained")
            await asyncio.to_thread(
                until, lambda: gate.metric("seawall_workers", state="serving") == 2, "two workers serve"
            )
            stop.set()
            return await loads, ends

        seen, ends = asyncio.run(scenario())
        assert set(seen) == {200}, seen
        assert ends == ["length"] * 4


def test_a_dead_engine_is_passed_over() -> None:
    """One of two engines killed: requests go to the other, and it comes back."""
    with running("--workers", "1") as gate:
        os.kill(gate.pids["engine-0"], signal.SIGKILL)
        assert [gate.chat(max_tokens=1).status_code for _ in range(20)] == [200] * 20
        until(lambda: gate.pids["engine-0"] != gate.told["pids"]["engine-0"], "it was started again")
        assert json.loads(gate.chat(max_tokens=1).text)["usage"]


def test_redis_that_lost_everything() -> None:
    """FLUSHALL under load: requests go on, the last policy is written back, limits and slots count again."""
    policy = WIDE.replace("1000000", "1000001")
    with running("--workers", "2", policy=WIDE) as gate:
        gate.push(policy)

        async def scenario() -> Counter[object]:
            stop = asyncio.Event()
            loads = asyncio.get_running_loop().create_task(load(gate, stop, "/v1/chat/completions"))
            await asyncio.to_thread(until, lambda: gate.metric("seawall_limit_hits_total") > 50, "load runs")
            await asyncio.to_thread(flush, gate)
            await asyncio.to_thread(until, lambda: gate.status()["current"] == 1, "the policy is back")
            await asyncio.to_thread(gate.settled)
            stop.set()
            return await loads

        seen = asyncio.run(scenario())
        assert set(seen) == {200}, seen
        assert gate.seawall("policy", "show").stdout == policy
        assert gate.get("/v1/models").headers["x-ratelimit-limit"].startswith("1000001")
        # The same number, another document: nobody may take it for the old one.
        flush(gate)
        smaller = WIDE.replace("1000000", "7")
        done = gate.seawall("policy", "push", "-", stdin=smaller)
        if done.returncode == 0:
            until(lambda: gate.get("/v1/models").headers["x-ratelimit-limit"].startswith("7"), "workers obey")
        until(lambda: gate.in_flight() == 0, "no slot is left")


def flush(gate: RunningGate) -> None:
    parts = urlsplit(gate.told["redis"])
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as s:
        s.sendall(b"FLUSHALL\r\n")
        assert s.recv(64) == b"+OK\r\n"
