"""Processes replaced while a crowd is served: a rolling restart, a dead supervisor, a worker that hangs."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest

from seawall.cli.local_gate import envoy_sees
from tests.e2e.running_gate import RunningGate, alive, running, until
from tests.e2e.test_faults import WIDE, load

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

REQUESTS = 1000
CROWD = 24
"""Requests at a time."""
ANSWER = 40
"""Tokens of a streamed answer."""


def readyz(gate: RunningGate) -> dict[str, Any]:
    return dict(httpx.get(gate.told["metrics"].replace("/metrics", "/readyz"), timeout=30).json())


def restarted(gate: RunningGate, number: int) -> bool:
    """Whether that many rolling restarts are over, the last one well, and no predecessor is left."""
    said = readyz(gate)
    if said["restarts"] < number or said["restart"]["phase"] == "running":
        return False
    assert said["restart"]["phase"] == "done", said
    return not any(w["leaving"] for w in said["workers"].values())


async def ask(gate: RunningGate, client: httpx.AsyncClient, stream: bool) -> str:
    """One chat request; "ok" if nothing of its answer is missing, else what was wrong."""
    body = {"model": gate.model, "max_tokens": ANSWER if stream else 2, "ignore_eos": True, "stream": stream}
    body["messages"] = [{"role": "user", "content": "load"}]
    try:
        response = await client.post(f"{gate.base}/v1/chat/completions", json=body, headers=gate.headers("vip"))
    except httpx.HTTPError as e:
        return type(e).__name__
    if response.status_code != 200:
        return f"{response.status_code} {response.text}"
    if not stream:
        return "ok" if response.json()["usage"]["completion_tokens"] == 2 else response.text
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    pieces = [json.loads(e)["choices"][0] for e in events[:-1]]
    whole = events[-1] == "[DONE]" and pieces[-1]["finish_reason"] == "length"
    return "ok" if whole else f"cut: {events[-1]}"


async def crowd(gate: RunningGate, at: dict[int, Callable[[], None]]) -> Counter[str]:
    """Send REQUESTS requests, one in twenty a stream; `at` is what happens when so many have been answered."""
    seen: Counter[str] = Counter()
    left = iter(range(REQUESTS))

    async def client_() -> None:
        for number in left:
            seen[await ask(gate, client, stream=number % 20 == 0)] += 1
            happens = at.get(seen.total())
            if happens is not None:
                await asyncio.to_thread(happens)

    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=CROWD)) as client:
        await asyncio.gather(*(client_() for _ in range(CROWD)))
    return seen


def answered(gate: RunningGate) -> Counter[int]:
    """Statuses of chat requests by Envoy's access log."""
    lines = [json.loads(line) for line in gate.log("envoy").splitlines() if line.startswith("{")]
    return Counter(x["code"] for x in lines if x["path"] == "/v1/chat/completions")


def test_a_rolling_restart_under_load_fails_nobody() -> None:
    """1,000 requests, two rolling restarts on the way, by SIGHUP to the supervisor and to `up`: 0 failed, 0 cut."""
    with running("--workers", "2", policy=WIDE) as gate:
        before = gate.workers()
        at = {
            100: lambda: os.kill(gate.pids["supervisor"], signal.SIGHUP),
            500: lambda: (until(lambda: restarted(gate, 1), "the first is over"), gate.process.send_signal(1))[1],
        }
        seen = asyncio.run(crowd(gate, at))
        assert seen == {"ok": REQUESTS}, seen
        until(lambda: restarted(gate, 2), "two restarts are over")
        assert not any(alive(pid) for pid in before)
        assert gate.metric("seawall_worker_restarts_total", why="roll") == 4
        assert gate.metric("seawall_worker_restarts_total") == 4
        # One more is `up`'s own. Nothing is lost of what the workers counted that left.
        assert gate.metric("seawall_requests_total", reason="ok") == REQUESTS + 1
        until(lambda: answered(gate) == {200: REQUESTS + 1}, "Envoy's log has them all")
        assert gate.metric("seawall_faults_total") == 0
        assert gate.in_flight() == 0
        assert envoy_sees(gate.told["admin"]) == 2
