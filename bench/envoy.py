"""What a whole request costs: Envoy alone, and with our three services behind it, on both transports.

Each row has an Envoy of its own (one worker thread, the configuration that `seawall envoy-config` writes) and one worker
of `seawall serve`; all run at once, in each round every one gets the same load, one after the other. Only ratios inside a
round count.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.http_load import KEY
from bench.processes import Load, Processes, children
from bench.tables import Say, Table, turns
from seawall.cli import binaries
from seawall.cli.local_gate import ask, envoy_sees, free_port, valkey_argv, workers_ready
from seawall.mesh.bootstrap import bootstrap, bootstrap_json
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys
from seawall.policy.compiled import Policy

BARE = "bare"
TRANSPORTS = ("own", "grpcio")
CHUNKS = 100
"""Events of a streamed answer."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load of `n` requests; what one operation of it is."""

    title: str
    unit: str
    n: dict[str, int]
    c: int
    stream: bool


SCENARIOS = {
    "whole": Scenario("A request with a whole answer", "request", {BARE: 6000, "own": 4800, "grpcio": 2400}, 8, False),
    "events": Scenario(
        f"A streamed answer of {CHUNKS} events, 5 ms apart",
        "event",
        dict.fromkeys((BARE, *TRANSPORTS), 64),
        16,
        True,
    ),
}


def policy_text(engine: str) -> str:
    """A policy that refuses nothing of the load: one tenant, one limit that counts, one pool."""
    return yaml.safe_dump(
        {
            "seawall": 1,
            "callers": {
                "tenants": {
                    "bench": {"keys": [{"id": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]},
                }
            },
            "prefilter": {"user_agents": {"deny": ["*sqlmap*", "*masscan*", "~^$"]}, "unknown_paths": "deny"},
            "limits": [
                {
                    "domain": "llm",
                    "descriptors": [
                        {"key": "tenant", "rate_limit": {"unit": "minute", "requests_per_unit": 1_000_000_000}}
                    ],
                }
            ],
            "output": {"max_tokens": 4096},
            "engines": {"upstream": {"url": engine, "kind": "vllm"}},
            "pools": {"default": {"engines": ["upstream"]}},
        }
    )


def bare(configuration: dict[str, Any]) -> dict[str, Any]:
    """Take our services out of a configuration: no filter but the router, every request to the pool."""
    (listener,) = configuration["static_resources"]["listeners"]
    (network,) = listener["filter_chains"][0]["filters"]
    manager = network["typed_config"]
    manager["http_filters"] = manager["http_filters"][-1:]
    (host,) = manager["route_config"]["virtual_hosts"]
    host.pop("typed_per_filter_config", None)
    route = host["routes"][0]
    route["match"].pop("headers")
    host["routes"] = [route]
    clusters = configuration["static_resources"]["clusters"]
    configuration["static_resources"]["clusters"] = [c for c in clusters if c["name"] != "gate"]
    return configuration


class Row:
    """One Envoy, and the worker behind it where there is one."""

    def __init__(self, name: str, processes: Processes, policy: Policy, policy_file: Path, store: str):
        self.name = name
        self.port = free_port(0)
        self._admin = f"http://{LOOPBACK}:{(admin := free_port(0, {self.port}))}"
        self._http = f"{LOOPBACK}:{free_port(0, {self.port, admin})}"
        self._processes = processes
        folder = processes.folder / name
        folder.mkdir()
        self._supervisor = 0
        if name != BARE:
            environ = {
                "SEAWALL_TRANSPORT": name,
                "SEAWALL_STORE": store,
                "SEAWALL_POLICY": str(policy_file),
                "SEAWALL_WORKERS": "1",
                "SEAWALL_SOCKET_DIR": str(folder),
                "SEAWALL_HTTP": self._http,
                "SEAWALL_GRACE": "0",
            }
            self._supervisor = processes.start(f"gate-{name}", [sys.executable, "-m", "seawall", "serve"], environ)
        mesh = MeshSettings(sockets=(str(folder / "w0.sock"),), port=self.port, admin_port=admin, access_log=False)
        configuration = bootstrap(mesh, policy, descriptors=descriptor_keys(policy))
        file = folder / "envoy.json"
        file.write_text(bootstrap_json(bare(configuration) if name == BARE else configuration), "utf-8")
        command = [binaries.envoy(), "-c", str(file), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]
        self.pids = {"envoy": processes.start(f"envoy-{name}", command)}

    def ready(self) -> bool:
        """Say whether a request would pass."""
        if self.name == BARE:
            answer = ask("GET", f"{self._admin}/ready")
            return answer is not None and answer[0] == 200
        return workers_ready(self._http, 1) and envoy_sees(self._admin) == 1

    def find_worker(self) -> None:
        """Learn the worker's process id once it is ready."""
        if self._supervisor:
            (self.pids["worker"],) = children(self._supervisor)

    def measure(self, scenario: Scenario) -> dict[str, float]:
        """Microseconds of CPU of each process for each operation."""
        n = scenario.n[self.name]
        command = [sys.executable, "-m", "bench.http_load", str(self.port), "--n", str(n), "-c", str(scenario.c)]
        command += ["--warm", str(max(scenario.c, n // 10)), *(["--stream"] if scenario.stream else [])]
        used, line = Load(command).run(self.pids)
        told = json.loads(line)
        if told["good"] != n:
            raise SystemExit(f"{self.name}: {told['good']} of {n} requests went well, others: {told['wrong']}")
        operations = told["events"] if scenario.stream else n
        return {process: seconds * 1e6 / operations for process, seconds in used.items()}


def upstream(processes: Processes, peers: Path | None) -> str:
    """Start an engine that costs next to nothing; its URL."""
    port = free_port(0)
    url = f"http://{LOOPBACK}:{port}"
    if peers is not None:
        processes.start("upstream", [str(peers / "upstream"), f"{LOOPBACK}:{port}"])
        processes.wait("the upstream", lambda: ask("POST", url, "{}") is not None)
    else:
        simulator = [sys.executable, "-m", "seawall", "sim", "--port", str(port), "--ttft", "0", "--tpot", "0.005"]
        processes.start("upstream", [*simulator, "--model", "bench", "--max-num-seqs", "1000"])
        processes.wait("the upstream", lambda: ask("GET", f"{url}/v1/models") is not None)
    return url


def redis(processes: Processes) -> str:
    """Start the embedded Valkey; its URL."""
    port = free_port(0)
    processes.start("valkey", valkey_argv(port, processes.folder))
    return f"redis://{LOOPBACK}:{port}/0"


def tables_of(scenario: Scenario, found: dict[str, list[dict[str, float]]]) -> list[Table]:
    """Envoy beside the bare one, the worker beside the one on grpcio, and both together."""
    envoy = {f"Envoy, {name}": [figures["envoy"] for figures in rounds] for name, rounds in found.items()}
    worker = {
        f"worker, {name}": [figures["worker"] for figures in rounds] for name, rounds in found.items() if name != BARE
    }
    both = {
        name if name == BARE else f"Envoy + worker, {name}": [sum(figures.values()) for figures in rounds]
        for name, rounds in found.items()
    }
    title = f"{scenario.title}; {scenario.c} at once; each {scenario.unit}"
    return [
        Table(f"{title}: Envoy", envoy, [f"Envoy, {BARE}"]),
        Table(f"{title}: the worker", worker, ["worker, grpcio"]),
        Table(f"{title}: together", both, [BARE, "Envoy + worker, grpcio"]),
    ]


def run(rounds: int, only: Sequence[str], store: str, peers: Path | None, say: Say) -> list[Table]:
    """Start everything, go through the scenarios, and give the tables."""
    tables: list[Table] = []
    with tempfile.TemporaryDirectory(prefix="seawall-bench-") as name, Processes(Path(name)) as processes:
        text = policy_text(upstream(processes, peers))
        policy_file = Path(name) / "policy.yaml"
        policy_file.write_text(text, "utf-8")
        policy = compile_policy(text)
        # One for both: their loads never run at the same time.
        url = redis(processes) if store == "valkey" else store
        rows = {row: Row(row, processes, policy, policy_file, url) for row in (BARE, *TRANSPORTS)}
        processes.wait("every Envoy and worker", lambda: all(row.ready() for row in rows.values()))
        for row in rows.values():
            row.find_worker()
        for scenario in (SCENARIOS[one] for one in SCENARIOS if one in only):
            found: dict[str, list[dict[str, float]]] = {one: [] for one in rows}
            for round_ in range(rounds):
                for one in turns(list(rows), round_):
                    found[one].append(rows[one].measure(scenario))
            made = tables_of(scenario, found)
            tables += made
            for table in made:
                say(table.markdown())
    return tables
