"""Processes that are measured: started, waited for, and their CPU."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 30.0
"""Seconds that a process has to be there."""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of CPU, user and system, that a process has used with all its threads.

    The clock of the process has what /proc/PID/stat has, without its rounding to ticks of 10 ms.
    """
    try:
        # clock_getcpuclockid(3), which Python has not: the clock "sched" (2) of a process.
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid: int) -> list[int]:
    """Children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()]


class Processes:
    """Processes of one benchmark, all stopped at its end; each has a log in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
        """Start one; its process id. A name is given once, or the first of two would never be stopped."""
        if name in self._running:
            raise ValueError(f"there is a process '{name}' already")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SEAWALL_")}
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**inherited, **(environ or {})},
                cwd=ROOT,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self._running[name] = process
        return process.pid

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        """The last lines that a process said."""
        return "\n".join(self._log(name).read_text("utf-8", "replace").splitlines()[-10:])

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds; fails when a process ends before."""
        pause = threading.Event()
        ends = time.monotonic() + PATIENCE
        while not holds():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise SystemExit(f"{name} ended with status {process.returncode}:\n{self.log(name)}")
            if time.monotonic() > ends:
                raise SystemExit(f"not there after {PATIENCE:.0f} s: {what}")
            pause.wait(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop all, the last one first."""
        for process in reversed(self._running.values()):
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Load:
    """A load client as a process: it warms up, says "ready", and runs once it is told to."""

    def __init__(self, command: Sequence[str]):
        self.command = command

    def run(self, pids: Mapping[str, int]) -> tuple[dict[str, float], str]:
        """Seconds of CPU that each process used while it ran, and the line that the client printed."""
        process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdin is not None and process.stdout is not None
        with process:
            if process.stdout.readline() != "ready\n":
                raise SystemExit(f"the load client failed: {' '.join(self.command)}")
            before = {name: cpu(pid) for name, pid in pids.items()}
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
            used = {name: cpu(pid) - before[name] for name, pid in pids.items()}
        if process.returncode or not line:
            raise SystemExit(f"the load client failed: {' '.join(self.command)}")
        return used, line
