"""Slots of one worker: taken from the store, prolonged together, and from the local share while the store is away.

The same share is in force while the store pauses its grants: it may have lost holders, and asks all workers for theirs.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from seawall.admission.fallback import LocalCap, cap_at_loss
from seawall.store.contract import Renewed, Store, StoreUnavailable
from seawall.telemetry.metrics import Metrics

_GAP = 0.1
"""Seconds between two rounds of renewals, however often the store asks for them."""


@dataclass(slots=True)
class _PoolHolders:
    """What this worker holds of one pool: rid to how many of our streams share it (a side call that Envoy retried)."""

    name: str
    rids: dict[str, int] = field(default_factory=dict)
    asking: dict[str, int] = field(default_factory=dict)
    """Rid to how many of our streams wait for an answer."""
    total_seen: int | None = None
    limit: int = 0
    local: LocalCap | None = None
    """In force while the store is away, or pauses its grants."""


class Hold:
    """One request's claim on a slot, given back exactly once however often `release` is called."""

    __slots__ = ("_pool", "_rid", "_slots", "_state")

    def __init__(self, slots: "Slots", pool: _PoolHolders, rid: str):
        self._slots = slots
        self._pool = pool
        self._rid = rid
        self._state: Literal["new", "asking", "granted", "refused", "returned"] = "new"

    async def acquire(self, limit: int) -> bool:
        """Take the slot; False when the pool is full. Whatever happens, cancellation too, `release` must follow."""
        if self._state != "new":
            return False
        self._state = "asking"
        _add(self._pool.asking, self._rid)
        granted = await self._slots.ask(self._pool, self._rid, limit)
        if self._state == "asking":
            self._state = "granted" if granted else "refused"
            _drop(self._pool.asking, self._rid)
            if granted:
                _add(self._pool.rids, self._rid)
        return granted

    def release(self) -> None:
        """Give the slot back, or withdraw the question."""
        state, self._state = self._state, "returned"
        if state == "granted":
            self._slots.give_back(self._pool, self._rid)
        elif state == "asking":
            # The question may be on its way: the store takes commands in order, so this undoes its grant.
            self._slots.withdraw(self._pool, self._rid)
            _drop(self._pool.asking, self._rid)


class Slots:
    """The slots of one worker."""

    def __init__(self, store: Store, metrics: Metrics, *, lease: float, workers_alive: Callable[[], int]):
        self._store = store
        self._metrics = metrics
        self._lease = lease
        self._workers_alive = workers_alive
        self._pools: dict[str, _PoolHolders] = {}
        self._lost = asyncio.Event()
        store.when_lost(self._lost.set)

    def hold(self, pool: str, rid: str) -> Hold:
        """Prepare a claim; nothing is asked yet."""
        holders = self._pools.get(pool)
        if holders is None:
            holders = self._pools[pool] = _PoolHolders(pool)
        return Hold(self, holders, rid)

    async def ask(self, holders: _PoolHolders, rid: str, limit: int) -> bool:
        """Ask the store, or the local share while it is away."""
        holders.limit = limit
        try:
            slot = await self._store.acquire(holders.name, rid, limit, self._lease)
        except StoreUnavailable:
            self._metrics.count("seawall_store_errors_total", "acquire")
            if self._ask_locally(holders, rid, limit):
                return True
            # The store may have granted what it could not tell.
            self.withdraw(holders, rid)
            return False
        if slot.paused:
            granted = self._ask_locally(holders, rid, limit)
            if granted:
                self._lost.set()  # the store is there to be told of it
            return granted
        holders.local = None
        holders.total_seen = slot.holders
        return slot.granted

    def _ask_locally(self, holders: _PoolHolders, rid: str, limit: int) -> bool:
        if rid in holders.rids:
            return True
        own = len(holders.rids)
        if holders.local is None:
            holders.local = cap_at_loss(
                limit=limit, own=own, seen_total=holders.total_seen, workers=self._workers_alive()
            )
        if not holders.local.admits(own):
            return False
        self._metrics.count("seawall_slots_local_total", holders.name)
        return True

    def give_back(self, holders: _PoolHolders, rid: str) -> None:
        """End one stream's share in a held slot; the last one frees it."""
        if _drop(holders.rids, rid):
            return
        if holders.local is not None:
            holders.local = holders.local.after_release()
        self._store.release(holders.name, rid)

    def withdraw(self, holders: _PoolHolders, rid: str) -> None:
        """Undo a question, unless another of our streams stands on it too."""
        if rid not in holders.rids and holders.asking.get(rid, 0) <= 1:
            self._store.release(holders.name, rid)

    def held(self) -> list[tuple[str, int, int]]:
        """(pool, slots held here, limit) of every pool in use so far."""
        return [(name, len(holders.rids), holders.limit) for name, holders in self._pools.items()]

    async def keep(self, pools: Callable[[], Iterable[str]]) -> None:
        """Prolong all leases, three times in a lease's life and at once when the store may have lost them.

        Runs until cancelled. `pools` names all pools in force: one that this worker holds nothing of is looked at too, so
        that its local share is right when the store goes away, and so that the store need not wait for this worker.
        """
        while True:
            await self._pause(self._lease / 3)
            named = [self._pools.setdefault(name, _PoolHolders(name)) for name in sorted({*self._pools, *pools()})]
            asked = [
                (holders, self._store.renew(holders.name, list(holders.rids), self._lease, list(holders.asking)))
                for holders in named
            ]
            for holders, answer in asked:
                try:
                    self._renewed(holders, await answer)
                except StoreUnavailable:
                    self._metrics.count("seawall_store_errors_total", "renew")

    async def _pause(self, seconds: float) -> None:
        """Wait until the store may have lost holders, or so long; for a moment at least, whatever happens."""
        await asyncio.sleep(_GAP)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds - _GAP):
                await self._lost.wait()
        self._lost.clear()

    def _renewed(self, holders: _PoolHolders, renewed: Renewed) -> None:
        over = min(renewed.added, renewed.holders - holders.limit) if holders.limit else 0
        if over > 0:
            # Each worker counts what its own holders put above the limit, so the sum over workers is the overshoot.
            self._metrics.count("seawall_slots_overshoot_total", holders.name, n=over)
        if not renewed.paused:
            holders.total_seen = renewed.holders
            holders.local = None


def _add(counts: dict[str, int], rid: str) -> None:
    counts[rid] = counts.get(rid, 0) + 1


def _drop(counts: dict[str, int], rid: str) -> int:
    """Count one down; what is left of it."""
    left = counts.pop(rid, 0) - 1
    if left > 0:
        counts[rid] = left
    return max(0, left)
