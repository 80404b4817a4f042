"""One supervisor for a directory of sockets: a lock that ends with its process, and where to find that process.

Two would take each other's names.
"""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

FILE = "supervisor.json"


class Taken(Exception):
    """Another supervisor has the directory; the text names its process."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The supervisor of a directory. `http` is the address of its endpoints, if it has any."""

    pid: int
    http: str | None


@dataclass(slots=True)
class Claim:
    """A directory that is ours for as long as this process lives, or until `release`."""

    _file: TextIO
    _path: Path

    @classmethod
    def take(cls, directory: str, http: str | None) -> "Claim":
        """Raises Taken, or OSError."""
        path = Path(directory) / FILE
        while True:
            # Opened to append: what another one wrote must not be lost.
            file = path.open("a+", encoding="utf-8")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                other = holder(directory)
                who = f"another supervisor, process {other.pid}," if other else "another supervisor"
                raise Taken(f"{who} serves {directory}") from None
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                break
            # Its holder removed it between our two steps.
            file.close()
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "started": started(os.getpid()), "http": http}))
        file.flush()
        return cls(file, path)

    def release(self) -> None:
        """Give the directory up."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def holder(directory: str) -> Holder | None:
    """The supervisor that serves a directory, or None; never a process that merely has its number now."""
    try:
        said = json.loads((Path(directory) / FILE).read_text("utf-8"))
        found = Holder(int(said["pid"]), said["http"])
        return found if started(found.pid) == said["started"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, or None when there is none (proc(5), stat field 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else fields[19]
