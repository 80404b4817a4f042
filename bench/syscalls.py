"""System calls of each operation: what no noise of the machine can move.

A worker of `seawall serve` (and the Go gate, where there is Go) is asked the same thing over and over, one after the other,
while strace counts the system calls of all its threads.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc

from bench.code import Stages, checks, limits
from bench.gates import GO, OWN, Gate, redis
from bench.noop import AUTHZ, EXT_PROC, RATELIMIT
from bench.processes import Processes
from bench.realistic import policy_text
from bench.record import recorded
from bench.tables import Say

TITLE = "System calls of each operation, one after the other"
SCENARIOS = {
    "sys-check": "Check, answered at once",
    "sys-limit": "ShouldRateLimit, two counters in Valkey",
    "sys-request": "ext_proc, a whole request with one chunk, slot in Valkey",
}
OPERATIONS = 400
WARM = 50
KINDS = {
    "wait": ("epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter", "poll", "ppoll"),
    "read": ("read", "recvfrom", "recvmsg", "readv"),
    "write": ("write", "sendto", "sendmsg", "writev"),
    "futex": ("futex",),
}


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls of each operation by row and name of the system call."""

    title: str
    rows: Mapping[str, Mapping[str, float]]

    def by_kind(self, row: str) -> dict[str, float]:
        """All, and those of each kind."""
        calls = self.rows[row]
        known = {kind: sum(calls.get(name, 0.0) for name in names) for kind, names in KINDS.items()}
        whole = sum(calls.values())
        return {"all": whole, **known, "other": whole - sum(known.values())}

    def markdown(self) -> str:
        """The table as text."""
        head = ["", "all", *KINDS, "other"]
        lines = [f"### {self.title}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        lines += [f"| {' | '.join([row, *(f'{n:.1f}' for n in self.by_kind(row).values())])} |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def plain(self) -> dict[str, Any]:
        """The table as JSON."""
        calls = {
            row: {name: round(n, 3) for name, n in sorted(found.items(), key=lambda item: -item[1])}
            for row, found in self.rows.items()
        }
        return {"title": self.title, "calls": calls}


def report_of(text: str) -> dict[str, int]:
    """Calls by name in a report of `strace -c -U name,calls`."""
    lines = re.findall(r"^\s*(\w+)\s+(\d+)\s*$", text, re.MULTILINE)
    return {name: int(calls) for name, calls in lines if name != "total"}


def traced(pid: int, report: Path, work: Callable[[], None]) -> dict[str, int] | None:
    """System calls of a process, all threads, while `work` runs; None where strace may not look."""
    command = ["strace", "-c", "-f", "-U", "name,calls", "-p", str(pid), "-o", str(report)]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert strace.stderr is not None
    if "attached" not in strace.stderr.readline():
        strace.wait()
        return None
    work()
    strace.terminate()
    strace.communicate()
    return report_of(report.read_text("utf-8"))


def unary(channel: grpc.Channel, method: str, messages: list[bytes]) -> Callable[[], None]:
    """One call after the other, each message in turn."""
    call = channel.unary_unary(method)
    asked = cycle(messages)
    return lambda: call(next(asked))


def request(channel: grpc.Channel, stages: Stages) -> Callable[[], None]:
    """One whole stream: headers, body, headers of the answer, a chunk, the last pieces, the end."""
    call = channel.stream_stream(f"/{EXT_PROC}/Process")
    numbers = count()

    def send() -> None:
        queue: SimpleQueue[bytes | None] = SimpleQueue()
        sent: Iterator[bytes] = iter(queue.get, None)  # type: ignore[arg-type]
        answers = call(sent)
        rest = (stages.body, stages.answer, stages.chunk, *stages.last)
        for message in (stages.headers_of(next(numbers)), *rest):
            queue.put(message)
            next(answers)
        queue.put(None)
        if next(answers, None) is not None:
            raise SystemExit("an answer too many")

    return send


def run(only: list[str], peers: Path | None, say: Say, operations: int = OPERATIONS) -> list[Counts]:
    """Count, and give the table; none where strace is missing or may not look, and why is said."""
    if shutil.which("strace") is None:
        say("no strace here: system calls are not counted (Debian package strace)\n")
        return []
    messages = recorded()
    stages = Stages.of(messages["process"])
    works: dict[str, Callable[[grpc.Channel], Callable[[], None]]] = {
        "sys-check": lambda channel: unary(channel, f"/{AUTHZ}/Check", checks(messages["check"][0])),
        "sys-limit": lambda channel: unary(channel, f"/{RATELIMIT}/ShouldRateLimit", limits(messages["limit"][0])),
        "sys-request": lambda channel: request(channel, stages),
    }
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="seawall-bench-") as name, Processes(Path(name)) as processes:
        policy_file = Path(name) / "policy.yaml"
        policy_file.write_text(policy_text(), "utf-8")
        url = redis(processes)
        kinds = [kind for kind in (OWN, GO) if peers is not None or kind != GO]
        gates = {kind: Gate(kind, processes, policy_file, url, peers) for kind in kinds}
        processes.wait("the gates", lambda: all(gate.ready() for gate in gates.values()))
        for kind, gate in gates.items():
            gate.find_workers()
            with grpc.insecure_channel(f"unix:{gate.sockets[0]}") as channel:
                for scenario in (one for one in SCENARIOS if one in only):
                    once = works[scenario](channel)
                    for _ in range(WARM):
                        once()
                    (pid,) = gate.pids
                    calls = traced(pid, Path(name) / "strace", lambda once=once: repeat(once, operations))
                    if calls is None:
                        say("strace may not look at other processes here: system calls are not counted\n")
                        return []
                    title = SCENARIOS[scenario] if kind == OWN else f"{SCENARIOS[scenario].partition(',')[0]}, go"
                    found[title] = {name: n / operations for name, n in calls.items()}
    table = Counts(TITLE, found)
    say(table.markdown())
    return [table]


def repeat(work: Callable[[], None], times: int) -> None:
    """Do it so many times."""
    for _ in range(times):
        work()
