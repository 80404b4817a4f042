"""Engines as Envoy sees them: retries, health, affinity. A real Envoy before engines of a few lines."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from seawall.mesh.bootstrap import bootstrap, bootstrap_json
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy
from tests.e2e.running_gate import until
from tests.e2e.tiny_envoy import Answer, free_port, post, running_envoy
from tests.e2e.tiny_gate import Engine, TinyGate, cut, gone, status

pytestmark = pytest.mark.e2e

CHAT = "/v1/chat/completions"
ENGINES = 3


@dataclass
class Mesh:
    port: int
    admin: int
    engines: list[Engine]
    log: list[str]

    def chat(self, pool: str, **headers: str) -> Answer:
        return post(self.port, CHAT, {"pool": pool}, **headers)

    def stat(self, name: str) -> int:
        text = httpx.get(f"http://127.0.0.1:{self.admin}/stats", params={"filter": f"^{name}$"}, timeout=30).text
        return int(text.rpartition(":")[2] or -1)

    def healthy(self, pool: str, count: int) -> None:
        name = f"cluster.pool_{pool}.membership_healthy"
        until(lambda: self.stat(name) == count, f"{count} engines of {pool} are healthy")

    def asked(self) -> list[int]:
        return [len(engine.asked) for engine in self.engines]


def policy(engines: list[Engine]) -> str:
    """A pool for each test that changes how engines are seen, so that none meets what another has done."""
    health = "{interval: 500ms, timeout: 1s}"
    named = "".join(f"  e{i}: {{url: 'http://127.0.0.1:{e.port}', health: {health}}}\n" for i, e in enumerate(engines))
    heavy = f"  heavy: {{url: 'http://127.0.0.1:{engines[1].port}', weight: 4, health: {health}}}\n"
    return f"""
engines:
{named}{heavy}
  dead: {{url: "http://127.0.0.1:{free_port()}", health: off}}
pools:
  default: {{engines: [e0, e1]}}
  half: {{engines: [e0, dead]}}
  sessions: {{engines: [e0, e1, e2], affinity: "header:X-Session"}}
  tenants: {{engines: [e0, e1, e2], affinity: tenant}}
  weighted: {{engines: [e0, heavy]}}
  hashed: {{engines: [e0, heavy], affinity: "header:x-session"}}
retries: {{on: [connect-failure, refused-stream, reset-before-request, "503", "429"], backoff: 1ms..10ms}}
"""


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    directory = Path(tempfile.mkdtemp(prefix="seawall-"))
    socket, port, admin = str(directory / "w0.sock"), free_port(), free_port()
    gate, engines = TinyGate(socket), [Engine(f"e{i}") for i in range(ENGINES)]
    settings = MeshSettings(sockets=(socket,), port=port, admin_port=admin)
    made = bootstrap(settings, compile_policy(policy(engines)))
    (directory / "envoy.json").write_text(bootstrap_json(made))
    try:
        with running_envoy(directory / "envoy.json", admin) as log:
            yield Mesh(port, admin, engines, log)
    finally:
        gate.stop()
        for engine in engines:
            engine.stop()
        shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def _as_new(mesh: Mesh) -> None:
    for engine in mesh.engines:
        engine.health = 200
        engine.next.clear()
        engine.asked.clear()


def both(mesh: Mesh, *what: Any) -> None:
    """Let whichever of the two engines is asked do these things, in turn."""
    turn = list(what)
    for engine in mesh.engines[:2]:
        engine.next.extend([lambda handler: turn.pop(0)(handler) if turn else False] * len(what))


@pytest.mark.parametrize("code", [503, 429])
def test_an_engine_that_is_busy_is_passed_over(mesh: Mesh, code: int) -> None:
    """The other one answers; the client sees nothing of it, and the access log tells the attempts."""
    both(mesh, status(code))
    answer = mesh.chat("default")
    assert answer.status == 200
    assert answer.json()["headers"]["x-envoy-attempt-count"] == "2"
    assert mesh.asked() == [1, 1, 0], "never the same engine twice"
    until(lambda: last_line(mesh).get("attempts") == 2, "the access log has the attempts")


def last_line(mesh: Mesh) -> dict[str, Any]:
    lines = [line for line in mesh.log if line.startswith("{")]
    return dict(json.loads(lines[-1])) if lines else {}


def test_attempts_end(mesh: Mesh) -> None:
    """Two more than the first, then the engine's own answer."""
    both(mesh, status(503), status(503), status(503), status(503))
    assert mesh.chat("default").status == 503
    assert sum(mesh.asked()) == 3


def test_retry_after_is_waited_for(mesh: Mesh) -> None:
    """Nobody is asked before an engine's retry-after is over; one that is too long, or a date, counts as none."""
    both(mesh, status(503, retry_after="1"))
    assert mesh.chat("default").status == 200
    first, second = sorted(t for engine in mesh.engines for t in engine.asked)
    assert second - first >= 1.0
    for text in ("86400", "Wed, 21 Oct 2037 07:28:00 GMT", "soon"):
        both(mesh, status(503, retry_after=text))
        assert mesh.chat("default").status == 200, text


@pytest.mark.parametrize("what", [gone, cut, status(500), status(502), status(504)])
def test_what_an_engine_may_have_begun_is_not_asked_again(mesh: Mesh, what: Any) -> None:
    """A request that an engine has had is never given to the next."""
    both(mesh, what)
    try:
        mesh.chat("default")
    except AssertionError:
        assert what is cut
    assert sum(mesh.asked()) == 1


def test_a_large_body_is_asked_again_whole(mesh: Mesh) -> None:
    """What Envoy holds for ext_proc it holds for a retry."""
    both(mesh, status(503))
    text = "x" * 2_000_000
    answer = post(mesh.port, CHAT, {"pool": "default", "text": text})
    assert answer.status == 200
    assert answer.json()["body"]["text"] == text


def test_an_engine_that_is_dead_costs_nobody_a_request(mesh: Mesh) -> None:
    """No connection: the other one answers."""
    assert {mesh.chat("half").json()["engine"] for _ in range(20)} == {"e0"}


def test_an_engine_that_is_not_well_gets_nothing(mesh: Mesh) -> None:
    """A health check takes it out at the first look and brings it back; with none well, all are asked."""
    mesh.healthy("default", 2)
    mesh.engines[0].health = 503
    mesh.healthy("default", 1)
    assert {mesh.chat("default").json()["engine"] for _ in range(10)} == {"e1"}
    mesh.engines[1].health = 500
    mesh.healthy("default", 0)
    assert {mesh.chat("default").json()["engine"] for _ in range(30)} == {"e0", "e1"}
    mesh.engines[0].health = mesh.engines[1].health = 200
    mesh.healthy("default", 2)


def test_weights_are_shares(mesh: Mesh) -> None:
    """An engine of weight 4 gets most of the requests, one of weight 1 gets some; by hash too."""
    for pool in ("weighted", "hashed"):
        got = Counter(mesh.chat(pool, x_session=f"s{i}").json()["engine"] for i in range(100))
        assert got["e1"] > 2 * got["e0"] > 0, (pool, got)


def by_session(mesh: Mesh, keys: list[str]) -> dict[str, str]:
    return {key: mesh.chat("sessions", x_session=key).json()["engine"] for key in keys}


def test_sessions_come_back(mesh: Mesh) -> None:
    """The same session, the same engine; a dead engine's sessions move, and only those; then they are back."""
    mesh.healthy("sessions", ENGINES)
    keys = [f"session-{i}" for i in range(60)]
    first = by_session(mesh, keys)
    assert set(first.values()) == {"e0", "e1", "e2"}
    assert all(by_session(mesh, keys) == first for _ in range(2))
    mesh.engines[2].health = 503
    mesh.healthy("sessions", ENGINES - 1)
    without = by_session(mesh, keys)
    assert {key for key in keys if without[key] != first[key]} == {key for key in keys if first[key] == "e2"}
    mesh.engines[2].health = 200
    mesh.healthy("sessions", ENGINES)
    assert by_session(mesh, keys) == first


def test_without_a_session_any_engine_is_asked(mesh: Mesh) -> None:
    """A request without the header is spread; so is one without a tenant, whatever a client says of itself."""
    assert len({mesh.chat("sessions").json()["engine"] for _ in range(40)}) == ENGINES
    got = {mesh.chat("tenants", x_seawall_tenant="acme").json()["engine"] for _ in range(40)}
    assert len(got) == ENGINES
