"""Names that Envoy's configuration and the services have to agree on."""

DOMAIN = "llm"
"""Domain of the ratelimit filter's calls; also the one that a policy's `limits` use."""

GATE_CLUSTER = "gate"
NO_POOL = "no_pool"
"""Route, and cluster without hosts, of a request for which no pool has been chosen (yet)."""
ROUTE_CONFIG = "seawall"
STAT_PREFIX = "edge"
"""Of the connection manager: Envoy's statistics of requests and routes stand under it."""
HEALTH_SERVICE = "seawall"
"""Service name in the gRPC health check: SERVING once a worker has a policy and its store has answered."""

AUTHZ = "envoy.filters.http.ext_authz"
"""Filter name, and the metadata namespace in which Envoy keeps what ext_authz said."""
RATELIMIT = "envoy.filters.http.ratelimit"
EXT_PROC = "envoy.filters.http.ext_proc"
METADATA = "seawall"
"""Metadata namespace that ext_proc may write."""

VERSION_KEY = "seawall.policy"
"""Descriptor of its own that tells ratelimit which version of the policy the request has; no limit is found by it."""

POOL_HEADER = "x-seawall-pool"
TENANT_HEADER = "x-seawall-tenant"
CLASS_HEADER = "x-seawall-class"
PROFILE = "seawall.profile"
"""What a route says to ext_authz and ext_proc; see `seawall.policy.route`."""
REASON_HEADER = "x-seawall-reason"
CONTROL_PREFIX = "x-seawall-"
PRIORITY_HEADER = "x-vllm-priority"


def pool_cluster(pool: str) -> str:
    """Name the cluster of a pool; the prefix keeps a pool called `gate` apart from the gate."""
    return f"pool_{pool}"
