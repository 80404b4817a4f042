"""Keys of the store in a worker: followed by changes, never lost, counted."""

import hashlib
from collections.abc import Mapping

import pytest

from seawall.serve.key_ring import KeyRing
from seawall.store.contract import StoreUnavailable
from seawall.store.key_contract import KeyRecord
from seawall.store.memory import MemoryStore


def record(id_: str, tenant: str = "acme", expires: float | None = None) -> KeyRecord:
    return KeyRecord(id_, tenant, hashlib.sha256(id_.encode()).hexdigest(), 1.0, "ann", expires=expires)


class Store(MemoryStore):
    """Counts how often all keys are read, and is away when told."""

    def __init__(self) -> None:
        super().__init__(owner="w")
        self.read_all = 0
        self.away = False

    def all_keys(self):  # type: ignore[no-untyped-def]
        self.read_all += 1
        return super().all_keys()

    async def add_key_uses(self, counts: Mapping[str, int], at: float) -> None:
        if self.away:
            raise StoreUnavailable("away")
        await super().add_key_uses(counts, at)


async def followed(ring: KeyRing, store: Store) -> dict[str, tuple[str, bool]]:
    await ring.follow(await store.key_stamp())
    return {key.id: (key.tenant, key.revoked is not None) for key in ring.issued.values()}


async def test_all_keys_once_then_changes() -> None:
    store = Store()
    ring = KeyRing(store, "w1")
    assert await followed(ring, store) == {}
    await store.add_key(record("a"))
    await store.add_key(record("b", "globex", 9.0))
    assert await followed(ring, store) == {"a": ("acme", False), "b": ("globex", False)}
    assert ring.issued[hashlib.sha256(b"b").digest()].expires == 9.0
    await store.revoke_key(record("a"), by="bob", at=2.0)
    await store.add_key(record("c"))
    assert await followed(ring, store) == {"a": ("acme", True), "b": ("globex", False), "c": ("acme", False)}
    assert store.read_all == 1
    assert not await ring.follow(await store.key_stamp())


async def test_a_store_that_lost_its_keys_gets_them_back() -> None:
    store = Store()
    ring, other = KeyRing(store, "w1"), KeyRing(store, "w2")
    await store.add_key(record("a"))
    await store.add_key(record("b"))
    await store.revoke_key(record("b"), by="bob", at=2.0)
    for each in (ring, other):
        await followed(each, store)
    store.lose_keys()
    await store.add_key(record("new"))
    expected = {"a": ("acme", False), "b": ("acme", True), "new": ("acme", False)}
    assert await followed(ring, store) == expected
    assert await followed(other, store) == expected
    assert await followed(KeyRing(store, "w3"), store) == expected
    assert (await store.key("a")).by == "w1"
    assert (await store.key("b")).revoked == 2.0


async def test_a_store_that_forgot_a_revocation_is_reminded() -> None:
    """A replica took over before the last writes had reached it."""
    store = Store()
    ring = KeyRing(store, "w1")
    await store.add_key(record("a"))
    await store.revoke_key(record("a"), by="bob", at=2.0)
    await followed(ring, store)
    store.lose_keys()
    await store.add_key(record("a"))
    assert await followed(ring, store) == {"a": ("acme", True)}
    assert (await store.key("a")).revoked == 2.0


async def test_uses_are_counted_and_flushed() -> None:
    store = Store()
    ring = KeyRing(store, "w1")
    await ring.flush()
    assert await store.key_uses() == {}
    for id_ in ("a", "b", "a"):
        ring.used(id_)
    await ring.flush()
    await ring.flush()
    uses = await store.key_uses()
    assert (uses["a"].uses, uses["b"].uses) == (2, 1)
    assert uses["a"].last > 0


async def test_uses_outlive_a_store_that_is_away() -> None:
    store = Store()
    ring = KeyRing(store, "w1")
    ring.used("a")
    store.away = True
    with pytest.raises(StoreUnavailable):
        await ring.flush()
    ring.used("a")
    store.away = False
    await ring.flush()
    assert (await store.key_uses())["a"].uses == 2
