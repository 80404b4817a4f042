"""Counting in workers, and adding up over them."""

import json
from typing import Any

from seawall.telemetry.catalog import BUCKETS
from seawall.telemetry.metrics import Metrics, Totals, is_histogram

DECISIONS, SECONDS, TOKENS = "seawall_decisions_total", "seawall_request_seconds", "seawall_tokens_total"
OK = ("ext_proc", "ok")


def snapshot(decisions: float = 0, seconds: tuple[float, ...] = (), streams: float | None = None) -> dict[str, Any]:
    """Snapshot of a worker, as it comes over its control line."""
    metrics = Metrics()
    if decisions:
        metrics.count(DECISIONS, *OK, n=decisions)
    for value in seconds:
        metrics.observe(SECONDS, value, "big")
    if streams is not None:
        metrics.gauges(lambda: [("seawall_streams", (), streams)])
    found: dict[str, Any] = json.loads(json.dumps(metrics.snapshot()))
    return found


def test_counters() -> None:
    """A counter counts by its labels."""
    metrics = Metrics()
    metrics.count(DECISIONS, *OK)
    metrics.count(DECISIONS, *OK, n=2)
    metrics.count(DECISIONS, "ext_proc", "overloaded")
    metrics.count(TOKENS, "big", "input", n=0)
    assert metrics.snapshot()["counters"] == [
        [DECISIONS, ["ext_proc", "ok"], 3],
        [DECISIONS, ["ext_proc", "overloaded"], 1],
        [TOKENS, ["big", "input"], 0],
    ]


def test_histogram() -> None:
    """A value counts in the first bucket that holds it, its bound included; the sum is kept beside."""
    metrics = Metrics()
    for value in (0.0, 0.005, 0.0051, 300.0, 300.1, 1e9):
        metrics.observe(SECONDS, value, "big")
    [[name, labels, counts]] = metrics.snapshot()["histograms"]
    assert (name, labels) == (SECONDS, ["big"])
    assert len(counts) == len(BUCKETS) + 2
    assert (counts[:2], counts[-3:-1]) == ([2, 1], [1, 2])
    assert sum(counts[:-1]) == 6
    assert counts[-1] == 0.0 + 0.005 + 0.0051 + 300.0 + 300.1 + 1e9


def test_gauges_are_asked_for() -> None:
    """A gauge has the value of the moment at which it is asked for."""
    metrics, held = Metrics(), [1]
    metrics.gauges(lambda: [("seawall_slots", ("big",), held[0])])
    held[0] = 7
    assert metrics.snapshot()["gauges"] == [["seawall_slots", ["big"], 7]]


def test_workers_add_up() -> None:
    """Counters, histograms and gauges of several workers are added; a newer snapshot takes the place of the older."""
    totals = Totals()
    totals.update("w0", snapshot(1, (0.001,), 2))
    totals.update("w0", snapshot(3, (0.0, 9.0), 4))
    totals.update("w1", snapshot(10, (0.0, 1000.0), 5))
    series = totals.series()
    assert series[DECISIONS] == {OK: 13}
    assert series["seawall_streams"] == {(): 9}
    counts = series[SECONDS]["big",]
    assert (counts[0], counts[BUCKETS.index(10.0)], counts[len(BUCKETS)], counts[-1]) == (2, 1, 1, 1009.0)
    assert totals.series() == series


def test_dead_workers_stay_counted() -> None:
    """What a dead worker had counted stays in the totals for good; its gauges are gone."""
    totals = Totals()
    totals.update("11", snapshot(3, (0.001,), 4))
    totals.update("12", snapshot(5, (0.001,), 1))
    totals.ended("11")
    for _ in range(2):
        series = totals.series()
        assert series[DECISIONS] == {OK: 8}
        assert series[SECONDS]["big",][0] == 2
        assert series["seawall_streams"] == {(): 1}
    totals.update("13", snapshot(1))
    totals.ended("12")
    totals.ended("12")
    assert totals.series()[DECISIONS] == {OK: 9}
    assert "seawall_streams" not in totals.series()


def test_nothing() -> None:
    """Workers that have counted nothing, or died before they said anything, add nothing."""
    totals = Totals()
    totals.update("w0", snapshot())
    totals.update("w1", {})
    totals.ended("never seen")
    assert totals.series() == {}


def test_only_what_the_catalogue_names() -> None:
    """A worker of another release may count what we do not know: it is left out."""
    totals = Totals()
    totals.update("w0", {"counters": [["seawall_of_tomorrow_total", [], 1], [DECISIONS, list(OK), 1]]})
    assert set(totals.series()) == {DECISIONS}


def test_kinds() -> None:
    """The catalogue says what is a histogram."""
    assert is_histogram(SECONDS)
    assert not is_histogram(DECISIONS)
