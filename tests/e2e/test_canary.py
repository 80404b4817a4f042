"""Some tenants have a version before all others; keys come and go without a push."""

import hashlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from tests.e2e.running_gate import DEMO, RunningGate, until

pytestmark = pytest.mark.e2e

TENANTS = [f"t{n}" for n in range(100)]


def policy(limit: int, more: str = "") -> str:
    """The demo policy with a hundred tenants more, each with a key, and a limit of its own for a day."""
    rows = ""
    for tenant in TENANTS:
        digest = hashlib.sha256(f"sk-{tenant}".encode()).hexdigest()
        rows += f"    {tenant}: {{keys: [{{id: {tenant}-1, sha256: {digest}}}]}}\n"
    text = DEMO.replace("  tenants:", f"  tenants:\n{rows}    # the demo's own", 1)
    return text.replace("{unit: minute, requests_per_unit: 600}", f"{{unit: day, requests_per_unit: {limit}}}" + more)


def told(gate: RunningGate, *words: str, stdin: str | None = None) -> Any:
    done = gate.seawall(*words, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def quiet(gate: RunningGate) -> Iterator[RunningGate]:
    """The shared gate; a canary that a test leaves is ended."""
    yield gate
    gate.seawall("policy", "canary", "--abort")
    gate.policy = "changed"


def limit_of(gate: RunningGate, key: str, client: httpx.Client | None = None) -> int:
    """Limit that a request with this key is held to."""
    get = client.get if client is not None else httpx.get
    response = get(f"{gate.base}/v1/models", headers={"x-api-key": key}, timeout=60)
    assert response.status_code == 200, response.text
    return int(response.headers["x-ratelimit-limit"].partition(",")[0])


def on_canary(gate: RunningGate, limit: int) -> set[str]:
    """Tenants that have the canary's limit."""
    with httpx.Client() as client:
        return {tenant for tenant in TENANTS if limit_of(gate, f"sk-{tenant}", client) == limit}


def test_canary_by_tenant(quiet: RunningGate) -> None:
    """Show 4 of the issue: the same tenants each time, limits by version, more only adds, promote and abort."""
    gate = quiet
    gate.push(policy(1000))
    started = told(gate, "policy", "canary", "-", "--percent", "10", stdin=policy(300))
    number = started["canary"]["version"]
    gate.settled()
    first = set(started["has_it"]) & set(TENANTS)
    assert 0 < len(first) < 30
    assert [on_canary(gate, 300) for _ in range(2)] == [first, first]
    status = gate.status()["canary"]
    assert (status["version"], status["percent"], status["workers"]) == (number, 10, 2)
    assert gate.metric("seawall_policy_version", role="canary") == 2 * number

    # A push would decide for all: it has to wait, or to say so.
    assert "a canary runs" in gate.seawall("policy", "push", "-", stdin=policy(7)).stderr

    half = set(told(gate, "policy", "canary", "--percent", "50")["has_it"]) & set(TENANTS)
    gate.settled()
    assert first < half
    assert on_canary(gate, 300) == half

    told(gate, "policy", "canary", "--abort")
    gate.settled()
    assert on_canary(gate, 300) == set()

    told(gate, "policy", "canary", "-", "--percent", "10", stdin=policy(300))
    told(gate, "policy", "canary", "--promote")
    gate.settled()
    assert on_canary(gate, 300) == set(TENANTS)
    kinds = [event["kind"] for event in told(gate, "policy", "history", "--events", "-n", "5")]
    assert kinds == ["promote", "canary", "abort", "canary", "canary"]


def test_a_canary_with_a_limit_of_another_kind(quiet: RunningGate) -> None:
    """Envoy sends the descriptors that only the canary's limits need; for other tenants they count nothing."""
    gate = quiet
    gate.push(policy(1001))
    both = policy(1001, "\n      - {key: key, rate_limit: {unit: day, requests_per_unit: 2}}")
    told(gate, "policy", "canary", "-", "--tenants", "t1", stdin=both)
    until(lambda: limit_of(gate, "sk-t1") == 2, "the new descriptor is sent")
    assert limit_of(gate, "sk-t2") == 1001

    def status() -> int:
        return httpx.get(f"{gate.base}/v1/models", headers={"x-api-key": "sk-t1"}, timeout=60).status_code

    until(lambda: status() == 429, "the limit of the canary counts")
    assert limit_of(gate, "sk-t2") == 1001


def test_a_request_keeps_its_version(quiet: RunningGate) -> None:
    """A stream that began with the canary ends with it; access log and request line name one version."""
    gate = quiet
    gate.push(policy(1002))
    number = told(gate, "policy", "canary", "-", "--tenants", "t3", stdin=policy(302))["canary"]["version"]
    gate.settled()
    gate.fault(hang=2)
    body = {"model": gate.model, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    headers = {"x-api-key": "sk-t3"}
    with httpx.stream("POST", f"{gate.base}/v1/chat/completions", json=body, headers=headers, timeout=60) as response:
        assert response.status_code == 200
        pieces = response.iter_bytes()  # held: a forgotten generator closes its response
        next(pieces)
        assert gate.seawall("policy", "canary", "--abort").returncode == 0
        gate.settled()
        assert gate.status()["canary"] is None
        assert limit_of(gate, "sk-t3") == 1002
    gate.fault()

    def request_line() -> "re.Match[str] | None":
        return re.search(rf"msg=request .*tenant=t3 .*reason=aborted policy={number} rid=(\w+)", gate.log())

    found = until(request_line, "the request line of the stream")
    envoy = until(
        lambda: next((line for line in gate.log("envoy").splitlines() if f'"rid":"{found[1]}"' in line), None),
        "the access log of the stream",
    )
    assert json.loads(envoy)["policy"] == str(number)


def test_one_version_a_request_while_policies_change(quiet: RunningGate) -> None:
    """ext_authz and ext_proc name the same version for every request, but for those that are counted as fallbacks."""
    gate = quiet
    gate.push(policy(1004))
    before = gate.metric("seawall_policy_fallback_total", service="ext_proc")
    marked = len(gate.log()), len(gate.log("envoy"))
    stop = threading.Event()
    codes: list[int] = []

    def ask(tenant: str) -> None:
        body = {"model": gate.model, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
        with httpx.Client(timeout=60, headers={"x-api-key": f"sk-{tenant}"}) as client:
            while not stop.is_set():
                codes.append(client.post(f"{gate.base}/v1/chat/completions", json=body).status_code)

    clients = [threading.Thread(target=ask, args=(tenant,)) for tenant in TENANTS[:4]]
    for client in clients:
        client.start()
    for n in range(3):
        gate.push(policy(1005 + n))
        told(gate, "policy", "canary", "-", "--percent", "50", stdin=policy(1105 + n))
        told(gate, "policy", "canary", "--promote")
    gate.settled()
    stop.set()
    for client in clients:
        client.join()
    assert set(codes) == {200}

    def lines() -> dict[str, list[str]]:
        """By rid: the versions that the access log and the request line name."""
        found: dict[str, list[str]] = {}
        for line in gate.log("envoy")[marked[1] :].splitlines():
            if '"rid":"' in line and "chat" in line:
                row = json.loads(line)
                found.setdefault(row["rid"], []).append(row["policy"])
        for version, rid in re.findall(r"tenant=t\d+ .*policy=(\d+) rid=(\w+)", gate.log()[marked[0] :]):
            found.setdefault(rid, []).append(version)
        return {rid: versions for rid, versions in found.items() if len(versions) == 2}

    until(lambda: len(lines()) == len(codes), "all lines are written")
    named = lines()
    assert len({version for version, _ in named.values()}) > 3
    differ = sum(one != two for one, two in named.values())
    assert differ == gate.metric("seawall_policy_fallback_total", service="ext_proc") - before
    assert differ < len(codes) / 10


def test_two_pushes_at_once(quiet: RunningGate) -> None:
    """Of two authors who saw the same version one is refused, and told what is current by now."""
    gate = quiet
    current = gate.status()["current"]
    command = [sys.executable, "-m", "seawall", "policy", "push", "-", "--if-current", str(current)]
    pushes = [
        subprocess.Popen(
            command,
            env=dict(gate.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [push.communicate(policy(2000 + n), timeout=60) for n, push in enumerate(pushes)]
    assert sorted(push.returncode for push in pushes) == [0, 1]
    refused = next(err for (_, err), push in zip(said, pushes, strict=True) if push.returncode)
    assert refused == f"seawall: current is version {current + 1}, not version {current}\n"
    assert gate.status()["current"] == current + 1


def test_keys_come_and_go(quiet: RunningGate) -> None:
    """A key that is added is known to all workers, counted, and refused by all once it is revoked."""
    gate = quiet
    gate.push(policy(1003))
    made = told(gate, "key", "add", "--tenant", "t5", "--id", "e2e")
    gate.settled()

    def statuses(key: str, count: int = 20) -> list[int]:
        # A connection each, so that both workers are asked.
        return [
            httpx.get(f"{gate.base}/v1/models", headers={"x-api-key": key}, timeout=60).status_code
            for _ in range(count)
        ]

    assert statuses(made["key"]) == [200] * 20
    assert gate.metric("seawall_keys") == 2
    assert gate.status()["keys"] == 1

    def used() -> int:
        rows = {row["id"]: row for row in told(gate, "key", "list", "--tenant", "t5")}
        assert set(rows) == {"e2e", "t5-1"}
        return int(rows["e2e"]["used"])

    until(lambda: used() == 20, "all uses are counted")
    assert gate.seawall("key", "revoke", "e2e").returncode == 0
    assert gate.seawall("key", "revoke", "t5-1").returncode == 0
    gate.settled()
    assert statuses(made["key"]) == [401] * 20
    assert statuses("sk-t5", 4) == [401] * 4
    refused = httpx.get(f"{gate.base}/v1/models", headers={"x-api-key": made["key"]}, timeout=60)
    assert refused.headers["x-seawall-reason"] == "revoked_api_key"
    assert made["key"] not in refused.text + gate.log() + gate.log("envoy")
