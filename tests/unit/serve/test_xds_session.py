"""A subscription by xDS without a server: bytes in, what is answered and which rules it makes."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from google.protobuf.json_format import ParseDict

from seawall.limits.descriptor import Limit, match
from seawall.limits.window import Algorithm, Window
from seawall.policy.mistake import PolicyError
from seawall.policy.rule_files import RuleSet, compile_resources, compile_rule_files
from seawall.proto.gen.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from seawall.proto.gen.ratelimit_config_pb2 import RateLimitConfig
from seawall.serve import xds_wire
from seawall.serve.xds_session import Heard, Session, rules_of
from seawall.serve.xds_source import XdsSource

SOURCE = XdsSource(node_id="gate", node_metadata=(("zone", "a"),))
DAY = {"unit": "DAY", "requests_per_unit": 3}


def config(domain: str, *descriptors: Mapping[str, Any], name: str = "r") -> RateLimitConfig:
    return ParseDict({"name": name, "domain": domain, "descriptors": list(descriptors)}, RateLimitConfig())


def response(version: str, nonce: str, *configs: RateLimitConfig, kind: str = xds_wire.TYPE) -> bytes:
    message = DiscoveryResponse(version_info=version, nonce=nonce, type_url=kind)
    for each in configs:
        message.resources.add(type_url=xds_wire.TYPE, value=each.SerializeToString())
    return message.SerializeToString()


def answer(heard: Heard) -> DiscoveryRequest:
    assert heard.answer is not None
    return DiscoveryRequest.FromString(heard.answer)


def the_limit(rules: RuleSet | None, domain: str, *entries: tuple[str, str]) -> Limit | None:
    assert rules is not None
    found = match(rules.limits[domain], list(entries))
    return found.limit if found is not None else None


def error(*configs: RateLimitConfig) -> list[str]:
    return Session(SOURCE).heard(response("1", "a", *configs)).error.splitlines()


def test_accepted_refused_and_healed() -> None:
    """ACKs tell version and nonce of the response, a NACK the version before and what is wrong."""
    session = Session(SOURCE)
    first = DiscoveryRequest.FromString(session.opened())
    assert (first.type_url, first.version_info, first.response_nonce) == (xds_wire.TYPE, "", "")
    assert (first.node.id, dict(first.node.metadata), list(first.resource_names)) == ("gate", {"zone": "a"}, [])

    heard = session.heard(response("1", "a", config("shop", {"key": "k", "rate_limit": DAY})))
    assert the_limit(heard.rules, "shop", ("k", "x")) is not None
    assert (answer(heard).version_info, answer(heard).response_nonce, answer(heard).HasField("error_detail")) == (
        "1",
        "a",
        False,
    )
    session.accept(heard)

    bad = session.heard(response("2", "b", config("shop", {"key": "k", "rate_limit": {"unit": "DAY"}}, {"key": ""})))
    refused = answer(bad)
    assert bad.rules is None
    assert (refused.version_info, refused.response_nonce, refused.error_detail.code) == ("1", "b", 3)
    assert refused.error_detail.message == bad.error == "resource 'r': descriptors[1].key: '' is empty; allowed: text"
    assert refused.node.id == "gate"

    # The same as before the bad one: nothing to do but to say so.
    same = session.heard(response("3", "c", config("shop", {"key": "k", "rate_limit": DAY})))
    assert (same.same, same.rules, same.error, answer(same).version_info) == (True, None, "", "3")
    session.accept(same)
    good = session.heard(response("4", "d", config("bar")))
    assert good.rules is not None and set(good.rules.limits) == {"bar"}
    session.accept(good)
    assert session.version == "4"
    # No resources is a configuration too.
    empty = session.heard(response("5", "e"))
    assert empty.rules is not None and not empty.rules.limits
    # A stream begins without what the one before had.
    assert session.opened() == first.SerializeToString()


def test_what_was_accepted_is_said_by_accept_only() -> None:
    """A response whose rules never came into force is not taken for known."""
    session = Session(SOURCE)
    session.heard(response("1", "a", config("shop")))
    assert not session.heard(response("1", "b", config("shop"))).same
    assert session.version == ""


def test_other_types() -> None:
    """A type that was not asked for is passed over; a resource of another type refuses the set, and says which."""
    heard = Session(SOURCE).heard(response("1", "a", kind="type.googleapis.com/envoy.config.cluster.v3.Cluster"))
    assert heard.answer is None and heard.rules is None
    assert heard.error == "type 'type.googleapis.com/envoy.config.cluster.v3.Cluster' was not asked for"
    message = DiscoveryResponse.FromString(response("1", "a", config("shop")))
    message.resources.add(type_url="type.googleapis.com/x.Y")
    assert Session(SOURCE).heard(message.SerializeToString()).error == (
        f"resources[1]: type 'type.googleapis.com/x.Y' is not allowed; allowed: {xds_wire.TYPE}"
    )
    assert Session(SOURCE).heard(response("1", "a", kind="")).rules is not None


def test_bytes_that_are_nothing() -> None:
    """A resource that can't be read is refused; a response that can't be read has no nonce to refuse it by."""
    message = DiscoveryResponse(version_info="1", nonce="a", type_url=xds_wire.TYPE)
    message.resources.add(type_url=xds_wire.TYPE, value=b"\xff")
    assert (
        Session(SOURCE).heard(message.SerializeToString()).error == "resources[0]: can't be read as a RateLimitConfig"
    )
    with pytest.raises(ValueError, match="no DiscoveryResponse"):
        Session(SOURCE).heard(b"\xff")


def test_depth() -> None:
    """As deep as a file may be, and no deeper."""

    def nested(levels: int) -> RateLimitConfig:
        made = RateLimitConfig(name="r", domain="d")
        below: Any = made
        for _ in range(levels):
            below = below.descriptors.add(key="k")
        return made

    assert error(nested(xds_wire.MAX_LEVELS)) == []
    assert error(nested(xds_wire.MAX_LEVELS + 1)) == [
        "resource 'r': descriptors are nested too deep; allowed: 30 levels"
    ]


def test_two_resources_of_a_domain() -> None:
    """Refused, or merged in the order of their names where that is asked for."""
    two = config("d", {"key": "k", "value": "*", "rate_limit": DAY}, name="2")
    one = config("d", {"key": "k", "value": "a*", "rate_limit": DAY}, name="1")
    assert error(two, one) == [
        "resource '2': domain: domain 'd' is also in resource '1'; allowed: one file (MERGE_DOMAIN_CONFIG: several)"
    ]
    rules = rules_of(response("1", "a", two, one), merge=True)
    found = the_limit(rules, "d", ("k", "ab"))
    assert found is not None and found.label == "k_a*"
    again = {"key": "k", "value": "a*"}
    [line] = (
        Session(XdsSource(merge=True)).heard(response("1", "a", one, config("d", again, name="2"))).error.splitlines()
    )
    assert line == "resource '2': descriptors[0]: has the key and value of descriptors[0] (resource '1')"


def test_a_long_refusal_is_cut() -> None:
    """Control planes log it."""
    message = answer(Session(SOURCE).heard(response("1", "a", *(config("", name="n" * 70) for _ in range(200)))))
    assert len(message.error_detail.message) <= xds_wire.MAX_ERROR + 1


def test_every_field_counts() -> None:
    """What a resource can say reaches the rule; text is never taken for a number, metadata keeps its types."""
    leaf = {
        "key": "k",
        "value": "007",
        "rate_limit": {"unit": "WEEK", "requests_per_unit": 4294967295, "name": "n", "replaces": [{"name": "m"}]},
        "shadow_mode": True,
        "quota_mode": True,
        "detailed_metric": True,
        "metadata": {"a": "1.5", "b": 2, "c": 2.5, "d": True, "e": None, "f": [{"g": "y"}], "h": "yes"},
    }
    free = {"key": "free", "rate_limit": {"unlimited": True}}
    rules = rules_of(response("1", "a", config("1.5", {"key": "up", "descriptors": [leaf]}, free)), merge=False)
    limit = the_limit(rules, "1.5", ("up", "x"), ("k", "007"))
    assert limit is not None
    assert limit.windows == (Window(Algorithm.FIXED, 4294967295, 604800),)
    assert (limit.name, limit.replaces, limit.shadow, limit.quota, limit.named_by_values) == (
        "n",
        frozenset({"m"}),
        True,
        True,
        True,
    )
    assert limit.metadata == {"a": "1.5", "b": 2, "c": 2.5, "d": True, "e": None, "f": [{"g": "y"}], "h": "yes"}
    assert type(limit.metadata["b"]) is int
    unlimited = the_limit(rules, "1.5", ("free", "x"))
    assert unlimited is not None and unlimited.windows == ()


REFUSED: dict[str, dict[str, Any]] = {
    "no domain": {"domain": "", "descriptors": []},
    "no key": {"domain": "d", "descriptors": [{"key": "", "value": "v"}]},
    "twice": {"domain": "d", "descriptors": [{"key": "k", "value": "v"}, {"key": "k", "value": "v"}]},
    "twice below": {"domain": "d", "descriptors": [{"key": "u", "descriptors": [{"key": "k"}, {"key": "k"}]}]},
    "unit": {"domain": "d", "descriptors": [{"key": "k"}, {"key": "j", "rate_limit": {"unit": "unknown"}}]},
    "unit beside unlimited": {
        "domain": "d",
        "descriptors": [{"key": "j", "rate_limit": {"unit": "day", "unlimited": True}}],
    },
    "replaces itself": {
        "domain": "d",
        "descriptors": [{"key": "j", "rate_limit": {"unit": "day", "name": "n", "replaces": [{"name": "n"}]}}],
    },
    "replaces nothing": {
        "domain": "d",
        "descriptors": [{"key": "j", "rate_limit": {"unit": "day", "replaces": [{"name": ""}]}}],
    },
    "a circle": {
        "domain": "d",
        "descriptors": [
            {"key": "i", "rate_limit": {"unit": "day", "name": "n", "replaces": [{"name": "m"}]}},
            {"key": "j", "rate_limit": {"unit": "day", "name": "m", "replaces": [{"name": "n"}]}},
        ],
    },
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_as_in_a_file(what: str) -> None:
    """A control plane's rules are refused for what a file is refused for, in the same words, but for line and column."""
    with pytest.raises(PolicyError) as of_file:
        compile_rule_files([("f", yaml.safe_dump(REFUSED[what]))])
    with pytest.raises(PolicyError) as of_resource:
        compile_resources([("f", REFUSED[what])])
    for mistake, other in zip(of_resource.value.mistakes, of_file.value.mistakes, strict=True):
        assert (mistake.path, mistake.value, mistake.allowed) == (other.path, other.value, other.allowed)
        assert mistake.message.partition(" (")[0] == other.message.partition(" (")[0]
        assert str(mistake).startswith(f"resource 'f': {mistake.path}: ")


def test_what_envoy_gateway_sends() -> None:
    """A resource a listener, a route's rules below its name: all, distinct values, a network, a cost that is never over."""
    unset = {"shadow_mode": False, "quota_mode": False, "detailed_metric": False}
    match_ = {
        "key": "rule-0-match-0",
        "value": "rule-0-match-0",
        "rate_limit": {"unit": "HOUR", "requests_per_unit": 5},
    }
    distinct = {"key": "rule-1-match-0", "value": "", "rate_limit": {"unit": "SECOND", "requests_per_unit": 6}, **unset}
    network = {
        "key": "masked_remote_address",
        "value": "10.1.0.0/16",
        "descriptors": [{"key": "remote_address", "rate_limit": {"unit": "MONTH", "requests_per_unit": 7}}],
    }
    route = {"key": "ns/route/0", "value": "ns/route/0", "descriptors": [match_, distinct, network]}
    shared = {"key": "ns/policy/rule/0", "value": "ns/policy/rule/0", "descriptors": [{**match_, "shadow_mode": True}]}
    rules = rules_of(
        response(
            "v", "1", config("ns/gw/http", route, name="ns/gw/http"), config("ns/policy", shared, name="ns/policy")
        ),
        merge=False,
    )
    at = ("ns/route/0", "ns/route/0")
    told = [
        the_limit(rules, "ns/gw/http", at, ("rule-0-match-0", "rule-0-match-0")),
        the_limit(rules, "ns/gw/http", at, ("rule-1-match-0", "alice")),
        the_limit(rules, "ns/gw/http", at, ("masked_remote_address", "10.1.0.0/16"), ("remote_address", "10.1.2.3")),
        the_limit(rules, "ns/policy", ("ns/policy/rule/0", "ns/policy/rule/0"), ("rule-0-match-0", "rule-0-match-0")),
    ]
    assert [(limit.requests_per_unit, limit.shadow) for limit in told if limit is not None] == [
        (5, False),
        (6, False),
        (7, False),
        (5, True),
    ]
    assert the_limit(rules, "ns/gw/http", ("ns/route/1", "ns/route/1")) is None


def test_what_envoy_ai_gateway_sends() -> None:
    """Quotas of a backend: of a model, by header rules in it with the rest behind them, and of all other models."""

    def quota(count: int, unit: str = "HOUR") -> dict[str, Any]:
        return {"rate_limit": {"unit": unit, "requests_per_unit": count}, "quota_mode": True}

    exact, rest = "rule-0-x-tier|gold-match-0", "rule-2-match--1"
    ruled = {
        "key": "model_name_override",
        "value": "llama",
        "descriptors": [
            {"key": exact, "value": exact, "descriptors": [{"key": "rule-0-x-user-match-1", **quota(10, "MINUTE")}]},
            {"key": "rule-1-x-team-match-0", "shadow_mode": True, **quota(20, "SECOND")},
            {"key": rest, "value": rest, **quota(30, "DAY")},
        ],
    }
    plain = {"key": "model_name_override", "value": "qwen", **quota(40)}
    others = {"key": "model_name_override", **quota(50)}
    backend = {"key": "backend_name", "value": "ns/backend", "descriptors": [ruled, plain, others]}
    rules = rules_of(response("1", "1", config("ai-gateway-quota", backend, name="ai-gateway-quota")), merge=False)
    at = ("backend_name", "ns/backend")
    llama = ("model_name_override", "llama")
    told = [
        the_limit(rules, "ai-gateway-quota", at, *entries)
        for entries in (
            (llama, (exact, exact), ("rule-0-x-user-match-1", "alice")),
            (llama, ("rule-1-x-team-match-0", "red")),
            (llama, (rest, rest)),
            (("model_name_override", "qwen"),),
            (("model_name_override", "other"),),
        )
    ]
    assert [(limit.requests_per_unit, limit.quota, limit.shadow) for limit in told if limit is not None] == [
        (10, True, False),
        (20, True, True),
        (30, True, False),
        (40, True, False),
        (50, True, False),
    ]
    assert the_limit(rules, "ai-gateway-quota", at, llama) is None
