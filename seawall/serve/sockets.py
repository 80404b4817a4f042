"""Names of the workers' sockets: a file for each process, and the name that Envoy knows, a link moved into place.

A worker that takes over a name while the old one still drains must not lose it when the old one removes its file.
"""

import os
from pathlib import Path


class Listening:
    """A worker's socket."""

    def __init__(self, name: str):
        self._name = Path(name)
        self.own = Path(f"{name}.{os.getpid()}")

    def publish(self) -> None:
        """Point the name at our file."""
        link = Path(f"{self.own}.new")
        link.unlink(missing_ok=True)
        link.symlink_to(self.own.name)
        link.replace(self._name)

    def named(self) -> bool:
        """Say whether the name leads anywhere, be it to a worker that is no more."""
        return self._name.is_symlink() or self._name.exists()

    def leads(self) -> bool:
        """Say whether the name leads to a socket."""
        return self._name.exists()

    def ours(self) -> bool:
        """Say whether the name still leads to us."""
        try:
            return self._name.readlink().name == self.own.name
        except OSError:
            return False

    def withdraw(self) -> None:
        """Remove our file, and the name if it is still ours."""
        if self.ours():
            self._name.unlink(missing_ok=True)
        self.own.unlink(missing_ok=True)


def owners(directory: str) -> set[int]:
    """Process ids that have, or had, a socket in a directory."""
    pids = (path.name.rpartition(".")[2] for path in Path(directory).glob("w*.sock.*"))
    return {int(pid) for pid in pids if pid.isdigit()}


def sweep(directory: str) -> None:
    """Remove sockets whose worker is no more, and names that lead nowhere: left by a SIGKILL."""
    for path in Path(directory).glob("w*.sock.*"):
        pid = path.name.rpartition(".")[2]
        if not pid.isdigit() or not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)
    for link in Path(directory).glob("w*.sock"):
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)


def sweep_after(name: str, pid: int, *, last: bool) -> None:
    """Remove what one killed worker left.

    Its name stays for its successor, and leads nowhere until that has a policy; unless it was the `last` one.
    """
    Path(f"{name}.{pid}").unlink(missing_ok=True)
    link = Path(name)
    if last and link.is_symlink() and not link.exists():
        link.unlink(missing_ok=True)
