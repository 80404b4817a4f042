"""Fifty answers under way while a worker, the store and an engine are killed in turn: what became of each, by count."""

import asyncio
import os
import signal

import httpx2 as httpx
import pytest

from seawall.cli.local_gate import envoy_sees
from tests.e2e.crowd import ASKERS, Crowd, asking, client, reachable
from tests.e2e.running_gate import RunningGate, running, until
from tests.e2e.test_faults import WIDE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STREAMS = 50


async def outages(gate: RunningGate, http: httpx.AsyncClient) -> None:
    crowd = Crowd(gate, http, STREAMS)
    await crowd.held(STREAMS, "every stream holds a slot")

    async with asking(gate, http) as seen:
        os.kill(gate.workers()[0], signal.SIGKILL)
        await asyncio.to_thread(until, lambda: gate.metric("seawall_worker_restarts_total") == 1, "it is seen", 60)
        await asyncio.to_thread(until, lambda: gate.metric("seawall_workers", state="serving") == 2, "two serve", 60)
        await asyncio.to_thread(until, lambda: envoy_sees(gate.told["admin"]) == 2, "Envoy sees two", 60)
    # What the worker carried is cut, what it was deciding about is told; nobody else notices.
    assert seen.keys() <= {"200", "503 gate_unavailable"}, seen
    assert seen["503 gate_unavailable"] <= ASKERS, seen
    cut = await crowd.some_cut()
    left = STREAMS - cut
    assert left > 0
    assert sum(gate.engine(i)["running"] for i in range(2)) == left
    assert crowd.seen == {"cut": cut}

    async with asking(gate, http) as seen:
        os.kill(gate.pids["redis"], signal.SIGKILL)
        await asyncio.to_thread(until, lambda: gate.metric("seawall_limit_local_total") > 0, "limits go by share", 60)
        await asyncio.to_thread(until, lambda: gate.metric("seawall_store_up") == 2, "Valkey is back", 60)
    # Nobody notices at all.
    assert seen.keys() == {"200"}, seen
    assert crowd.seen == {"cut": cut}
    await crowd.held(left, "the store knows of every slot again")

    on_it = gate.engine(0)["running"]
    assert 0 < on_it < left
    async with asking(gate, http) as seen:
        os.kill(gate.pids["engine-0"], signal.SIGKILL)
        before = gate.told["pids"]["engine-0"]
        await asyncio.to_thread(until, lambda: gate.pids["engine-0"] != before, "the engine was started again", 60)
    # Its answers are cut, requests that it had and did not begin to answer are told; others go to the other engine.
    assert seen.keys() <= {"200", "503 overloaded"}, seen
    assert seen["503 overloaded"] <= ASKERS, seen
    await crowd.become(cut=cut + on_it)
    await crowd.held(left - on_it, "their slots are free")

    await asyncio.to_thread(until, lambda: reachable(gate, 0), "the engine answers", 60)
    await asyncio.to_thread(gate.fault)
    await asyncio.gather(*crowd.tasks)
    assert crowd.seen == {"cut": cut + on_it, "whole": left - on_it}
    await crowd.held(0, "all slots are free")


def test_a_worker_the_store_and_an_engine_killed_in_turn() -> None:
    """50 streams: those of the worker are cut, none by the loss of the store, those of the engine; the rest are whole."""
    with running("--workers", "2", policy=WIDE, SEAWALL_SLOT_LEASE="3") as gate:
        until(lambda: all(reachable(gate, i) for i in range(2)), "both engines run")
        gate.fault(hold=2)

        async def scenario() -> None:
            async with client() as http:
                await outages(gate, http)

        asyncio.run(scenario())
        assert gate.metric("seawall_streams") == 0
        assert gate.metric("seawall_slots") == 0
        assert gate.metric("seawall_faults_total") == 0
        assert gate.metric("seawall_worker_restarts_total", why="died") == 1
        assert [gate.engine(i)["running"] for i in range(2)] == [0, 0]
