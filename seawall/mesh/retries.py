"""Retries: of side calls on another worker, of requests on another engine."""

import math

from seawall.mesh.envoy_types import core_v3, previous_hosts_v3, route_v3
from seawall.mesh.message import packed, seconds
from seawall.mesh.names import GATE_CLUSTER
from seawall.policy.compiled import Pool, Retries

PREVIOUS_HOSTS = "envoy.retry_host_predicates.previous_hosts"
HOST_ATTEMPTS = 50
"""Draws for a host that was not tried yet. Of two workers LEAST_REQUEST draws the idle dead one three times in four: ten
draws miss the living one in 1 of 18 retries (seen in a soak of 50 kills), fifty in none of a million."""

PER_TRY_S = 1.0
"""Time-out of one try of a unary side call: a worker that hangs costs this, then another one is asked."""


def gate_service(timeout_s: float | None) -> core_v3.GrpcService:
    """Call the gate, on another worker where one gave no answer at all.

    The policy counts at this level only: inside `envoy_grpc` it was seen to do nothing. `timeout_s` is the deadline of
    a call, None for a stream that lives as long as its request.
    """
    return core_v3.GrpcService(
        envoy_grpc=core_v3.GrpcServiceEnvoyGrpc(cluster_name=GATE_CLUSTER),
        timeout=None if timeout_s is None else seconds(timeout_s),
        retry_policy=core_v3.RetryPolicy(
            # A call that was on its way when a worker said GOAWAY is answered CANCELLED by grpcio.
            retry_on="connect-failure,refused-stream,reset,unavailable,cancelled",
            num_retries=3,
            # Envoy's default base is 1 s, as long as half of the deadline. It takes `max_interval` for the time-out of
            # each try as well (convertCoreToRouteRetryPolicy): one below our store's time-out would cut every call
            # that has to wait for the store. Three retries from 10 ms never come near it as a back-off.
            retry_back_off=core_v3.BackoffStrategy(base_interval=seconds(0.01), max_interval=seconds(PER_TRY_S)),
            retry_host_predicate=[
                core_v3.RetryPolicyRetryHostPredicate(
                    name=PREVIOUS_HOSTS, typed_config=packed(previous_hosts_v3.PreviousHostsPredicate())
                )
            ],
            host_selection_retry_max_attempts=HOST_ATTEMPTS,
        ),
    )


LEAST_RETRIES = 10
"""At one time in a pool, however small: of a few requests a share would be none."""


def upstream_retries(retries: Retries) -> route_v3.RetryPolicy | None:
    """Try another engine where this one has not begun to answer. The filters run once, so it is charged once.

    A retry needs the answer's headers not to be on their way, so no answer that a client has begun to read is retried.
    """
    if not retries.attempts:
        return None
    conditions = [on for on in retries.on if not on.isdigit()]
    statuses = [int(on) for on in retries.on if on.isdigit()]
    shortest, longest = retries.backoff_s
    return route_v3.RetryPolicy(
        retry_on=",".join([*conditions, *(["retriable-status-codes"] if statuses else [])]),
        retriable_status_codes=statuses,
        num_retries=retries.attempts,
        retry_host_predicate=[
            route_v3.RetryPolicyRetryHostPredicate(
                name=PREVIOUS_HOSTS, typed_config=packed(previous_hosts_v3.PreviousHostsPredicate())
            )
        ],
        host_selection_retry_max_attempts=HOST_ATTEMPTS,
        # Retry N comes after a random time of up to (2^N - 1) times the first, never more than the second. Unlike that
        # of a side call, this is no time-out.
        retry_back_off=route_v3.RetryPolicyRetryBackOff(base_interval=seconds(shortest), max_interval=seconds(longest)),
        rate_limited_retry_back_off=_told_by_engines(retries.retry_after_s) if retries.retry_after_s else None,
    )


def _told_by_engines(longest_s: float) -> route_v3.RetryPolicyRateLimitedRetryBackOff:
    """Wait as long as an engine says, and up to half as long again.

    A wait that is longer than this, or a date, is passed over: the ordinary back-off counts, and most likely another
    engine is asked. It counts on the statuses that are retried, whichever they are.
    """
    return route_v3.RetryPolicyRateLimitedRetryBackOff(
        max_interval=seconds(longest_s),
        reset_headers=[
            route_v3.RetryPolicyResetHeader(name="retry-after", format=route_v3.RetryPolicyResetHeaderFormat.SECONDS)
        ],
    )


def retry_budget(pool: Pool, retries: Retries) -> int:
    """Retries of a pool that one Envoy may have under way at one time.

    Envoy's own `retry_budget` is a share of the requests that are with an engine now. Those of an engine that refuses at
    once are not, so it would be smallest when it is needed. The pool's slots bound what is in flight already: a retry
    keeps its slot, so retries add tries, never concurrency.
    """
    return max(LEAST_RETRIES, math.ceil(retries.budget * pool.max_in_flight))
