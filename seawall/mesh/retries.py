"""Retries of side calls, and the predicate that keeps a retry off the host that has just failed."""

from seawall.mesh.envoy_types import core_v3, previous_hosts_v3
from seawall.mesh.message import packed, seconds
from seawall.mesh.names import GATE_CLUSTER

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
