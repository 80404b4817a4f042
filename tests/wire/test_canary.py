"""One request sees one version, from ext_authz to its end."""

import hashlib
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from seawall.store.contract import CanaryShare
from seawall.store.key_contract import KeyRecord
from tests.wire.as_envoy import LIMIT, Process, check, denied, should_rate_limit
from tests.wire.rooms import Rooms, rooms

pytestmark = pytest.mark.usefixtures("transport")


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def policy(limit: int, cap: int, agents: str = "", more: str = "") -> str:
    tenants = "".join(f"    {t}: {{keys: [{{id: {t}-1, sha256: {digest(f'sk-{t}')}}}]}}\n" for t in ("acme", "globex"))
    return f"""
callers:
  tenants:
{tenants}
limits:
  - domain: llm
    descriptors: [{{key: tenant, rate_limit: {{unit: day, requests_per_unit: {limit}}}}}]
output: {{max_tokens: {cap}}}
prefilter: {{user_agents: {{deny: [{agents}]}}}}
{more}
"""


CANARY = policy(1, 11, '"test/*"')


@pytest_asyncio.fixture(loop_scope="session")
async def here() -> AsyncIterator[Rooms]:
    async with rooms(policy(100, 99)) as made:
        yield made
        assert made.faults == []


async def canary(here: Rooms, text: str, *tenants: str) -> None:
    await here.store.start_canary(
        text, share=CanaryShare(0, tenants), digest=digest(text), author="a", reason="", needs="0.1"
    )
    await here.gate.policies.check()


async def version_of(here: Rooms, key: str | None) -> str:
    response = await check(here.channel, key=key)
    return str(response.dynamic_metadata.fields["policy"].string_value)


async def cap(here: Rooms, version: str) -> int:
    """Cap on the output that a request of a version gets."""
    stream = Process(here.channel)
    await stream.request_headers(rid="r", policy=version)
    answer = await stream.request_body()

    body = json.loads(answer.request_body.response.body_mutation.body)
    await stream.done()
    return int(body["max_tokens"])


async def test_the_tenant_chooses_the_version(here: Rooms) -> None:
    """Who is not in the canary, not known or without a key is on the current version."""
    await canary(here, policy(1, 11), "acme")
    assert [await version_of(here, key) for key in ("sk-acme", "sk-globex", "sk-none", None)] == ["2", "1", "1", "1"]
    assert await version_of(here, "sk-acme") == "2"


async def test_the_prefilter_is_that_of_the_tenant(here: Rooms) -> None:
    """Although it comes before the key is judged."""
    await canary(here, CANARY, "acme")
    refused = await check(here.channel, key="sk-acme")
    assert denied(refused)[0] == 403
    assert refused.dynamic_metadata.fields["policy"].string_value == "2"
    assert (await check(here.channel, key="sk-globex")).status.code == 0


async def test_later_services_take_the_version_of_the_request(here: Rooms) -> None:
    """Whatever became current or was ended meanwhile; counts are shared by all versions."""
    await canary(here, CANARY, "acme")
    for version, codes in (("2", [LIMIT.OK, LIMIT.OVER_LIMIT]), ("1", [LIMIT.OK])):
        for code in codes:
            answer = await should_rate_limit(here.channel, {"tenant": "acme"}, {"seawall.policy": version})
            assert answer.overall_code == code
            assert len(answer.statuses) == 2
            assert not answer.statuses[1].HasField("current_limit")
    assert [await cap(here, version) for version in ("2", "1", "")] == [11, 99, 99]
    await here.store.abort_canary(author="a", reason="")
    await here.store.push(policy(100, 55), digest="d3", author="a", reason="", needs="0.1")
    await here.gate.policies.check()
    assert [await cap(here, version) for version in ("2", "1", "3", "")] == [11, 99, 55, 55]
    assert here.counted("seawall_policy_fallback_total") == 0


async def test_an_unknown_version_is_the_current_one_and_counted(here: Rooms) -> None:
    """A worker that another one was ahead of answers at once."""
    assert await cap(here, "7") == 99
    answer = await should_rate_limit(here.channel, {"tenant": "acme"}, {"seawall.policy": "7"})
    assert answer.statuses[0].current_limit.requests_per_unit == 100
    assert here.counted("seawall_policy_fallback_total", "ext_proc") == 1
    assert here.counted("seawall_policy_fallback_total", "ratelimit") == 1


async def test_a_running_stream_keeps_its_version(here: Rooms) -> None:
    """From its headers on, a push in between changes nothing."""
    stream = Process(here.channel)
    await stream.request_headers(rid="r", policy="1")
    await here.store.push(policy(100, 55), digest="d2", author="a", reason="", needs="0.1")
    await here.gate.policies.check()
    answer = await stream.request_body()
    assert b'"max_tokens":99' in answer.request_body.response.body_mutation.body.replace(b" ", b"")
    await stream.done()


async def test_keys_of_the_store(here: Rooms) -> None:
    """Known, counted, and refused with a reason of its own once they are revoked."""
    record = KeyRecord("ring", "globex", digest("sk-ring"), 1.0, "ann")
    await here.store.add_key(record)
    await here.gate.policies.check()
    response = await check(here.channel, key="sk-ring")
    told = {name: value.string_value for name, value in response.dynamic_metadata.fields.items()}
    assert (told["tenant"], told["key"]) == ("globex", "ring")
    await check(here.channel, key="sk-ring")
    await here.gate.policies.check()
    assert (await here.store.key_uses())["ring"].uses == 2
    await here.store.revoke_key(record, by="bob", at=2.0)
    await here.gate.policies.check()
    refused = await check(here.channel, key="sk-ring")
    status, headers, body = denied(refused)
    assert (status, headers["x-seawall-reason"]) == (401, "revoked_api_key")
    assert body["error"]["code"] == "invalid_api_key"
    assert "sk-ring" not in str(body)
