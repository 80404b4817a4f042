"""Clusters: the gate's workers, and one for each pool of engines."""

from collections.abc import Sequence
from ipaddress import ip_address

from seawall.mesh import names
from seawall.mesh.envoy_types import cluster_v3, core_v3, endpoint_v3, tls_v3, type_v3, upstreams_http_v3
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


def pool_clusters(policy: Policy, ca_file: str) -> list[cluster_v3.Cluster]:
    """Give them as messages."""
    return [_pool(policy.pools[name], ca_file) for name in sorted(policy.pools)]


def no_pool_cluster() -> cluster_v3.Cluster:
    """Give the cluster without hosts: 503 for what reaches the router without a pool. See `seawall.mesh.routes`."""
    return cluster_v3.Cluster(
        name=names.NO_POOL,
        type=cluster_v3.ClusterDiscoveryType.STATIC,
        connect_timeout=seconds(1),
        load_assignment=_assignment(names.NO_POOL, []),
    )


def gate_cluster(sockets: Sequence[str], check_interval_s: float) -> cluster_v3.Cluster:
    """Give the workers, all three services on each."""
    return cluster_v3.Cluster(
        name=names.GATE_CLUSTER,
        type=cluster_v3.ClusterDiscoveryType.STATIC,
        connect_timeout=seconds(1),
        # Every open ext_proc stream counts as a request, so the worker with the fewest streams is chosen.
        lb_policy=cluster_v3.ClusterLbPolicy.LEAST_REQUEST,
        common_lb_config=cluster_v3.ClusterCommonLbConfig(
            # No worker healthy: fail at once instead of guessing.
            healthy_panic_threshold=type_v3.Percent(value=0),
            # Envoy gathers changes of health for a second by default: a worker that drains would get calls meanwhile.
            update_merge_window=seconds(0),
        ),
        health_checks=[
            core_v3.HealthCheck(
                timeout=seconds(1),
                interval=seconds(check_interval_s),
                no_traffic_interval=seconds(check_interval_s),
                # NOT_SERVING counts at the first look; a worker that is only slow to answer gets a second one.
                unhealthy_threshold=2,
                healthy_threshold=1,
                grpc_health_check=core_v3.HealthCheckGrpcHealthCheck(service_name=names.HEALTH_SERVICE),
            )
        ],
        circuit_breakers=_breakers(),
        typed_extension_protocol_options={
            _HTTP_OPTIONS: packed(
                upstreams_http_v3.HttpProtocolOptions(
                    explicit_http_config=upstreams_http_v3.HttpProtocolOptionsExplicitHttpConfig(
                        http2_protocol_options=core_v3.Http2ProtocolOptions(
                            # The only thing that frees streams from a worker that hangs.
                            connection_keepalive=core_v3.KeepaliveSettings(interval=seconds(10), timeout=seconds(5))
                        )
                    )
                )
            )
        },
        load_assignment=_assignment(
            names.GATE_CLUSTER,
            [
                endpoint_v3.LbEndpoint(
                    endpoint=endpoint_v3.Endpoint(address=core_v3.Address(pipe=core_v3.Pipe(path=path)))
                )
                for path in sockets
            ],
        ),
    )


def _pool(pool: Pool, ca_file: str) -> cluster_v3.Cluster:
    name = names.pool_cluster(pool.name)
    tls = any(engine.tls for engine in pool.engines)
    return cluster_v3.Cluster(
        name=name,
        type=cluster_v3.ClusterDiscoveryType.STATIC
        if all(_is_ip(engine.host) for engine in pool.engines)
        else cluster_v3.ClusterDiscoveryType.STRICT_DNS,
        connect_timeout=seconds(1),
        lb_policy=cluster_v3.ClusterLbPolicy.LEAST_REQUEST,
        circuit_breakers=_breakers(),
        # An engine that can't be reached, or answers 502, 503 or 504, leaves for a while; never for a 500, which one
        # client's odd prompt can cause, and never the last half of a pool.
        outlier_detection=cluster_v3.OutlierDetection(
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


def _engine(engine: Engine) -> endpoint_v3.LbEndpoint:
    return endpoint_v3.LbEndpoint(
        endpoint=endpoint_v3.Endpoint(
            address=core_v3.Address(socket_address=core_v3.SocketAddress(address=engine.host, port_value=engine.port)),
            hostname=engine.host if engine.tls else "",
        ),
        metadata=core_v3.Metadata(filter_metadata={_TLS_MATCH: struct({"tls": True})}) if engine.tls else None,
    )


def _tls(ca_file: str) -> cluster_v3.ClusterTransportSocketMatch:
    """TLS for the endpoints that are marked so; a pool may mix https and http. Certificates are checked by name."""
    context = tls_v3.UpstreamTlsContext(
        common_tls_context=tls_v3.CommonTlsContext(
            validation_context=tls_v3.CertificateValidationContext(trusted_ca=core_v3.DataSource(filename=ca_file))
        ),
        auto_host_sni=True,
        auto_sni_san_validation=True,
    )
    return cluster_v3.ClusterTransportSocketMatch(
        name="tls",
        match=struct({"tls": True}),
        transport_socket=core_v3.TransportSocket(name="envoy.transport_sockets.tls", typed_config=packed(context)),
    )


def _breakers() -> cluster_v3.CircuitBreakers:
    return cluster_v3.CircuitBreakers(
        thresholds=[
            cluster_v3.CircuitBreakersThresholds(
                max_connections=UNLIMITED,
                max_pending_requests=UNLIMITED,
                max_requests=UNLIMITED,
                max_retries=UNLIMITED,
            )
        ]
    )


def _assignment(name: str, endpoints: list[endpoint_v3.LbEndpoint]) -> endpoint_v3.ClusterLoadAssignment:
    return endpoint_v3.ClusterLoadAssignment(
        cluster_name=name, endpoints=[endpoint_v3.LocalityLbEndpoints(lb_endpoints=endpoints)]
    )


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
