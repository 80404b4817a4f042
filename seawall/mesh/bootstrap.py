"""The whole file for `envoy -c`, and the two files that Envoy watches."""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import Any

from betterproto2 import Message

from seawall.mesh import names
from seawall.mesh.clusters import CA_FILE, gate_cluster, no_pool_cluster, pool_clusters
from seawall.mesh.envoy_types import bootstrap_v3, core_v3, discovery_v3, downstream_connections_v3, overload_v3
from seawall.mesh.listener import listener
from seawall.mesh.message import Json, packed, plain, seconds
from seawall.mesh.routes import Descriptors, route_configuration
from seawall.mesh.settings import MeshSettings
from seawall.policy.compiled import Policy

CDS_FILE = "cds.json"
RDS_FILE = "rds.json"


def bootstrap(
    settings: MeshSettings,
    policy: Policy,
    dynamic_dir: str | None = None,
    *,
    descriptors: Descriptors = (),
    ca_file: str = CA_FILE,
) -> Json:
    """Give the whole configuration of one Envoy.

    With `dynamic_dir` pools and routes are read from `cds.json` and `rds.json` there, and the policy is not looked at;
    without it everything is inside. `descriptors`: see `seawall.mesh.routes`.
    """
    static = dynamic_dir is None
    routes = route_configuration(policy, descriptors) if static else _file(dynamic_dir, RDS_FILE)
    message = bootstrap_v3.Bootstrap(
        node=core_v3.Node(id="seawall", cluster="seawall"),
        admin=bootstrap_v3.Admin(address=_socket(settings.admin_host, settings.admin_port)),
        overload_manager=_overload_manager(settings),
        static_resources=bootstrap_v3.BootstrapStaticResources(
            listeners=[listener(settings, routes)],
            clusters=[
                gate_cluster(settings.sockets, settings.check_interval_s),
                no_pool_cluster(),
                *(pool_clusters(policy, ca_file) if static else []),
            ],
        ),
        dynamic_resources=None
        if static
        else bootstrap_v3.BootstrapDynamicResources(cds_config=_file(dynamic_dir, CDS_FILE)),
    )
    return _with_retry_after(plain(message))


def bootstrap_json(configuration: Json) -> str:
    """Write a configuration as text. JSON, since YAML would read a bare `y` or `off` as a boolean."""
    return json.dumps(configuration, indent=2, ensure_ascii=False) + "\n"


def render_dynamic(policy: Policy, descriptors: Descriptors = (), *, ca_file: str = CA_FILE) -> dict[str, str]:
    """Give the text of each file of a `dynamic_dir`.

    `version_info` begins with the digest of the policy and goes on with one of what is in the file, so that Envoy's
    version tells whether it has taken just this.
    """
    return {
        CDS_FILE: _discovery(policy, pool_clusters(policy, ca_file)),
        RDS_FILE: _discovery(policy, [route_configuration(policy, descriptors)]),
    }


def version_of(text: str) -> str:
    """Read the version of a file of `render_dynamic`; "" of one that is none."""
    try:
        return str(json.loads(text)["version_info"])
    except (ValueError, KeyError, TypeError):
        return ""


def _discovery(policy: Policy, resources: Sequence[Message]) -> str:
    made = [packed(resource) for resource in resources]
    content = sha256(bootstrap_json({"resources": [plain(m) for m in made]}).encode()).hexdigest()
    version = f"{policy.digest[:16]}-{content[:16]}"
    return bootstrap_json(plain(discovery_v3.DiscoveryResponse(version_info=version, resources=made)))


def _file(directory: str | None, name: str) -> core_v3.ConfigSource:
    return core_v3.ConfigSource(
        path_config_source=core_v3.PathConfigSource(path=str(PurePath(directory or ".") / name)),
        resource_api_version=core_v3.ApiVersion.V3,
    )


def _socket(host: str, port: int) -> core_v3.Address:
    return core_v3.Address(socket_address=core_v3.SocketAddress(address=host, port_value=port))


def _overload_manager(settings: MeshSettings) -> overload_v3.OverloadManager:
    """Close surplus connections on accept; without it Envoy warns at start that it has no limit."""
    return overload_v3.OverloadManager(
        refresh_interval=seconds(0.25),
        resource_monitors=[
            overload_v3.ResourceMonitor(
                name="envoy.resource_monitors.global_downstream_max_connections",
                typed_config=packed(
                    downstream_connections_v3.DownstreamConnectionsConfig(
                        max_active_downstream_connections=settings.max_connections
                    )
                ),
            )
        ],
    )


def _with_retry_after(configuration: Json) -> Json:
    """Switch on `retry-after` for the 429 of the ratelimit filter.

    The field came with Envoy 1.40; envoy-data-plane 2.2 has no name for it, so it is written into the finished JSON.
    """
    typed = http_filters_of(configuration)[names.RATELIMIT]
    typed["enable_retry_after_header"] = True
    return configuration


def http_filters_of(configuration: Json) -> dict[str, Json]:
    """Find the chain in a finished configuration: the `typed_config` of each filter by name, in order."""
    node: Any = configuration
    for step in ("static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config", "http_filters"):
        node = node[step]
    return {filter_["name"]: filter_["typed_config"] for filter_ in node}
