"""The inbox: a document that someone SET by hand, the same over every store."""

import asyncio

import pytest

from seawall.store import versions
from seawall.store.contract import Store
from tests.store.conftest import World

PUSH = {"digest": "d1", "author": "inbox", "reason": "by hand", "needs": "0.1"}


async def test_an_empty_inbox_gives_nothing(store: Store) -> None:
    assert await store.claim_inbox("a", 30) is None
    assert await store.settle_inbox("a", "text", None, PUSH) is None
    assert await store.current() is None


async def test_one_claimant_gets_the_document(world: World) -> None:
    store, other = await world.open("w1"), await world.open("w2")
    await world.put_inbox("限流: {}")
    claims = await asyncio.gather(store.claim_inbox("a", 30), other.claim_inbox("b", 30))
    assert sorted(claims, key=str) == [None, "限流: {}"]


async def test_the_claimant_may_ask_again(world: World) -> None:
    store = await world.open()
    await world.put_inbox("text")
    assert [await store.claim_inbox("a", 30) for _ in range(2)] == ["text", "text"]


async def test_a_good_document_becomes_the_current_version(world: World) -> None:
    store = await world.open()
    await world.put_inbox("text")
    assert await store.claim_inbox("a", 30) == "text"
    assert await store.settle_inbox("a", "text", None, PUSH) == 1
    document, info = await store.document(1)
    assert (document, info.author, info.digest) == ("text", "inbox", "d1")
    assert await store.current() == 1
    assert await store.claim_inbox("b", 30) is None


async def test_a_bad_document_leaves_its_error(world: World) -> None:
    store = await world.open()
    await world.put_inbox("text")
    await store.claim_inbox("a", 30)
    assert await store.settle_inbox("a", "text", "line 1: no such key", None) is None
    found = await store.inbox_error()
    assert found is not None
    assert found[0] == "line 1: no such key"
    assert abs(found[1] - store.now()) < 60
    assert await store.current() is None
    assert await store.claim_inbox("a", 30) is None


async def test_a_taken_document_clears_the_error(world: World) -> None:
    store = await world.open()
    await world.put_inbox("bad")
    await store.claim_inbox("a", 30)
    await store.settle_inbox("a", "bad", "bad", None)
    await world.put_inbox("good")
    await store.claim_inbox("a", 30)
    assert await store.settle_inbox("a", "good", None, PUSH) == 1
    assert await store.inbox_error() is None


async def test_what_equals_the_current_version_is_refused_with_an_error(world: World) -> None:
    store = await world.open()
    await store.push("text", digest="d1", author="ann", reason="", needs="0.1")
    await world.put_inbox("text")
    await store.claim_inbox("a", 30)
    assert await store.settle_inbox("a", "text", None, PUSH) is None
    found = await store.inbox_error()
    assert found is not None
    assert "equals version 1" in found[0]
    assert await store.claim_inbox("a", 30) is None


@pytest.mark.parametrize("error", [None, "bad"])
async def test_a_text_that_was_replaced_meanwhile_stays(world: World, error: str | None) -> None:
    store = await world.open()
    await world.put_inbox("first")
    await store.claim_inbox("a", 30)
    await world.put_inbox("secnd")
    assert await store.settle_inbox("a", "first", error, PUSH) is None
    assert await store.current() is None
    assert await store.inbox_error() is None
    assert await store.claim_inbox("a", 30) == "secnd"


@pytest.mark.parametrize("error", [None, "bad"])
async def test_a_claim_that_went_to_another_settles_nothing(world: World, error: str | None) -> None:
    store = await world.open()
    await world.put_inbox("text")
    await store.claim_inbox("a", 0.02)
    async with asyncio.timeout(20):
        while await store.claim_inbox("b", 30) is None:
            await asyncio.sleep(0.01)
    assert await store.settle_inbox("a", "text", error, PUSH) is None
    assert await store.inbox_error() is None
    assert await store.settle_inbox("b", "text", None, PUSH) == 1


async def test_bytes_that_are_no_text_can_be_refused(world: World) -> None:
    store = await world.open()
    await world.put_inbox(b"\xff\xfe".decode("utf-8", "surrogateescape"))
    text = await store.claim_inbox("a", 30)
    assert text == "\udcff\udcfe"
    await store.settle_inbox("a", text, "not UTF-8", None)
    assert await store.claim_inbox("a", 30) is None


async def test_a_document_of_unreasonable_size_is_never_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "INBOX_MOST", 1000)
    store = await world.open()
    await world.put_inbox("x" * 1001)
    assert await store.claim_inbox("a", 30) is None
    found = await store.inbox_error()
    assert found is not None
    assert "larger than 1000 bytes" in found[0]
    await world.put_inbox("x" * 1000)
    assert await store.claim_inbox("a", 30) == "x" * 1000
