"""Fixed windows, the same over every store."""

import asyncio

from seawall.store.contract import Charge, Store
from tests.store.conftest import World

A, B = b"a" * 16, b"b" * 16
MOST = 2**53 - 1


async def one(store: Store, start: int, hits: int = 1, identity: bytes = A, length: int = 60) -> int:
    [count] = await store.charge([Charge(identity, start, length, hits)])
    return count


async def test_hits_add_up_within_a_window(store: Store) -> None:
    assert [await one(store, 600), await one(store, 600, 5), await one(store, 600)] == [1, 6, 7]


async def test_a_new_window_starts_from_nothing(store: Store) -> None:
    await one(store, 600, 9)
    assert await one(store, 660) == 1


async def test_a_late_call_counts_in_its_own_window_and_leaves_the_newer_one(store: Store) -> None:
    await one(store, 600, 9)
    await one(store, 660, 2)
    assert await one(store, 600) == 10
    assert await one(store, 660, 0) == 2


async def test_a_clock_that_went_far_back_resets_nothing(store: Store) -> None:
    await one(store, 6000, 3)
    assert await one(store, 600) == 1
    assert await one(store, 600) == 2
    assert await one(store, 6000, 0) == 3


async def test_old_windows_are_dropped(store: Store) -> None:
    await one(store, 600, 9)
    await one(store, 660, 2)
    await one(store, 720, 1)
    assert await one(store, 660, 0) == 2
    assert await one(store, 600, 0) == 0


async def test_a_look_writes_nothing(store: Store) -> None:
    assert await one(store, 600, 0) == 0
    await one(store, 600, 4)
    assert await one(store, 660, 0) == 0
    assert await one(store, 600, 0) == 4


async def test_answers_are_in_the_order_of_the_call(store: Store) -> None:
    await one(store, 600, 100, identity=B)
    counts = await store.charge([Charge(A, 600, 60, 3), Charge(B, 600, 60, 1), Charge(b"c", 0, 86400, 7)])
    assert list(counts) == [3, 101, 7]


async def test_a_counter_that_stands_twice_counts_twice(store: Store) -> None:
    assert list(await store.charge([Charge(A, 600, 60, 2), Charge(A, 600, 60, 3), Charge(A, 600, 60, 0)])) == [2, 5, 5]


async def test_no_counters_no_counts(store: Store) -> None:
    assert list(await store.charge([])) == []


async def test_a_hundred_counters_in_one_call(store: Store) -> None:
    charges = [Charge(bytes([n]), 600, 60, n + 1) for n in range(100)]
    assert list(await store.charge(charges)) == [n + 1 for n in range(100)]


async def test_counts_are_exact_up_to_their_end(store: Store) -> None:
    assert await one(store, 600, 2**52) == 2**52
    assert await one(store, 600, 1) == 2**52 + 1
    assert await one(store, 600, 2**52 - 3) == MOST - 1
    assert await one(store, 600, 1) == MOST
    assert await one(store, 600, 1) == MOST
    assert await one(store, 600, 0) == MOST


async def test_hits_beyond_the_end_stop_there(store: Store) -> None:
    assert await one(store, 600, 2**64 - 1) == MOST
    assert await one(store, 600, 2**64 - 1) == MOST
    assert await one(store, 600, 0) == MOST


async def test_charges_of_one_tick_are_all_counted(store: Store) -> None:
    futures = [store.charge([Charge(A, 600, 60, 1)]) for _ in range(500)]
    assert sorted([(await future)[0] for future in futures]) == list(range(1, 501))


async def test_owners_share_counters(world: World) -> None:
    one_store, other = await world.open("worker-1"), await world.open("worker-2")
    await one(one_store, 600, 2)
    assert await one(other, 600, 1) == 3


async def test_a_caller_that_leaves_harms_no_other(store: Store) -> None:
    leaving = asyncio.ensure_future(store.charge([Charge(A, 600, 60, 1)]))
    leaving.cancel()
    assert await one(store, 600) in {1, 2}
    assert await one(store, 600, 0, identity=B) == 0


async def test_the_expiry_is_set_once_a_window(world: World) -> None:
    store = await world.open()
    if world.form is None:
        return
    key = f"sw:{{c:{A.hex()}}}"
    await one(store, 600)
    assert await world.form.ask("TTL", key) in {b":65", b":64", b":63"}
    await world.form.ask("EXPIRE", key, "1000")
    await one(store, 600)
    assert await world.form.ask("TTL", key) in {b":1000", b":999", b":998"}
    await one(store, 660)
    assert await world.form.ask("TTL", key) in {b":65", b":64", b":63"}
