"""The generated configuration in a real Envoy, before a gate of a few lines (tiny_gate)."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certifi
import httpx2 as httpx
import pytest
import yaml

from seawall.mesh.bootstrap import bootstrap, bootstrap_json, render_dynamic, version_of
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys
from seawall.policy.compiled import Engine as PolicyEngine
from tests.e2e.tiny_envoy import Answer, envoy_binary, free_port, post, running_envoy, send
from tests.e2e.tiny_gate import OWN, Engine, TinyGate
from tests.unit.mesh.literals import engine, policy

pytestmark = pytest.mark.e2e

ENVOY = Path(__file__).resolve().parents[2] / "envoy"
MAX_BODY = 256 * 1024
OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"
DESCRIPTORS = [("tenant",), ("tenant", "class"), ("remote_address",), ("model",)]


@dataclass
class Edge:
    port: int
    gate: TinyGate
    directory: Path
    pools: Mapping[str, tuple[PolicyEngine, ...]]


@pytest.fixture(scope="module")
def short_dir() -> Iterator[Path]:
    """Make a directory whose name leaves room for a socket's: 108 bytes are the kernel's limit."""
    directory = Path(tempfile.mkdtemp(prefix="seawall-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def edge(short_dir: Path) -> Iterator[Edge]:
    """Run an Envoy with its pools and routes in watched files, a gate, and two pools of one engine; a third is dead."""
    socket, port, admin = str(short_dir / "w0.sock"), free_port(), free_port()
    gate, one, two = TinyGate(socket), Engine("one"), Engine("two")
    pools = {"one": (engine(one.port),), "two": (engine(two.port),), "dead": (engine(free_port()),)}
    settings = MeshSettings(sockets=(socket,), port=port, admin_port=admin, max_body=MAX_BODY)
    (short_dir / "envoy.json").write_text(bootstrap_json(bootstrap(settings, policy(pools), str(short_dir))))
    for name, text in render_dynamic(policy(pools), DESCRIPTORS).items():
        (short_dir / name).write_text(text)
    try:
        with running_envoy(short_dir / "envoy.json", admin):
            yield Edge(port, gate, short_dir, pools)
    finally:
        gate.stop()
        one.stop()
        two.stop()


def is_envelope(answer: Answer, path: str, openai: tuple[str, str | None], anthropic: str) -> bool:
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["message"]
    if path == ANTHROPIC:
        return answer.json()["type"] == "error" and error["type"] == anthropic and set(error) == {"type", "message"}
    return (error["type"], error["code"]) == openai and error["param"] is None


def raw(path: str, headers: bytes, body: bytes = b"") -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: gate\r\n%s\r\n\r\n%s" % (path.encode(), headers, body)


@pytest.mark.parametrize("pool", ["one", "two"])
def test_the_answer_to_the_body_chooses_the_pool_and_changes_the_body(edge: Edge, pool: str) -> None:
    answer = post(edge.port, OPENAI, {"pool": pool})
    assert answer.status == 200
    assert answer.json()["engine"] == pool
    assert answer.json()["body"] == {"pool": pool, "seen": True}


def test_control_headers_of_a_client_reach_neither_gate_nor_route_nor_engine(edge: Edge) -> None:
    sent = {"X_Seawall_Pool": "two", "x_seawall_tenant": "root", "x_vllm_priority": "-9"}
    answer = post(edge.port, OPENAI, {"pool": "one"}, **sent)
    headers = {name.lower(): value for name, value in answer.json()["headers"].items()}
    assert answer.json()["engine"] == "one"
    assert headers["x-seawall-pool"] == "one"
    assert "x-seawall-tenant" not in headers
    assert "x-vllm-priority" not in headers
    assert not [name for name in edge.gate.authz[-1] if name.startswith(("x-seawall-", "x-vllm"))]


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
def test_without_a_pool_nothing_is_forwarded(edge: Edge, path: str) -> None:
    answer = post(edge.port, path, {}, x_seawall_pool="two")
    assert answer.status == 503
    assert answer.headers["retry-after"] == "2"
    assert is_envelope(answer, path, ("server_error", "overloaded"), "overloaded_error")


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
def test_a_dead_engine(edge: Edge, path: str) -> None:
    answer = post(edge.port, path, {"pool": "dead"})
    assert answer.status == 503
    assert answer.headers["x-seawall-reason"] == "overloaded"
    assert is_envelope(answer, path, ("server_error", "overloaded"), "overloaded_error")


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
def test_a_rate_limit(edge: Edge, path: str) -> None:
    streams = edge.gate.ext_proc_streams
    answer = post(edge.port, path, {"pool": "one"}, authorization="Bearer over")
    assert answer.status == 429
    assert answer.headers["retry-after"] == "17"
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert answer.headers["x-seawall-reason"] == "rate_limit_exceeded"
    assert is_envelope(answer, path, ("rate_limit_error", "rate_limit_exceeded"), "rate_limit_error")
    assert edge.gate.ext_proc_streams == streams, "a refused request opens no stream"


@pytest.mark.parametrize("path", ["/v1/abort", "/v1/messages/abort"])
def test_a_failing_gate(edge: Edge, path: str) -> None:
    answer = post(edge.port, path, {"pool": "one"})
    assert answer.status == 503
    assert answer.headers["retry-after"] == "2"
    family = ANTHROPIC if path.startswith(ANTHROPIC) else OPENAI
    assert is_envelope(answer, family, ("server_error", "gate_unavailable"), "overloaded_error")
    assert b"sock" not in answer.body


def test_answers_of_the_gate_stay_as_they_are(edge: Edge) -> None:
    assert post(edge.port, "/v1/messages/ours", {})[::2] == (413, OWN)
    assert post(edge.port, OPENAI, {}, authorization="Bearer wrong")[::2] == (401, OWN)


def test_an_answer_of_an_engine_stays_as_it_is(edge: Edge) -> None:
    answer = post(edge.port, OPENAI, {"pool": "one"}, x_test_status="500")
    assert answer.status == 500
    assert answer.json()["engine"] == "one"


@pytest.mark.soak
@pytest.mark.timeout(200)
@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
def test_a_body_without_length_over_the_buffer_is_refused(edge: Edge, path: str) -> None:
    """413, or 408 at `request_timeout` where the buffer was full before ext_proc was asked; an envelope either way."""
    body = b"x" * (2 * MAX_BODY)
    message = raw(path, b"transfer-encoding: chunked", b"%x\r\n%s\r\n" % (len(body), body))
    answer = send(edge.port, message, patience=120)
    assert answer.status in {408, 413}
    assert answer.json()["error"]["message"]


def test_a_body_without_length_below_the_buffer_passes(edge: Edge) -> None:
    body = b'{"pool":"two"}'
    answer = send(edge.port, raw(OPENAI, b"transfer-encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)))
    assert answer.json()["engine"] == "two"


CODEC: dict[str, tuple[bytes, int, str | None]] = {
    "NUL in a header": (raw(OPENAI, b"x: a\0b\r\ncontent-length: 0"), 400, None),
    "two kinds of length": (raw(OPENAI, b"transfer-encoding: chunked\r\ncontent-length: 0"), 400, None),
    "no HTTP": (b"HELLO\r\n\r\n", 400, None),
    "invalid chunk": (raw(OPENAI, b"transfer-encoding: chunked", b"zz\r\n"), 400, None),
    "invalid UTF-8 in the path": (b"POST /v1/\xff\xfe HTTP/1.1\r\nhost: a\r\n\r\n", 400, None),
    "hidden slash": (raw("/v1%2fmessages", b"content-length: 0"), 400, None),
    "100 KiB of headers": (raw(OPENAI, b"x: " + b"a" * 100 * 1024), 431, "request_headers_too_large"),
    "HTTP/1.0": (b"POST /v1/chat/completions HTTP/1.0\r\nhost: a\r\n\r\n", 426, None),
    "unknown transfer encoding": (raw(OPENAI, b"transfer-encoding: gzip"), 501, None),
}


@pytest.mark.parametrize("name", CODEC)
def test_what_no_service_ever_sees_has_an_envelope(edge: Edge, name: str) -> None:
    request, status, code = CODEC[name]
    answer = send(edge.port, request)
    assert answer.status == status
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error.get("code") == code


def test_64_kib_of_headers_pass(edge: Edge) -> None:
    body = b'{"pool":"one"}'
    many = b"".join(b"x-%d: %s\r\n" % (i, b"a" * 6000) for i in range(11))
    assert send(edge.port, raw(OPENAI, many + b"content-length: %d" % len(body), body)).status == 200


def test_the_gate_is_told_who_and_what(edge: Edge) -> None:
    post(edge.port, OPENAI, {"pool": "one"})
    assert edge.gate.descriptors[-1] == [
        ("tenant", "acme"),
        ("tenant", "acme"),
        ("class", "vip"),
        ("remote_address", "127.0.0.1"),
    ]
    assert edge.gate.metadata[-1]["envoy.filters.http.ext_authz"]["tenant"] == "acme"
    attributes = edge.gate.attributes[-1]["envoy.filters.http.ext_proc"]
    assert attributes["source.address"].startswith("127.0.0.1:")
    assert attributes["request.id"]


def test_files_that_are_moved_into_place_bring_a_new_pool(edge: Edge) -> None:
    pools = {**edge.pools, "three": edge.pools["two"]}
    for name, text in render_dynamic(policy(pools), DESCRIPTORS).items():
        (edge.directory / "new").write_text(text)
        (edge.directory / "new").replace(edge.directory / name)
    answers = (post(edge.port, OPENAI, {"pool": "three"}) for _ in range(1000))
    assert any(answer.status == 200 and answer.json()["engine"] == "two" for answer in answers)


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
def test_a_dead_gate(tmp_path: Path, path: str) -> None:
    port, admin = free_port(), free_port()
    settings = MeshSettings(sockets=(str(tmp_path / "none.sock"),), port=port, admin_port=admin, access_log=False)
    (tmp_path / "envoy.json").write_text(bootstrap_json(bootstrap(settings, policy({"one": (engine(free_port()),)}))))
    with running_envoy(tmp_path / "envoy.json", admin):
        answer = post(port, path, {"pool": "one"})
    assert answer.status == 503
    assert answer.headers["x-seawall-reason"] == "gate_unavailable"
    assert is_envelope(answer, path, ("server_error", "gate_unavailable"), "overloaded_error")


def validate(path: Path) -> str:
    command = [envoy_binary(), "--mode", "validate", "-c", str(path), "--disable-hot-restart", "-l", "warning"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_envoy_accepts_all_that_is_generated(tmp_path: Path) -> None:
    settings = MeshSettings(sockets=("/run/seawall/w0.sock",))
    pools = {
        "names": (engine(8000, "localhost"),),
        "mixed": (engine(8443, "localhost", tls=True), engine(8000)),
        "plain": (engine(8000), engine(8001)),
    }
    static, dynamic = tmp_path / "static.json", tmp_path / "dynamic.json"
    ca_file = certifi.where()
    static.write_text(bootstrap_json(bootstrap(settings, policy(pools), descriptors=DESCRIPTORS, ca_file=ca_file)))
    dynamic.write_text(bootstrap_json(bootstrap(settings, policy(pools), str(tmp_path))))
    for name, text in render_dynamic(policy(pools), DESCRIPTORS, ca_file=ca_file).items():
        (tmp_path / name).write_text(text)
    # Nothing deprecated, nothing unknown: Envoy has no warning either.
    assert "warning" not in validate(static)
    assert "warning" not in validate(dynamic)


PEOPLE = """
engines:
  a: {url: "http://127.0.0.1:1", weight: 1000, health: {path: /v2/health/ready, interval: 500ms, timeout: 60s}}
  b: {url: "http://[::1]:2", health: off}
  c: {url: "http://engine.example:8000", health: {healthy_after: 100}}
"""
VARIANTS = {
    "nothing is said": "",
    "no retries": "retries: {attempts: 0}",
    "every condition": (
        'retries: {attempts: 10, on: [connect-failure, refused-stream, reset-before-request, "429", "500", "502", "503",'
        ' "504"], backoff: 1ms..60s, retry_after: 60s, budget: 100%}'
    ),
    "statuses alone": 'retries: {on: ["503"], backoff: 1s..1s, retry_after: 0s, budget: 0%}',
    "conditions alone": "retries: {on: [connect-failure]}",
    "no health checks": f"{PEOPLE}\npools: {{default: {{engines: [b]}}}}",
    "affinities": (
        f"{PEOPLE}\npools: {{default: {{engines: [a, b], affinity: tenant}},"
        " names: {engines: [c, b], affinity: 'header:x-session'}}"
    ),
    "profiles": (
        "profiles: {a: {hosts: ['*.example', b.example], class: vip}, b: {body_max: 1KiB}}\n"
        "limits: [{domain: llm, descriptors: [{key: tenant, rate_limit: {unit: day}}]}]"
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_envoy_accepts_what_a_policy_can_say(tmp_path: Path, name: str) -> None:
    """As one file, and as files that it watches: a request to a fresh Envoy shows that it has taken them."""
    made = compile_policy(VARIANTS[name], upstreams=[("http://127.0.0.1:1", "vllm")])
    admin = free_port()
    settings = MeshSettings(sockets=(str(tmp_path / "w0.sock"),), port=free_port(), admin_port=admin)
    static = tmp_path / "static.json"
    static.write_text(bootstrap_json(bootstrap(settings, made, descriptors=descriptor_keys(made))))
    assert "warning" not in validate(static)
    (tmp_path / "envoy.json").write_text(bootstrap_json(bootstrap(settings, made, str(tmp_path))))
    files = render_dynamic(made, descriptor_keys(made))
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    with running_envoy(tmp_path / "envoy.json", admin):
        # `--mode validate` does not read them.
        stats = httpx.get(f"http://127.0.0.1:{admin}/stats", timeout=30).text
    assert f'cluster_manager.cds.version_text: "{version_of(files["cds.json"])}"' in stats
    assert f'http.edge.rds.seawall.version_text: "{version_of(files["rds.json"])}"' in stats


def test_envoy_accepts_the_file_for_people() -> None:
    assert "warning" not in validate(ENVOY / "envoy.yaml")


def test_envoy_accepts_the_snippets_of_the_readme(tmp_path: Path) -> None:
    blocks = (ENVOY / "README.md").read_text("utf-8").split("```yaml\n")[1:]
    pieces = {key: value for block in blocks for key, value in yaml.safe_load(block.split("```")[0]).items()}
    made: Any = bootstrap(MeshSettings(sockets=("/run/seawall/w0.sock",)), policy({"default": (engine(8000),)}))
    manager = made["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"][:3] = pieces["http_filters"]
    manager["early_header_mutation_extensions"] = pieces["early_header_mutation_extensions"]
    manager["route_config"]["virtual_hosts"][0]["routes"] = pieces["routes"]
    made["static_resources"]["clusters"] = pieces["clusters"]
    (tmp_path / "envoy.json").write_text(bootstrap_json(made))
    assert "warning" not in validate(tmp_path / "envoy.json")
    manager["route_config"]["virtual_hosts"] = pieces["virtual_hosts"]
    (tmp_path / "envoy.json").write_text(bootstrap_json(made))
    assert "warning" not in validate(tmp_path / "envoy.json")
