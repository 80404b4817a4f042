"""Clusters: the gate's workers, and one for each pool of engines."""

from collections.abc import Sequence
from ipaddress import ip_address

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterCommonLbConfig,
    ClusterDiscoveryType,
    ClusterLbPolicy,
    ClusterTransportSocketMatch,
    OutlierDetection,
)
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    DataSource,
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    Http2ProtocolOptions,
    KeepaliveSettings,
    Metadata,
    Pipe,
    SocketAddress,
    TransportSocket,
)
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    UpstreamTlsContext,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.v3 import Percent

from seawall.mesh import names
from seawall.mesh.message import Json, packed, plain, seconds, struct
from seawall.policy.compiled import Engine, Policy, Pool

CA_FILE = "/etc/ssl/certs/ca-certificates.crt"
UNLIMITED = 100_000
"""How many go to a pool is the gate's to say, and each live request holds one stream to the gate: Envoy's circuit
breakers (1024 requests, 3 retries) would be a second, unseen limit."""
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TLS_MATCH = "envoy.transport_socket_match"


def clusters(policy: Policy, *, ca_file: str = CA_FILE) -> list[Json]:
    """Give a cluster for each pool, in the order of their names."""
    return [plain(c) for c in pool_clusters(policy, ca_file)]


def pool_clusters(policy: Policy, ca_file: str) -> list[Cluster]:
    """Give them as messages."""
    return [_pool(policy.pools[name], ca_file) for name in sorted(policy.pools)]


def gate_cluster(sockets: Sequence[str]) -> Cluster:
    """Give the workers, all three services on each."""
    return Cluster(
        name=names.GATE_CLUSTER,
        type=ClusterDiscoveryType.STATIC,
        connect_timeout=seconds(1),
        # Every open ext_proc stream counts as a request, so the worker with the fewest streams is chosen.
        lb_policy=ClusterLbPolicy.LEAST_REQUEST,
        # No worker healthy: fail at once instead of guessing.
        common_lb_config=ClusterCommonLbConfig(healthy_panic_threshold=Percent(value=0)),
        health_checks=[
            HealthCheck(
                timeout=seconds(1),
                interval=seconds(1),
                no_traffic_interval=seconds(1),
                # NOT_SERVING counts at the first look; a worker that is only slow to answer gets a second one.
                unhealthy_threshold=2,
                healthy_threshold=1,
                grpc_health_check=HealthCheckGrpcHealthCheck(service_name=names.HEALTH_SERVICE),
            )
        ],
        circuit_breakers=_breakers(),
        typed_extension_protocol_options={
            _HTTP_OPTIONS: packed(
                HttpProtocolOptions(
                    explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(
                        http2_protocol_options=Http2ProtocolOptions(
                            # The only thing that frees streams from a worker that hangs.
                            connection_keepalive=KeepaliveSettings(interval=seconds(10), timeout=seconds(5))
                        )
                    )
                )
            )
        },
        load_assignment=_assignment(
            names.GATE_CLUSTER,
            [LbEndpoint(endpoint=Endpoint(address=Address(pipe=Pipe(path=path)))) for path in sockets],
        ),
    )


def _pool(pool: Pool, ca_file: str) -> Cluster:
    name = names.pool_cluster(pool.name)
    tls = any(engine.tls for engine in pool.engines)
    return Cluster(
        name=name,
        type=ClusterDiscoveryType.STATIC
        if all(_is_ip(engine.host) for engine in pool.engines)
        else ClusterDiscoveryType.STRICT_DNS,
        connect_timeout=seconds(1),
        lb_policy=ClusterLbPolicy.LEAST_REQUEST,
        circuit_breakers=_breakers(),
        # An engine that can't be reached, or answers 502, 503 or 504, leaves for a while; never for a 500, which one
        # client's odd prompt can cause, and never the last half of a pool.
        outlier_detection=OutlierDetection(
            interval=seconds(5),
            base_ejection_time=seconds(10),
            max_ejection_percent=50,
            enforcing_consecutive_5xx=0,
            consecutive_gateway_failure=5,
            enforcing_consecutive_gateway_failure=100,
            enforcing_success_rate=0,
        ),
        transport_socket_matches=[_tls(ca_file)] if tls else [],
        load_assignment=_assignment(name, [_engine(engine) for engine in pool.engines]),
    )


def _engine(engine: Engine) -> LbEndpoint:
    return LbEndpoint(
        endpoint=Endpoint(
            address=Address(socket_address=SocketAddress(address=engine.host, port_value=engine.port)),
            hostname=engine.host if engine.tls else "",
        ),
        metadata=Metadata(filter_metadata={_TLS_MATCH: struct({"tls": True})}) if engine.tls else None,
    )


def _tls(ca_file: str) -> ClusterTransportSocketMatch:
    """TLS for the endpoints that are marked so; a pool may mix https and http. Certificates are checked by name."""
    context = UpstreamTlsContext(
        common_tls_context=CommonTlsContext(
            validation_context=CertificateValidationContext(trusted_ca=DataSource(filename=ca_file))
        ),
        auto_host_sni=True,
        auto_sni_san_validation=True,
    )
    return ClusterTransportSocketMatch(
        name="tls",
        match=struct({"tls": True}),
        transport_socket=TransportSocket(name="envoy.transport_sockets.tls", typed_config=packed(context)),
    )


def _breakers() -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                max_connections=UNLIMITED,
                max_pending_requests=UNLIMITED,
                max_requests=UNLIMITED,
                max_retries=UNLIMITED,
            )
        ]
    )


def _assignment(name: str, endpoints: list[LbEndpoint]) -> ClusterLoadAssignment:
    return ClusterLoadAssignment(cluster_name=name, endpoints=[LocalityLbEndpoints(lb_endpoints=endpoints)])


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
