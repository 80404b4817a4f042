"""The canary, the same over every store."""

import asyncio
import hashlib

import pytest

from seawall.policy.canary import Canary
from seawall.store import versions
from seawall.store.contract import CanaryShare, Conflict, Store, StoreUnavailable, UnknownVersion
from seawall.store.memory import MemoryStore
from tests.store.conftest import World


async def push(store: Store, text: str, if_current: int | None = None, keep_canary: bool = False) -> int:
    return await store.push(
        text,
        digest=f"digest of {text}",
        author="ann",
        reason="because",
        needs="0.1",
        if_current=if_current,
        keep_canary=keep_canary,
    )


async def start(store: Store, text: str, percent: float = 10, *tenants: str, if_current: int | None = None) -> Canary:
    return await store.start_canary(
        text,
        share=CanaryShare(percent, tenants),
        digest=f"digest of {text}",
        author="bob",
        reason="try",
        needs="0.1",
        if_current=if_current,
    )


async def test_a_canary_stands_beside_the_current_version(store: Store) -> None:
    await push(store, "one")
    canary = await start(store, "two", 10, "acme")
    assert await store.canary() == canary
    assert (canary.version, canary.percent, canary.tenants, canary.base) == (2, 10, ("acme",), 1)
    assert (canary.by, canary.reason, canary.digest) == ("bob", "try", "digest of two")
    assert abs(canary.since - store.now()) < 60
    assert await store.current() == 1
    assert (await store.document(2))[0] == "two"
    assert [(v.version, v.current, v.canary) for v in await store.history()] == [(2, False, True), (1, True, False)]
    assert (await store.document(2))[1].canary


async def test_without_a_current_version_there_is_no_canary(store: Store) -> None:
    with pytest.raises(Conflict):
        await start(store, "one")
    assert await store.canary() is None
    for call in (store.promote_canary(author="a", reason=""), store.abort_canary(author="a", reason="")):
        with pytest.raises(Conflict, match="no canary runs"):
            await call
    with pytest.raises(Conflict, match="no canary runs"):
        await store.move_canary(CanaryShare(50), author="a", reason="")


async def test_a_canary_is_moved(store: Store) -> None:
    await push(store, "one")
    first = await start(store, "two")
    moved = await store.move_canary(CanaryShare(50, ("b",)), author="cyd", reason="")
    assert (moved.percent, moved.tenants, moved.salt, moved.since) == (50, ("b",), first.salt, first.since)
    assert await store.canary() == moved
    assert await store.move_canary(CanaryShare(50, ("b",)), author="cyd", reason="") == moved


async def test_a_promoted_canary_is_current_and_can_be_rolled_back(store: Store) -> None:
    await push(store, "one")
    await start(store, "two")
    assert await store.promote_canary(author="cyd", reason="") == 2
    assert (await store.current(), await store.canary()) == (2, None)
    assert await store.rollback(None, author="cyd", reason="") == 1


async def test_an_aborted_canary_leaves_the_current_version(store: Store) -> None:
    await push(store, "one")
    canary = await start(store, "two")
    assert await store.abort_canary(author="cyd", reason="") == canary
    assert (await store.current(), await store.canary()) == (1, None)
    assert (await store.document(2))[0] == "two"


async def test_a_push_beside_a_canary_has_to_say_so(store: Store) -> None:
    await push(store, "one")
    await start(store, "two")
    with pytest.raises(Conflict, match="a canary runs"):
        await push(store, "three")
    assert await store.current() == 1
    assert await push(store, "three", keep_canary=True) == 3
    canary = await store.canary()
    assert canary is not None and canary.version == 2
    with pytest.raises(Conflict, match="would undo that"):
        await store.promote_canary(author="cyd", reason="")
    assert await store.promote_canary(author="cyd", reason="", if_current=3) == 2


async def test_a_rollback_ends_the_canary(store: Store) -> None:
    await push(store, "one")
    await push(store, "two")
    await start(store, "three")
    assert await store.rollback(2, author="cyd", reason="") == 2
    assert await store.canary() is not None
    assert await store.rollback(None, author="cyd", reason="") == 1
    assert await store.canary() is None


async def test_a_canary_in_place_of_another_keeps_its_salt(store: Store) -> None:
    await push(store, "one")
    first = await start(store, "two")
    second = await start(store, "three")
    assert (second.version, second.salt) == (3, first.salt)
    await store.abort_canary(author="cyd", reason="")
    assert (await start(store, "four")).salt == 4


async def test_of_canaries_at_once_on_the_same_version_one_wins(world: World) -> None:
    stores = [await world.open(f"w{n}") for n in range(4)]
    await push(stores[0], "one")
    results = await asyncio.gather(
        *[push(store, f"p{n}", if_current=1) for n, store in enumerate(stores[:2])],
        *[start(store, f"c{n}", if_current=1) for n, store in enumerate(stores[2:])],
        return_exceptions=True,
    )
    # Two canaries in a row may both stand, a push after one of them or after the other push may not.
    assert [r for r in results if isinstance(r, BaseException) and not isinstance(r, Conflict)] == []
    pushes = [r for r in results[:2] if isinstance(r, int)]
    assert len(pushes) <= 1
    assert any(not isinstance(r, Conflict) for r in results)
    assert await stores[0].current() == (pushes[0] if pushes else 1)


async def test_current_previous_and_canary_stay_however_old(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KEPT_VERSIONS", 3)
    await push(store, "one")
    await push(store, "two")
    await start(store, "canary")
    for n in range(3):
        await push(store, f"more {n}", keep_canary=True)
    assert [v.version for v in await store.history()] == [6, 5, 3]
    assert (await store.document(3))[0] == "canary"
    assert await store.rollback(None, author="cyd", reason="") == 5
    with pytest.raises(UnknownVersion):
        await store.document(1)


async def test_64_mib_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KEPT_BYTES", 200)
    for n in range(4):
        await push(store, hashlib.sha512(str(n).encode()).hexdigest())  # about 80 bytes each, compressed
    kept = [v.version for v in await store.history()]
    assert kept[0] == 4 and 1 not in kept
    assert await store.rollback(None, author="cyd", reason="") == 3


async def test_every_change_is_an_event_with_its_author(store: Store) -> None:
    await push(store, "one")
    await start(store, "two", 10)
    await store.move_canary(CanaryShare(50), author="cyd", reason="good so far")
    await store.promote_canary(author="dee", reason="done")
    await store.rollback(None, author="eve", reason="broken")
    await start(store, "three", 5, "acme")
    await store.abort_canary(author="fay", reason="no")
    told = [(e.kind, e.version, e.author, e.reason, e.detail) for e in await store.events(10)]
    assert told == [
        ("abort", 3, "fay", "no", "5 % of tenants and acme"),
        ("canary", 3, "bob", "try", "5 % of tenants and acme"),
        ("rollback", 1, "eve", "broken", ""),
        ("promote", 2, "dee", "done", ""),
        ("canary", 2, "cyd", "good so far", "10 % of tenants to 50 % of tenants"),
        ("canary", 2, "bob", "try", "10 % of tenants"),
        ("push", 1, "ann", "because", ""),
    ]
    assert all(abs(e.time - store.now()) < 60 for e in await store.events(10))
    assert len(await store.events(2)) == 2


async def test_workers_are_told_of_the_canary(world: World) -> None:
    from tests.store.test_reports import report

    store, author = await world.open("w1"), await world.open("w2")
    await push(author, "one")
    assert (await store.report(report("w1"))).canary is None
    await store.wait_change(0.01)
    async with asyncio.timeout(20):
        waiting = asyncio.ensure_future(store.wait_change(1000))
        await asyncio.wait([waiting], timeout=0.05)
        canary = await start(author, "two")
        await waiting
    assert (await store.report(report("w1"))).canary == canary


async def test_an_inbox_waits_for_the_end_of_a_canary(world: World) -> None:
    store = await world.open()
    await push(store, "one")
    await start(store, "two")
    await world.put_inbox("text")
    assert await store.claim_inbox("a", 30) == "text"
    pushed = {"digest": "d1", "author": "inbox", "reason": "by hand", "needs": "0.1"}
    assert await store.settle_inbox("a", "text", None, pushed) is None
    error = await store.inbox_error()
    assert error is not None and "a canary runs" in error[0]
    assert await store.current() == 1


async def test_a_canary_that_someone_wrote_over_is_none_for_workers(world: World) -> None:
    """And an error for commands, which names it."""
    from tests.store.test_reports import report

    store = await world.open()
    if isinstance(store, MemoryStore):
        pytest.skip("memory holds no text that could be written over")
    await push(store, "one")
    await store._client.set("sw:{policy}:canary", "10%")  # type: ignore[attr-defined]
    standing = await store.report(report("w1"))
    assert (standing.current, standing.canary) == (1, None)
    with pytest.raises(StoreUnavailable, match="wrote over it"):
        await store.canary()
