"""The process that keeps the workers: starts them, restarts the dead, adds up what they count, passes signals on.

It never touches a request. Its only children are the workers; killed, it leaves workers that notice and drain.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seawall.rpc.tasks import Tasks
from seawall.serve.chores import Chores
from seawall.serve.control import Line
from seawall.serve.endpoints import Endpoints
from seawall.serve.handoff import Distributor
from seawall.serve.settings import Settings
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Totals

BACKOFF = 0.1
"""Seconds before the first restart; doubled for each death in a row, up to BACKOFF_MAX."""
BACKOFF_MAX = 5.0
STEADY = 10.0
"""A worker that lived this long has not died in a row."""
FAILED_STARTS = 3
"""Deaths before any worker has ever served, after which the supervisor gives up."""
FORCE_AFTER = 3.0
"""Seconds between SIGINT and SIGKILL."""


@dataclass(slots=True)
class _Child:
    """One worker's place: its number stays, its process changes."""

    index: int
    process: asyncio.subprocess.Process | None = None
    line: Line | None = None
    started: float = 0.0
    deaths: int = 0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its line is in use."""
    snapshot: dict[str, Any] | None = None
    """What it said last; None while it says nothing."""


class Supervisor:
    """Runs `settings.workers` workers until told to stop."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.log = Log(level=settings.log_level)
        self._tasks = Tasks(lambda where, e: self.log("error", "fault", where=where, error=repr(e)))
        self._children = [_Child(index) for index in range(settings.workers)]
        self._totals = Totals()
        self._stopping = asyncio.Event()
        self._at_once = False
        self._restarts = 0
        self._ever_served = False
        self._failed_starts = 0
        hands_out = settings.listen is not None and settings.transport == "own"
        self._distributor = Distributor(settings.listen or "") if hands_out else None

    async def run(self) -> int:
        """Supervise; the exit status."""
        loop = asyncio.get_running_loop()
        for sig, at_once in ((signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGINT, True)):
            loop.add_signal_handler(sig, self.stop, at_once)
        if self.settings.socket_dir:
            self._sweep_sockets()
        endpoints = Endpoints(self.metrics, self.ready)
        try:
            await endpoints.start(self.settings.http, self.settings.healthcheck)
            if self._distributor is not None:
                self._distributor.listen()
        except OSError as e:
            self.log("error", "can't listen", error=e.strerror or str(e))
            self.log.close()
            return 1
        chores = Chores(self.settings, self.log)
        if self.settings.limit_files is None and (self.settings.store != "memory" or self.settings.envoy_dir):
            self._tasks.start(chores.run(), "chores")
        keepers = [self._tasks.start(self._keep(child), f"worker {child.index}") for child in self._children]
        for child in self._children:
            self._tasks.start(self._poll(child), f"poll {child.index}")
        if self._distributor is not None:
            self._tasks.start(self._rebalance(self._distributor), "rebalance")
        await asyncio.wait(keepers)
        if self._distributor is not None:
            self._distributor.close()
        await endpoints.stop()
        await self._tasks.cancel_all()
        await chores.close()
        status = 0 if self._stopping.is_set() and self._failed_starts < FAILED_STARTS else 1
        self.log("info", "supervisor stopped", status=status)
        self.log.close()
        return status

    def stop(self, at_once: bool) -> None:
        """Pass the wish on: SIGTERM drains, SIGINT (or a second signal) stops at once."""
        self._at_once = self._at_once or at_once or self._stopping.is_set()
        self._stopping.set()
        for child in self._children:
            self._signal(child, signal.SIGINT if self._at_once else signal.SIGTERM)

    def _signal(self, child: _Child, sig: signal.Signals) -> None:
        if child.process is not None and child.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(sig)

    async def _keep(self, child: _Child) -> None:
        while not self._stopping.is_set():
            await self._start(child)
            assert child.process is not None
            status = await self._ended(child.process)
            self._totals.ended(str(child.process.pid))
            served, child.snapshot = child.snapshot is not None, None
            if self._distributor is not None:
                self._distributor.leave(child.index)
            if child.line is not None:
                child.line.close()
                child.line = None
            self._sweep_after(child)
            if self._stopping.is_set():
                return
            self._restarts += 1
            lived = time.monotonic() - child.started
            child.deaths = 1 if lived > STEADY else child.deaths + 1
            if status == 0:
                self.log("info", "worker left", worker=f"w{child.index}", lived=lived)
            else:
                self.log("error", "worker died", worker=f"w{child.index}", status=status, lived=lived)
            if not served and not self._ever_served:
                self._failed_starts += 1
                if self._failed_starts >= FAILED_STARTS:
                    self.log("error", "workers can't start, giving up")
                    self.stop(at_once=True)
                    return
            delay = min(BACKOFF_MAX, BACKOFF * 2 ** (child.deaths - 1))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """Wait for the end of a worker; one that was told to stop at once and doesn't is killed."""
        ended = asyncio.ensure_future(process.wait())
        told: float | None = None
        while not ended.done():
            await asyncio.wait([ended], timeout=0.2)
            if self._at_once:
                told = told or time.monotonic()
                if time.monotonic() - told > FORCE_AFTER:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
        return ended.result()

    async def _start(self, child: _Child) -> None:
        ours, theirs = socket.socketpair()
        inherited = [theirs]
        if self._distributor is not None:
            inherited.append(self._distributor.join(child.index))
        child.started = time.monotonic()
        child.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "seawall.serve.worker",
            str(child.index),
            *(str(sock.fileno()) for sock in inherited),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[sock.fileno() for sock in inherited],
            env={**os.environ, "SEAWALL_WORKER_SETTINGS": self.settings.to_json()},
            start_new_session=True,
        )
        for sock in inherited:
            sock.close()
        child.line = await Line.open(ours)
        if self._stopping.is_set():
            self._signal(child, signal.SIGINT)

    async def _poll(self, child: _Child) -> None:
        """Ask one worker again and again; one that hangs keeps nobody else waiting."""
        while True:
            await self._ask(child)
            starting = child.snapshot is None or child.snapshot["state"] == "starting"
            await asyncio.sleep(0.05 if starting else 1.0)

    async def _rebalance(self, distributor: Distributor) -> None:
        while True:
            await asyncio.sleep(1.0)
            distributor.rebalance()

    async def _ask(self, child: _Child) -> None:
        async with child.asking:
            line, process = child.line, child.process
            if line is None or process is None:
                return
            snapshot = await line.ask(timeout=2.0)
            if child.line is not line:
                return
        child.snapshot = snapshot
        if self._distributor is not None:
            # One that hangs gets no connections, and one that drains lets its own go.
            self._distributor.taking(child.index, snapshot is not None and snapshot["state"] == "serving")
        if snapshot is None:
            self._totals.silent(str(process.pid))
            return
        self._totals.update(str(process.pid), snapshot["metrics"])
        if snapshot["state"] == "serving":
            self._ever_served = True

    async def metrics(self) -> Totals:
        """Fresh totals, with what only the supervisor counts."""
        # One that gave no answer last time is starting or hangs, and would keep whoever asks waiting.
        await asyncio.gather(*(self._ask(child) for child in self._children if child.snapshot is not None))
        counts = self._distributor.counts() if self._distributor is not None else {}
        own = {
            "counters": [["seawall_worker_restarts_total", [], self._restarts]],
            "gauges": [["seawall_connections", [f"w{index}"], count] for index, count in counts.items()],
        }
        self._totals.update("supervisor", own)
        return self._totals

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether any worker serves, and the detail: workers, store, policy."""
        workers = {}
        for child in self._children:
            said = child.snapshot
            workers[f"w{child.index}"] = {
                "pid": child.process.pid if child.process else None,
                "state": said["state"] if said else "unknown",
                "policy": said["policy"] if said else None,
                "policy_error": said["policy_error"] if said else "",
                "store": ("up" if said["store_up"] else "down") if said else "unknown",
                "store_trouble": said["store_trouble"] if said else "",
                "waiting_for": said["waiting"] if said else "",
            }
        serving = [w for w in workers.values() if w["state"] == "serving"]
        return bool(serving) and not self._stopping.is_set(), {"ready": bool(serving), "workers": workers}

    def _sweep_after(self, child: _Child) -> None:
        """Remove what a killed worker left. Its name stays for its successor, and leads nowhere until that has a policy."""
        if not self.settings.socket_dir or child.process is None:
            return
        name = Path(self.settings.socket(child.index))
        Path(f"{name}.{child.process.pid}").unlink(missing_ok=True)
        if self._stopping.is_set() and name.is_symlink() and not name.exists():
            name.unlink(missing_ok=True)

    def _sweep_sockets(self) -> None:
        """Remove sockets whose worker is no more: left by a SIGKILL."""
        for path in Path(self.settings.socket_dir).glob("w*.sock.*"):
            pid = path.name.rpartition(".")[2]
            if not pid.isdigit() or not Path(f"/proc/{pid}").exists():
                path.unlink(missing_ok=True)
        for link in Path(self.settings.socket_dir).glob("w*.sock"):
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
