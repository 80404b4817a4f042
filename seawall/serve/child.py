"""One worker process as its supervisor has it: started, asked, told to leave, killed when it hangs or stays too long."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from typing import Any

from seawall.serve.control import Line
from seawall.serve.errands import Errands
from seawall.serve.settings import Settings
from seawall.telemetry.catalog import METRICS

ANSWER_TIME = 2.0
"""Seconds that a worker has for one answer; SEAWALL_HANG_TIME is made of several."""
LEAVE_MARGIN = 10.0
"""Seconds beyond the grace after which a worker that was told to go is killed."""
FORCE_AFTER = 3.0
"""Seconds between SIGINT and SIGKILL."""
WATCH = 0.2


class Child:
    """A process and what it said last."""

    def __init__(self, index: int, generation: int, process: asyncio.subprocess.Process, line: Line, hang_time: float):
        self.index = index
        self.generation = generation
        """Counts the processes of a place, from 1."""
        self.process = process
        self.born = time.monotonic()
        self.snapshot: dict[str, Any] | None = None
        """What it said last; None while it says nothing."""
        self.served = False
        self.hung = False
        """It was killed because it gave no answers."""
        self.silent = 0.0
        """Seconds that we have waited for answers in vain, since the last one."""
        self.errands: Errands | None = None
        self._line = line
        self._asking = asyncio.Lock()
        self._answer_time = min(ANSWER_TIME, hang_time / 4)
        self._deadline: float | None = None

    @classmethod
    async def start(
        cls, settings: Settings, index: int, generation: int, handoff: socket.socket | None = None
    ) -> "Child":
        """Start a worker; `handoff` is its end of a distributor's line. Raises OSError when it can't be run."""
        ours, theirs = socket.socketpair()
        asks, answers = socket.socketpair()
        inherited = [theirs, answers] if handoff is None else [theirs, answers, handoff]
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "seawall.serve.worker",
                str(index),
                *(str(sock.fileno()) for sock in inherited),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[sock.fileno() for sock in inherited],
                env={**os.environ, "SEAWALL_WORKER_SETTINGS": settings.to_json()},
                start_new_session=True,
            )
        finally:
            for sock in inherited:
                sock.close()
        made = cls(index, generation, process, await Line.open(ours), settings.hang_time)
        made.errands = await Errands.open(asks)
        return made

    @property
    def pid(self) -> int:
        """Process id; stays what it was when the process has ended."""
        return self.process.pid

    @property
    def key(self) -> tuple[int, int]:
        """Place and generation: names this process and no other."""
        return self.index, self.generation

    @property
    def state(self) -> str:
        """What it said of its life: `starting`, `serving`, `draining`, or `unknown`."""
        return str(self.snapshot["state"]) if self.snapshot else "unknown"

    async def ask(self) -> None:
        """Get a new snapshot, or count how long it gives none.

        Only what we waited ourselves is counted: a supervisor that was stopped for an hour has not waited an hour.
        """
        async with self._asking:
            asked = time.monotonic()
            self.snapshot = await self._line.ask(self._answer_time)
            if self.snapshot is None:
                self.silent += min(time.monotonic() - asked, 2 * self._answer_time)
                return
            self.silent = 0.0
            self.served = self.served or self.state == "serving"

    def hangs(self, settings: Settings) -> bool:
        """Say whether it has given no answer for too long: one that never gave any may still be starting."""
        return self.silent > (settings.hang_time if self.served else max(settings.hang_time, settings.ready_time))

    def limits(self, number: int, data: bytes) -> None:
        """Hand over limits that a control plane has sent."""
        self._line.limits(number, data)

    def took(self, number: int) -> bool:
        """Whether it has judged the limits of that number, or says nothing at all."""
        return self.snapshot is None or self.snapshot["limits"] >= number

    def leave(self, grace: float) -> None:
        """Tell it that its successor serves; killed if it is still there after the grace."""
        self._line.leave()
        self._gone_by(grace + LEAVE_MARGIN)

    def drain(self, seconds: float) -> None:
        """SIGTERM: it stops taking calls and ends its answers; killed if it is still there after that time."""
        self._send(signal.SIGTERM)
        self._gone_by(seconds + LEAVE_MARGIN)

    def stop(self) -> None:
        """SIGINT: it gives running answers no time; killed if it stays."""
        self._send(signal.SIGINT)
        self._gone_by(FORCE_AFTER)

    def kill(self) -> None:
        """SIGKILL."""
        self._send(signal.SIGKILL)

    def _gone_by(self, seconds: float) -> None:
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + seconds)

    def _send(self, sig: signal.Signals) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(sig)

    async def ended(self) -> int:
        """Wait for its end and give its status; one that was told to go and stays too long is killed."""
        end = asyncio.ensure_future(self.process.wait())
        while not end.done():
            await asyncio.wait([end], timeout=WATCH)
            if self._deadline is not None and time.monotonic() > self._deadline:
                self.kill()
        async with self._asking:
            self.snapshot = await self._line.last_words()
        self._line.close()
        if self.errands is not None:
            self.errands.close()
        return end.result()

    def metrics(self, *, speaks: bool) -> dict[str, Any]:
        """What it counts. Of a place's processes one `speaks` for it: the others' gauges by worker are left out."""
        assert self.snapshot is not None
        said: dict[str, Any] = self.snapshot["metrics"]
        if speaks:
            return said
        return {
            **said,
            "gauges": [g for g in said["gauges"] if g[0] in METRICS and "worker" not in METRICS[g[0]].labels],
        }

    def told(self) -> dict[str, Any]:
        """What /readyz says of it."""
        said = self.snapshot
        return {
            "pid": self.pid,
            "generation": self.generation,
            "age": round(time.monotonic() - self.born, 1),
            "state": self.state,
            "policy": said["policy"] if said else None,
            "policy_error": said["policy_error"] if said else "",
            "store": ("up" if said["store_up"] else "down") if said else "unknown",
            "store_trouble": said["store_trouble"] if said else "",
            "waiting_for": said["waiting"] if said else "",
        }
