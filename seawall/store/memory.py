"""The whole store in one process: for one worker, for tests, and as the definition of what the scripts do in Redis."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from seawall.admission.holders import Holders
from seawall.store.contract import Charge, Slot
from seawall.store.memory_control import MemoryControl, Shared

T = TypeVar("T")


class MemoryStore(MemoryControl):
    """Store in memory for one owner. `clock` is unix seconds."""

    def __init__(self, *, owner: str, shared: Shared | None = None, clock: Callable[[], float] = time.time):
        super().__init__(shared=shared, clock=clock)
        self._owner = owner

    @property
    def healthy(self) -> bool:
        """Always."""
        return True

    @property
    def trouble(self) -> str:
        """Never any."""
        return ""

    def now(self) -> float:
        """See DataPath."""
        return self._clock()

    def charge(self, charges: Sequence[Charge]) -> Awaitable[Sequence[int]]:
        """See DataPath. Counts stop at 2^53 - 1."""
        return _answer(self._shared.counters.charge(charges, self._clock()))

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> Awaitable[Slot]:
        """See DataPath."""
        now, expires = self._lease(lease)
        return _answer(Slot(*self._pool(pool).acquire(rid, self._owner, limit, now, expires)))

    def release(self, pool: str, rid: str) -> None:
        """See DataPath."""
        self._pool(pool).release(rid, self._owner)

    def renew(self, pool: str, rids: Sequence[str], lease: float) -> Awaitable[int]:
        """See DataPath."""
        now, expires = self._lease(lease)
        return _answer(self._pool(pool).renew(rids, self._owner, now, expires))

    async def holders(self, pool: str) -> int:
        """See ControlPath."""
        return self._pool(pool).live(int(self._clock() * 1000))

    def _pool(self, pool: str) -> Holders:
        found = self._shared.pools.get(pool)
        if found is None:
            found = self._shared.pools[pool] = Holders()
        return found

    def _lease(self, lease: float) -> tuple[int, int]:
        now = int(self._clock() * 1000)
        return now, now + int(lease * 1000)


def _answer(value: T) -> "asyncio.Future[T]":
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
