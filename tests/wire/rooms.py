"""The three services in this process, on a memory store, carried over a real socket: what they hold can be looked at."""

import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from seawall.rpc.tasks import Tasks
from seawall.serve.gate import Gate
from seawall.serve.policies import Policies
from seawall.serve.settings import SERVICES, Settings
from seawall.serve.slots import Slots
from seawall.serve.worker import builders
from seawall.store.contract import Slot
from seawall.store.memory import MemoryStore
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Metrics
from tests.wire.carried import carried


class SlowStore(MemoryStore):
    """A memory store whose answers to `acquire` are kept back while `gate` is set: granted, but not told."""

    def __init__(self) -> None:
        super().__init__(owner="w")
        self.kept_back: Any = None

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> Awaitable[Slot]:
        answer = super().acquire(pool, rid, limit, lease)
        return self._tell(answer) if self.kept_back is not None else answer

    async def _tell(self, answer: Awaitable[Slot]) -> Slot:
        await self.kept_back.wait()
        return await answer


class Rooms:
    """A gate and a client of it."""

    def __init__(self, gate: Gate, store: SlowStore, channel: grpc.aio.Channel, faults: list[Any]):
        self.gate = gate
        self.store = store
        self.channel = channel
        self.faults = faults

    async def holders(self, pool: str = "default") -> int:
        """Slots held, as the store has it."""
        return await self.store.holders(pool)

    def counted(self, name: str, *labels: str) -> float:
        """What a counter says; without labels the sum of all."""
        rows = self.gate.metrics.snapshot()["counters"]
        return sum(row[2] for row in rows if row[0] == name and set(labels) <= set(row[1]))

    def gauge(self, name: str) -> float:
        return sum(row[2] for row in self.gate.metrics.snapshot()["gauges"] if row[0] == name)


@asynccontextmanager
async def rooms(policy: str) -> AsyncIterator[Rooms]:
    faults: list[Any] = []

    def fault(*what: Any) -> None:
        faults.append(what)

    settings = Settings(upstreams=(("http://127.0.0.1:1", "vllm"),), workers=1)
    store = SlowStore()
    log = Log(os.open(os.devnull, os.O_WRONLY))
    metrics = Metrics()
    policies = Policies(store, settings, "w", lambda _, why: fault("policy", why))
    slots = Slots(store, metrics, lease=10, workers_alive=lambda: 1)
    gate = Gate("w", settings, policies, store, slots, metrics, log, Tasks(fault))
    services = [build(gate) for build in builders(SERVICES).values()]
    await store.push(policy, digest="d", author="test", reason="", needs="0.1")
    await policies.check()
    assert faults == []
    try:
        async with carried(*services) as running, running.connect() as channel:
            yield Rooms(gate, store, channel, running.faults)
    finally:
        await store.close()
        log.close()
    assert faults == []
