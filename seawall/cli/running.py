"""State of running gates of `seawall up`: one file a gate in the user's runtime directory, gone with the gate.

A file left by a SIGKILL is told from a live one by its process: pid and start time.
"""

import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seawall.cli.failure import Failure
from seawall.serve.claim import started


@dataclass(frozen=True, slots=True)
class Running:
    """A running gate: process of its `up`, and the object that `up --json` prints."""

    pid: int
    told: dict[str, Any]


def runtime_dir() -> Path:
    """The user's runtime directory of ours, made with mode 0700 where it is missing."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "seawall" if base else Path(tempfile.gettempdir()) / f"seawall-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as e:
        raise Failure(f"the runtime directory {path} can't be made: {e.strerror}; set XDG_RUNTIME_DIR") from None
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        # In a shared /tmp someone else could have made it first.
        raise Failure(f"{path} belongs to someone else; set XDG_RUNTIME_DIR to a directory of yours")
    return path


def publish(pid: int, told: dict[str, Any]) -> Path:
    """Write the state of a gate that is up; returns the file."""
    path = runtime_dir() / f"up-{pid}.json"
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps({"pid": pid, "started": started(pid), "told": told}), "utf-8")
    new.replace(path)
    return path


def find() -> Running | None:
    """The gate that came up last and still lives, or None; files of dead ones are removed."""
    alive: list[tuple[float, Running]] = []
    for path in runtime_dir().glob("up-*.json"):
        try:
            data = json.loads(path.read_text("utf-8"))
            pid, told = int(data["pid"]), dict(data["told"])
            when = path.stat().st_mtime
        except (OSError, ValueError, KeyError):
            continue
        if started(pid) != data["started"]:
            path.unlink(missing_ok=True)
            continue
        alive.append((when, Running(pid, told)))
    return max(alive, key=lambda entry: entry[0])[1] if alive else None
