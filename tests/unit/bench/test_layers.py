"""Configurations with some of our filters: what is left, and what it rests on."""

from typing import Any

import pytest

from bench.layers import FILTERS, cluster_of, manager_of, split, with_filters
from bench.realistic import policy_text
from seawall.mesh.bootstrap import bootstrap, http_filters_of
from seawall.mesh.names import AUTHZ, EXT_PROC, POOL_HEADER, RATELIMIT, VERSION_KEY
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys

ROUTER = "envoy.filters.http.router"
VALUES = {"tenant": "acme", "class": "vip", VERSION_KEY: "7"}


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    policy = compile_policy(policy_text())
    return bootstrap(MeshSettings(sockets=("/run/w0", "/run/w1")), policy, descriptors=descriptor_keys(policy))


def host_of(configuration: dict[str, Any]) -> dict[str, Any]:
    (host,) = manager_of(configuration)["route_config"]["virtual_hosts"]
    assert isinstance(host, dict)
    return host


def clusters_of(configuration: dict[str, Any]) -> list[str]:
    return [cluster["name"] for cluster in configuration["static_resources"]["clusters"]]


def chooses_by_pool(configuration: dict[str, Any]) -> bool:
    return any(
        h["name"] == POOL_HEADER for r in host_of(configuration)["routes"] for h in r["match"].get("headers", ())
    )


@pytest.mark.parametrize("kept", [(), (AUTHZ,), (RATELIMIT,), (EXT_PROC,), FILTERS])
def test_the_chain(whole: dict[str, Any], kept: tuple[str, ...]) -> None:
    """Our filters in their order; without ext_proc every request has a pool; without any there is no gate."""
    made = with_filters(whole, kept, VALUES)
    assert list(http_filters_of(made)) == [*kept, ROUTER]
    assert chooses_by_pool(made) == (EXT_PROC in kept)
    assert host_of(made)["routes"][0]["route"]["cluster"] == "pool_big"
    assert (RATELIMIT in host_of(made).get("typed_per_filter_config", {})) == (RATELIMIT in kept)
    assert ("gate" in clusters_of(made)) == bool(kept)


def test_limits_without_ext_authz(whole: dict[str, Any]) -> None:
    """The same descriptors, with values that are given."""
    made = with_filters(whole, (RATELIMIT,), VALUES)
    limits = host_of(made)["typed_per_filter_config"][RATELIMIT]["rate_limits"]
    found = [
        [(a["generic_key"]["descriptor_key"], a["generic_key"]["descriptor_value"]) for a in limit["actions"]]
        for limit in limits
    ]
    assert found == [[("tenant", "acme")], [("tenant", "acme"), ("class", "vip")], [(VERSION_KEY, "7")]]


def test_a_cluster_for_each_service(whole: dict[str, Any]) -> None:
    made = split(whole, {filter_: f"/run/{index}" for index, filter_ in enumerate(FILTERS)})
    assert "gate" not in clusters_of(made)
    for index, filter_ in enumerate(FILTERS):
        (cluster,) = (c for c in made["static_resources"]["clusters"] if c["name"] == cluster_of(filter_))
        (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        assert endpoint["endpoint"]["address"]["pipe"]["path"] == f"/run/{index}"
        holder = http_filters_of(made)[filter_]
        service = holder.get("rate_limit_service", holder)["grpc_service"]
        assert service["envoy_grpc"]["cluster_name"] == cluster_of(filter_)


def test_the_whole_one_is_left_as_it_is(whole: dict[str, Any]) -> None:
    with_filters(whole, (), VALUES)
    split(whole, dict.fromkeys(FILTERS, "/run/x"))
    assert list(http_filters_of(whole)) == [*FILTERS, ROUTER]
    assert "gate" in clusters_of(whole)
