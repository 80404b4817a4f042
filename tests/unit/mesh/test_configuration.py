"""The generated configuration holds what the services rely on."""

import json
from typing import Any

import pytest

from seawall.llm.protocols import Family
from seawall.mesh.bootstrap import bootstrap, bootstrap_json, http_filters_of, render_dynamic
from seawall.mesh.clusters import clusters
from seawall.mesh.replies import REPLIES
from seawall.mesh.routes import charged_by_envoy, routes
from seawall.mesh.settings import MIB, MeshSettings
from tests.unit.mesh.literals import engine, policy

SETTINGS = MeshSettings(sockets=("/run/a.sock", "/run/b.sock"))
POLICY = policy({"b": (engine(8001),), "a": (engine(8000), engine(8002))})


def connection_manager(configuration: Any) -> Any:
    return configuration["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]


def named(items: Any) -> dict[str, Any]:
    return {item["name"]: item for item in items}


def test_the_chain_has_its_order() -> None:
    short = [name.rpartition(".")[2] for name in http_filters_of(bootstrap(SETTINGS, POLICY))]
    assert short == ["ext_authz", "ratelimit", "ext_proc", "router"]


def test_settings_reach_envoy() -> None:
    settings = MeshSettings(
        sockets=("/s",), host="0.0.0.0", port=1234, max_hold_s=900, max_body=MIB, xff_trusted_hops=2, access_log=False
    )
    made: Any = bootstrap(settings, POLICY)
    listener = made["static_resources"]["listeners"][0]
    manager = connection_manager(made)
    assert listener["address"]["socket_address"] == {"address": "0.0.0.0", "port_value": 1234}
    assert listener["per_connection_buffer_limit_bytes"] == MIB
    assert http_filters_of(made)["envoy.filters.http.ext_proc"]["max_message_timeout"] == "900s"
    assert manager["stream_idle_timeout"] == "960s", "above the longest wait"
    assert manager["xff_num_trusted_hops"] == 2
    assert "access_log" not in manager


def test_a_gate_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one worker socket"):
        MeshSettings(sockets=())


def test_ext_proc_starts_from_request_headers_only_and_fails_closed() -> None:
    ext_proc: Any = http_filters_of(bootstrap(SETTINGS, POLICY))["envoy.filters.http.ext_proc"]
    assert ext_proc["processing_mode"] == {
        "request_header_mode": "SEND",
        "response_header_mode": "SKIP",
        "request_trailer_mode": "SKIP",
        "response_trailer_mode": "SKIP",
    }
    assert ext_proc["allow_mode_override"] is True
    assert "failure_mode_allow" not in ext_proc, "the default is false"
    assert "timeout" not in ext_proc["grpc_service"]


@pytest.mark.parametrize("name", ["ext_authz", "ratelimit", "ext_proc"])
def test_side_calls_are_retried_on_another_worker(name: str) -> None:
    config: Any = http_filters_of(bootstrap(SETTINGS, POLICY))[f"envoy.filters.http.{name}"]
    service = config.get("grpc_service") or config["rate_limit_service"]["grpc_service"]
    predicate = service["retry_policy"]["retry_host_predicate"][0]["name"]
    assert predicate == "envoy.retry_host_predicates.previous_hosts"


def test_each_pool_has_a_route_by_its_header_and_the_last_route_leads_nowhere() -> None:
    found: Any = routes(POLICY)
    table = found["virtual_hosts"][0]["routes"]
    assert [r["route"]["cluster"] for r in table] == ["pool_a", "pool_b", "no_pool"]
    assert all(r["match"]["headers"][0]["name"] == "x-seawall-pool" for r in table[:-1])
    assert "headers" not in table[-1]["match"]
    assert all(r["route"]["timeout"] == "0s" for r in table)


def test_the_cluster_of_requests_without_a_pool_exists_and_is_empty() -> None:
    for directory in (None, "/etc/dynamic"):
        made: Any = bootstrap(SETTINGS, POLICY, directory)
        empty = named(made["static_resources"]["clusters"])["no_pool"]
        assert not empty["load_assignment"]["endpoints"][0]


def test_workers_are_the_endpoints_of_the_gate() -> None:
    made: Any = bootstrap(SETTINGS, POLICY)
    gate = named(made["static_resources"]["clusters"])["gate"]
    endpoints = gate["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert [e["endpoint"]["address"]["pipe"]["path"] for e in endpoints] == ["/run/a.sock", "/run/b.sock"]
    assert gate["health_checks"][0]["grpc_health_check"] == {"service_name": "seawall"}


@pytest.mark.parametrize(
    ("engines", "kind"),
    [
        ((engine(1), engine(2, "10.0.0.7")), "STATIC"),
        ((engine(1, "::1"),), "STATIC"),
        ((engine(1), engine(2, "engine.example")), "STRICT_DNS"),
    ],
)
def test_names_are_resolved_and_addresses_are_not(engines: Any, kind: str) -> None:
    assert clusters(policy({"p": engines}))[0]["type"] == kind


def test_tls_is_for_the_engines_that_want_it() -> None:
    mixed: Any = clusters(policy({"p": (engine(443, "a.example", tls=True), engine(80, "b.example"))}), ca_file="/ca")
    first, second = mixed[0]["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert first["metadata"]["filter_metadata"] == {"envoy.transport_socket_match": {"tls": True}}
    assert "metadata" not in second
    context = mixed[0]["transport_socket_matches"][0]["transport_socket"]["typed_config"]
    assert context["auto_sni_san_validation"] is True
    assert context["common_tls_context"]["validation_context"]["trusted_ca"] == {"filename": "/ca"}


def test_descriptors_that_envoy_can_fill_are_sent_once() -> None:
    keys = [("tenant",), ("tenant", "class"), ("tenant",), ("remote_address",), ("tenant", "model"), ()]
    found: Any = routes(POLICY, keys)
    per_route = found["virtual_hosts"][0]["typed_per_filter_config"]["envoy.filters.http.ratelimit"]
    sent = [
        tuple(a["metadata"]["descriptor_key"] if "metadata" in a else next(iter(a)) for a in limit["actions"])
        for limit in per_route["rate_limits"]
    ]
    # The last one is ours: it tells the version of the policy that the request has.
    assert sent == [("tenant",), ("tenant", "class"), ("remote_address",), ("seawall.policy",)]
    assert per_route["rate_limits"][-1]["actions"][0]["metadata"]["metadata_key"]["path"] == [{"key": "policy"}]
    assert not charged_by_envoy(("tenant", "model"))


def test_without_descriptors_ratelimit_is_not_asked() -> None:
    found: Any = routes(POLICY, [("model",)])
    assert "typed_per_filter_config" not in found["virtual_hosts"][0]


def test_dynamic_files_hold_what_the_static_one_has_inside() -> None:
    static: Any = bootstrap(SETTINGS, POLICY, descriptors=[("tenant",)])
    dynamic: Any = bootstrap(SETTINGS, POLICY, "/etc/dynamic")
    files = {name: json.loads(text) for name, text in render_dynamic(POLICY, [("tenant",)]).items()}
    assert set(files) == {"cds.json", "rds.json"}
    assert all(f["version_info"].startswith(f"{POLICY.digest[:16]}-") for f in files.values())
    inside = [c for c in static["static_resources"]["clusters"] if c["name"].startswith("pool_")]
    assert [without_type(c) for c in files["cds.json"]["resources"]] == inside
    assert without_type(files["rds.json"]["resources"][0]) == connection_manager(static)["route_config"]
    assert dynamic["dynamic_resources"]["cds_config"]["path_config_source"] == {"path": "/etc/dynamic/cds.json"}
    assert connection_manager(dynamic)["rds"]["config_source"]["path_config_source"] == {
        "path": "/etc/dynamic/rds.json"
    }
    assert [c["name"] for c in dynamic["static_resources"]["clusters"]] == ["gate", "no_pool"]


def without_type(resource: Any) -> Any:
    return {key: value for key, value in resource.items() if key != "@type"}


def test_our_own_answers_come_first_and_stay_untouched() -> None:
    mappers = connection_manager(bootstrap(SETTINGS, POLICY))["local_reply_config"]["mappers"]
    assert set(mappers[0]) == {"filter"}
    expression = mappers[0]["filter"]["extension_filter"]["typed_config"]["expression"]
    assert "'seawall.'" in expression
    assert "'ext_authz_denied'" in expression
    assert len(mappers) == 1 + 2 * len(REPLIES)


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply.when)
def test_every_reply_is_a_whole_envelope_and_names_nothing_of_ours(reply: Any) -> None:
    openai = json.loads(reply.body(Family.OPENAI))
    assert list(openai["error"]) == ["message", "type", "param", "code"]
    anthropic = json.loads(reply.body(Family.ANTHROPIC))
    assert anthropic["type"] == "error"
    assert list(anthropic["error"]) == ["type", "message"]
    assert "%" not in reply.body(Family.OPENAI) + reply.body(Family.ANTHROPIC)
    assert dict(reply.headers(Family.OPENAI)).get("retry-after") in {None, "2"}


def test_text_is_json_with_the_fields_that_envoy_knows() -> None:
    made = bootstrap(SETTINGS, POLICY)
    assert json.loads(bootstrap_json(made)) == made
    assert "_5_xx" not in bootstrap_json(made)
