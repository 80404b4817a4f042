"""Real processes of the gate: a worker as its supervisor starts it, `seawall serve`, a service alone."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seawall.serve.control import Line
from seawall.serve.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "policy.yaml"
QUICK = 0.2
"""The least check interval: a drain then accepts for 1.4 s."""


class Process:
    """One process; what it said is in `log`."""

    def __init__(self, folder: Path, command: list[str], environ: dict[str, str], **options: Any):
        self.folder = folder
        self._log = folder / f"log-{len(list(folder.glob('log-*')))}"
        env = {k: v for k, v in os.environ.items() if not k.startswith("SEAWALL_")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], env=env | environ, cwd=ROOT, stdout=log, stderr=log, **options
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    def lives(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it and its workers, which have sessions of their own."""
        workers = children(self.pid) if self.lives() else []
        self.process.kill()
        self.process.wait()
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Worker(Process):
    """A worker; we are its supervisor."""

    def __init__(self, folder: Path, settings: Settings, index: int = 0):
        self.settings = settings
        self.name = Path(settings.socket(index))
        self._ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        super().__init__(
            folder,
            ["-m", "seawall.serve.worker", str(index), str(fd)],
            {"SEAWALL_WORKER_SETTINGS": settings.to_json()},
            pass_fds=[fd],
            start_new_session=True,
        )
        theirs.close()
        self._line: Line | None = None

    @property
    def own(self) -> Path:
        """The socket file that is this process's."""
        return Path(f"{self.name}.{self.pid}")

    async def snapshot(self) -> dict[str, Any] | None:
        if self._line is None:
            self._line = await Line.open(self._ours)
        return await self._line.ask(10)

    def abandon(self) -> None:
        """Close our end of the line, as a supervisor that dies does."""
        if self._line is not None:
            self._line.close()
        else:
            self._ours.close()

    def kill(self) -> None:
        super().kill()
        self.abandon()


class Folder:
    """Where a test's processes live: files, sockets, and the processes themselves, all gone at the end."""

    def __init__(self, path: Path):
        self.path = path
        self.sockets = path / "s"
        self.sockets.mkdir()
        self.started: list[Process] = []

    def policy(self, text: str) -> str:
        path = self.path / "policy.yaml"
        path.write_text(text, "utf-8")
        return str(path)

    def worker(self, index: int = 0, **settings: Any) -> Worker:
        given = {
            "policy_file": str(DEMO),
            "workers": 1,
            "socket_dir": str(self.sockets),
            "check_interval": QUICK,
            "grace": 60.0,
            **settings,
        }
        return self._kept(Worker(self.path, Settings(**given), index))

    def run(self, *command: str, **environ: str) -> Process:
        """`python COMMAND…` with this environment."""
        return self._kept(Process(self.path, list(command), {"SEAWALL_CHECK_INTERVAL": str(QUICK), **environ}))

    def serve(self, *options: str, **environ: str) -> Process:
        command = ["-m", "seawall", "serve", "--socket-dir", str(self.sockets), "--workers", "1", *options]
        return self.run(*command, **environ)

    def kill(self, pid: int) -> None:
        """SIGKILL a process that one of ours started."""
        assert any(pid in children(process.pid) for process in self.started)
        os.kill(pid, signal.SIGKILL)

    def _kept(self, process: Any) -> Any:
        self.started.append(process)
        return process


@contextmanager
def folder() -> Iterator[Folder]:
    # Not pytest's tmp_path: a socket's path must stay under 108 bytes.
    made = Folder(Path(tempfile.mkdtemp(prefix="sw-wire-")))
    try:
        yield made
    finally:
        for process in made.started:
            process.kill()
        shutil.rmtree(made.path, ignore_errors=True)


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
