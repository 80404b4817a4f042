"""API keys, the same over every store."""

import asyncio
import hashlib
from dataclasses import replace

import pytest

from seawall.store import key_records, redis_keys
from seawall.store.contract import Conflict, Store
from seawall.store.key_contract import KeyRecord, KeyUse, UnknownKey
from seawall.store.memory import MemoryStore
from tests.store.conftest import World


def record(id_: str, tenant: str = "acme", key: str | None = None, expires: float | None = None) -> KeyRecord:
    return KeyRecord(id_, tenant, hashlib.sha256((key or id_).encode()).hexdigest(), 1000.5, "ann", "new", expires)


async def everything(store: Store) -> dict[str, KeyRecord]:
    return {r.id: r async for some in store.all_keys() for r in some}


async def test_there_are_no_keys_at_first(store: Store) -> None:
    assert await everything(store) == {}
    assert await store.key_stamp() == ""
    assert await store.key_uses() == {}
    assert await store.key_count() == 0
    with pytest.raises(UnknownKey):
        await store.key("one")


async def test_a_key_comes_back_as_it_was(store: Store) -> None:
    one = record("one", "限流", expires=2000.25)
    await store.add_key(one)
    assert await store.key("one") == one
    assert await everything(store) == {"one": one}


async def test_ids_and_keys_are_taken_once(store: Store) -> None:
    await store.add_key(record("one"))
    with pytest.raises(Conflict, match="'one' is taken"):
        await store.add_key(record("one", key="other"))
    with pytest.raises(Conflict, match="kept already, as 'one'"):
        await store.add_key(record("two", key="one"))
    assert set(await everything(store)) == {"one"}
    assert await store.key_count() == 1


async def test_a_revoked_key_stays_revoked(store: Store) -> None:
    one = record("one")
    await store.add_key(one)
    gone = await store.revoke_key(one, by="bob", at=3000.0)
    assert gone == replace(one, revoked=3000.0, revoked_by="bob")
    assert await store.revoke_key(one, by="cyd", at=4000.0) == gone
    assert await store.key("one") == gone
    with pytest.raises(Conflict, match=r"taken \(revoked"):
        await store.add_key(record("one", key="new"))


async def test_a_key_of_a_policy_can_be_revoked(store: Store) -> None:
    theirs = record("prod", "")
    gone = await store.revoke_key(theirs, by="bob", at=3000.0)
    assert await store.key("prod") == gone
    assert gone.revoked == 3000.0
    with pytest.raises(Conflict, match="another key"):
        await store.revoke_key(record("prod", "", key="other"), by="bob", at=1.0)
    with pytest.raises(Conflict, match="as 'prod'"):
        await store.revoke_key(record("prod2", "", key="prod"), by="bob", at=1.0)


async def test_changes_since_a_stamp(store: Store) -> None:
    one, two = record("one"), record("two")
    await store.add_key(one)
    first = await store.key_stamp()
    await store.add_key(two)
    gone = await store.revoke_key(one, by="bob", at=3000.0)
    changes = await store.key_changes(first)
    assert changes is not None
    assert list(changes.records) == [two, gone]
    assert changes.stamp == await store.key_stamp()
    whole = await store.key_changes("")
    assert whole is not None and [r.id for r in whole.records] == ["one", "two", "one"]


async def test_a_worker_that_is_too_far_behind_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("memory keeps all changes")
    monkeypatch.setattr(key_records, "KEPT_EVENTS", 100)
    await store.add_key(record("first"))
    stamp = await store.key_stamp()
    await store.restore_keys([record(f"k{n}") for n in range(700)])
    assert await store.key_changes(stamp) is None
    assert len(await everything(store)) == 701


async def test_changes_come_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_keys, "_AT_ONCE", 3)
    await store.restore_keys([record(f"k{n}") for n in range(8)])
    seen, stamp = [], ""
    while stamp != await store.key_stamp():
        changes = await store.key_changes(stamp)
        assert changes is not None
        seen += [r.id for r in changes.records]
        stamp = changes.stamp
    assert seen == [f"k{n}" for n in range(8)]
    await store.add_key_uses({f"k{n}": n + 1 for n in range(8)}, 5.0)
    assert (await store.key_uses())["k7"] == KeyUse(8, 5.0)


async def test_what_a_store_lost_is_written_back(store: Store) -> None:
    """A replica that took over without the last writes: what is missing comes back, a revocation too, nothing else."""
    kept, lost = record("kept"), record("lost")
    await store.add_key(kept)
    stays = await store.revoke_key(record("stays"), by="bob", at=1.0)
    gone = replace(kept, revoked=2.0, revoked_by="bob")
    assert await store.restore_keys([gone, lost, record("stays")]) == 2
    assert await everything(store) == {"kept": gone, "lost": lost, "stays": stays}
    assert await store.restore_keys([gone, lost]) == 0


async def test_a_store_that_lost_its_keys_knows_no_changes(store: Store) -> None:
    await store.add_key(record("one"))
    stamp = await store.key_stamp()
    if isinstance(store, MemoryStore):
        store.lose_keys()
    else:
        for key in redis_keys._SCRIPT_KEYS:
            await store._client.execute_command("DEL", key)  # type: ignore[attr-defined]
    assert await store.key_changes(stamp) is None


async def test_uses_add_up(world: World) -> None:
    one, two = await world.open("w1"), await world.open("w2")
    await asyncio.gather(one.add_key_uses({"a": 3, "b": 1}, 100.0), two.add_key_uses({"a": 4}, 101.0))
    uses = await one.key_uses()
    assert uses["a"].uses == 7
    assert uses["b"] == KeyUse(1, 100.0)
    await one.add_key_uses({}, 102.0)


async def test_workers_are_told_of_a_key(world: World) -> None:
    from tests.store.test_reports import report

    store, author = await world.open("w1"), await world.open("w2")
    await author.add_key(record("one"))
    await store.wait_change(0.01)
    async with asyncio.timeout(20):
        waiting = asyncio.ensure_future(store.wait_change(1000))
        await asyncio.wait([waiting], timeout=0.05)
        await author.add_key(record("two"))
        await waiting
    assert (await store.report(report("w1"))).keys_stamp == await author.key_stamp()


async def test_authors_of_the_same_key_at_once(world: World) -> None:
    stores = [await world.open(f"w{n}") for n in range(3)]
    results = await asyncio.gather(*[s.add_key(record("one")) for s in stores], return_exceptions=True)
    assert sorted(type(r).__name__ for r in results) == ["Conflict", "Conflict", "NoneType"]
