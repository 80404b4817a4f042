"""Ratios inside rounds, percentiles, goals, and what is written down."""

import json
from pathlib import Path

import pytest

from bench import tables
from bench.syscalls import Counts, report_of
from bench.tables import Bound, Goal, Table, judged, percentile, turns

# The machine is twice as slow in the second round, and busy with something else in the third.
ROWS = {"go": [10.0, 20.0, 11.0], "own": [8.0, 16.0, 11.0], "late": [30.0, 50.0, 33.0]}


def test_a_ratio_is_taken_inside_its_round() -> None:
    table = Table("Calls", ROWS, ["go"])
    assert table.ratios("own", "go") == [0.8, 0.8, 1.0]
    assert table.ratios("late", "go") == [3.0, 2.5, 3.0]
    assert table.markdown() == (
        "### Calls\n\n"
        "|  | CPU µs, median | ratio to go: min / median / max |\n"
        "|---|---|---|\n"
        "| go | 11.0 | 1.00 |\n"
        "| own | 11.0 | 0.80 / 0.80 / 1.00 |\n"
        "| late | 33.0 | 2.50 / 3.00 / 3.00 |\n"
    )


def test_a_base_that_is_not_there_is_left_out() -> None:
    assert Table("Calls", ROWS, ["go", "aio"]).bases() == ["go"]
    assert "ratio to aio" not in Table("Calls", ROWS, ["aio"]).markdown()


def test_a_tail_stands_beside_the_median() -> None:
    table = Table("Push", {"effect": [float(n) for n in range(1, 101)]}, [], "ms", tail=99)
    assert "|  | ms, median | p99 |" in table.markdown()
    assert "| effect | 50.5 | 99.0 |" in table.markdown()


@pytest.mark.parametrize(
    ("values", "tail", "found"),
    [
        ([5.0], 99, 5.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([1.0, 2.0], 50, 1.0),
        ([float(n) for n in range(1, 51)], 99, 50.0),
        ([float(n) for n in range(1, 201)], 99, 198.0),
    ],
)
def test_percentile(values: list[float], tail: int, found: float) -> None:
    """By nearest rank: always a figure that was measured, and of a few the largest."""
    assert percentile(values, tail) == found


def test_goals() -> None:
    """By the median of the ratios, by a percentile of the figures; one that can't be judged is not told."""
    found = [Table("Calls", ROWS, ["go"]), Table("Push", {"effect": [90.0, 110.0]}, [], "ms")]
    goals = [
        Goal("Calls", "own", "go", 0.8),
        Goal("Calls", "late", "go", 2.9),
        Goal("Calls", "own", "aio", 0.2),
        Goal("Elsewhere", "own", "go", 1.0),
        Bound("Push", "effect", 99, 100.0),
        Bound("Push", "effect", 50, 100.0),
        Bound("Push", "nothing", 99, 100.0),
    ]
    assert judged(goals, found).splitlines()[4:] == [
        "| Calls: own | ≤ 0.8 × go | 0.80 / 0.80 / 1.00 | yes |",
        "| Calls: late | ≤ 2.9 × go | 2.50 / 3.00 / 3.00 | **no** |",
        "| Push: effect | p99 < 100 ms | p99 110.0 ms | **no** |",
        "| Push: effect | p50 < 100 ms | p50 90.0 ms | yes |",
    ]
    assert judged(goals, []) == ""


def test_every_row_begins_once() -> None:
    rows = ["a", "b", "c"]
    assert [turns(rows, n) for n in range(4)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_a_run_is_kept_with_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    monkeypatch.setattr(tables, "commit", lambda: ("abc1234", True))
    path = tables.keep("rpc", [Table("Calls", ROWS, ["go"])], {"rounds": 3, "machine": {"cores": 2}})
    assert path.parent == tmp_path
    assert path.name.endswith("-abc1234-rpc.json")
    kept = json.loads(path.read_text("utf-8"))
    assert {name: kept[name] for name in ("what", "commit", "changed", "rounds", "machine")} == {
        "what": "rpc",
        "commit": "abc1234",
        "changed": True,
        "rounds": 3,
        "machine": {"cores": 2},
    }
    (table,) = kept["tables"]
    assert table["cpu_us"] == ROWS
    assert table["ratios"]["go"]["late"] == [2.5, 3.0, 3.0]


def test_figures_of_another_unit_have_its_name() -> None:
    assert Table("Push", {"effect": [1.0]}, [], "ms").plain()["ms"] == {"effect": [1.0]}


REPORT = """\
syscall               calls
---------------- ----------
epoll_pwait             800
write                   401
read                    400
futex                    40
getrandom                 4
---------------- ----------
total                  1645
"""


def test_system_calls() -> None:
    found = report_of(REPORT)
    assert found == {"epoll_pwait": 800, "write": 401, "read": 400, "futex": 40, "getrandom": 4}
    counts = Counts("Calls", {"Check": {name: n / 400 for name, n in found.items()}})
    assert counts.by_kind("Check") == pytest.approx(
        {"all": 4.1125, "wait": 2.0, "read": 1.0, "write": 1.0025, "futex": 0.1, "other": 0.01}
    )
    assert counts.markdown().splitlines()[2:] == [
        "|  | all | wait | read | write | futex | other |",
        "|---|---|---|---|---|---|---|",
        "| Check | 4.1 | 2.0 | 1.0 | 1.0 | 0.1 | 0.0 |",
    ]
    assert counts.plain()["calls"]["Check"] == {
        "epoll_pwait": 2.0,
        "write": 1.002,
        "read": 1.0,
        "futex": 0.1,
        "getrandom": 0.01,
    }
