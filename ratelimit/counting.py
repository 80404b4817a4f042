"""Statistics of envoyproxy/ratelimit, counted in a worker: hits by rule, errors, calls.

The names are its Prometheus names (src/stats, its statsd mapping); docs/metrics.md tells where ours differ. What is named
by values of requests is bounded: beyond MOST_NAMES everything is counted in one name.
"""

from collections.abc import Iterator

from seawall.limits.answer import Answer, Asked
from seawall.limits.statistics import Hits, path, safe
from seawall.telemetry.metrics import Metrics

MOST_NAMES = 2_000
"""Names in one worker: they travel to its supervisor once a second."""
OTHERS = ("(others)", "", "")
_RULE = "ratelimit_service_rate_limit_"
_FIELDS = tuple(_RULE + name for name in ("total_hits", "within_limit", "near_limit", "over_limit", "shadow_mode"))
_CACHED = _RULE + "over_limit_with_local_cache"
_NOT_FOUND = _RULE + "domain_not_found"
Name = tuple[str, str, str]


class Counting:
    """Adds up what calls say, and gives it to the worker's metrics when they are asked for."""

    def __init__(self, metrics: Metrics):
        self._metrics = metrics
        self._rules: dict[Name, list[int]] = {}
        self._known: dict[tuple[str, str], Name] = {}
        """Names of rules that no value is part of, by domain and label."""
        self._not_found: dict[str, int] = {}
        metrics.counters(self._told)

    def answered(self, asked: Asked, told: Answer) -> None:
        """Count one call that was answered."""
        if asked.unknown_domain:
            domain = safe(asked.plan.domain)
            if domain not in self._not_found and len(self._not_found) >= MOST_NAMES:
                domain = OTHERS[0]
            self._not_found[domain] = self._not_found.get(domain, 0) + len(asked.descriptors)
        if told.shadowed:
            self._metrics.count("ratelimit_service_global_shadow_mode")
        domain = asked.plan.domain
        for step, hits in told.counted:
            fixed = step.match is not None and not step.limit.named_by_values
            name = self._known.get((domain, step.limit.label)) if fixed else None
            if name is None:
                name = _name(domain, path(step, asked.descriptors[step.position].entries))
                if fixed and len(self._known) < MOST_NAMES:
                    self._known[domain, step.limit.label] = name
            self._add(name, hits)

    def _add(self, name: Name, hits: Hits) -> None:
        row = self._rules.get(name)
        if row is None:
            if len(self._rules) >= MOST_NAMES:
                name = OTHERS
            row = self._rules.setdefault(name, [0] * len(hits))
        for index, number in enumerate(hits):
            if number:
                row[index] += number

    def failed(self, *, store: bool) -> None:
        """Count a call that got an error: of the store, or because of what was asked."""
        kind = "redis_error" if store else "service_error"
        self._metrics.count("ratelimit_service_should_rate_limit_error", kind)

    def called(self, seconds: float) -> None:
        """Count a call, however it ended."""
        self._metrics.count("ratelimit_service_total_requests", "ShouldRateLimit")
        self._metrics.observe("ratelimit_service_response_time_seconds", seconds, "ShouldRateLimit")

    def _told(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        for name, (total, within, near, over, shadow, cached) in self._rules.items():
            for field, number in zip((*_FIELDS, _CACHED), (total, within, near, over, shadow, cached), strict=True):
                if number:
                    yield field, name, number
        for domain, number in self._not_found.items():
            yield _NOT_FOUND, (domain,), number


def _name(domain: str, path: str) -> Name:
    """Domain, first level, and all levels below it."""
    first, _, rest = safe(path).partition(".")
    return safe(domain), first, rest
