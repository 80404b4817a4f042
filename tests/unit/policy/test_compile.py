"""What a document compiles to."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from seawall.decision import Reason, Refusal
from seawall.limits.descriptor import match
from seawall.limits.window import Unit
from seawall.policy.compile import charged_by, compile_policy, descriptor_keys, digest_of
from seawall.policy.document import Document, Output, known_since, needs_of, release_key
from seawall.policy.load import check_statics, load, newer_than_this
from seawall.policy.mistake import PolicyError

WHOLE = (Path(__file__).parents[2] / "cases" / "policy" / "valid" / "whole.yaml").read_text()
UPSTREAMS = [("http://127.0.0.1:8001", "vllm"), ("https://[::1]", "tgi")]


def test_empty_document() -> None:
    """An empty document has all defaults, and refuses a caller without a key."""
    policy = compile_policy("")
    assert policy.classes == ("vip", "standard", "batch")
    assert isinstance(policy.callers.identify({}, 0.0), Refusal)
    assert policy.prefilter.body_max == 16384
    assert policy.prefilter.headers_max == 32768
    assert policy.prefilter.unknown_paths == "deny"
    assert policy.default_pool == "default"
    assert policy.pools["default"].max_in_flight == 128
    assert policy.output.cap("vip") is None
    assert (policy.store_loss.limits, policy.store_loss.start) == ("share", "wait")
    assert policy.digest == digest_of("")


def test_upstreams() -> None:
    """Without engines and pools, the engines of the settings are the pool `default`."""
    pool = compile_policy("", upstreams=UPSTREAMS).pools["default"]
    assert [(e.name, e.host, e.port, e.tls, e.kind) for e in pool.engines] == [
        ("engine-0", "127.0.0.1", 8001, False, "vllm"),
        ("engine-1", "::1", 443, True, "tgi"),
    ]


def test_pool_without_engines() -> None:
    """A pool that names no engines has all of them, so that a limit can be set on what `up` starts."""
    policy = compile_policy("pools: {default: {concurrency: {max: 3}}}", upstreams=UPSTREAMS)
    assert policy.pools["default"].max_in_flight == 3
    assert len(policy.pools["default"].engines) == 2


def test_engines_without_pools() -> None:
    """Engines without pools are the pool `default`, and the settings' engines are out."""
    policy = compile_policy("engines: {a: {url: 'http://h:1'}, b: {url: 'http://h:2/'}}", upstreams=UPSTREAMS)
    assert [e.url for e in policy.pools["default"].engines] == ["http://h:1", "http://h:2"]


def test_bad_upstream() -> None:
    """An upstream of the settings that is no address is a ValueError that does not repeat it."""
    with pytest.raises(ValueError, match="HOST") as error:
        compile_policy("", upstreams=[("http://u:hunter2@h", "vllm")])
    assert "hunter2" not in str(error.value)


def test_whole() -> None:
    """Every section of a full document arrives."""
    policy = compile_policy(WHOLE)
    assert policy.default_pool is None
    assert [e.name for e in policy.pools["big"].engines] == ["vllm-0", "vllm-1"]
    assert [(v.name, v.pool, v.model) for v in policy.models["deepseek-v4"].variants] == [
        ("full", "big", "org/deepseek-v4"),
        ("small", "small", "deepseek-v4"),
    ]
    assert policy.callers.key_headers == ("authorization", "x-api-key")
    assert policy.callers.anonymous is not None
    assert policy.callers.anonymous.class_ == "batch"
    assert policy.prefilter.body_cap("vip") == 2**20
    assert policy.output.cap("batch") == 1024
    assert policy.output.cap("vip") == 4096


def test_expiry() -> None:
    """A date is good through its day in UTC; a date and time is the first moment it is not."""
    keys = {key.id: key for key in compile_policy(WHOLE).callers.keys.values()}
    assert keys["acme-prod"].expires == datetime(2027, 7, 1, tzinfo=UTC).timestamp()
    assert keys["acme-ci"].expires == datetime(2027, 6, 30, 10, tzinfo=UTC).timestamp()


def test_policy_is_immutable() -> None:
    """Nobody can change the policy that other requests are being decided by."""
    policy: Any = compile_policy(WHOLE)
    with pytest.raises(TypeError):
        policy.pools["x"] = None
    with pytest.raises(AttributeError):
        policy.digest = ""


def test_tenant_without_class() -> None:
    """A tenant without a class is of the lowest one; a model without variants is in the default pool."""
    policy = compile_policy("classes: {gold: , silver: }\ncallers: {tenants: {a: }}\nmodels: {m: }")
    assert policy.callers.tenants["a"].class_ == "silver"
    assert [(v.name, v.pool, v.model) for v in policy.models["m"].variants] == [("full", "default", "m")]


def test_limits_keep_source_text() -> None:
    """Values of limits are the text that was written, whatever YAML 1.1 would make of it."""
    text = (Path(__file__).parents[2] / "cases" / "policy" / "valid" / "source_text.yaml").read_text()
    tree = compile_policy(text).limits["yes"]
    limits = {value: match(tree, [("on", value)]) for value in ("007", "12:30", "2026-01-02", "1_000", "True")}
    found = {value: (m.limit.requests_per_unit, m.limit.unit) if m else None for value, m in limits.items()}
    assert found == {
        "007": (16, Unit.MINUTE),
        "12:30": (8, Unit.DAY),
        "2026-01-02": (1000, Unit.HOUR),
        "1_000": (4294967295, Unit.SECOND),
        "True": None,
    }


def test_who_charges() -> None:
    """Each limit says who charges it, and Envoy is told which descriptors to send."""
    assert charged_by(load(WHOLE).document) == [
        ("llm: tenant", "ratelimit"),
        ("llm: tenant.class_batch", "ratelimit"),
        ("llm: generic_key_x", "ratelimit, if your Envoy sends the descriptor (generic_key) in domain 'llm'"),
        ("other: model", "ratelimit, if your Envoy sends the descriptor (model) in domain 'other'"),
    ]
    assert descriptor_keys(compile_policy(WHOLE)) == [("tenant",), ("tenant", "class")]
    assert descriptor_keys(compile_policy("")) == []


def test_statics() -> None:
    """A body cap above what Envoy buffers is a mistake, whatever that bound is set to."""
    loaded = load("prefilter: {body: {max: 2MiB, per_class: {vip: 4MiB}}}")
    assert check_statics(loaded, 4 * 2**20) == ()
    assert [m.path for m in check_statics(loaded, 2**20)] == ["prefilter.body.max", "prefilter.body.per_class.vip"]
    with pytest.raises(PolicyError, match="SEAWALL_MAX_BODY"):
        compile_policy("prefilter: {body: {max: 2MiB}}", max_body=2**20)


def test_needs() -> None:
    """A document needs the release of its newest key, or the later one that it states."""

    class LaterOutput(Output):
        max_time: int | None = Field(default=None, json_schema_extra=known_since("0.10"))

    class Later(Document):
        output: Output = Field(default=LaterOutput(), json_schema_extra=known_since("0.2"))

    assert needs_of(Document()) == "0.1"
    assert needs_of(Later()) == "0.1"
    assert needs_of(Later(output=LaterOutput())) == "0.2"
    assert needs_of(Later(output=LaterOutput(max_time=1))) == "0.10"
    assert load("needs: 0.0.9").needs == "0.1"
    assert load("needs: 0.1.0").needs in {"0.1", "0.1.0"}


def test_releases() -> None:
    """Releases are numbers, not text."""
    assert release_key("0.10") > release_key("0.9")
    assert release_key("1") == release_key("1.0.0")
    assert newer_than_this("999")
    assert not newer_than_this("0.1")


def test_expired_key_of_a_policy() -> None:
    """A key is refused from the first second after its last day."""
    digest = "5d6bf7b999239eddfd0a32aede86c79e58e1b3a03a2685fbe53c5980581bdc1d"
    text = f"callers: {{tenants: {{a: {{class: vip, keys: [{{id: a, sha256: {digest}, expires: 1970-01-01}}]}}}}}}"
    callers = compile_policy(text).callers
    headers = {"x-api-key": "sk-demo-vip"}
    assert not isinstance(callers.identify(headers, 86399.9), Refusal)
    late = callers.identify(headers, 86400.0)
    assert isinstance(late, Refusal)
    assert late.reason is Reason.EXPIRED_KEY


def test_patterns_that_do_not_join() -> None:
    """User-Agent patterns that are fine alone and too large together are a mistake with a place."""
    patterns = ", ".join(f'"~{i}[xyz]{{1000}}"' for i in range(1000))
    with pytest.raises(PolicyError) as refused:
        compile_policy(f"prefilter: {{user_agents: {{deny: [{patterns}]}}}}")
    expected = "policy.yaml:1:13: prefilter.user_agents: the patterns together are too large for RE2"
    assert str(refused.value) == expected
