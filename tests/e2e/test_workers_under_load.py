"""Envoy under load while workers are killed and drained one by one: who pays, and who never notices."""

import asyncio
import json
import os
import signal
import socket
from collections import Counter

import pytest

from seawall.cli.local_gate import envoy_sees
from tests.e2e.running_gate import PAUSE, RunningGate, alive, running, until
from tests.e2e.test_faults import WIDE, load
from tests.e2e.tiny_envoy import received

pytestmark = pytest.mark.e2e


async def rounds(gate: RunningGate, count: int) -> tuple[Counter[object], Counter[object]]:
    """Drain and kill by turns, each time waiting until all workers serve again; what light and chat requests got."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    light = loop.create_task(load(gate, stop, "/v1/models", workers=6))
    chats = loop.create_task(load(gate, stop, "/v1/chat/completions", workers=6))
    for turn in range(count):
        victim = (await asyncio.to_thread(gate.workers))[turn // 2 % 2]
        os.kill(victim, signal.SIGTERM if turn % 2 == 0 else signal.SIGKILL)
        await asyncio.to_thread(until, lambda pid=victim: not alive(pid), "the worker has gone", 60)
        await asyncio.to_thread(settled, gate)
    stop.set()
    return await light, await chats


def settled(gate: RunningGate) -> None:
    """Wait until both workers serve, and Envoy has since looked at each twice and found it well."""
    until(lambda: gate.metric("seawall_workers", state="serving") == 2, "two workers serve", 60)
    looked = good_looks(gate)
    until(lambda: good_looks(gate) >= looked + 4 and envoy_sees(gate.told["admin"]) == 2, "Envoy sees two", 60)


def lost_calls(gate: RunningGate) -> list[str]:
    """Details of light requests that got no 200, out of Envoy's access log."""
    PAUSE.wait(1.5)
    lines = [json.loads(line) for line in gate.log("envoy").splitlines() if line.startswith("{")]
    return [str(x["details"]) for x in lines if x["path"] == "/v1/models" and x["code"] != 200]


def good_looks(gate: RunningGate) -> int:
    return int(gate.get_admin("/stats?filter=cluster.gate.health_check.success").rpartition(":")[2])


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_workers_come_and_go_under_load(count: int) -> None:
    """Drains cost nothing; a kill costs at most the chats that the worker held or carried."""
    with running("--workers", "2", policy=WIDE, SEAWALL_SLOT_LEASE="3") as gate:
        light, chats = asyncio.run(rounds(gate, count))
        kills = count // 2
        # A call whose answer was half out when its worker was killed can't be asked again: the only ones that may fail.
        begun = lost_calls(gate)
        assert set(light) <= {200, 503}, light
        assert light[503] <= kills, (light, begun)
        assert all("reset_after_response_started" in details for details in begun), begun
        assert light[200] > 100 * count
        lost = sum(n for status, n in chats.items() if status != 200)
        # Six chats are under way at most, when a worker is killed.
        assert lost <= 6 * kills, chats
        assert set(chats) <= {200, 503, "RemoteProtocolError", "ReadError"}, chats
        until(lambda: gate.in_flight() == 0, "no slot is left")
        assert gate.metric("seawall_faults_total") == 0
        # Envoy closes no connection but those of workers that went: the reset guard never bit.
        stats = gate.get_admin("/stats?filter=cluster.gate.upstream_cx_destroy_local_with_active_rq")
        assert int(stats.rpartition(":")[2]) == 0


def test_a_request_that_a_killed_worker_held_is_a_json_503() -> None:
    """The worker has answered the headers and waits for the body when it is killed: 503, an envelope, retry-after."""
    with running("--workers", "1", policy=WIDE) as gate:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {gate.keys['vip']}\r\n"
            "user-agent: t\r\ncontent-type: application/json\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{"
        )
        with socket.create_connection(("127.0.0.1", int(gate.base.rpartition(":")[2])), timeout=60) as s:
            s.sendall(head.encode())
            until(lambda: gate.metric("seawall_streams") == 1, "the worker holds the request")
            os.kill(gate.workers()[0], signal.SIGKILL)
            answer = received(s)
        assert answer.status == 503
        assert answer.json()["error"]["code"] == "gate_unavailable"
        assert int(answer.headers["retry-after"]) >= 1
