"""The three services over real gRPC, with Envoy's messages."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from seawall.proto.gen import ratelimit_pb2
from tests.wire.as_envoy import AUTHZ, CHAT, EXT_PROC, LIMIT, RATELIMIT, check, denied, should_rate_limit
from tests.wire.carried import refusal
from tests.wire.rooms import Rooms, rooms

pytestmark = pytest.mark.usefixtures("transport")


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


POLICY = f"""
callers:
  tenants:
    acme:
      class: vip
      keys:
        - {{id: acme-1, sha256: {digest("sk-acme")}}}
        - {{id: acme-old, sha256: {digest("sk-old")}, expires: 2020-01-01}}
prefilter:
  user_agents: {{deny: ["*sqlmap*"]}}
  headers: {{max: 2KiB}}
limits:
  - domain: llm
    descriptors:
      - key: tenant
        rate_limit: {{unit: day, requests_per_unit: 3}}
      - key: tenant
        value: big
        rate_limit: {{unit: day, requests_per_unit: 1000}}
        descriptors:
          - key: class
            rate_limit: {{unit: day, requests_per_unit: 500}}
      - key: free
  - domain: other
    descriptors:
      - key: tenant
        rate_limit: {{unit: day, requests_per_unit: 1}}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def here() -> AsyncIterator[Rooms]:
    async with rooms(POLICY) as made:
        yield made
        assert made.faults == []


async def test_a_caller_is_let_on(here: Rooms) -> None:
    """With what later filters need, strings all; what the client must not send is taken off, its key too."""
    response = await check(
        here.channel, key="sk-acme", x_seawall_pool="mine", x_seawall_tenant="root", x_vllm_priority="0", x_other="1"
    )
    assert response.status.code == 0
    assert response.WhichOneof("http_response") == "ok_response"
    assert sorted(response.ok_response.headers_to_remove) == [
        "authorization",
        "x-seawall-pool",
        "x-seawall-tenant",
        "x-vllm-priority",
    ]
    metadata = {name: value.string_value for name, value in response.dynamic_metadata.fields.items()}
    rid = metadata.pop("rid")
    assert metadata == {"tenant": "acme", "class": "vip", "key": "acme-1", "policy": "1"}
    again = (await check(here.channel, key="sk-acme")).dynamic_metadata.fields["rid"].string_value
    assert len(rid) == len(again) == 16
    assert rid != again


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [
        ({"key": None}, 401, "missing_api_key"),
        ({"key": "sk-nobody"}, 401, "invalid_api_key"),
        ({"key": "sk-old"}, 401, "expired_api_key"),
        ({"key": "sk-acme", "path": "/admin"}, 404, "unknown_path"),
        ({"key": "sk-acme", "user_agent": "sqlmap/1.7"}, 403, "user_agent_denied"),
        ({"key": "sk-acme", "x_filler": "x" * 3000}, 431, "request_headers_too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
async def test_a_caller_is_refused(here: Rooms, path: str, asked: dict[str, Any], status: int, reason: str) -> None:
    """A refusal is one for Envoy, has the envelope of its path, and repeats no key."""
    response = await check(here.channel, **{"path": path, **asked})
    code, headers, body = denied(response)
    assert (code, headers["x-seawall-reason"]) == (status, reason)
    assert headers["content-type"] == "application/json"
    anthropic = "path" not in asked and path == "/v1/messages"
    assert (body.get("type") == "error") is anthropic
    assert body["error"]["message"]
    assert response.dynamic_metadata.fields["reason"].string_value == reason
    assert "tenant" not in response.dynamic_metadata.fields
    assert str(asked.get("key")) not in str(response)
    assert here.counted("seawall_decisions_total", "ext_authz", reason) == 1


async def test_hits_are_counted(here: Rooms) -> None:
    """Each call charges its descriptors; the one that goes over, and all after it, is OVER_LIMIT."""
    for left in (2, 1, 0):
        response = await should_rate_limit(here.channel, {"tenant": "acme"})
        (told,) = response.statuses
        assert (response.overall_code, told.code, told.limit_remaining) == (LIMIT.OK, LIMIT.OK, left)
        assert (told.current_limit.requests_per_unit, told.current_limit.unit) == (3, LIMIT.RateLimit.DAY)
        assert 0 < told.duration_until_reset.seconds <= 86400
    for _ in range(2):
        response = await should_rate_limit(here.channel, {"tenant": "acme"})
        (told,) = response.statuses
        assert (response.overall_code, told.code, told.limit_remaining) == (LIMIT.OVER_LIMIT, LIMIT.OVER_LIMIT, 0)
    # Another tenant, and the same one in another domain, have counters of their own.
    assert (await should_rate_limit(here.channel, {"tenant": "zeta"})).statuses[0].limit_remaining == 2
    assert (await should_rate_limit(here.channel, {"tenant": "acme"}, domain="other")).overall_code == LIMIT.OK
    assert (await should_rate_limit(here.channel, {"tenant": "acme"}, domain="other")).overall_code == LIMIT.OVER_LIMIT


async def test_several_descriptors(here: Rooms) -> None:
    """One status each, in order; one that is over makes the whole over, and none is spared its charge."""
    asked: list[dict[str, str]] = [{"tenant": "acme"}, {"tenant": "big"}, {"tenant": "big", "class": "vip"}]
    for n in range(1, 5):
        response = await should_rate_limit(here.channel, *asked)
        assert [s.limit_remaining for s in response.statuses] == [max(0, 3 - n), 1000 - n, 500 - n]
        assert [s.code for s in response.statuses] == [LIMIT.OK if n <= 3 else LIMIT.OVER_LIMIT, LIMIT.OK, LIMIT.OK]
        assert response.overall_code == (LIMIT.OK if n <= 3 else LIMIT.OVER_LIMIT)


async def test_what_no_rule_is_for(here: Rooms) -> None:
    """It is let through, uncounted: unknown domain, unknown key, an entry too many, a rule without a limit."""
    for domain, descriptor in (
        ("nobody", {"tenant": "acme"}),
        ("llm", {"nothing": "x"}),
        ("llm", {"tenant": "acme", "more": "x"}),
        ("llm", {"free": "x"}),
    ):
        response = await should_rate_limit(here.channel, descriptor, domain=domain)
        assert response.overall_code == LIMIT.OK
        assert [(s.code, s.HasField("current_limit")) for s in response.statuses] == [(LIMIT.OK, False)]
    assert here.counted("seawall_limit_hits_total") == 0


async def test_hits_of_a_call_and_of_a_descriptor(here: Rooms) -> None:
    """A descriptor's own addend wins, a written 0 only looks, and a call's is for those without one."""
    request = ratelimit_pb2.RateLimitRequest(domain="llm", hits_addend=7)
    for addend in (None, 5, 0):
        added = request.descriptors.add()
        added.entries.add(key="tenant", value="big")
        if addend is not None:
            added.hits_addend.value = addend
    ask = here.channel.unary_unary(f"/{RATELIMIT}/ShouldRateLimit", None, ratelimit_pb2.RateLimitResponse.FromString)
    response = await ask(request.SerializeToString())
    assert [s.limit_remaining for s in response.statuses] == [993, 988, 988]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (ratelimit_pb2.RateLimitRequest(descriptors=[ratelimit_pb2.RateLimitDescriptor()]), "domain must not be empty"),
        (ratelimit_pb2.RateLimitRequest(domain="llm"), "descriptor list must not be empty"),
    ],
    ids=["domain", "descriptors"],
)
async def test_what_a_call_must_have(here: Rooms, request_: Any, text: str) -> None:
    """A domain and a descriptor."""
    ask = here.channel.unary_unary(f"/{RATELIMIT}/ShouldRateLimit")
    code, said = await refusal(ask(request_.SerializeToString()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text in said


GARBAGE = [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", bytes(range(256))]


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: f"{len(data)} bytes")
async def test_garbage(here: Rooms, data: bytes) -> None:
    """Bytes that are no message are INVALID_ARGUMENT everywhere, and the next call is answered."""
    for path in (f"/{AUTHZ}/Check", f"/{RATELIMIT}/ShouldRateLimit"):
        ask = here.channel.unary_unary(path)
        assert (await refusal(ask(data)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    stream = here.channel.stream_stream(f"/{EXT_PROC}/Process")()
    await stream.write(data)
    assert (await refusal(stream.read()))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert here.gauge("seawall_streams") == 0
    assert (await check(here.channel, key="sk-acme")).status.code == 0


async def test_empty_messages(here: Rooms) -> None:
    """An empty Check has no key; it is refused like any other."""
    ask = here.channel.unary_unary(f"/{AUTHZ}/Check")
    assert await ask(b"")
    assert here.counted("seawall_decisions_total", "ext_authz") == 1
    assert here.counted("seawall_decisions_total", "ext_authz", "ok") == 0
