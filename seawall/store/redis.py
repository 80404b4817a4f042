"""The whole store on Redis (or Valkey): both paths together, each on connections of its own.

The data path is `RedisData`: scripts through a `Pipe` for each node. The control path is `RedisControl`, by redis-py.
"""

import time
from collections.abc import Callable
from contextlib import suppress

from seawall.store import breaker
from seawall.store.address import Address
from seawall.store.contract import Standing, StoreUnavailable, WorkerReport
from seawall.store.redis_control import RedisControl
from seawall.store.redis_data import RedisData


class RedisStore(RedisData, RedisControl):
    """Store for one worker; arguments as those of RedisData."""

    def __init__(
        self,
        address: Address,
        *,
        owner: str,
        timeout: float = 0.25,
        rule: breaker.Rule | None = None,
        local_clock: Callable[[], float] = time.monotonic,
        jitter: int = 0,
    ):
        RedisData.__init__(
            self, address, owner=owner, timeout=timeout, rule=rule, local_clock=local_clock, jitter=jitter
        )
        RedisControl.__init__(self, address)

    async def start(self) -> None:
        """Connect; returns after the first attempt, and keeps trying if it failed."""
        await RedisControl.start(self)
        await RedisData.start(self)

    async def close(self) -> None:
        """Close connections; calls that are pending fail."""
        await RedisData.close(self)
        await RedisControl.close(self)

    async def report(self, report: WorkerReport) -> Standing:
        """See ControlPath; measures the node's clock on the way."""
        with suppress(StoreUnavailable):  # the report itself may still get through, and says so if not
            await self.measure()
        standing = await super().report(report)
        self.workers_alive(standing.workers)
        return standing

    async def _time(self) -> float:
        return self.now()
