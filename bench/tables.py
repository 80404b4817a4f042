"""Figures of interleaved rounds: ratios inside each round, tables of them, and the file that keeps them."""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench import golang
from bench.processes import ROOT

Say = Callable[[str], None]
RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("grpcio", "ngh2", "protobuf", "uvloop")


@dataclass(frozen=True, slots=True)
class Table:
    """Figures by row and round. `against` are rows that the others are compared with, where they are there."""

    title: str
    rows: Mapping[str, Sequence[float]]
    against: Sequence[str]
    unit: str = "CPU µs"
    tail: int | None = None
    """A percentile that is shown beside the median, where there are enough figures."""

    def bases(self) -> list[str]:
        """Rows that every other one is compared with."""
        return [name for name in self.against if name in self.rows]

    def ratios(self, row: str, base: str) -> list[float]:
        """Cost of `row` in units of `base`, each inside its round."""
        return [x / b for x, b in zip(self.rows[row], self.rows[base], strict=True)]

    def markdown(self) -> str:
        """The table as text."""
        bases = self.bases()
        head = ["", f"{self.unit}, median", *([] if self.tail is None else [f"p{self.tail}"])]
        head += [f"ratio to {base}: min / median / max" for base in bases]
        lines = [f"### {self.title}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for name, values in self.rows.items():
            cells = [name, f"{statistics.median(values):.1f}"]
            cells += [] if self.tail is None else [f"{percentile(values, self.tail):.1f}"]
            cells += ["1.00" if base == name else spread(self.ratios(name, base)) for base in bases]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def plain(self) -> dict[str, Any]:
        """The table as JSON: what was measured, and the ratios."""
        return {
            "title": self.title,
            self.unit.lower().replace(" ", "_").replace("µ", "u"): {
                name: [round(x, 2) for x in values] for name, values in self.rows.items()
            },
            "ratios": {
                base: {name: [round(x, 3) for x in summary(self.ratios(name, base))] for name in self.rows}
                for base in self.bases()
            },
        }


@dataclass(frozen=True, slots=True)
class Goal:
    """`row` of a table costs at most `most` times what `base` costs, by the median of the rounds."""

    title: str
    row: str
    base: str
    most: float


@dataclass(frozen=True, slots=True)
class Bound:
    """The percentile `tail` of a row's figures is below `most`, in the unit of the table."""

    title: str
    row: str
    tail: int
    most: float


def judged(goals: Sequence[Goal | Bound], tables: Sequence[Table]) -> str:
    """Goals beside what was measured, those that can be judged."""
    by_title = {table.title: table for table in tables}
    lines = ["### Goals", "", "| | goal | measured: min / median / max | holds |", "|---|---|---|---|"]
    for goal in goals:
        table = by_title.get(goal.title)
        if table is None or not {goal.row, *([goal.base] if isinstance(goal, Goal) else [])} <= table.rows.keys():
            continue
        if isinstance(goal, Goal):
            ratios = table.ratios(goal.row, goal.base)
            holds, asked, told = statistics.median(ratios) <= goal.most, f"≤ {goal.most} × {goal.base}", spread(ratios)
        else:
            found = percentile(table.rows[goal.row], goal.tail)
            holds, asked = found < goal.most, f"p{goal.tail} < {goal.most:.0f} {table.unit}"
            told = f"p{goal.tail} {found:.1f} {table.unit}"
        lines.append(f"| {goal.title}: {goal.row} | {asked} | {told} | {'yes' if holds else '**no**'} |")
    return "\n".join(lines) + "\n" if len(lines) > 4 else ""


def percentile(values: Sequence[float], tail: int) -> float:
    """The nearest-rank percentile: the smallest figure that so many per cent do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * tail // 100) - 1)]


def summary(values: Sequence[float]) -> tuple[float, float, float]:
    """Least, median and most."""
    return min(values), statistics.median(values), max(values)


def spread(values: Sequence[float]) -> str:
    """Write `summary` into a cell."""
    return " / ".join(f"{x:.2f}" for x in summary(values))


def turns(rows: Sequence[str], round_: int) -> list[str]:
    """Order of the rows in a round: each begins once, so that no one always follows the same neighbour's noise."""
    at = round_ % len(rows)
    return [*rows[at:], *rows[:at]]


def machine() -> dict[str, Any]:
    """The machine and what runs on it, without its name."""
    cpuinfo = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "memory_gib": round(memory),
        "kernel": platform.release().partition("-")[0],
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "python": platform.python_version(),
        "go": golang.version().removeprefix("go") or None,
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def commit() -> tuple[str, bool]:
    """The commit that is measured, "unknown" outside of git, and whether the code differs from it."""
    head = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "seawall", "ext_authz", "ratelimit", "ext_proc", "bench")
    return head or "unknown", bool(changed)


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class Kept(Protocol):
    """Figures that can be written down."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""


def keep(what: str, tables: Sequence[Kept], setting: Mapping[str, object]) -> Path:
    """Write the figures of one run; the file. `setting` holds the machine as the run began."""
    head, changed = commit()
    date = time.strftime("%Y-%m-%d", time.gmtime())
    document = {
        "what": what,
        "date": date,
        "commit": head,
        "changed": changed,
        **setting,
        "tables": [table.plain() for table in tables],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{date}-{head}-{what}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path
