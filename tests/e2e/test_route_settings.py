"""Settings of routes: the YAML of docs/wire.md in a real Envoy before real workers, and hosts of a profile in `up`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from seawall.mesh.bootstrap import bootstrap, bootstrap_json
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy
from tests.e2e.running_gate import DEMO, PAUSE, RunningGate, running, until
from tests.e2e.tiny_envoy import Answer, free_port, running_envoy, send

pytestmark = pytest.mark.e2e

CHAT = "/v1/chat/completions"
WIRE = Path(__file__).resolve().parents[2] / "docs" / "wire.md"
NIGHT = DEMO + "\nprofiles: {night: {class: batch, body_max: 1KiB}}\n"


class Edge:
    """A second Envoy before the gate's workers, with the routes of docs/wire.md."""

    def __init__(self, gate: RunningGate, port: int, log: list[str]):
        self.gate, self.port, self.log = gate, port, log

    def chat(self, host: str, size: int = 10, class_: str = "standard", **headers: str) -> Answer:
        body = {"model": self.gate.model, "max_tokens": 1, "messages": [{"role": "user", "content": "x" * size}]}
        data = json.dumps(body).encode()
        return self._ask("POST", host, CHAT, class_, data, {"content-length": str(len(data)), **headers})

    def get(self, host: str, path: str) -> Answer:
        return self._ask("GET", host, path, "standard", b"", {})

    def _ask(self, method: str, host: str, path: str, class_: str, body: bytes, headers: dict[str, str]) -> Answer:
        sent = {"host": host, "user-agent": "t", "authorization": f"Bearer {self.gate.keys[class_]}", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        return send(self.port, f"{method} {path} HTTP/1.1\r\n{head}connection: close\r\n\r\n".encode() + body)

    def class_of(self, answer: Answer) -> object:
        """Class by which a request was served, out of the access log."""
        rid = answer.headers["x-request-id"]

        def line() -> dict[str, Any] | None:
            lines = [json.loads(text) for text in self.log if text.startswith("{")]
            return next((x for x in lines if x["id"] == rid), None)

        return until(line, "the access log has the request")["class"]


@pytest.fixture(scope="module")
def own_gate() -> Iterator[RunningGate]:
    with running("--workers", "1", policy=NIGHT) as gate:
        yield gate


@pytest.fixture(scope="module")
def edge(own_gate: RunningGate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    gate, port, admin = own_gate, free_port(), free_port()
    theirs = json.loads((Path(gate.told["config_dir"]) / "envoy.json").read_text("utf-8"))
    [workers] = [c for c in theirs["static_resources"]["clusters"] if c["name"] == "gate"]
    endpoints = workers["load_assignment"]["endpoints"][0]["lb_endpoints"]
    sockets = tuple(e["endpoint"]["address"]["pipe"]["path"] for e in endpoints)
    policy = compile_policy(NIGHT, upstreams=[(url, "vllm") for url in gate.told["engines"]])
    made: Any = bootstrap(MeshSettings(sockets=sockets, port=port, admin_port=admin), policy)
    manager = made["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    [snippet] = [b.split("```")[0] for b in WIRE.read_text("utf-8").split("```yaml\n")[1:]]
    manager["route_config"]["virtual_hosts"][0]["routes"] = yaml.safe_load(snippet)["routes"]
    config = tmp_path_factory.mktemp("edge") / "envoy.json"
    config.write_text(bootstrap_json(made))
    with running_envoy(config, admin) as log:
        yield Edge(gate, port, log)


def test_two_routes_with_different_settings(edge: Edge) -> None:
    """Class, cap and unknown paths are those of the route; on every other route they are the policy's."""
    for host, small, middle, large, class_ in (
        ("internal.example", 200, 200, 200, "vip"),
        ("night.example", 200, 413, 413, "batch"),
        ("other.example", 200, 200, 413, "standard"),
    ):
        answers = [edge.chat(host, size) for size in (10, 4_000, 40_000)]
        assert [answer.status for answer in answers] == [small, middle, large], host
        assert {edge.class_of(answer) for answer in answers} == {class_}, host
    assert edge.chat("internal.example", 70_000).status == 413
    assert edge.get("internal.example", "/health").status == 200
    assert edge.get("night.example", "/health").status == 404
    assert edge.get("other.example", "/health").status == 404


def test_no_client_can_set_them(edge: Edge) -> None:
    """Neither as a header of that name, nor as one of ours."""
    forged = {"seawall.class": "vip", "seawall.body_max": "8MiB", "x-seawall-class": "vip", "seawall.profile": "night"}
    answer = edge.chat("other.example", 10, "batch", **forged)
    assert answer.status == 200
    assert edge.class_of(answer) == "batch"
    assert edge.chat("other.example", 40_000, "batch", **forged).status == 413
    assert edge.gate.metric("seawall_route_settings_refused_total") == 0


def test_hosts_of_a_profile_need_no_route_of_ones_own(edge: Edge) -> None:
    """The supervisor gives them a virtual host, with any port, while traffic flows."""
    gate = edge.gate
    own = Edge(gate, int(gate.base.rpartition(":")[2]), [])
    assert own.chat("wide.example", 40_000).status == 413
    profiles = "{hosts: [wide.example, '*.wide.example'], class: vip, body_max: 64KiB, unknown_paths: pass}"
    gate.push(f"{DEMO}\nprofiles: {{wide: {profiles}}}\n")
    for host in ("wide.example", "WIDE.example:8080", "a.wide.example"):
        assert own.chat(host, 40_000).status == 200, host
        assert own.get(host, "/health").status == 200
    assert own.chat("other.example", 40_000).status == 413
    assert own.get("other.example", "/health").status == 404
    PAUSE.wait(1.5)
    served = [json.loads(text) for text in gate.log("envoy").splitlines() if text.startswith("{")]
    assert [x["class"] for x in served if x["code"] == 200 and x["bytes_in"] > 40_000] == ["vip"] * 3


def test_a_profile_that_has_gone_is_told(edge: Edge) -> None:
    """The policy's own settings count, the request is served, and a metric and the log say it."""
    edge.gate.push(DEMO)
    answer = edge.chat("night.example", 4_000)
    assert answer.status == 200
    assert edge.class_of(answer) == "standard"
    assert edge.gate.metric("seawall_route_settings_refused_total", key="profile") == 2, "ext_authz and ext_proc"
    assert edge.gate.log().count("the policy has no profile 'night'") == 2
    edge.chat("night.example")
    assert edge.gate.metric("seawall_route_settings_refused_total", key="profile") == 4
    assert edge.gate.log().count("the policy has no profile 'night'") == 2
