"""The whole store in one process: for one worker, for tests, and as the definition of what the scripts do in Redis."""

import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from seawall.admission.holders import ASSERT, GRANTED, Asker, Holders
from seawall.limits.charge import Demand, Outcome
from seawall.store.contract import Charge, Renewed, Slot
from seawall.store.memory_control import MemoryControl, Shared

T = TypeVar("T")


class MemoryStore(MemoryControl):
    """Store in memory for one owner. `clock` is unix seconds."""

    def __init__(self, *, owner: str, shared: Shared | None = None, clock: Callable[[], float] = time.time):
        super().__init__(shared=shared, clock=clock)
        self._owner = owner
        self._lives: dict[str, str] = {}
        self._told: Callable[[], None] = lambda: None

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
        return _Answer(self._shared.counters.charge(charges, self._clock()))

    def charge_all(self, demands: Sequence[Demand], *, stop: bool = False) -> Awaitable[Sequence[Outcome]]:
        """See DataPath."""
        return _Answer(self._shared.ledger.charge_all(demands, self._clock(), stop=stop))

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> Awaitable[Slot]:
        """See DataPath."""
        now, expires = self._lease(lease)
        what, holders, self._lives[pool] = self._pool(pool).acquire(rid, self._asker(pool), limit, now, expires)
        if what == ASSERT:
            self._told()
        return _Answer(Slot(what == GRANTED, holders, what < 0))

    def release(self, pool: str, rid: str) -> None:
        """See DataPath."""
        self._pool(pool).release(rid, self._owner)

    def renew(self, pool: str, rids: Sequence[str], lease: float, asked: Sequence[str] = ()) -> Awaitable[Renewed]:
        """See DataPath."""
        now, expires = self._lease(lease)
        answer = self._pool(pool).renew(rids, self._asker(pool), now, expires, asked)
        holders, added, paused, self._lives[pool] = answer
        return _Answer(Renewed(holders, added, paused))

    def when_lost(self, told: Callable[[], None]) -> None:
        """See DataPath."""
        self._told = told

    async def holders(self, pool: str) -> int:
        """See ControlPath."""
        return self._pool(pool).live(int(self._clock() * 1000))

    def _pool(self, pool: str) -> Holders:
        found = self._shared.pools.get(pool)
        if found is None:
            found = self._shared.pools[pool] = Holders()
        return found

    def _asker(self, pool: str) -> Asker:
        return Asker(self._owner, seen=self._lives.get(pool, ""))

    def _lease(self, lease: float) -> tuple[int, int]:
        now = int(self._clock() * 1000)
        return now, now + int(lease * 1000)


class _Answer(Generic[T]):
    """An answer that is there already: no future is made of it, and no loop asked for."""

    __slots__ = ("_value",)

    def __init__(self, value: T):
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self._value
