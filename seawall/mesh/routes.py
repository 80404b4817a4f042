"""Routes: by the pool that ext_proc chose, and by nothing that a client can send."""

from collections.abc import Sequence

from seawall.mesh import names
from seawall.mesh.affinity import hash_policy
from seawall.mesh.envoy_types import (
    core_v3,
    ext_authz_v3,
    ext_proc_v3,
    matcher_v3,
    metadata_v3,
    protobuf,
    ratelimit_v3,
    route_v3,
)
from seawall.mesh.message import Json, packed, plain, seconds
from seawall.mesh.retries import upstream_retries
from seawall.policy.compiled import Policy, Pool, Retries

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


def route_configuration(policy: Policy, descriptors: Descriptors) -> route_v3.RouteConfiguration:
    """Give it as a message.

    The rate limits hang on the virtual host, so they count for whichever route is in force when the filter runs: the
    last one, since no pool is chosen yet.
    """
    rate_limits = [_rate_limit(keys) for keys in dict.fromkeys(descriptors) if charged_by_envoy(keys)]
    if rate_limits:
        rate_limits.append(route_v3.RateLimit(actions=[_from_metadata(names.VERSION_KEY, "policy")]))
    limits: dict[str, protobuf.Any] = (
        {names.RATELIMIT: packed(ratelimit_v3.RateLimitPerRoute(rate_limits=rate_limits))} if rate_limits else {}
    )
    routes = [*(_to_pool(policy.pools[name], policy.retries) for name in sorted(policy.pools)), _no_pool()]
    profiles = {name: profile.hosts for name, profile in sorted(policy.profiles.items()) if profile.hosts}
    return route_v3.RouteConfiguration(
        name=names.ROUTE_CONFIG,
        virtual_hosts=[
            *(
                _virtual_host(f"profile_{name}", hosts, routes, limits | profile_per_route(name))
                for name, hosts in profiles.items()
            ),
            _virtual_host("all", ["*"], routes, limits),
        ],
        # A host counts with any port and without.
        ignore_port_in_host_matching=bool(profiles),
    )


def _virtual_host(
    name: str, hosts: Sequence[str], routes: Sequence[route_v3.Route], per_filter: dict[str, protobuf.Any]
) -> route_v3.VirtualHost:
    return route_v3.VirtualHost(
        name=name,
        domains=list(hosts),
        routes=list(routes),
        typed_per_filter_config=per_filter,
        include_request_attempt_count=True,
    )


def profile_per_route(profile: str) -> dict[str, protobuf.Any]:
    """Tell both services which profile of the policy a route's requests have."""
    authz = ext_authz_v3.ExtAuthzPerRoute(
        check_settings=ext_authz_v3.CheckSettings(context_extensions={names.PROFILE: profile})
    )
    ext_proc = ext_proc_v3.ExtProcPerRoute(
        overrides=ext_proc_v3.ExtProcOverrides(
            grpc_initial_metadata=[core_v3.HeaderValue(key=names.PROFILE, value=profile)]
        )
    )
    return {names.AUTHZ: packed(authz), names.EXT_PROC: packed(ext_proc)}


def _rate_limit(keys: tuple[str, ...]) -> route_v3.RateLimit:
    return route_v3.RateLimit(actions=[_action(key) for key in keys])


def _action(key: str) -> route_v3.RateLimitAction:
    """Fill one entry. Without a value (an address that no region is known for) Envoy leaves out the descriptor."""
    if key == REMOTE_ADDRESS:
        return route_v3.RateLimitAction(remote_address=route_v3.RateLimitActionRemoteAddress())
    return _from_metadata(key, key)


def _from_metadata(key: str, name: str) -> route_v3.RateLimitAction:
    """Fill one entry with what ext_authz said."""
    return route_v3.RateLimitAction(
        metadata=route_v3.RateLimitActionMetaData(
            descriptor_key=key,
            metadata_key=metadata_v3.MetadataKey(key=names.AUTHZ, path=[metadata_v3.MetadataKeyPathSegment(key=name)]),
        )
    )


def _to_pool(pool: Pool, retries: Retries) -> route_v3.Route:
    return route_v3.Route(
        name=pool.name,
        match=route_v3.RouteMatch(
            prefix="/",
            headers=[
                route_v3.HeaderMatcher(name=names.POOL_HEADER, string_match=matcher_v3.StringMatcher(exact=pool.name))
            ],
        ),
        route=route_v3.RouteAction(
            cluster=names.pool_cluster(pool.name),
            # The default of 15 s would cut long answers; the stream's idle timeout still holds.
            timeout=seconds(0),
            # A TLS server with several names goes by the host header.
            auto_host_rewrite=True if any(engine.tls for engine in pool.engines) else None,
            retry_policy=upstream_retries(retries),
            hash_policy=hash_policy(pool),
        ),
    )


def _no_pool() -> route_v3.Route:
    """Catch what reaches the router without a pool: fail closed, so that nothing runs uncounted.

    Every request is here until ext_proc has chosen, and ratelimit is not called at all unless the route in force has a
    cluster that exists: hence a cluster without endpoints (503 by the router), not a direct response.
    """
    return route_v3.Route(
        name=names.NO_POOL,
        match=route_v3.RouteMatch(prefix="/"),
        route=route_v3.RouteAction(cluster=names.NO_POOL, timeout=seconds(0)),
    )
