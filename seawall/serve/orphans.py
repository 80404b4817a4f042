"""Workers of a supervisor that died, as the next one finds them by their sockets.

They go by themselves once their names are taken (`seawall.serve.worker`); one that hangs can't, and is killed when the
time is over that all others need. Whoever stops their successor stops them too.
"""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from seawall.serve.claim import started
from seawall.serve.settings import Settings
from seawall.serve.sockets import owners, sweep
from seawall.telemetry.logfmt import Log

MARGIN = 5.0
"""Seconds beyond its time after which an orphan is killed."""
FORCE_AFTER = 3.0
"""Seconds between SIGINT and SIGKILL."""
_WORKER = b"seawall.serve.worker"


class Orphans:
    """Those that had sockets in our directory when we started."""

    def __init__(self, settings: Settings):
        self._directory = settings.socket_dir
        self._born = workers_of(self._directory) if self._directory else {}
        life = settings.orphan_time + 2 * settings.check_interval + 1 + settings.grace + MARGIN
        self._ends = time.monotonic() + life

    def alive(self) -> list[int]:
        """Process ids of those that are still there."""
        return [pid for pid, birth in self._born.items() if started(pid) == birth]

    async def bury(self, log: Log) -> None:
        """Wait until none is left; kill what stays too long."""
        if not self._born:
            return
        log("warn", "workers of a supervisor that died are replaced", workers=len(self._born))
        while left := self.alive():
            if time.monotonic() > self._ends:
                log("error", "workers of a supervisor that died hang, they are killed", workers=len(left))
                self._signal(signal.SIGKILL)
            await asyncio.sleep(0.2)
        log("info", "the workers of the supervisor that died have gone")
        sweep(self._directory)

    def stop(self, *, at_once: bool) -> None:
        """Tell them to drain (SIGTERM), or to stop at once and be killed if they don't (SIGINT)."""
        self._signal(signal.SIGINT if at_once else signal.SIGTERM)
        if at_once:
            self._ends = min(self._ends, time.monotonic() + FORCE_AFTER)

    def _signal(self, sig: signal.Signals) -> None:
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)


def workers_of(directory: str) -> dict[int, str]:
    """Start times by process id of the workers that have sockets in a directory.

    A number that another program has by now is left out.
    """
    found = {}
    for pid in owners(directory):
        birth = started(pid)
        with contextlib.suppress(OSError):
            if birth is not None and _WORKER in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = birth
    return found
