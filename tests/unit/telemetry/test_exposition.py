"""Totals as Prometheus reads them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seawall import __version__
from seawall.telemetry.catalog import BUCKETS, METRICS, Kind
from seawall.telemetry.exposition import Series, render
from seawall.telemetry.metrics import Metrics, Totals


def samples(series: Series) -> dict[str, float]:
    """What a Prometheus reads: value by name and labels, in the text's own notation without escapes."""
    families = list(text_string_to_metric_families(render(series).decode()))
    return {named(s.name, **s.labels): s.value for family in families for s in family.samples}


def named(name: str, **labels: str) -> str:
    """Name of a series."""
    return name + repr(sorted(labels.items()))


def test_every_metric_is_described() -> None:
    """Every metric of the catalogue is there with its type and its meaning before anything was counted."""
    found = {f.name: f for f in text_string_to_metric_families(render({}).decode())}
    for name, metric in METRICS.items():
        family = found[name.removesuffix("_total")]
        # Prometheus calls a type that nobody names `unknown` when it reads and `untyped` in its text.
        kind = "unknown" if metric.kind is Kind.UNTYPED else metric.kind.value
        assert (family.type, family.documentation) == (kind, metric.help)
        assert family.samples == []
    assert samples({})[named("seawall_build_info", version=__version__)] == 1


def test_names() -> None:
    """Names and labels are Prometheus's: counters end in _total, nothing else does, and no label is one of its own.

    Names of envoyproxy/ratelimit are its own, and those alone are without a type.
    """
    for name, metric in METRICS.items():
        assert name.startswith(("seawall_", "ratelimit_service_"))
        assert metric.kind is not Kind.UNTYPED or name.startswith("ratelimit_service_")
        assert name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert len(set(metric.labels)) == len(metric.labels)
        assert not {"le", "quantile", "job", "instance"} & set(metric.labels)


def test_whole_way() -> None:
    """What workers count is what Prometheus reads: counters, gauges, and buckets that hold those below them."""
    totals = Totals()
    for worker in ("w0", "w1"):
        metrics = Metrics()
        metrics.count("seawall_requests_total", "big", "vip", "ok", n=2)
        metrics.observe("seawall_request_seconds", 0.02, "big")
        metrics.observe("seawall_request_seconds", 7.0, "big")
        metrics.observe("seawall_request_seconds", 999.0, "big")
        metrics.gauges(lambda worker=worker: [("seawall_store_up", (worker,), 1.0), ("seawall_streams", (), 3)])
        totals.update(worker, metrics.snapshot())
    read = samples(totals.series())
    assert read[named("seawall_requests_total", pool="big", reason="ok", **{"class": "vip"})] == 4
    assert read[named("seawall_streams")] == 6
    assert read[named("seawall_store_up", worker="w1")] == 1
    assert read[named("seawall_request_seconds_count", pool="big")] == 6
    assert read[named("seawall_request_seconds_sum", pool="big")] == 2 * (0.02 + 7.0 + 999.0)
    buckets = [read[named("seawall_request_seconds_bucket", pool="big", le=str(bound))] for bound in BUCKETS]
    assert buckets == [0 if b < 0.02 else 2 if b < 7 else 4 for b in BUCKETS]
    assert read[named("seawall_request_seconds_bucket", pool="big", le="+Inf")] == 6


@pytest.mark.parametrize("value", ['a"b', "a\nb", "a\\b", "ü", "", "{}", "a,b=c"])
def test_label_values(value: str) -> None:
    """Any text of a policy is a label's value."""
    read = samples({"seawall_limit_hits_total": {(value, "ok"): 1}})
    assert read[named("seawall_limit_hits_total", limit=value, outcome="ok")] == 1


def test_large_numbers() -> None:
    """A count that needs more digits than a float shows is still a number."""
    read = samples({"seawall_tokens_total": {("big", "input"): 2**53}})
    assert read[named("seawall_tokens_total", pool="big", direction="input")] == 2.0**53
