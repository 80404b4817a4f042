"""Processes replaced while a crowd is served: a rolling restart, a dead supervisor, a worker that hangs."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest

from seawall.cli.local_gate import envoy_sees
from tests.e2e.crowd import ASKERS, Crowd, asking, client
from tests.e2e.running_gate import RunningGate, alive, running, until
from tests.e2e.test_faults import WIDE

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


async def ask(gate: RunningGate, http: httpx.AsyncClient, stream: bool) -> str:
    """One chat request; "ok" if nothing of its answer is missing, else what was wrong."""
    body = {"model": gate.model, "max_tokens": ANSWER if stream else 2, "ignore_eos": True, "stream": stream}
    body["messages"] = [{"role": "user", "content": "load"}]
    try:
        response = await http.post(f"{gate.base}/v1/chat/completions", json=body, headers=gate.headers("vip"))
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


async def requests(gate: RunningGate, count: int, at: dict[int, Callable[[], object]]) -> Counter[str]:
    """Send so many requests, one in twenty a stream; `at` is what happens when so many have been answered."""
    seen: Counter[str] = Counter()
    left = iter(range(count))

    async def one_client() -> None:
        for number in left:
            seen[await ask(gate, http, stream=number % 20 == 0)] += 1
            happens = at.get(seen.total())
            if happens is not None:
                await asyncio.to_thread(happens)

    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=CROWD)) as http:
        await asyncio.gather(*(one_client() for _ in range(CROWD)))
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
        seen = asyncio.run(requests(gate, REQUESTS, at))
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


@pytest.fixture(scope="module")
def broken() -> Iterator[RunningGate]:
    """A gate that each of these tests breaks in its own way, and that is whole again before the next."""
    with running("--workers", "2", policy=WIDE, SEAWALL_SLOT_LEASE="3", SEAWALL_HANG_TIME="4s") as gate:
        yield gate


@pytest.fixture
def gate(broken: RunningGate) -> Iterator[RunningGate]:
    broken.fault()
    until(lambda: envoy_sees(broken.told["admin"]) == 2, "Envoy sees two workers", 60)
    yield broken
    assert broken.metric("seawall_faults_total") == 0
    assert broken.in_flight() == 0


def restarts(gate: RunningGate) -> Counter[str]:
    """How many workers were started again, by why."""
    found = {
        dict(labels).get("why", ""): n for (name, labels), n in gate.metrics().items() if "worker_restarts" in name
    }
    return Counter({why: int(n) for why, n in found.items()})


def whole_again(gate: RunningGate) -> bool:
    said = readyz(gate)["workers"].values()
    return [w["state"] for w in said] == ["serving"] * 2 and envoy_sees(gate.told["admin"]) == 2


def test_the_supervisor_killed_under_load_fails_nobody(gate: RunningGate) -> None:
    """SIGKILL; `up` starts another, whose workers take over: 0 of 500 failed, and the old workers go by themselves."""
    before, supervisor = gate.workers(), gate.pids["supervisor"]
    seen = asyncio.run(requests(gate, 500, {100: lambda: os.kill(supervisor, signal.SIGKILL)}))
    assert seen == {"ok": 500}, seen
    assert gate.pids["supervisor"] != supervisor
    until(lambda: not any(alive(pid) for pid in before), "the old workers have gone", 60)
    until(lambda: whole_again(gate), "both serve", 60)
    assert gate.get("/v1/models").status_code == 200


async def stopped(gate: RunningGate, http: httpx.AsyncClient, *, killed: bool) -> tuple[Counter[str], Counter[str]]:
    """SIGSTOP one of two workers under load, until it is killed or for a moment; what streams and askers got."""
    victim = (await asyncio.to_thread(gate.workers))[0]
    await asyncio.to_thread(gate.fault, hold=2)
    crowd = Crowd(gate, http, 10)
    await crowd.held(10, "every stream holds a slot")
    async with asking(gate, http) as seen:
        os.kill(victim, signal.SIGSTOP)
        if killed:
            await asyncio.to_thread(until, lambda: not alive(victim), "it is killed", 60)
        else:
            silent = lambda: any(w["state"] == "unknown" for w in readyz(gate)["workers"].values())  # noqa: E731
            await asyncio.to_thread(until, silent, "the supervisor has noticed", 60)
            os.kill(victim, signal.SIGCONT)
        await asyncio.to_thread(until, lambda: whole_again(gate), "both serve", 60)
    if killed:
        assert await crowd.some_cut() < 10
    await asyncio.to_thread(gate.fault)
    await asyncio.gather(*crowd.tasks)
    await crowd.held(0, "all slots are free")
    return crowd.seen, seen


async def run_stopped(gate: RunningGate, *, killed: bool) -> tuple[Counter[str], Counter[str]]:
    async with client() as http:
        return await stopped(gate, http, killed=killed)


def test_a_worker_that_hangs_is_replaced(gate: RunningGate) -> None:
    """Its streams are cut when it is killed, requests that it held are told, all others are answered."""
    before = restarts(gate)
    streams, asked = asyncio.run(run_stopped(gate, killed=True))
    assert streams.total() == 10
    assert 0 < streams["cut"] < 10
    assert asked.keys() <= {"200", "503 gate_unavailable"}, asked
    assert asked["503 gate_unavailable"] <= 2 * ASKERS, asked
    assert restarts(gate) - before == {"hung": 1}


def test_a_worker_that_comes_back_goes_on(gate: RunningGate) -> None:
    """Stopped for less than the limit: no stream is cut, the same processes serve."""
    before, pids = restarts(gate), gate.workers()
    streams, asked = asyncio.run(run_stopped(gate, killed=False))
    assert streams == {"whole": 10}
    assert asked.keys() <= {"200", "503 gate_unavailable"}, asked
    assert restarts(gate) == before
    assert gate.workers() == pids


def test_all_workers_killed(gate: RunningGate) -> None:
    """Answers are cut, requests get JSON until the supervisor has started others; every slot comes back."""
    before = restarts(gate)

    async def scenario() -> tuple[Counter[str], Counter[str]]:
        async with client() as http:
            await asyncio.to_thread(gate.fault, hold=2)
            crowd = Crowd(gate, http, 10)
            await crowd.held(10, "every stream holds a slot")
            async with asking(gate, http) as seen:
                for pid in await asyncio.to_thread(gate.workers):
                    os.kill(pid, signal.SIGKILL)
                await crowd.become(cut=10)
                await asyncio.to_thread(until, lambda: whole_again(gate), "both serve", 60)
            await crowd.held(0, "all slots are free")
            return crowd.seen, seen

    streams, asked = asyncio.run(scenario())
    assert streams == {"cut": 10}
    assert asked.keys() <= {"200", "503 gate_unavailable"}, asked
    assert asked["503 gate_unavailable"] > 0
    assert restarts(gate) - before == {"died": 2}


def test_envoy_killed(gate: RunningGate) -> None:
    """Connections are cut; the workers see it and free every slot at once; another Envoy serves."""
    pid = gate.pids["envoy"]

    async def scenario() -> Counter[str]:
        async with client() as http:
            await asyncio.to_thread(gate.fault, hold=2)
            crowd = Crowd(gate, http, 10)
            await crowd.held(10, "every stream holds a slot")
            os.kill(pid, signal.SIGKILL)
            await crowd.become(cut=10)
            await crowd.held(0, "all slots are free")
            return crowd.seen

    assert asyncio.run(scenario()) == {"cut": 10}
    until(lambda: gate.pids["envoy"] != pid, "it was started again")
    until(lambda: envoy_sees(gate.told["admin"]) == 2, "it sees two workers", 60)
    gate.fault()
    assert gate.chat(max_tokens=1).status_code == 200


def test_the_store_away_with_deny(gate: RunningGate) -> None:
    """`store_loss: {limits: deny}`: JSON 503 with a time to come back while the store hangs or is dead, 200 after it."""
    gate.push(WIDE.replace("limits: share", "limits: deny"))
    for down, back in ((signal.SIGSTOP, signal.SIGCONT), (signal.SIGKILL, None)):
        pid = gate.pids["redis"]
        os.kill(pid, down)
        try:
            until(lambda: gate.chat(max_tokens=1).status_code == 503, "it is denied")
            refused = gate.chat(max_tokens=1)
            if refused.status_code == 503:
                assert refused.json()["error"]["code"] == "gate_unavailable"
                assert int(refused.headers["retry-after"]) >= 1
            else:
                assert down is signal.SIGKILL, "it is back already"
        finally:
            if back is not None:
                os.kill(pid, back)
        until(lambda: gate.metric("seawall_store_up") == 2, "the store is back", 60)
        until(lambda: gate.chat(max_tokens=1).status_code == 200, "requests are let in")
    gate.push(WIDE)
