"""Each metric moves when what it stands for happens."""

import os
import signal

import pytest

from seawall.telemetry.catalog import METRICS, Kind
from tests.e2e.running_gate import DEMO, RunningGate, running, until

pytestmark = pytest.mark.e2e

ELSEWHERE = {
    "seawall_faults_total": "tests/wire: a fault has to be made",
    "seawall_log_dropped_total": "tests/unit/telemetry: a reader has to be stopped",
    "seawall_tokens_part_total": "tests/wire/test_process.py: the simulator has no such parts",
    "seawall_unread_answers_total": "tests/wire/test_process.py: an engine has to compress what it sends",
    "seawall_usage_unknown_total": "tests/wire/test_process.py: an answer has to pass unread",
    "seawall_truncated_total": "tests/wire/test_process.py: an engine has to ignore its cap",
    "seawall_connections": "tests/wire/test_handoff.py: an address for many workers has to be there",
    "seawall_slots_overshoot_total": "tests/store/test_recovery.py: a worker has to be cut off from Redis",
    "seawall_policy_fallback_total": "tests/wire/test_canary.py: one worker has to be ahead of another",
    "seawall_policy_unsure_total": "tests/wire/test_worker.py: nobody may write Envoy's files",
    "seawall_route_settings_refused_total": "tests/e2e/test_route_settings.py: an Envoy with a route that is wrong",
    "seawall_policy_refused_total": "below: a version is put into Redis past the check",
    **{
        name: "tests/wire/test_xds.py: limits have to come from a control plane"
        for name in METRICS
        if name.startswith("seawall_xds_")
    },
    **{
        name: "tests/wire/test_drop_in_cases.py: under the names of /stats, by tests/cases/ratelimit"
        for name in METRICS
        if name.startswith("ratelimit_service_") and not name.endswith(("_total_requests", "_response_time_seconds"))
    },
}


def test_every_metric_moves() -> None:
    """One run of a gate with a slow, a refused, a failed and a limited request, a lost store and a dead worker."""
    policy = DEMO.replace("requests_per_unit: 600", "requests_per_unit: 5").replace("unit: minute", "unit: day")
    with running("--workers", "2", policy=policy) as gate:
        gate.chat("vip", max_tokens=3)
        assert gate.seawall("key", "add", "--tenant", "demo-vip").returncode == 0
        gate.fault(no_usage=True)
        gate.chat("vip", max_tokens=3)
        assert hanging(gate)
        for _ in range(7):
            gate.get("/v1/models", "batch")
        os.kill(gate.pids["redis"], signal.SIGSTOP)
        gate.fault()
        gate.chat("standard", max_tokens=3)
        until(lambda: gate.metric("seawall_store_up") < 2, "the loss of the store is seen")
        os.kill(gate.pids["redis"], signal.SIGCONT)
        until(lambda: gate.metric("seawall_store_up") == 2, "the store is back")
        os.kill(gate.workers()[0], signal.SIGKILL)
        until(lambda: gate.metric("seawall_worker_restarts_total") == 1, "a worker was started again")
        until(lambda: gate.metric("seawall_workers", state="serving") == 2, "both workers serve")
        push_past_the_check(gate, "no: such key")
        until(lambda: gate.metric("seawall_policy_refused_total") > 0, "workers refuse the version")
        until(lambda: any(w["error"] for w in gate.status()["workers"]), "status says why")
        assert gate.chat("vip", max_tokens=1).status_code == 200
        still = {name for name in METRICS if name not in ELSEWHERE and not moved(gate, name)}
        # gauges of what is over by now, seen above
        assert still <= {"seawall_streams", "seawall_slots"}


def hanging(gate: RunningGate) -> bool:
    """Leave one request hanging for a moment, and look at the gauges meanwhile."""
    import httpx2 as httpx

    body = {"model": gate.model, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    gate.fault(hang=1)
    with httpx.stream(
        "POST", f"{gate.base}/v1/chat/completions", json=body, headers=gate.headers("vip"), timeout=30
    ) as response:
        pieces = response.iter_bytes()  # held: a forgotten generator closes its response
        next(pieces)
        return gate.metric("seawall_streams") == 1 and gate.metric("seawall_slots", pool="default") == 1


def moved(gate: RunningGate, name: str) -> bool:
    suffix = "_count" if METRICS[name].kind is Kind.HISTOGRAM else ""
    return gate.metric(name + suffix) > 0


def push_past_the_check(gate: RunningGate, text: str) -> None:
    """Make a document current that no `push` would let through, as a buggy release could."""
    import asyncio

    from seawall.policy.compile import digest_of
    from seawall.store import open_control

    async def push() -> None:
        control = open_control(gate.told["redis"])
        await control.start()
        try:
            await control.push(text, digest=digest_of(text), author="test", reason="bad", needs="0.1")
        finally:
            await control.close()

    asyncio.run(push())
