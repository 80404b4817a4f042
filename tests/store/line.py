"""A connection to a node for tests that are no coroutines: Hypothesis and tables of cases run plain functions."""

import asyncio
from collections.abc import Sequence
from typing import Any

from seawall.limits.charge import Demand, Outcome
from seawall.store import charging
from seawall.store.address import parse
from seawall.store.connection import Connection
from seawall.store.contract import Charge
from seawall.store.redis import RedisStore
from seawall.store.redis_data import CHARGE_ALL, CHARGE_FIXED, CHARGE_TEXT
from seawall.store.scripts import Script
from tests.store.node import Valkey


class Line:
    """A connection, and a loop to wait on it."""

    def __init__(self, node: Valkey) -> None:
        self.runner = asyncio.Runner()
        self.store = RedisStore(parse(node.url), owner="o", timeout=20)
        self.runner.run(self.store.start())
        up = self.store._pipe(b"")._up
        assert up is not None
        self.up: Connection = up

    def ask(self, payload: bytes, script: Script | None = None) -> Any:
        async def wait() -> Any:
            return await self.up.call(payload, None, script)

        return self.runner.run(wait())

    def charge(self, charges: list[Charge]) -> list[int]:
        async def wait() -> list[int]:
            return list(await self.store.charge(charges))

        return self.runner.run(wait())

    def charge_all(self, demands: Sequence[Demand], now: int, *, stop: bool = False) -> list[Outcome]:
        names = [charging.name(demand) for demand in demands]
        if not stop and charging.short(demands):
            short = charging.short_payload(CHARGE_FIXED.call_head, demands, names, now)
            counts: Any = self.ask(short, CHARGE_FIXED)
            return charging.short_outcomes(counts, demands, now)
        if not stop and charging.plain(demands):
            plain = charging.plain_payload(CHARGE_TEXT.call_head, demands, names, 0)
            counts = self.ask(plain, CHARGE_TEXT)
            return charging.short_outcomes(counts, demands, now)
        payload = charging.payload(CHARGE_ALL.call_head, demands, names, now, stop=stop)
        reply: Any = self.ask(payload, CHARGE_ALL)
        return charging.outcomes(reply, demands, now)

    def close(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
