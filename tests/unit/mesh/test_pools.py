"""What of engines, pools, retries and profiles reaches Envoy."""

import json
from typing import Any

import pytest

from seawall.mesh.bootstrap import render_dynamic, version_of
from seawall.mesh.clusters import clusters
from seawall.mesh.routes import routes
from seawall.policy.compile import compile_policy
from seawall.policy.compiled import HealthCheck, Retries
from tests.unit.mesh.literals import engine, policy

TWO = {"p": (engine(1), engine(2))}


def retry_policy(retries: Retries) -> Any:
    found: Any = routes(policy(TWO, retries=retries))
    return found["virtual_hosts"][0]["routes"][0]["route"].get("retry_policy")


def cluster(**options: Any) -> Any:
    pools = options.pop("pools", TWO)
    return clusters(policy(pools, **options))[0]


def endpoints(made: Any) -> Any:
    return made["load_assignment"]["endpoints"][0]["lb_endpoints"]


def test_conditions_and_statuses_are_told_apart() -> None:
    made = retry_policy(Retries(attempts=3, on=("connect-failure", "503", "429"), backoff_s=(0.05, 1.5)))
    assert made["retry_on"] == "connect-failure,retriable-status-codes"
    assert made["retriable_status_codes"] == [503, 429]
    assert made["num_retries"] == 3
    assert made["retry_back_off"] == {"base_interval": "0.050s", "max_interval": "1.500s"}
    assert made["host_selection_retry_max_attempts"] == "50"
    assert [p["name"] for p in made["retry_host_predicate"]] == ["envoy.retry_host_predicates.previous_hosts"]


def test_without_statuses_no_status_is_retried() -> None:
    made = retry_policy(Retries(on=("connect-failure",)))
    assert made["retry_on"] == "connect-failure"
    assert "retriable_status_codes" not in made


def test_retry_after_is_waited_for_up_to_a_bound() -> None:
    made = retry_policy(Retries(retry_after_s=7.0))["rate_limited_retry_back_off"]
    assert made["max_interval"] == "7s"
    # SECONDS is the first of the enum, and so left out.
    assert [h["name"] for h in made["reset_headers"]] == ["retry-after"]
    assert "rate_limited_retry_back_off" not in retry_policy(Retries(retry_after_s=0.0))


def test_no_attempts_is_no_retry_policy() -> None:
    assert retry_policy(Retries(attempts=0)) is None


@pytest.mark.parametrize(
    ("slots", "budget", "expected"), [(8, 0.2, 10), (128, 0.2, 26), (1000, 0.2, 200), (1000, 0.0, 10), (100, 1.0, 100)]
)
def test_retries_are_a_share_of_the_slots(slots: int, budget: float, expected: int) -> None:
    made = cluster(slots=slots, retries=Retries(budget=budget))
    assert made["circuit_breakers"]["thresholds"][0]["max_retries"] == expected


def test_weights() -> None:
    made = cluster(pools={"p": (engine(1), engine(2, weight=7))})
    assert [e["load_balancing_weight"] for e in endpoints(made)] == [1, 7]
    assert made["lb_policy"] == "LEAST_REQUEST"


def test_health_checks() -> None:
    check = HealthCheck("/v2/health/ready", 10, 0.5, 2, 4)
    made = cluster(pools={"p": (engine(1, health=None), engine(2, "::1", health=check))})
    [health] = made["health_checks"]
    assert health["http_health_check"] == {"path": "/v2/health/ready"}
    assert (health["interval"], health["no_traffic_interval"], health["timeout"]) == ("10s", "10s", "0.500s")
    assert (health["unhealthy_threshold"], health["healthy_threshold"]) == (2, 4)
    assert health["interval_jitter_percent"] == 20
    unseen, seen = (e["endpoint"]["health_check_config"] for e in endpoints(made))
    assert unseen["disable_active_health_check"] is True
    assert seen == {"hostname": "[::1]"}


def test_nobody_is_looked_after_where_no_engine_is() -> None:
    assert "health_checks" not in cluster(pools={"p": (engine(1, health=None),)})


def test_with_no_engine_well_all_are_asked() -> None:
    assert cluster()["common_lb_config"]["healthy_panic_threshold"] == {"value": 1.0}


def test_connections_are_given_up_before_engines_do() -> None:
    options = cluster()["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
    assert options["common_http_protocol_options"] == {"idle_timeout": "4s"}


@pytest.mark.parametrize(
    ("affinity", "header"), [("tenant", "x-seawall-tenant"), ("header:x-session", "x-session"), ("none", None)]
)
def test_affinity(affinity: str, header: str | None) -> None:
    found: Any = routes(policy(TWO, affinity=affinity))
    route = found["virtual_hosts"][0]["routes"][0]["route"]
    made = cluster(affinity=affinity)
    if header is None:
        assert "hash_policy" not in route
        assert made["lb_policy"] == "LEAST_REQUEST"
        return
    assert route["hash_policy"] == [{"header": {"header_name": header}}]
    assert made["lb_policy"] == "MAGLEV"
    assert made["common_lb_config"]["consistent_hashing_lb_config"] == {"hash_balance_factor": 150}
    assert made["common_lb_config"]["healthy_panic_threshold"] == {"value": 1.0}


def test_names_are_looked_up_in_both_families() -> None:
    made = cluster(pools={"p": (engine(1, "engine.example"),)})
    assert made["dns_lookup_family"] == "V4_PREFERRED"
    assert made["ignore_health_on_host_removal"] is True


def test_hosts_of_a_profile_have_a_virtual_host_that_says_so() -> None:
    made: Any = routes(
        compile_policy("profiles: {b: {hosts: [Batch.example, '*.batch.example']}, only-named: {class: vip}}"),
        [("tenant",)],
    )
    first, last = made["virtual_hosts"]
    assert first["domains"] == ["batch.example", "*.batch.example"]
    assert last["domains"] == ["*"]
    assert first["routes"] == last["routes"]
    assert made["ignore_port_in_host_matching"] is True
    said = first["typed_per_filter_config"]
    assert said["envoy.filters.http.ext_authz"]["check_settings"]["context_extensions"] == {"seawall.profile": "b"}
    assert said["envoy.filters.http.ext_proc"]["overrides"]["grpc_initial_metadata"] == [
        {"key": "seawall.profile", "value": "b"}
    ]
    limits = "envoy.filters.http.ratelimit"
    assert said[limits] == last["typed_per_filter_config"][limits]
    assert set(last["typed_per_filter_config"]) == {limits}


def test_a_version_is_of_what_is_in_the_file() -> None:
    """The same document with another engine of the settings is another file, and Envoy's version must show it."""
    one, other = policy({"p": (engine(1),)}), policy({"p": (engine(2),)})
    assert one.digest == other.digest
    versions = [{name: version_of(text) for name, text in render_dynamic(p).items()} for p in (one, one, other)]
    assert versions[0] == versions[1]
    assert versions[0]["cds.json"] != versions[2]["cds.json"]
    assert versions[0]["rds.json"] == versions[2]["rds.json"]
    assert version_of("{") == version_of("[]") == ""
    assert json.loads(render_dynamic(one)["cds.json"])["version_info"] == versions[0]["cds.json"]
