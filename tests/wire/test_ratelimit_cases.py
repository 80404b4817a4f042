"""The cases of the rate limit service over gRPC: its rule files stand in a policy, its service answers.

Those with `settings` wait for the service to have them; statistics are held against the core (tests/ratelimit).
"""

import asyncio
from textwrap import indent
from typing import Any

import grpc.aio
import pytest
from google.protobuf.json_format import MessageToDict

from seawall.proto.gen import ratelimit_pb2 as pb
from seawall.store.counters import Ledger
from tests.ratelimit.cases import CALLS, Refused, Told, compare, filled, fixtures, read
from tests.ratelimit.test_cases import NOW
from tests.wire.rooms import Rooms, rooms

POLICY = "limits:\n" + "".join(f"  -\n{indent(text, '    ')}" for text in fixtures().values())
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


def message(call: dict[str, Any], domain: str) -> pb.RateLimitRequest:
    """The call as Envoy sends it."""
    request = pb.RateLimitRequest(domain=call.get("domain", domain), hits_addend=call.get("hits_addend", 0))
    for given in call["descriptors"]:
        added = request.descriptors.add(is_negative_hits=given.get("is_negative_hits", False))
        for key, value in given["entries"]:
            added.entries.add(key=key, value=value)
        if "hits_addend" in given:
            added.hits_addend.value = given["hits_addend"]
        if "limit" in given:
            unit = given["limit"]["unit"]
            added.limit.requests_per_unit = given["limit"]["requests_per_unit"]
            added.limit.unit = pb.RateLimitUnit.Value(unit) if isinstance(unit, str) else unit
            added.limit.SetInParent()
    return request


async def told(here: Rooms, call: dict[str, Any], domain: str) -> Told | Refused:
    """Make one call."""
    ask: Any = here.channel.unary_unary(METHOD, None, pb.RateLimitResponse.FromString)
    try:
        answer = await ask(message(call, domain).SerializeToString())
    except grpc.aio.AioRpcError as error:
        return Refused(error.code().name, error.details() or "")
    units = pb.RateLimitResponse.RateLimit.Unit
    return Told(
        pb.RateLimitResponse.Code.Name(answer.overall_code),
        [
            {
                "code": pb.RateLimitResponse.Code.Name(status.code),
                "limit": status.current_limit.requests_per_unit if status.HasField("current_limit") else None,
                "unit": units.Name(status.current_limit.unit),
                "name": status.current_limit.name,
                "remaining": status.limit_remaining,
                "reset": status.duration_until_reset.seconds if status.HasField("duration_until_reset") else None,
            }
            for status in answer.statuses
        ],
        {header.key: header.value for header in answer.response_headers_to_add},
        MessageToDict(answer.dynamic_metadata) if answer.HasField("dynamic_metadata") else None,
    )


@pytest.mark.parametrize("topic", CALLS)
async def test_cases(topic: str) -> None:
    """Every case of a topic that needs no settings, each with counters of its own and the clock standing still."""
    async with rooms(POLICY) as here:
        for turn, case in enumerate(read(topic)):
            if any(value != "false" for value in case.get("settings", {}).values()):
                continue
            named: dict[str, Any] = filled(case, {"$r": f"r{turn}", "$R": f"s{turn}"})
            now = named.get("clock", NOW)
            here.store._clock = lambda now=now: now
            here.store._shared.ledger = Ledger()
            for call in [*named.get("prepare", []), *named["calls"]]:
                await run(here, call, named["domain"], now)


async def run(here: Rooms, call: dict[str, Any], domain: str, now: float) -> None:
    """Make a call as often as it says, and hold each answer against what is expected."""
    if "parallel" in call:
        answers = await asyncio.gather(*[told(here, call, domain) for _ in range(call["parallel"])])
        assert sum(isinstance(a, Told) and a.code == "OK" for a in answers) == call["expect"]["ok_count"]
        return
    for turn in range(call.get("repeat", 1)):
        compare(call.get("expect", {}), await told(here, call, domain), turn, now)
