"""Affinity: which of a pool's engines a caller or a session comes back to, so that its KV cache is there."""

from seawall.mesh.envoy_types import cluster_v3, route_v3
from seawall.mesh.names import TENANT_HEADER
from seawall.policy.compiled import Pool

BALANCE = 150
"""Percent of its fair share that an engine may have: what is above it goes to the next engine of the key, so that a hot
key can't drown one. The share counts requests in flight on this Envoy, so with few of them a key is spread sooner."""


def hash_policy(pool: Pool) -> list[route_v3.RouteActionHashPolicy]:
    """Say by which header engines are chosen. Without the header any engine may get the request.

    `x-seawall-tenant` is set by ext_proc; what a client sends under that name is taken off before the first filter.
    """
    if pool.affinity == "none":
        return []
    header = TENANT_HEADER if pool.affinity == "tenant" else pool.affinity.removeprefix("header:")
    return [route_v3.RouteActionHashPolicy(header=route_v3.RouteActionHashPolicyHeader(header_name=header))]


def consistent_hashing(cluster: cluster_v3.Cluster, pool: Pool) -> None:
    """Let a cluster choose by the hash. Weights count: an engine of weight 2 has twice the keys."""
    if pool.affinity == "none":
        return
    cluster.lb_policy = cluster_v3.ClusterLbPolicy.MAGLEV
    cluster.common_lb_config = cluster.common_lb_config or cluster_v3.ClusterCommonLbConfig()
    cluster.common_lb_config.consistent_hashing_lb_config = cluster_v3.ClusterCommonLbConfigConsistentHashingLbConfig(
        hash_balance_factor=BALANCE
    )
