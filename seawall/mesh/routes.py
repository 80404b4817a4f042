"""Routes: by the pool that ext_proc chose, and by nothing that a client can send."""

from collections.abc import Sequence

from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.config.route.v3 import (
    DirectResponseAction,
    HeaderMatcher,
    RateLimit,
    RateLimitAction,
    RateLimitActionMetaData,
    RateLimitActionRemoteAddress,
    RetryPolicy,
    RetryPolicyRateLimitedRetryBackOff,
    RetryPolicyResetHeader,
    RetryPolicyResetHeaderFormat,
    RetryPolicyRetryBackOff,
    RetryPolicyRetryHostPredicate,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.filters.http.ratelimit.v3 import RateLimitPerRoute
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.envoy.type.metadata.v3 import MetadataKey, MetadataKeyPathSegment

from seawall.mesh import names
from seawall.mesh.message import Json, packed, plain, seconds
from seawall.mesh.retries import HOST_ATTEMPTS, PREVIOUS_HOSTS
from seawall.policy.compiled import Policy, Pool

Descriptors = Sequence[tuple[str, ...]]
"""Keys of each descriptor that is sent to ratelimit: [("tenant",), ("tenant", "class")]."""

METADATA_KEYS = frozenset({"tenant", "class", "key", "region"})
"""Descriptor keys that ext_authz writes into its metadata, as strings (Envoy reads no numbers there)."""
REMOTE_ADDRESS = "remote_address"


def charged_by_envoy(keys: Sequence[str]) -> bool:
    """Say whether Envoy can fill a descriptor; what needs the body (`model`) is charged by ext_proc."""
    return bool(keys) and all(key in METADATA_KEYS or key == REMOTE_ADDRESS for key in keys)


def routes(policy: Policy, descriptors: Descriptors = ()) -> Json:
    """Give the route configuration; descriptors that Envoy can't fill are left out."""
    return plain(route_configuration(policy, descriptors))


def route_configuration(policy: Policy, descriptors: Descriptors) -> RouteConfiguration:
    """Give it as a message.

    The rate limits hang on the virtual host, so they count for whichever route is in force when the filter runs: the
    last one, since no pool is chosen yet.
    """
    rate_limits = [_rate_limit(keys) for keys in dict.fromkeys(descriptors) if charged_by_envoy(keys)]
    return RouteConfiguration(
        name=names.ROUTE_CONFIG,
        virtual_hosts=[
            VirtualHost(
                name="all",
                domains=["*"],
                routes=[*(_to_pool(policy.pools[name]) for name in sorted(policy.pools)), _no_pool()],
                typed_per_filter_config={names.RATELIMIT: packed(RateLimitPerRoute(rate_limits=rate_limits))}
                if rate_limits
                else {},
                include_request_attempt_count=True,
            )
        ],
    )


def _rate_limit(keys: tuple[str, ...]) -> RateLimit:
    return RateLimit(actions=[_action(key) for key in keys])


def _action(key: str) -> RateLimitAction:
    """Fill one entry. Without a value (an address that no region is known for) Envoy leaves out the descriptor."""
    if key == REMOTE_ADDRESS:
        return RateLimitAction(remote_address=RateLimitActionRemoteAddress())
    return RateLimitAction(
        metadata=RateLimitActionMetaData(
            descriptor_key=key,
            metadata_key=MetadataKey(key=names.AUTHZ, path=[MetadataKeyPathSegment(key=key)]),
        )
    )


def _to_pool(pool: Pool) -> Route:
    return Route(
        name=pool.name,
        match=RouteMatch(
            prefix="/",
            headers=[HeaderMatcher(name=names.POOL_HEADER, string_match=StringMatcher(exact=pool.name))],
        ),
        route=RouteAction(
            cluster=names.pool_cluster(pool.name),
            # The default of 15 s would cut long answers; the stream's idle timeout still holds.
            timeout=seconds(0),
            # A TLS server with several names goes by the host header.
            auto_host_rewrite=True if any(engine.tls for engine in pool.engines) else None,
            retry_policy=_upstream_retries(),
        ),
    )


def _no_pool() -> Route:
    """Answer what reaches the router without a pool: fail closed, so that nothing runs uncounted.

    Every request is here until ext_proc has chosen. The body is written by the local reply mappers.
    """
    return Route(
        name="no_pool",
        match=RouteMatch(prefix="/"),
        direct_response=DirectResponseAction(status=503, body=DataSource(inline_string="no pool")),
    )


def _upstream_retries() -> RetryPolicy:
    """Try another engine where this one has not begun to answer. The filters run once, so it is charged once."""
    return RetryPolicy(
        retry_on="connect-failure,refused-stream,reset-before-request,retriable-status-codes",
        retriable_status_codes=[503],
        num_retries=2,
        retry_host_predicate=[
            RetryPolicyRetryHostPredicate(name=PREVIOUS_HOSTS, typed_config=packed(PreviousHostsPredicate()))
        ],
        host_selection_retry_max_attempts=HOST_ATTEMPTS,
        retry_back_off=RetryPolicyRetryBackOff(base_interval=seconds(0.1), max_interval=seconds(2)),
        # An engine that says when is asked no sooner, unless that is longer than a client should be kept for it.
        rate_limited_retry_back_off=RetryPolicyRateLimitedRetryBackOff(
            max_interval=seconds(5),
            reset_headers=[RetryPolicyResetHeader(name="retry-after", format=RetryPolicyResetHeaderFormat.SECONDS)],
        ),
    )
