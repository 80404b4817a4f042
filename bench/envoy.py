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

from bench.gates import GO, GO_3, GRPCIO, LOOPBACK, OWN, Gate, redis, upstream
from bench.layers import FILTERS, cluster_of, split, with_filters
from bench.processes import Load, Processes
from bench.realistic import CLASS, SIZE, TENANT, policy_text
from bench.tables import Goal, Say, Table, turns
from seawall.cli import binaries
from seawall.cli.local_gate import ask, free_port
from seawall.mesh.bootstrap import bootstrap, bootstrap_json
from seawall.mesh.names import AUTHZ, EXT_PROC, GATE_CLUSTER, RATELIMIT, VERSION_KEY
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys
from seawall.policy.compiled import Policy

CHUNKS = 100
"""Events of a streamed answer."""
BARE = "bare"
VALUES = {"tenant": TENANT, "class": CLASS, VERSION_KEY: "1"}
"""What ext_authz would have said, where it is not there."""


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
            BARE: 3200,
            **dict.fromkeys(("ext_authz", "ratelimit", "ext_proc"), 1600),
            OWN: 1600,
            GO: 1600,
            GO_3: 1200,
            GRPCIO: 600,
        },
        8,
    ),
    "small": Scenario(
        f"A request of {SMALL} bytes with a whole answer; 8 at once", "request", {OWN: 2000, GO: 2000}, 8, size=SMALL
    ),
    "events": Scenario(
        f"A streamed answer of {CHUNKS} events, 5 ms apart; 16 at once",
        "event",
        dict.fromkeys((BARE, "ext_proc", OWN, GO), 64),
        16,
        stream=True,
    ),
    "latency": Scenario(
        "Latency of a request of 4 KB, 200 a second", "request", dict.fromkeys((BARE, OWN, GO), 400), 16, rate=200
    ),
}


def server_title(scenario: Scenario) -> str:
    """Title of the table of what stands behind Envoy."""
    return f"{scenario.title}; each {scenario.unit}: the gate"


GOALS = [Goal(server_title(SCENARIOS["whole"]), OWN, GO, 1.0)]


class Row:
    """One Envoy, and the gate behind it where there is one."""

    def __init__(self, name: str, processes: Processes, policy: Policy, gate: Gate | None):
        self.name = name
        self.port = free_port(0)
        self._admin = f"http://{LOOPBACK}:{(admin := free_port(0, {self.port}))}"
        self._gate = gate
        # `bare` has no gate, but the configuration that it is made of must name one.
        sockets = ["/none"] if gate is None else gate.sockets
        mesh = MeshSettings(sockets=tuple(sockets), port=self.port, admin_port=admin, access_log=False)
        whole = bootstrap(mesh, policy, descriptors=descriptor_keys(policy))
        configuration = with_filters(whole, ROWS[name].filters, VALUES)
        self._healthy = [] if gate is None else [(GATE_CLUSTER, len(sockets))]
        if ROWS[name].gate == GO_3:
            configuration = split(configuration, dict(zip(FILTERS, sockets, strict=True)))
            self._healthy = [(cluster_of(filter_), 1) for filter_ in FILTERS]
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
        return self._gate.ready() and all(
            f"cluster.{name}.membership_healthy: {number}" in lines for name, number in self._healthy
        )

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
            gate.find_workers()
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
