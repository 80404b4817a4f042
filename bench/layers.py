"""Configurations of Envoy with some of our filters, made from the one that `seawall envoy-config` writes."""

import copy
from collections.abc import Collection, Mapping
from typing import Any

from seawall.mesh.names import AUTHZ, EXT_PROC, GATE_CLUSTER, POOL_HEADER, RATELIMIT

Json = dict[str, Any]
FILTERS = (AUTHZ, RATELIMIT, EXT_PROC)


def manager_of(configuration: Json) -> Json:
    """The HTTP connection manager of the one listener."""
    (listener,) = configuration["static_resources"]["listeners"]
    (network,) = listener["filter_chains"][0]["filters"]
    manager: Json = network["typed_config"]
    return manager


def with_filters(configuration: Json, kept: Collection[str], values: Mapping[str, str]) -> Json:
    """Take the other filters of ours out, and with them what rests on them. The argument is left as it is.

    Without ext_proc nobody chooses a pool: every request goes to the first one. Without ext_authz there is no metadata to
    make descriptors of: `values` gives the value of each key.
    """
    made = copy.deepcopy(configuration)
    manager = manager_of(made)
    manager["http_filters"] = [f for f in manager["http_filters"] if f["name"] in kept or f["name"] not in FILTERS]
    (host,) = manager["route_config"]["virtual_hosts"]
    if RATELIMIT not in kept:
        host.get("typed_per_filter_config", {}).pop(RATELIMIT, None)
    elif AUTHZ not in kept:
        for limit in host["typed_per_filter_config"][RATELIMIT]["rate_limits"]:
            limit["actions"] = [_constant(action["metadata"]["descriptor_key"], values) for action in limit["actions"]]
    if EXT_PROC not in kept:
        route = next(r for r in host["routes"] if _pool_match(r))
        route["match"]["headers"] = [h for h in route["match"]["headers"] if h["name"] != POOL_HEADER]
        host["routes"] = [route]
    if not kept:
        clusters = made["static_resources"]["clusters"]
        made["static_resources"]["clusters"] = [c for c in clusters if c["name"] != GATE_CLUSTER]
    return made


def _pool_match(route: Json) -> bool:
    return any(header["name"] == POOL_HEADER for header in route["match"].get("headers", ()))


def _constant(key: str, values: Mapping[str, str]) -> Json:
    return {"generic_key": {"descriptor_key": key, "descriptor_value": values[key]}}


def cluster_of(filter_: str) -> str:
    """Name the cluster of one service, where each has one."""
    return f"{GATE_CLUSTER}_{filter_.rpartition('.')[2]}"


def split(configuration: Json, sockets: Mapping[str, str]) -> Json:
    """Give each filter a cluster of its own; `sockets` is by filter. The argument is left as it is."""
    made = copy.deepcopy(configuration)
    clusters = made["static_resources"]["clusters"]
    (gate,) = (cluster for cluster in clusters if cluster["name"] == GATE_CLUSTER)
    clusters.remove(gate)
    for filter_, socket in sockets.items():
        cluster = copy.deepcopy(gate)
        cluster["name"] = cluster["load_assignment"]["cluster_name"] = cluster_of(filter_)
        endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        del endpoints[1:]
        endpoints[0]["endpoint"]["address"]["pipe"]["path"] = socket
        clusters.append(cluster)
    for filter_ in manager_of(made)["http_filters"]:
        if filter_["name"] in sockets:
            holder = filter_["typed_config"]
            holder = holder.get("rate_limit_service", holder)
            holder["grpc_service"]["envoy_grpc"]["cluster_name"] = cluster_of(filter_["name"])
    return made
