"""Slots of a pool, the same over every store."""

import asyncio

import pytest

from seawall.store.contract import Renewed, Slot, Store
from tests.store.conftest import World


async def test_slots_are_granted_up_to_the_limit(store: Store) -> None:
    answers = [await store.acquire("big", f"r{n}", 2, 30) for n in range(3)]
    assert answers == [Slot(True, 1), Slot(True, 2), Slot(False, 2)]


async def test_a_released_slot_is_free(store: Store) -> None:
    await store.acquire("big", "r1", 1, 30)
    store.release("big", "r1")
    assert await store.acquire("big", "r2", 1, 30) == Slot(True, 1)


async def test_pools_are_apart(store: Store) -> None:
    await store.acquire("big", "r1", 1, 30)
    assert await store.acquire("small", "r1", 1, 30) == Slot(True, 1)


async def test_a_live_rid_is_taken_over_and_never_added(world: World) -> None:
    first, second = await world.open("worker-1"), await world.open("worker-2")
    await first.acquire("big", "r1", 1, 30)
    assert await second.acquire("big", "r1", 1, 30) == Slot(True, 1)
    first.release("big", "r1")
    assert await first.acquire("big", "r2", 1, 30) == Slot(False, 1)
    second.release("big", "r1")
    assert (await second.renew("big", [], 30)).holders == 0


async def test_a_take_over_passes_a_limit_that_was_lowered(store: Store) -> None:
    for n in range(3):
        await store.acquire("big", f"r{n}", 3, 30)
    assert await store.acquire("big", "r0", 1, 30) == Slot(True, 3)
    assert await store.acquire("big", "r9", 1, 30) == Slot(False, 3)


async def test_a_second_release_frees_nothing_more(store: Store) -> None:
    await store.acquire("big", "r1", 2, 30)
    await store.acquire("big", "r2", 2, 30)
    store.release("big", "r1")
    store.release("big", "r1")
    store.release("big", "never")
    assert (await store.renew("big", [], 30)).holders == 1


async def test_a_lease_that_ran_out_frees_the_slot(world: World) -> None:
    store, other = await world.open(), await world.open("worker-2")
    await store.acquire("big", "r1", 1, 30)
    world.pass_time(29)
    assert await store.acquire("big", "r2", 1, 30) == Slot(False, 1)
    await other.renew("big", [], 30)
    world.pass_time(1.1)
    assert await store.holders("big") == 0
    assert await store.acquire("big", "r2", 1, 30) == Slot(True, 1)


async def test_a_renewed_slot_lives_on(world: World) -> None:
    store = await world.open()
    await store.acquire("big", "r1", 1, 30)
    world.pass_time(20)
    assert (await store.renew("big", ["r1"], 30)).holders == 1
    world.pass_time(20)
    assert await store.acquire("big", "r2", 1, 30) == Slot(False, 1)


async def test_a_renewal_brings_back_what_the_store_lost(world: World) -> None:
    store, other = await world.open(), await world.open("worker-2")
    await store.acquire("big", "r1", 1, 30)
    world.pass_time(20)
    await other.renew("big", [], 30)
    world.pass_time(20)
    await store.acquire("big", "r2", 1, 30)
    assert await store.renew("big", ["r1", "r2"], 30) == Renewed(2, 1)
    store.release("big", "r1")
    assert (await store.renew("big", [], 30)).holders == 1


async def test_a_renewal_does_not_take_back_a_slot_that_was_taken_over(world: World) -> None:
    first, second = await world.open("worker-1"), await world.open("worker-2")
    await first.acquire("big", "r1", 1, 30)
    await second.acquire("big", "r1", 1, 30)
    assert (await first.renew("big", ["r1"], 30)).holders == 1
    first.release("big", "r1")
    assert (await second.renew("big", ["r1"], 30)).holders == 1


async def test_holders_are_counted(store: Store) -> None:
    assert await store.holders("big") == 0
    await store.acquire("big", "r1", 5, 30)
    await store.acquire("big", "r2", 5, 30)
    assert await store.holders("big") == 2


@pytest.mark.parametrize("pool", ["", "a}b", "模型", "a b\r\n", "{x}"])
async def test_any_text_names_a_pool(store: Store, pool: str) -> None:
    assert await store.acquire(pool, "r\r\n1", 1, 30) == Slot(True, 1)
    assert await store.acquire(pool, "r2", 1, 30) == Slot(False, 1)
    store.release(pool, "r\r\n1")
    assert await store.holders(pool) == 0


async def test_acquires_of_one_tick_never_pass_the_limit(store: Store) -> None:
    answers = await asyncio.gather(*[store.acquire("big", f"r{n}", 10, 30) for n in range(200)])
    assert sum(slot.granted for slot in answers) == 10


async def test_who_stops_waiting_gives_the_slot_back_by_release(store: Store) -> None:
    waiting = asyncio.ensure_future(store.acquire("big", "r1", 1, 30))
    waiting.cancel()
    store.release("big", "r1")
    assert await store.acquire("big", "r2", 1, 30) == Slot(True, 1)


async def test_the_clocks_of_owners_agree(world: World) -> None:
    first, second = await world.open("worker-1"), await world.open("worker-2")
    assert abs(first.now() - second.now()) < 1


async def test_leases_that_ended_while_nobody_could_renew_pause_the_grants(world: World) -> None:
    """The store hung for longer than a lease: it must not give away what workers hold."""
    first, second = await world.open("worker-1"), await world.open("worker-2")
    for store in (first, second):
        await store.acquire("big", store.now().hex(), 2, 30)
    world.pass_time(40)
    assert (await first.acquire("big", "r3", 2, 30)).paused
    assert (await first.renew("big", ["r1"], 30)).added == 1
    world.pass_time(30)
    assert not (await first.renew("big", ["r1"], 30)).paused, "a lease is over"
