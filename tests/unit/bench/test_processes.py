"""Every process of a benchmark is stopped at its end."""

import sys
from pathlib import Path

import pytest

from bench.processes import Processes

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


def test_all_are_stopped(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        pids = [processes.start(name, SLEEPER) for name in ("one", "two")]
        with pytest.raises(ValueError, match="there is a process 'one' already"):
            processes.start("one", SLEEPER)
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
