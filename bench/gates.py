"""What stands behind an Envoy, and beside it: gates as processes, the engine, the store."""

import sys
from pathlib import Path

from bench.layers import FILTERS
from bench.processes import Processes, children
from bench.realistic import MODEL
from seawall.cli.local_gate import ask, free_port, valkey_argv, workers_ready

LOOPBACK = "127.0.0.1"
OWN, GRPCIO, GO, GO_3 = "own", "grpcio", "go", "go-3"
"""One worker with all three services on our transport, and on the reference; one Go process with three; three with one."""


class Gate:
    """What answers Envoy's side calls: its sockets (of `go-3` by filter), and the processes that are measured."""

    def __init__(
        self, kind: str, processes: Processes, policy_file: Path, store: str, peers: Path | None, workers: int = 1
    ):
        folder = processes.folder / f"gate-{kind}"
        folder.mkdir()
        self._http = ""
        self._supervisor = 0
        self._workers = workers
        self.pids: list[int] = []
        if kind in {OWN, GRPCIO}:
            self._http = f"{LOOPBACK}:{free_port(0)}"
            environ = {
                "SEAWALL_TRANSPORT": kind,
                "SEAWALL_STORE": store,
                "SEAWALL_POLICY": str(policy_file),
                "SEAWALL_WORKERS": str(workers),
                "SEAWALL_SOCKET_DIR": str(folder),
                "SEAWALL_HTTP": self._http,
                "SEAWALL_GRACE": "0",
            }
            command = [sys.executable, "-m", "seawall", "serve"]
            self._supervisor = processes.start(f"gate-{kind}", command, environ)
            self.sockets = [str(folder / f"w{index}.sock") for index in range(workers)]
            return
        assert peers is not None
        services = [[]] if kind == GO else [[filter_.rpartition(".")[2]] for filter_ in FILTERS]
        self.sockets = [str(folder / f"{kind}-{index}.sock") for index in range(len(services))]
        for socket, names in zip(self.sockets, services, strict=True):
            self.pids.append(processes.start(f"gate-{Path(socket).stem}", [str(peers / "gate"), socket, *names]))

    def ready(self) -> bool:
        """Say whether it serves."""
        if self._supervisor:
            return workers_ready(self._http, self._workers)
        return all(Path(socket).exists() for socket in self.sockets)

    def find_workers(self) -> None:
        """Learn the workers' process ids once it is ready."""
        if self._supervisor:
            self.pids = children(self._supervisor)


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
