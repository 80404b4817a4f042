"""Statistics of envoyproxy/ratelimit under its own names, made of the same counters as its Prometheus names."""

from collections.abc import Iterator, Mapping
from typing import Any

_HEAD = "ratelimit_service_"
_RULE = _HEAD + "rate_limit_"
_PLAIN = {
    "should_rate_limit_error": "ratelimit.service.call.should_rate_limit",
    "total_requests": "ratelimit_server",
}


def go_names(series: Mapping[str, Mapping[tuple[str, ...], Any]]) -> Iterator[tuple[str, int]]:
    """Name and number of each counter, of those that `Totals.series` has."""
    for metric, rows in series.items():
        if not metric.startswith(_HEAD) or metric.endswith("_seconds"):
            continue
        for labels, number in rows.items():
            yield _name(metric, labels), int(number)


def _name(metric: str, labels: tuple[str, ...]) -> str:
    if metric.startswith(_RULE):
        return ".".join(["ratelimit.service.rate_limit", *filter(None, labels), metric.removeprefix(_RULE)])
    last = metric.removeprefix(_HEAD)
    if last == "total_requests":
        return f"{_PLAIN[last]}.{labels[0]}.{last}"
    return ".".join([_PLAIN.get(last, f"ratelimit.service.{last}"), *labels])
