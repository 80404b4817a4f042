"""The listener: what the edge accepts, how it is logged, and the chain behind it."""

from seawall.mesh import names
from seawall.mesh.envoy_types import accesslog_v3, core_v3, hcm_v3, listener_v3, route_v3, stream_log_v3
from seawall.mesh.filters import early_mutations, http_filters
from seawall.mesh.message import packed, seconds, struct
from seawall.mesh.replies import local_replies
from seawall.mesh.settings import MIB, MeshSettings

MAX_HEADERS_KB = 96
"""The prefilter's own limits lie below it; what is larger never reaches a service."""
IDLE_S = 600.0
HOLD_MARGIN_S = 60.0

LOG_FIELDS = {
    "ts": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "path": "%PATH(NQ)%",
    "code": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "route": "%ROUTE_NAME%",
    "engine": "%UPSTREAM_HOST%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "ip": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "tenant": f"%DYNAMIC_METADATA({names.AUTHZ}:tenant)%",
    "class": f"%DYNAMIC_METADATA({names.AUTHZ}:class)%",
    "policy": f"%DYNAMIC_METADATA({names.AUTHZ}:policy)%",
    "rid": f"%DYNAMIC_METADATA({names.AUTHZ}:rid)%",
    "seawall": f"%DYNAMIC_METADATA({names.METADATA})%",
    "ttfb_ms": "%RESPONSE_DURATION%",
    "ms": "%DURATION%",
    "bytes_in": "%BYTES_RECEIVED%",
    "bytes_out": "%BYTES_SENT%",
    "id": "%REQ(X-REQUEST-ID)%",
}
"""No query (clients put keys there) and no header that a client fills."""


def listener(
    settings: MeshSettings, route_source: route_v3.RouteConfiguration | core_v3.ConfigSource
) -> listener_v3.Listener:
    """Give the listener, with routes inside or with the place where Envoy finds and watches them."""
    return listener_v3.Listener(
        name="edge",
        address=core_v3.Address(socket_address=core_v3.SocketAddress(address=settings.host, port_value=settings.port)),
        # With SO_REUSEPORT a second Envoy on the port would share its connections instead of failing to start.
        enable_reuse_port=False,
        # The cap of a body that ext_proc asks for whole: 413 above it. The default is 1 MiB.
        per_connection_buffer_limit_bytes=settings.max_body,
        filter_chains=[
            listener_v3.FilterChain(
                filters=[
                    listener_v3.Filter(
                        name="envoy.filters.network.http_connection_manager",
                        typed_config=packed(_connection_manager(settings, route_source)),
                    )
                ]
            )
        ],
    )


def _connection_manager(
    settings: MeshSettings, routes: route_v3.RouteConfiguration | core_v3.ConfigSource
) -> hcm_v3.HttpConnectionManager:
    inline, source = (routes, None) if isinstance(routes, route_v3.RouteConfiguration) else (None, routes)
    return hcm_v3.HttpConnectionManager(
        stat_prefix=names.STAT_PREFIX,
        route_config=inline,
        rds=hcm_v3.Rds(config_source=source, route_config_name=names.ROUTE_CONFIG) if source else None,
        http_filters=http_filters(settings),
        early_header_mutation_extensions=early_mutations(),
        local_reply_config=local_replies(),
        # The client is the address that the trusted hop appended; x-envoy-* of strangers is taken off.
        use_remote_address=True,
        xff_num_trusted_hops=settings.xff_trusted_hops,
        # One path, one spelling: what the gate judged is what the engine reads.
        normalize_path=True,
        merge_slashes=True,
        path_with_escaped_slashes_action=hcm_v3.HttpConnectionManagerPathWithEscapedSlashesAction.REJECT_REQUEST,
        max_request_headers_kb=MAX_HEADERS_KB,
        http2_protocol_options=core_v3.Http2ProtocolOptions(
            max_concurrent_streams=100,
            initial_stream_window_size=65536,
            initial_connection_window_size=MIB,
        ),
        # Against clients that send slowly. Neither counts once the request is complete: a wait in the queue is free.
        request_headers_timeout=seconds(10),
        request_timeout=seconds(60),
        # Counts in the queue and between two tokens.
        stream_idle_timeout=seconds(max(IDLE_S, settings.max_hold_s + HOLD_MARGIN_S)),
        drain_timeout=seconds(settings.drain_s),
        # The official clients show it with every error.
        always_set_request_id_in_response=True,
        access_log=[_access_log()] if settings.access_log else [],
    )


def _access_log() -> accesslog_v3.AccessLog:
    return accesslog_v3.AccessLog(
        name="envoy.access_loggers.stdout",
        typed_config=packed(
            stream_log_v3.StdoutAccessLog(log_format=core_v3.SubstitutionFormatString(json_format=struct(LOG_FIELDS)))
        ),
    )
