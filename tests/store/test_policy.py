"""Policy versions, the same over every store."""

import asyncio

import pytest

from seawall.store import versions
from seawall.store.contract import Conflict, Store, UnknownVersion
from tests.store.conftest import World


async def push(store: Store, text: str, if_current: int | None = None) -> int:
    return await store.push(
        text, digest=f"digest of {text}", author="ann", reason="because", needs="0.1", if_current=if_current
    )


async def test_nothing_is_current_at_first(store: Store) -> None:
    assert await store.current() is None
    assert list(await store.history()) == []
    with pytest.raises(UnknownVersion):
        await store.document(1)


async def test_a_pushed_document_is_current_and_comes_back_as_it_was(store: Store) -> None:
    text = "# 限流\nclasses:\r\n  vip: {}\n\x00" + "x" * 100_000
    assert await push(store, text) == 1
    assert await store.current() == 1
    document, info = await store.document(1)
    assert document == text
    assert (info.version, info.author, info.reason, info.needs, info.current) == (1, "ann", "because", "0.1", True)
    assert abs(info.time - store.now()) < 60


async def test_what_equals_the_current_version_is_refused(store: Store) -> None:
    await push(store, "one")
    with pytest.raises(Conflict, match="version 1") as refused:
        await push(store, "one")
    assert refused.value.current == 1
    await push(store, "two")
    assert await push(store, "one") == 3


async def test_a_race_with_another_author_is_refused(store: Store) -> None:
    assert await push(store, "one", if_current=0) == 1
    with pytest.raises(Conflict) as refused:
        await push(store, "two", if_current=0)
    assert refused.value.current == 1
    assert await push(store, "two", if_current=1) == 2
    with pytest.raises(Conflict):
        await push(store, "three", if_current=1)
    assert await store.current() == 2


async def test_authors_at_once_get_a_number_each(world: World) -> None:
    stores = [await world.open(f"w{n}") for n in range(4)]
    numbers = await asyncio.gather(*[push(store, f"{n}") for n, store in enumerate(stores)])
    assert sorted(numbers) == [1, 2, 3, 4]


async def test_of_authors_at_once_on_the_same_version_one_wins(world: World) -> None:
    stores = [await world.open(f"w{n}") for n in range(4)]
    results = await asyncio.gather(
        *[push(store, f"{n}", if_current=0) for n, store in enumerate(stores)], return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["Conflict", "Conflict", "Conflict", "int"]


async def test_history_is_newest_first(store: Store) -> None:
    for n in range(5):
        await push(store, str(n))
    history = await store.history(3)
    assert [info.version for info in history] == [5, 4, 3]
    assert [info.current for info in history] == [True, False, False]


async def test_rollback_to_a_kept_version(store: Store) -> None:
    for n in range(3):
        await push(store, str(n))
    assert await store.rollback(1, author="bob", reason="broken") == 1
    assert await store.current() == 1
    assert (await store.document(1))[0] == "0"
    assert [info.current for info in await store.history()] == [False, False, True]


async def test_rollback_goes_to_the_version_before_and_forth_again(store: Store) -> None:
    await push(store, "one")
    await push(store, "two")
    assert await store.rollback(None, author="bob", reason="") == 1
    assert await store.rollback(None, author="bob", reason="") == 2


async def test_rollback_without_a_way_back_is_refused(store: Store) -> None:
    with pytest.raises(UnknownVersion):
        await store.rollback(None, author="bob", reason="")
    await push(store, "one")
    with pytest.raises(UnknownVersion):
        await store.rollback(None, author="bob", reason="")
    with pytest.raises(UnknownVersion):
        await store.rollback(7, author="bob", reason="")
    assert await store.current() == 1


async def test_rollback_to_the_current_version_changes_nothing(store: Store) -> None:
    await push(store, "one")
    await push(store, "two")
    assert await store.rollback(2, author="bob", reason="") == 2
    assert await store.rollback(None, author="bob", reason="") == 1


async def test_numbers_are_not_used_twice(store: Store) -> None:
    await push(store, "one")
    await push(store, "two")
    await store.rollback(1, author="bob", reason="")
    assert await push(store, "three") == 3
    assert (await store.document(2))[0] == "two"


async def test_the_oldest_versions_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KEPT_VERSIONS", 4)
    for n in range(1, 7):
        await push(store, str(n))
    assert [info.version for info in await store.history()] == [6, 5, 4, 3]
    with pytest.raises(UnknownVersion):
        await store.document(2)
    with pytest.raises(UnknownVersion):
        await store.rollback(1, author="bob", reason="")


async def test_current_and_previous_stay_however_old(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KEPT_VERSIONS", 3)
    for n in range(1, 4):
        await push(store, str(n))
    await store.rollback(1, author="bob", reason="")
    assert await push(store, "4") == 4
    assert [info.version for info in await store.history()] == [4, 3, 1]
    assert await store.rollback(None, author="bob", reason="") == 1


async def test_a_waiter_is_woken_by_a_change(world: World) -> None:
    store, author = await world.open("w1"), await world.open("w2")
    await push(store, "one")
    await store.wait_change(0.01)
    async with asyncio.timeout(20):
        waiting = asyncio.ensure_future(store.wait_change(1000))
        await asyncio.wait([waiting], timeout=0.05)
        await push(author, "two")
        await waiting
        waiting = asyncio.ensure_future(store.wait_change(1000))
        await asyncio.wait([waiting], timeout=0.05)
        await author.rollback(1, author="bob", reason="")
        await waiting


async def test_a_change_between_two_waits_is_not_missed(store: Store) -> None:
    await store.wait_change(0.01)
    await push(store, "one")
    async with asyncio.timeout(20):
        await store.wait_change(1000)


async def test_a_wait_ends_without_a_change(store: Store) -> None:
    async with asyncio.timeout(20):
        await store.wait_change(0.01)
        await store.wait_change(0.01)
        await store.wait_change(0)
