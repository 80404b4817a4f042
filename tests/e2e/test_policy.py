"""A limit is changed while traffic flows: by push, by rollback, by plain Redis; and a bad one changes nothing."""

import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.e2e.running_gate import DEMO, RunningGate, running, until

pytestmark = pytest.mark.e2e


def limited(number: int) -> str:
    """The demo policy with another limit for each tenant."""
    text = DEMO.replace("requests_per_unit: 600", f"requests_per_unit: {number}").replace("unit: minute", "unit: day")
    assert text != DEMO
    return text


def statuses(gate: RunningGate, count: int, class_: str) -> list[int]:
    return [gate.get("/v1/models", class_).status_code for _ in range(count)]


def test_push_rollback_and_inbox_change_the_limit() -> None:
    """Show 2 of the issue: push, headers, refusal of a broken file, rollback, and the inbox."""
    with running("--workers", "2") as gate:
        # The window of a day: the test can't meet its end.
        gate.push(limited(5))
        assert statuses(gate, 7, "vip") == [200] * 5 + [429] * 2
        first, over = gate.get("/v1/models", "standard"), gate.get("/v1/models", "vip")
        assert first.headers["x-ratelimit-limit"].startswith("5")
        assert first.headers["x-ratelimit-remaining"] == "4"
        assert 0 < int(first.headers["x-ratelimit-reset"]) <= 86400
        assert over.headers["x-ratelimit-remaining"] == "0"
        assert 0 < int(over.headers["retry-after"]) <= 86400
        assert over.json()["error"]["code"] == "rate_limit_exceeded"
        refused = gate.post("/v1/messages", "{}", "vip").json()
        assert refused["type"] == "error"
        assert refused["error"]["type"] == "rate_limit_error"

        broken = limited(5).replace("classes:", "clases:").replace("unit: day", "unit: fortnight")
        done = gate.seawall("policy", "push", "-", stdin=broken)
        assert done.returncode == 1
        assert "did you mean 'classes'" in done.stderr
        assert "fortnight" in done.stderr
        assert gate.status()["current"] == 2

        # A new number keeps the count: 7 and the looks at the headers are spent already.
        gate.push(limited(1000))
        assert statuses(gate, 1, "vip") == [200]
        back = gate.seawall("policy", "rollback")
        assert back.returncode == 0, back.stderr
        gate.settled()
        assert statuses(gate, 1, "vip") == [429]
        assert gate.status()["current"] == 2

        set_inbox(gate, limited(1000))
        until(lambda: gate.status()["current"] == 4, "the inbox is taken")
        gate.settled()
        assert statuses(gate, 1, "vip") == [200]

        set_inbox(gate, "nonsense: [")
        until(lambda: gate.status()["inbox_error"], "the inbox is refused")
        assert gate.status()["current"] == 4

        shown = gate.seawall("policy", "show")
        assert shown.stdout == limited(1000)
        history = json.loads(gate.seawall("policy", "history", "--json").stdout)
        assert json.dumps(history).count('"current": true') == 1


def set_inbox(gate: RunningGate, text: str) -> None:
    """What `redis-cli -x SET sw:{policy}:inbox < policy.yaml` sends."""
    parts = urlsplit(gate.told["redis"])
    value = text.encode()
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as s:
        s.sendall(b"*3\r\n$3\r\nSET\r\n$17\r\nsw:{policy}:inbox\r\n$%d\r\n%b\r\n" % (len(value), value))
        assert s.recv(64) == b"+OK\r\n"


def test_a_race_of_authors_is_told(gate: RunningGate) -> None:
    """--if-current refuses to overwrite what someone else pushed meanwhile; an equal document is refused too."""
    current = gate.status()["current"]
    other = DEMO + f"\n# edited after version {current}\n"
    lost = gate.seawall("policy", "push", "-", "--if-current", str(current + 7), stdin=other)
    assert lost.returncode == 1
    assert len(lost.stderr.strip().splitlines()) == 1
    won = gate.seawall("policy", "push", "-", "--if-current", str(current), stdin=other)
    assert won.returncode == 0, won.stderr
    gate.policy = other
    same = gate.seawall("policy", "push", "-", stdin=other)
    assert same.returncode == 1


def test_envoy_learns_new_pools_and_descriptors(gate: RunningGate) -> None:
    """A pushed policy with another pool and a limit on another key works without a restart."""
    text = DEMO.replace(
        "      - key: tenant\n",
        "      - {key: class, value: batch, rate_limit: {unit: day, requests_per_unit: 1}}\n      - key: tenant\n",
    )
    text += "\npools:\n  other: {concurrency: {max: 4}}\n"
    gate.push(text)
    until(lambda: "pool_other" in gate.get_admin("/clusters"), "Envoy has the new pool")
    until(lambda: gate.chat("vip", max_tokens=1).status_code == 200, "requests reach the new pool")
    until(lambda: gate.chat("batch", max_tokens=1).status_code == 429, "the new limit counts")
    assert [p["pool"] for p in gate.status()["pools"]] == ["other"]


def test_a_policy_of_a_later_release_is_left_alone(gate: RunningGate) -> None:
    """`needs:` of a later release is refused in words, and the last good policy stays."""
    before = gate.status()["current"]
    set_inbox(gate, "needs: '99.0'\nwhatever: {comes: then}\n")
    told = until(lambda: gate.status()["inbox_error"], "the inbox is refused")
    assert "needs release 99.0" in told
    assert gate.status()["current"] == before
    set_inbox(gate, DEMO + f"\n# after {before}\n")
    until(lambda: gate.status()["current"] != before, "a good document is taken")
    gate.policy = "changed"
