"""What a gRPC call costs the server's process: our transport beside grpcio and, where Go is at hand, grpc-go.

All servers run at once and do the same (bench/noop.py, bench/peers/server); in each round every one gets the same load,
one after the other. Only ratios inside a round count.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.noop import KINDS
from bench.processes import Load, Processes
from bench.tables import Goal, Say, Table, turns

GO = ("go", "go-1")
"""grpc-go as it comes, and with one thread for Go code, which spares it waking idle ones."""
MESSAGES = 200
SCALE = {"grpcio": 1, "aio": 1}
"""Servers that cost several times as much get a third of the operations."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load: `n` operations for an expensive server, three times as many for the others."""

    title: str
    mode: str
    n: int
    c: int
    k: int = 0


SCENARIOS = {
    "unary-c32": Scenario("Unary, 32 in flight", "unary", n=4500, c=32),
    "unary-c1": Scenario("Unary, one after the other", "unary", n=1500, c=1),
    "open": Scenario("Stream: open, request headers, close; 16 at once", "stream", n=1200, c=16),
    "stream": Scenario(f"Stream of {MESSAGES} body messages; 16 at once", "stream", n=64, c=16, k=MESSAGES),
}
MESSAGE_TITLE = "Each message of a stream: (stream of 200 − open) / 200"
GOALS = [
    *(Goal(SCENARIOS[name].title, "own", "go", 1.0) for name in ("unary-c32", "unary-c1", "open")),
    Goal(MESSAGE_TITLE, "own", "go", 1.0),
    Goal(MESSAGE_TITLE, "own-await", "go", 1.3),
    *(Goal(SCENARIOS[name].title, "own", "aio", 0.2) for name in ("unary-c32", "unary-c1", "open")),
    Goal(MESSAGE_TITLE, "own", "aio", 0.2),
]


def command_of(kind: str, socket: Path, peers: Path | None) -> list[str]:
    """What starts a server."""
    if kind in GO:
        assert peers is not None
        return [str(peers / "server"), str(socket)]
    return [sys.executable, "-m", "bench.noop", kind, str(socket)]


def measure(kind: str, pid: int, load: list[str], scenario: Scenario, share: float) -> float:
    """Microseconds of CPU for each operation."""
    n = max(scenario.c, int(scenario.n * SCALE.get(kind, 3) * share))
    numbers = {"n": n, "c": scenario.c, "k": scenario.k, "warm": max(scenario.c, n // 10)}
    options = [word for name, value in numbers.items() for word in (f"-{name}", str(value))]
    used, line = Load([*load, "-mode", scenario.mode, *options]).run({kind: pid})
    told = json.loads(line)
    if told["ops"] != told["want"]:
        raise SystemExit(f"{kind}: {told['want'] - told['ops']} of {told['want']} operations failed")
    return used[kind] * 1e6 / n


def run(rounds: int, only: Sequence[str], peers: Path | None, say: Say, share: float = 1.0) -> list[Table]:
    """Start all servers, go through the scenarios, and give the tables; `share` of each load, for a trial."""
    kinds = [kind for kind in (*GO, *KINDS) if peers is not None or kind not in GO]
    against = ["go", "aio"]
    # A message is the difference of the two.
    only = [name for name in SCENARIOS if name in only or (name == "open" and "stream" in only)]
    load = [str(peers / "load")] if peers is not None else [sys.executable, "-m", "bench.rpc_load"]
    tables: list[Table] = []
    with tempfile.TemporaryDirectory(prefix="seawall-bench-") as name, Processes(Path(name)) as processes:
        sockets = {kind: Path(name) / f"{kind}.sock" for kind in kinds}
        pids = {
            kind: processes.start(kind, command_of(kind, socket, peers), {"GOMAXPROCS": "1"} if kind == "go-1" else {})
            for kind, socket in sockets.items()
        }
        processes.wait("the sockets of all servers", lambda: all(socket.exists() for socket in sockets.values()))
        found: dict[str, dict[str, list[float]]] = {}
        for scenario in only:
            rows = found[scenario] = {kind: [] for kind in kinds}
            for round_ in range(rounds):
                for kind in turns(kinds, round_):
                    asking = [*load, "-socket", str(sockets[kind])]
                    each = measure(kind, pids[kind], asking, SCENARIOS[scenario], share)
                    rows[kind].append(each)
            if scenario != "stream":
                tables.append(Table(SCENARIOS[scenario].title, rows, against))
                say(tables[-1].markdown())
        if {"open", "stream"} <= found.keys():
            rows = {
                kind: [(s - o) / MESSAGES for s, o in zip(found["stream"][kind], found["open"][kind], strict=True)]
                for kind in kinds
            }
            tables.append(Table(MESSAGE_TITLE, rows, against))
            say(tables[-1].markdown())
        for kind in KINDS:
            if kind in kinds and (said := processes.log(kind)):
                print(f"{kind} said:\n{said}", file=sys.stderr)
    return tables
