"""Clusters: the gate's workers, and one for each pool of engines."""

from collections.abc import Sequence
from ipaddress import ip_address

from seawall.mesh import names
from seawall.mesh.affinity import consistent_hashing
from seawall.mesh.envoy_types import cluster_v3, core_v3, endpoint_v3, tls_v3, type_v3, upstreams_http_v3
from seawall.mesh.message import Json, packed, plain, seconds, struct
from seawall.mesh.retries import retry_budget
from seawall.policy.compiled import Engine, Policy, Pool, Retries

CA_FILE = "/etc/ssl/certs/ca-certificates.crt"
UNLIMITED = 100_000
"""How many go to a pool is the gate's to say, and each live request holds one stream to the gate: Envoy's circuit
breakers (1024 requests, 3 retries) would be a second, unseen limit."""
ENGINE_IDLE_S = 4.0
"""Less than the 5 s after which uvicorn (vLLM, SGLang, trtllm-serve) closes an idle connection. A request that met that
on its way would fail, and a retry isn't safe: nobody knows whether the engine has read it."""
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TLS_MATCH = "envoy.transport_socket_match"


def clusters(policy: Policy, *, ca_file: str = CA_FILE) -> list[Json]:
    """Give a cluster for each pool, in the order of their names."""
    return [plain(c) for c in pool_clusters(policy, ca_file)]


def pool_clusters(policy: Policy, ca_file: str) -> list[cluster_v3.Cluster]:
    """Give them as messages."""
    return [_pool(policy.pools[name], policy.retries, ca_file) for name in sorted(policy.pools)]


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


def _pool(pool: Pool, retries: Retries, ca_file: str) -> cluster_v3.Cluster:
    name = names.pool_cluster(pool.name)
    tls = any(engine.tls for engine in pool.engines)
    dns = not all(_is_ip(engine.host) for engine in pool.engines)
    cluster = cluster_v3.Cluster(
        name=name,
        type=cluster_v3.ClusterDiscoveryType.STRICT_DNS if dns else cluster_v3.ClusterDiscoveryType.STATIC,
        # Every address of a name is an engine, asked for anew every 5 s. By default a name of both families would be IPv6
        # alone.
        dns_lookup_family=cluster_v3.ClusterDnsLookupFamily.V4_PREFERRED,
        connect_timeout=seconds(1),
        lb_policy=cluster_v3.ClusterLbPolicy.LEAST_REQUEST,
        common_lb_config=cluster_v3.ClusterCommonLbConfig(
            # With no engine well, ask them all: a health check that is wrong must not make an outage of its own. While
            # one is well, only those that are get requests (Envoy's default gives that up below one half).
            healthy_panic_threshold=type_v3.Percent(value=1),
            # What a look has found counts at once, not up to a second later.
            update_merge_window=seconds(0),
        ),
        circuit_breakers=_breakers(max_retries=retry_budget(pool, retries)),
        health_checks=_health_checks(pool),
        # An address that DNS has dropped goes at once, however well it looks.
        ignore_health_on_host_removal=dns,
        # An engine that can't be reached, or answers 502, 503 or 504, leaves for a while; never for a 500, which one
        # client's odd prompt can cause, and never the last half of a pool.
        outlier_detection=cluster_v3.OutlierDetection(
            interval=seconds(5),
            base_ejection_time=seconds(10),
            max_ejection_time=seconds(60),
            max_ejection_time_jitter=seconds(2),
            max_ejection_percent=50,
            enforcing_consecutive_5xx=0,
            consecutive_gateway_failure=5,
            enforcing_consecutive_gateway_failure=100,
            enforcing_success_rate=0,
            # A process that says it is well and refuses requests would be back at each check.
            successful_active_health_check_uneject_host=False,
        ),
        transport_socket_matches=[_tls(ca_file)] if tls else [],
        typed_extension_protocol_options={
            _HTTP_OPTIONS: packed(
                upstreams_http_v3.HttpProtocolOptions(
                    common_http_protocol_options=core_v3.HttpProtocolOptions(idle_timeout=seconds(ENGINE_IDLE_S)),
                    explicit_http_config=upstreams_http_v3.HttpProtocolOptionsExplicitHttpConfig(
                        http_protocol_options=core_v3.Http1ProtocolOptions()
                    ),
                )
            )
        },
        load_assignment=_assignment(name, [_engine(engine) for engine in pool.engines]),
    )
    consistent_hashing(cluster, pool)
    return cluster


def _health_checks(pool: Pool) -> list[core_v3.HealthCheck]:
    """Look after the engines; `policy check` has seen to it that those of a pool are looked after alike."""
    check = next((engine.health for engine in pool.engines if engine.health is not None), None)
    if check is None:
        return []
    return [
        core_v3.HealthCheck(
            timeout=seconds(check.timeout_s),
            interval=seconds(check.interval_s),
            # By default a cluster without traffic is looked at once a minute.
            no_traffic_interval=seconds(check.interval_s),
            # Many Envoys before one engine must not all look at once.
            interval_jitter_percent=20,
            # For time-outs and refused connections. A status other than 200 counts at the first look.
            unhealthy_threshold=check.unhealthy_after,
            healthy_threshold=check.healthy_after,
            # vLLM closes an idle connection after 5 s: a kept one would meet that at every look.
            reuse_connection=False,
            http_health_check=core_v3.HealthCheckHttpHealthCheck(path=check.path),
        )
    ]


def _engine(engine: Engine) -> endpoint_v3.LbEndpoint:
    return endpoint_v3.LbEndpoint(
        endpoint=endpoint_v3.Endpoint(
            address=core_v3.Address(socket_address=core_v3.SocketAddress(address=engine.host, port_value=engine.port)),
            hostname=engine.host if engine.tls else "",
            health_check_config=endpoint_v3.EndpointHealthCheckConfig(
                hostname=f"[{engine.host}]" if ":" in engine.host else engine.host,
                disable_active_health_check=engine.health is None,
            ),
        ),
        load_balancing_weight=engine.weight,
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


def _breakers(*, max_retries: int = UNLIMITED) -> cluster_v3.CircuitBreakers:
    return cluster_v3.CircuitBreakers(
        thresholds=[
            cluster_v3.CircuitBreakersThresholds(
                max_connections=UNLIMITED,
                max_pending_requests=UNLIMITED,
                max_requests=UNLIMITED,
                max_retries=max_retries,
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
