"""Every part of the benchmark runs; how fast anything was is not looked at. Without Go or strace it says so and goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.tables import RESULTS

ROOT = Path(__file__).resolve().parents[2]
# Twenty seconds of CPU: the time-outs are for a machine that does much else.
PATIENCE = 280
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
TITLES = {
    "code": "### Own code, without transport",
    "unary-c1": "### Unary, one after the other",
    "whole": "### A request of 4 KB with a whole answer; 8 at once; each request: the gate",
    "push": "### Push of a policy",
}
"""A scenario of each part, and the table that it ends in."""


def trial(*words: str) -> str:
    """What a trial prints."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--trial", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_part_runs() -> None:
    """One scenario of each, a hundredth of its load; nothing is kept."""
    before = sorted(RESULTS.iterdir())
    said = trial("--only", *TITLES, "sys-check")
    assert [title for title in TITLES.values() if title not in said] == []
    assert ("### System calls of each operation" in said) != ("system calls are not counted" in said)
    assert sorted(RESULTS.iterdir()) == before


def test_without_go() -> None:
    """The load comes from Python, and nothing is compared with Go."""
    said = trial("--only", "unary-c1", "--no-go")
    assert TITLES["unary-c1"] in said
    assert "| own |" in said
    assert "| go |" not in said
