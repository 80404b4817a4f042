"""Counting in a worker: plain integers, and snapshots that add up over workers.

A touch costs a dictionary update; nothing here knows Prometheus. Histograms are counts by bucket, so that snapshots of
several workers merge without loss.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from seawall.telemetry.catalog import BUCKETS, METRICS, Kind

Labels = tuple[str, ...]
Source = Callable[[], Iterable[tuple[str, Labels, float]]]


class Metrics:
    """Counters and histograms of one process; gauges are asked for when a snapshot is taken."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[float]] = {}
        self._gauges: list[Source] = []
        self._sources: list[Source] = []

    def count(self, name: str, *labels: str, n: float = 1) -> None:
        """Add `n` to a counter; labels in the order of the catalogue."""
        key = (name, labels)
        self._counters[key] = self._counters.get(key, 0) + n

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Put a value into a histogram: counts by bucket, then the sum."""
        key = (name, labels)
        counts = self._histograms.get(key)
        if counts is None:
            counts = self._histograms[key] = [0] * (len(BUCKETS) + 1) + [0.0]
        counts[bisect_left(BUCKETS, value)] += 1
        counts[-1] += value

    def counters(self, source: Source) -> None:
        """Register a source of counters that are kept elsewhere, as `gauges`."""
        self._sources.append(source)

    def gauges(self, source: Source) -> None:
        """Register a source of gauges: yields (name, labels, value) when asked."""
        self._gauges.append(source)

    def snapshot(self) -> dict[str, Any]:
        """Plain data (JSON): `counters`, `histograms` and `gauges` as lists of [name, labels, value]."""
        return {
            "counters": [
                *([name, list(labels), value] for (name, labels), value in self._counters.items()),
                *([name, list(labels), value] for source in self._sources for name, labels, value in source()),
            ],
            "histograms": [[name, list(labels), counts] for (name, labels), counts in self._histograms.items()],
            "gauges": [[n, list(labels), v] for source in self._gauges for n, labels, v in source()],
        }


class Totals:
    """Adds snapshots up: what workers said last, and what dead ones had counted."""

    def __init__(self) -> None:
        self._ended: dict[tuple[str, Labels], Any] = {}
        self._last: dict[str, Mapping[str, Any]] = {}

    def update(self, worker: str, snapshot: Mapping[str, Any]) -> None:
        """Keep the newest snapshot of a worker."""
        self._last[worker] = snapshot

    def silent(self, worker: str) -> None:
        """Forget the gauges of a worker that doesn't answer: what they say may be true no more."""
        if worker in self._last:
            self._last[worker] = {**self._last[worker], "gauges": ()}

    def ended(self, worker: str) -> None:
        """A worker is gone: its counters stay in the totals, its gauges don't."""
        snapshot = self._last.pop(worker, None)
        if snapshot is not None:
            _add(self._ended, snapshot)

    def series(self) -> dict[str, dict[Labels, Any]]:
        """Sum of all: by metric name and labels a number, or the list of a histogram."""
        merged: dict[tuple[str, Labels], Any] = {
            key: list(value) if isinstance(value, list) else value for key, value in self._ended.items()
        }
        for snapshot in self._last.values():
            _add(merged, snapshot)
            for name, labels, value in snapshot.get("gauges", ()):
                key = (name, tuple(labels))
                merged[key] = merged.get(key, 0) + value
        result: dict[str, dict[Labels, Any]] = {}
        for (name, labels), value in merged.items():
            if name in METRICS:
                result.setdefault(name, {})[labels] = value
        return result


def _add(into: dict[tuple[str, Labels], Any], snapshot: Mapping[str, Any]) -> None:
    for name, labels, value in snapshot.get("counters", ()):
        key = (name, tuple(labels))
        into[key] = into.get(key, 0) + value
    for name, labels, counts in snapshot.get("histograms", ()):
        key = (name, tuple(labels))
        have = into.get(key)
        into[key] = list(counts) if have is None else [a + b for a, b in zip(have, counts, strict=True)]


def is_histogram(name: str) -> bool:
    """Say whether a metric of the catalogue is a histogram."""
    return METRICS[name].kind is Kind.HISTOGRAM
