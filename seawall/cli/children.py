"""Child processes of `seawall up`: none outlives it, a dead one is started again.

Each child asks the kernel to end it when we end (PR_SET_PDEATHSIG, prctl(2)), so that even our SIGKILL leaves nothing.
"""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seawall.cli.failure import Failure

PR_SET_PDEATHSIG = 1
BACKOFF = 0.5
BACKOFF_MAX = 5.0
STEADY = 10.0
STOP_TIME = 8.0
"""Seconds that children have to end before they are killed."""

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start one child. `last_will` is the signal that it gets when `up` dies, `stop` the one when `up` stops."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    last_will: signal.Signals = signal.SIGKILL
    stop: signal.Signals = signal.SIGTERM


class Child:
    """One child and its restarts. Its output goes to `<logs>/<name>.log`."""

    def __init__(self, recipe: Recipe, logs: Path):
        self.recipe = recipe
        self.log = logs / f"{recipe.name}.log"
        self._next_start = 0.0
        self._backoff = BACKOFF
        self._started = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """Process id of the running, or last, process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process; Failure when its program can't be run."""
        parent = os.getpid()
        last_will = self.recipe.last_will

        def before_exec() -> None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(last_will))
            if os.getppid() != parent:
                os._exit(1)

        self._started = time.monotonic()
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self.recipe.argv,
                    env=dict(self.recipe.env),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=before_exec,  # noqa: PLW1509 - one thread here, and prctl must run in the child
                )
            except OSError as e:
                raise Failure(f"can't run {self.recipe.argv[0]}: {e.strerror}") from None

    def ended(self) -> int | None:
        """Exit status of a process that has ended, or None."""
        assert self._process is not None
        return self._process.poll()

    def revive(self, now: float) -> bool:
        """Start again what has died, with back-off; True when it was started. `now` is of time.monotonic()."""
        if self.ended() is None:
            return False
        if self._next_start == 0.0:
            if now - self._started > STEADY:
                self._backoff = BACKOFF
            self._next_start = now + self._backoff
            self._backoff = min(BACKOFF_MAX, self._backoff * 2)
        if now < self._next_start:
            return False
        self._next_start = 0.0
        self.start()
        return True

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal to the process if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(sig)

    def last_words(self) -> str:
        """Last line of its log, for a failure message."""
        try:
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1][:300] if lines else ""


def stop_all(children: Sequence[Child]) -> None:
    """Stop children in the order given: ask, wait, kill."""
    for child in children:
        child.signal(child.recipe.stop)
    deadline = time.monotonic() + STOP_TIME
    pause = threading.Event()
    while any(child.ended() is None for child in children) and time.monotonic() < deadline:
        pause.wait(0.02)
    for child in children:
        child.signal(signal.SIGKILL)
    for child in children:
        while child.ended() is None:
            pause.wait(0.02)
