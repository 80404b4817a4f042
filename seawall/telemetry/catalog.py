"""Every metric: name, kind, labels, meaning. docs/metrics.md is checked against this table.

Label values are bounded: they come from the policy or from closed lists, never from what a client sends.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus type; UNTYPED is a counter whose name, given by others, lacks `_total`.

    Gauges of several workers are added unless the metric has a `worker` label.
    """

    COUNTER = "counter"
    UNTYPED = "untyped"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. `help` is what Prometheus shows."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of latency histograms, in seconds."""

_C, _G, _H, _U = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.UNTYPED
_RULE = ("domain", "key1", "key2")

METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("seawall_decisions_total", _C, "Calls decided, by service and reason.", ("service", "reason")),
        Metric(
            "seawall_requests_total",
            _C,
            "LLM requests that ended, by pool, class and reason.",
            ("pool", "class", "reason"),
        ),
        Metric("seawall_request_seconds", _H, "From the request's headers to the end of its answer.", ("pool",)),
        Metric("seawall_tokens_total", _C, "Tokens that engines reported.", ("pool", "direction")),
        Metric(
            "seawall_tokens_estimated_total",
            _C,
            "Tokens that we counted where engines reported none.",
            ("pool", "direction"),
        ),
        Metric(
            "seawall_tokens_part_total",
            _C,
            "Tokens of which kind they were: cached prompt, reasoning.",
            ("pool", "part"),
        ),
        Metric("seawall_truncated_total", _C, "Answers that a cap cut, by cap (tokens, bytes, time).", ("pool", "cap")),
        Metric("seawall_unread_answers_total", _C, "Answers of which a part passed unread.", ("pool",)),
        Metric("seawall_usage_unknown_total", _C, "Answers that ended without usage.", ("pool",)),
        Metric("seawall_streams", _G, "Open ext_proc streams."),
        Metric("seawall_slots", _G, "Slots held, over all workers of this supervisor.", ("pool",)),
        Metric("seawall_slots_limit", _G, "Limit of requests in flight.", ("pool", "worker")),
        Metric(
            "seawall_slots_local_total", _C, "Slots granted from the local share while the store was away.", ("pool",)
        ),
        Metric(
            "seawall_slots_overshoot_total",
            _C,
            "Slots above a pool's limit that the store learned of when workers told it what they hold.",
            ("pool",),
        ),
        Metric("seawall_limit_hits_total", _C, "Hits charged, by limit and outcome (ok, over).", ("limit", "outcome")),
        Metric("seawall_limit_local_total", _C, "Calls decided by store_loss.limits while the store was away."),
        Metric("seawall_store_up", _G, "1 while the worker's store answers.", ("worker",)),
        Metric("seawall_store_errors_total", _C, "Store calls that got no answer.", ("call",)),
        Metric(
            "seawall_policy_version",
            _G,
            "Version of the policy in force, by role (current, canary); 0 is none.",
            ("worker", "role"),
        ),
        Metric("seawall_policy_held", _G, "Versions that running requests may name.", ("worker",)),
        Metric(
            "seawall_policy_fallback_total",
            _C,
            "Requests that named a version the worker does not hold; decided by the current one.",
            ("service",),
        ),
        Metric("seawall_keys", _G, "API keys of the store that a worker knows, revoked ones included.", ("worker",)),
        Metric(
            "seawall_policy_check_age_seconds",
            _G,
            "Since the last successful look at the current version.",
            ("worker",),
        ),
        Metric("seawall_policy_refused_total", _C, "Versions that a worker would not load; it kept the last good one."),
        Metric(
            "seawall_policy_unsure_total", _C, "Versions that a worker used although Envoy may not have their pools."
        ),
        Metric("seawall_route_settings_refused_total", _C, "Requests of a route whose setting is wrong.", ("key",)),
        Metric("seawall_faults_total", _C, "Faults of our own, each logged with its place.", ("where",)),
        Metric("seawall_log_dropped_total", _C, "Log lines dropped because the reader of the log was too slow."),
        Metric("seawall_workers", _G, "Workers by state (starting, serving, draining).", ("state",)),
        Metric("seawall_xds_connected", _G, "1 while the stream to the xDS server is open."),
        Metric(
            "seawall_xds_disconnected_seconds", _G, "Since the stream to the xDS server was lost; 0 while it is open."
        ),
        Metric("seawall_xds_updates_total", _C, "Updates from the xDS server, by outcome.", ("outcome",)),
        Metric("seawall_xds_refused", _G, "1 while the last update was refused and the rules before it stay."),
        Metric("seawall_xds_resources", _G, "Resources of the update in force."),
        Metric("seawall_xds_config_age_seconds", _G, "Since the last update that was accepted."),
        Metric(
            "seawall_xds_stream_ends_total", _C, "Ends of streams and failed connections, by gRPC status.", ("status",)
        ),
        Metric("seawall_connections", _G, "Client connections of SEAWALL_LISTEN that a worker holds.", ("worker",)),
        Metric(
            "seawall_worker_restarts_total",
            _C,
            "Workers that another took the place of, by why (died, hung, left, roll).",
            ("why",),
        ),
        Metric(
            "seawall_limit_configured",
            _G,
            "Requests that a window of a limit lets through; window is its length in seconds.",
            ("domain", "limit", "window", "worker"),
        ),
        Metric("ratelimit_service_rate_limit_total_hits", _U, "Hits of a limit.", _RULE),
        Metric("ratelimit_service_rate_limit_within_limit", _U, "Hits within a limit.", _RULE),
        Metric("ratelimit_service_rate_limit_near_limit", _U, "Hits above NEAR_LIMIT_RATIO of a limit.", _RULE),
        Metric("ratelimit_service_rate_limit_over_limit", _U, "Hits over a limit.", _RULE),
        Metric("ratelimit_service_rate_limit_shadow_mode", _U, "Hits over a shadow limit.", _RULE),
        Metric(
            "ratelimit_service_rate_limit_over_limit_with_local_cache",
            _U,
            "Hits that the over-limit cache refused.",
            _RULE,
        ),
        Metric(
            "ratelimit_service_rate_limit_domain_not_found", _U, "Descriptors of a domain without rules.", ("domain",)
        ),
        Metric("ratelimit_service_global_shadow_mode", _U, "Calls over a limit that SHADOW_MODE let pass."),
        Metric(
            "ratelimit_service_should_rate_limit_error",
            _U,
            "Calls that got an error: redis_error, service_error.",
            ("err_type",),
        ),
        Metric("ratelimit_service_total_requests", _U, "Calls by method.", ("grpc_method",)),
        Metric("ratelimit_service_response_time_seconds", _H, "From a call to its answer.", ("grpc_method",)),
        Metric("ratelimit_service_config_load_success", _U, "Sets of rule files that a worker put in force."),
        Metric("ratelimit_service_config_load_error", _U, "Sets of rule files that a worker refused."),
    )
}
