"""What a whole request costs, layer by layer: Envoy alone, with each of our services, with all three, and with Go's.

Each row has an Envoy of its own (one worker thread, the configuration that `seawall envoy-config` writes, with the
filters of the row) and a gate behind it: one worker of `seawall serve`, or bench/peers/gate. All run at once, in each
round every one gets the same load, one after the other. Only ratios inside a round count.
"""

import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.layers import FILTERS, cluster_of, split, with_filters
from bench.processes import Load, Processes, children
from bench.realistic import CLASS, MODEL, SIZE, TENANT, policy_text
from bench.tables import Goal, Say, Table, turns
from seawall.cli import binaries
from seawall.cli.local_gate import ask, free_port, valkey_argv, workers_ready
from seawall.mesh.bootstrap import bootstrap, bootstrap_json
from seawall.mesh.names import AUTHZ, EXT_PROC, GATE_CLUSTER, RATELIMIT
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys
from seawall.policy.compiled import Policy

CHUNKS = 100
"""Events of a streamed answer."""
LOOPBACK = "127.0.0.1"
BARE, OWN, GRPCIO, GO, GO_3 = "bare", "own", "grpcio", "go", "go-3"


@dataclass(frozen=True, slots=True)
class Layers:
    """A row: the filters in Envoy, and who answers them."""

    filters: Sequence[str]
    gate: str = ""


ROWS = {
    BARE: Layers(()),
    "ext_authz": Layers((AUTHZ,), OWN),
    "ratelimit": Layers((RATELIMIT,), OWN),
    "ext_proc": Layers((EXT_PROC,), OWN),
    OWN: Layers(FILTERS, OWN),
    GO: Layers(FILTERS, GO),
    GO_3: Layers(FILTERS, GO_3),
    GRPCIO: Layers(FILTERS, GRPCIO),
}
"""`own` and `grpcio` are one worker with all three services, on that transport; `go` is one Go process with three, `go-3`
three Go processes with one each."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load of `n` requests by row; what one operation of it is. `rate`: requests that begin in a second."""

    title: str
    unit: str
    n: dict[str, int]
    c: int
    stream: bool = False
    size: int = SIZE
    rate: float | None = None


SMALL = 800
SCENARIOS = {
    "whole": Scenario(
        "A request of 4 KB with a whole answer; 8 at once",
        "request",
        {
            BARE: 4000,
            **dict.fromkeys(("ext_authz", "ratelimit", "ext_proc"), 2400),
            OWN: 2000,
            GO: 2000,
            GO_3: 1600,
            GRPCIO: 800,
        },
        8,
    ),
    "small": Scenario(
        f"A request of {SMALL} bytes with a whole answer; 8 at once", "request", {OWN: 2000, GO: 2000}, 8, size=SMALL
    ),
    "events": Scenario(
        f"A streamed answer of {CHUNKS} events, 5 ms apart; 16 at once",
        "event",
        dict.fromkeys((BARE, "ext_proc", OWN, GO, GRPCIO), 64),
        16,
        stream=True,
    ),
    "latency": Scenario(
        "Latency of a request of 4 KB, 200 a second", "request", dict.fromkeys((BARE, OWN, GO), 600), 16, rate=200
    ),
}


def server_title(scenario: Scenario) -> str:
    """Title of the table of what stands behind Envoy."""
    return f"{scenario.title}; each {scenario.unit}: the gate"


GOALS = [Goal(server_title(SCENARIOS["whole"]), OWN, GO, 1.0)]


class Gate:
    """What answers Envoy's side calls: its sockets by filter, and its processes."""

    def __init__(self, kind: str, processes: Processes, policy_file: Path, store: str, peers: Path | None):
        folder = processes.folder / f"gate-{kind}"
        folder.mkdir()
        self._http = ""
        self._supervisor = 0
        self.pids: list[int] = []
        if kind in {OWN, GRPCIO}:
            self._http = f"{LOOPBACK}:{free_port(0)}"
            environ = {
                "SEAWALL_TRANSPORT": kind,
                "SEAWALL_STORE": store,
                "SEAWALL_POLICY": str(policy_file),
                "SEAWALL_WORKERS": "1",
                "SEAWALL_SOCKET_DIR": str(folder),
                "SEAWALL_HTTP": self._http,
                "SEAWALL_GRACE": "0",
            }
            command = [sys.executable, "-m", "seawall", "serve"]
            self._supervisor = processes.start(f"gate-{kind}", command, environ)
            self.sockets = [str(folder / "w0.sock")]
            return
        assert peers is not None
        services = [[]] if kind == GO else [[filter_.rpartition(".")[2]] for filter_ in FILTERS]
        self.sockets = [str(folder / f"go-{index}.sock") for index in range(len(services))]
        for socket, names in zip(self.sockets, services, strict=True):
            self.pids.append(processes.start(Path(socket).stem, [str(peers / "gate"), socket, *names]))

    def ready(self) -> bool:
        """Say whether it serves."""
        if self._supervisor:
            return workers_ready(self._http, 1)
        return all(Path(socket).exists() for socket in self.sockets)

    def find_worker(self) -> None:
        """Learn the worker's process id once it is ready."""
        if self._supervisor:
            self.pids = children(self._supervisor)


class Row:
    """One Envoy, and the gate behind it where there is one."""

    def __init__(self, name: str, processes: Processes, policy: Policy, gate: Gate | None):
        self.name = name
        self.port = free_port(0)
        self._admin = f"http://{LOOPBACK}:{(admin := free_port(0, {self.port}))}"
        self._gate = gate
        self._clusters = [] if gate is None else [GATE_CLUSTER]
        # `bare` has no gate, but the configuration that it is made of must name one.
        sockets = ["/none"] if gate is None else gate.sockets
        mesh = MeshSettings(sockets=(sockets[0],), port=self.port, admin_port=admin, access_log=False)
        whole = bootstrap(mesh, policy, descriptors=descriptor_keys(policy))
        configuration = with_filters(whole, ROWS[name].filters, {"tenant": TENANT, "class": CLASS})
        if len(sockets) > 1:
            configuration = split(configuration, dict(zip(FILTERS, sockets, strict=True)))
            self._clusters = [cluster_of(filter_) for filter_ in FILTERS]
        file = processes.folder / f"envoy-{name}.json"
        file.write_text(bootstrap_json(configuration), "utf-8")
        command = [binaries.envoy(), "-c", str(file), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]
        self._envoy = processes.start(f"envoy-{name}", command)

    def ready(self) -> bool:
        """Say whether a request would pass."""
        if self._gate is None:
            answer = ask("GET", f"{self._admin}/ready")
            return answer is not None and answer[0] == 200
        answer = ask("GET", f"{self._admin}/stats?filter=membership_healthy")
        lines = answer[1].decode().split("\n") if answer is not None else []
        return self._gate.ready() and all(f"cluster.{name}.membership_healthy: 1" in lines for name in self._clusters)

    def measure(self, scenario: Scenario) -> dict[str, float]:
        """Microseconds: CPU of Envoy and of the gate for each operation, and the latencies."""
        n = scenario.n[self.name]
        command = [sys.executable, "-m", "bench.http_load", str(self.port), "--n", str(n), "-c", str(scenario.c)]
        command += ["--warm", str(max(scenario.c, n // 10)), "--size", str(scenario.size)]
        command += ["--stream"] if scenario.stream else []
        command += ["--rate", str(scenario.rate)] if scenario.rate is not None else []
        gate = self._gate.pids if self._gate is not None else []
        used, line = Load(command).run({"envoy": self._envoy, **{f"gate-{pid}": pid for pid in gate}})
        told = json.loads(line)
        if told["good"] != n:
            raise SystemExit(f"{self.name}: {told['good']} of {n} requests went well, others: {told['wrong']}")
        operations = told["events"] if scenario.stream else n
        envoy = used.pop("envoy")
        cpu = {"envoy": envoy, **({"gate": sum(used.values())} if gate else {})}
        return {
            **{process: seconds * 1e6 / operations for process, seconds in cpu.items()},
            "p50": told["p50_us"],
            "p99": told["p99_us"],
        }


def upstream(processes: Processes, peers: Path | None) -> str:
    """Start an engine that costs next to nothing; its URL."""
    port = free_port(0)
    url = f"http://{LOOPBACK}:{port}"
    if peers is not None:
        processes.start("upstream", [str(peers / "upstream"), f"{LOOPBACK}:{port}"])
        processes.wait("the upstream", lambda: ask("POST", url, "{}") is not None)
    else:
        simulator = [sys.executable, "-m", "seawall", "sim", "--port", str(port), "--ttft", "0", "--tpot", "0.005"]
        processes.start("upstream", [*simulator, "--model", MODEL, "--max-num-seqs", "1000"])
        processes.wait("the upstream", lambda: ask("GET", f"{url}/v1/models") is not None)
    return url


def redis(processes: Processes) -> str:
    """Start the embedded Valkey; its URL."""
    port = free_port(0)
    processes.start("valkey", valkey_argv(port, processes.folder))
    return f"redis://{LOOPBACK}:{port}/0"


Found = dict[str, list[dict[str, float]]]
"""Figures of each round by row."""


def tables_of(scenario: Scenario, found: Found) -> list[Table]:
    """Latencies beside the bare Envoy's and Go's; or the CPU of Envoy, of the gate, and of both together."""

    def of(figure: str) -> dict[str, list[float]]:
        return {name: [f[figure] for f in rounds] for name, rounds in found.items() if figure in rounds[0]}

    if scenario.rate is not None:
        return [Table(f"{scenario.title}: {p}", of(p), [BARE, GO], "µs") for p in ("p50", "p99")]
    title = f"{scenario.title}; each {scenario.unit}"
    both = {name: [f["envoy"] + f.get("gate", 0.0) for f in rounds] for name, rounds in found.items()}
    return [
        Table(f"{title}: Envoy", of("envoy"), [BARE, GO]),
        Table(server_title(scenario), of("gate"), [GO, GRPCIO]),
        Table(f"{title}: together", both, [BARE, GO]),
    ]


def run(rounds: int, only: Sequence[str], store: str, peers: Path | None, say: Say, share: float = 1.0) -> list[Table]:
    """Start everything, go through the scenarios, and give the tables; `share` of each load, for a trial."""
    tables: list[Table] = []
    scenarios = [SCENARIOS[one] for one in SCENARIOS if one in only]
    with tempfile.TemporaryDirectory(prefix="seawall-bench-") as name, Processes(Path(name)) as processes:
        text = policy_text(upstream(processes, peers))
        policy_file = Path(name) / "policy.yaml"
        policy_file.write_text(text, "utf-8")
        policy = compile_policy(text)
        names = [
            row
            for row, layers in ROWS.items()
            if any(row in s.n for s in scenarios) and (peers is not None or layers.gate not in {GO, GO_3})
        ]
        # One for all: their loads never run at the same time.
        url = redis(processes) if store == "valkey" else store
        kinds = dict.fromkeys(ROWS[row].gate for row in names if ROWS[row].gate)
        gates = {kind: Gate(kind, processes, policy_file, url, peers) for kind in kinds}
        rows = {row: Row(row, processes, policy, gates.get(ROWS[row].gate)) for row in names}
        processes.wait("every Envoy and its gate", lambda: all(row.ready() for row in rows.values()))
        for gate in gates.values():
            gate.find_worker()
        for scenario in scenarios:
            loads = {row: max(scenario.c, int(n * share)) for row, n in scenario.n.items() if row in rows}
            load = dataclasses.replace(scenario, n=loads)
            found: Found = {row: [] for row in loads}
            for round_ in range(rounds):
                for row in turns(list(loads), round_):
                    found[row].append(rows[row].measure(load))
            made = tables_of(load, found)
            tables += made
            for table in made:
                say(table.markdown())
    return tables
