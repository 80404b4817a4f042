"""The packages of envoy-data-plane that we use, each under the name that Envoy's own code has for it.

Importing them takes 0.4 s and 50 MB: workers, which only need `seawall.mesh.names`, never come here.
"""

import warnings

with warnings.catch_warnings():
    # envoy-data-plane 2.2 uses pydantic in a way that pydantic 2.12 deprecates; nothing that we could change.
    warnings.simplefilter("ignore", DeprecationWarning)
    import envoy_data_plane.envoy.config.accesslog.v3 as accesslog_v3
    import envoy_data_plane.envoy.config.bootstrap.v3 as bootstrap_v3
    import envoy_data_plane.envoy.config.cluster.v3 as cluster_v3
    import envoy_data_plane.envoy.config.common.mutation_rules.v3 as mutation_rules_v3
    import envoy_data_plane.envoy.config.core.v3 as core_v3
    import envoy_data_plane.envoy.config.endpoint.v3 as endpoint_v3
    import envoy_data_plane.envoy.config.listener.v3 as listener_v3
    import envoy_data_plane.envoy.config.overload.v3 as overload_v3
    import envoy_data_plane.envoy.config.ratelimit.v3 as ratelimit_config_v3
    import envoy_data_plane.envoy.config.route.v3 as route_v3
    import envoy_data_plane.envoy.extensions.access_loggers.filters.cel.v3 as cel_v3
    import envoy_data_plane.envoy.extensions.access_loggers.stream.v3 as stream_log_v3
    import envoy_data_plane.envoy.extensions.filters.http.ext_authz.v3 as ext_authz_v3
    import envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 as ext_proc_v3
    import envoy_data_plane.envoy.extensions.filters.http.ratelimit.v3 as ratelimit_v3
    import envoy_data_plane.envoy.extensions.filters.http.router.v3 as router_v3
    import envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 as hcm_v3
    import envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 as early_header_mutation_v3
    import envoy_data_plane.envoy.extensions.resource_monitors.downstream_connections.v3 as downstream_connections_v3
    import envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 as previous_hosts_v3
    import envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 as tls_v3
    import envoy_data_plane.envoy.extensions.upstreams.http.v3 as upstreams_http_v3
    import envoy_data_plane.envoy.service.discovery.v3 as discovery_v3
    import envoy_data_plane.envoy.type.matcher.v3 as matcher_v3
    import envoy_data_plane.envoy.type.metadata.v3 as metadata_v3
    import envoy_data_plane.envoy.type.v3 as type_v3
    from envoy_data_plane.google import protobuf

__all__ = [
    "accesslog_v3",
    "bootstrap_v3",
    "cel_v3",
    "cluster_v3",
    "core_v3",
    "discovery_v3",
    "downstream_connections_v3",
    "early_header_mutation_v3",
    "endpoint_v3",
    "ext_authz_v3",
    "ext_proc_v3",
    "hcm_v3",
    "listener_v3",
    "matcher_v3",
    "metadata_v3",
    "mutation_rules_v3",
    "overload_v3",
    "previous_hosts_v3",
    "protobuf",
    "ratelimit_config_v3",
    "ratelimit_v3",
    "route_v3",
    "router_v3",
    "stream_log_v3",
    "tls_v3",
    "type_v3",
    "upstreams_http_v3",
]
