"""Calls that come again and again: their plan is kept, within bounds, and only for the rules it was made by."""

import asyncio
import os

from ratelimit import service, wire
from seawall.proto.gen import ratelimit_pb2 as pb
from seawall.rpc.contract import Call
from seawall.rpc.tasks import Tasks
from seawall.serve.gate import Gate
from seawall.serve.policies import Policies
from seawall.serve.settings import Settings
from seawall.serve.slots import Slots
from seawall.store.memory import MemoryStore
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Metrics

POLICY = "limits: [{domain: llm, descriptors: [{key: tenant, rate_limit: {unit: year, requests_per_unit: %d}}]}]"


def question(value: str) -> bytes:
    request = pb.RateLimitRequest(domain="llm")
    request.descriptors.add().entries.add(key="tenant", value=value)
    return request.SerializeToString()


async def asked(of: service.Service, data: bytes) -> pb.RateLimitResponse:
    answer = of.should_rate_limit(data, Call(f"/{wire.SERVICE}/{wire.METHOD}", {}, None))
    return pb.RateLimitResponse.FromString(answer if isinstance(answer, bytes) else await answer)


async def test_kept_plans() -> None:
    store, metrics = MemoryStore(owner="w"), Metrics()
    settings = Settings(workers=1)
    policies = Policies(store, settings, "w", lambda _, why: None)
    log = Log(os.open(os.devnull, os.O_WRONLY))
    slots = Slots(store, metrics, lease=10, workers_alive=lambda: 1)
    one = service.Service(Gate("w", settings, policies, store, slots, metrics, log, Tasks(lambda *_: None)))
    await store.push(POLICY % 3, digest="1", author="t", reason="", needs="0.1")
    await policies.check()
    remaining = [(await asked(one, question("a"))).statuses[0].limit_remaining for _ in range(3)]
    assert remaining == [2, 1, 0]
    assert (await asked(one, question("b"))).statuses[0].limit_remaining == 2
    # Another policy: the same bytes mean another limit now, and the counter goes on.
    await store.push(POLICY % 10, digest="2", author="t", reason="", needs="0.1")
    await policies.check()
    status = (await asked(one, question("a"))).statuses[0]
    assert (status.current_limit.requests_per_unit, status.limit_remaining) == (10, 6)
    # However many values come, few are kept, and long ones never.
    for value in range(5_000):
        await asked(one, question(f"v{value}"))
    long = question("x" * 2_000)
    await asked(one, long)
    assert 0 < len(one._known) <= 4096
    assert long not in one._known
    await asyncio.to_thread(log.close)
