"""A store that lost holders knows them again before it grants more: flushed, restarted, or a replica that lagged."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from redis.crc import key_slot

from seawall.serve.slots import Slots
from seawall.store import keys
from seawall.store.address import parse
from seawall.store.contract import Renewed, Slot, StoreUnavailable
from seawall.store.redis import RedisStore
from seawall.telemetry.metrics import Metrics
from tests.store.asking import answered, until, works
from tests.store.forms import Cluster, Form, Sentinel, Single
from tests.store.node import Valkey

pytestmark = pytest.mark.store


@pytest.fixture(params=["unix", "cluster"])
def named(request: pytest.FixtureRequest) -> Form:
    form: Form = request.getfixturevalue(request.param)
    return form


@pytest.fixture
async def form(named: Form) -> Form:
    await named.flush()
    return named


async def workers(form: Form, count: int = 2) -> list[RedisStore]:
    """Stores of workers that know of each other."""
    stores = [RedisStore(parse(form.url), owner=f"w{n}", timeout=5) for n in range(count)]
    for store in stores:
        await store.start()
        store.workers_alive(count)
    return stores


@pytest.fixture
async def pair(form: Form) -> AsyncIterator[list[RedisStore]]:
    stores = await workers(form)
    yield stores
    for store in stores:
        await store.close()


async def test_after_a_flush_grants_wait_for_every_worker(form: Form, pair: list[RedisStore]) -> None:
    first, second = pair
    told: list[str] = []
    first.when_lost(lambda: told.append("first"))
    assert [(await first.acquire("big", f"a{n}", 4, 30)).granted for n in range(3)] == [True] * 3
    assert (await second.renew("big", [], 30)) == Renewed(3)
    await form.flush()
    assert await second.acquire("big", "b0", 4, 30) == Slot(False, 0, paused=True)
    assert await second.renew("big", [], 30) == Renewed(0, 0, paused=True)
    assert await first.acquire("big", "a3", 4, 30) == Slot(False, 0, paused=True)
    assert told == ["first"]
    assert await first.renew("big", ["a0", "a1", "a2"], 30) == Renewed(3, 3)
    assert await second.acquire("big", "b0", 4, 30) == Slot(True, 4)
    assert await second.acquire("big", "b1", 4, 30) == Slot(False, 4)


async def test_the_pause_of_one_pool_is_none_of_another(form: Form, pair: list[RedisStore]) -> None:
    first, _ = pair
    await first.acquire("big", "a", 4, 30)
    await form.flush()
    assert (await first.acquire("big", "b", 4, 30)).paused
    assert await first.acquire("small", "b", 4, 30) == Slot(True, 1)


async def test_a_store_that_is_told_by_who_was_new_pauses_when_another_knows_better(
    form: Form, pair: list[RedisStore]
) -> None:
    first, _ = pair
    await first.acquire("big", "a0", 2, 30)
    await form.flush()
    new = RedisStore(parse(form.url), owner="new", timeout=5)
    await new.start()
    assert await new.acquire("big", "n0", 2, 30) == Slot(True, 1)
    assert await first.renew("big", ["a0"], 30) == Renewed(2, 1, paused=True)
    assert (await new.acquire("big", "n1", 2, 30)).paused
    await new.close()


async def test_a_restart_is_a_loss_even_with_its_data() -> None:
    """The last second of a file that is synced each second is gone, and nobody can say what was in it."""
    form = Single(tcp=True)
    await form.start()
    [first] = await workers(form, 1)
    told: list[str] = []
    first.when_lost(lambda: told.append("told"))
    try:
        await first.acquire("big", "a0", 2, 30)
        form.nodes[0].kill()
        await form.start()
        await until(lambda: told == ["told"])
        await until(lambda: first.healthy)
        assert (await first.acquire("big", "a1", 2, 30)).paused
        assert not (await first.renew("big", ["a0"], 30)).paused
        assert await first.acquire("big", "a1", 2, 30) == Slot(True, 2)
    finally:
        await first.close()
        form.remove()


async def test_a_lost_connection_alone_pauses_nothing(form: Form, pair: list[RedisStore]) -> None:
    first, _ = pair
    told: list[str] = []
    first.when_lost(lambda: told.append("told"))
    await first.acquire("big", "a0", 2, 30)
    await form.ask_all("CLIENT", "KILL", "TYPE", "normal")
    await until(lambda: bool(told))
    await until(lambda: first.healthy)
    assert await answered(lambda: first.acquire("big", "a1", 2, 30)) == Slot(True, 2)


async def lag(group: Form, store: RedisStore, master: Valkey, replica: Valkey) -> None:
    """Let the replica miss a grant, and the master die with it."""
    assert await answered(lambda: store.acquire("big", "old", 2, 30)) == Slot(True, 1)
    assert await master.ask("WAIT", "1", "5000") == b":1"
    replica.signal(signal.SIGSTOP)
    assert await master.ask("CLIENT", "KILL", "TYPE", "replica") == b":1"
    assert await store.acquire("big", "lost", 2, 30) == Slot(True, 2)
    assert await store.acquire("big", "more", 2, 30) == Slot(False, 2)
    master.kill()
    replica.signal(signal.SIGCONT)


async def test_sentinels_choose_a_replica_that_lags() -> None:
    group = Sentinel()
    await group.start()
    [store] = await workers(group, 1)
    try:
        await lag(group, store, *group.nodes)
        await works(store)
        # The new master knows of one holder where there are two: it must not grant the second slot.
        assert await answered(lambda: store.acquire("big", "more", 2, 30)) == Slot(False, 1, paused=True)
        assert await store.renew("big", ["old", "lost"], 30) == Renewed(2, 1)
        assert await store.acquire("big", "more", 2, 30) == Slot(False, 2)
    finally:
        await store.close()
        group.remove()


async def test_workers_go_by_their_share_and_tell_all_they_hold() -> None:
    """The whole of it, as workers do it: the store is killed and comes back empty while slots are held."""
    form = Single(tcp=True)
    await form.start()
    stores = await workers(form)
    metrics = [Metrics(), Metrics()]
    rooms = [
        Slots(store, metric, lease=30, workers_alive=lambda: 2) for store, metric in zip(stores, metrics, strict=True)
    ]
    tasks = [asyncio.get_running_loop().create_task(room.keep(lambda: ["big"])) for room in rooms]
    try:
        holds = [rooms[n % 2].hold("big", f"r{n}") for n in range(6)]
        assert [await hold.acquire(8) for hold in holds] == [True] * 6
        for node in form.nodes:
            node.remove()
        await until(lambda: not any(store.healthy for store in stores))
        local = [rooms[0].hold("big", f"local{n}") for n in range(3)]
        # 3 held here, 5 seen in all (the sixth was the other's): 3 + (8 - 5) // 2 = 4.
        assert [await hold.acquire(8) for hold in local] == [True, False, False]
        form.nodes[0].folder.mkdir()
        await form.start()
        await until(lambda: all(store.healthy for store in stores))

        async def know() -> bool:
            return await stores[0].holders("big") == 7

        async with asyncio.timeout(20):  # of a lease of 30: nobody waited for its third
            while not await answered(know):
                await asyncio.sleep(0.02)
            more = rooms[1].hold("big", "more")
            assert await more.acquire(8)
            while (await stores[1].acquire("big", "full", 8, 30)).paused:
                await asyncio.sleep(0.02)
        assert await stores[1].acquire("big", "full", 8, 30) == Slot(False, 8)
        counts = [{name: n for name, _, n in metric.snapshot()["counters"]} for metric in metrics]
        assert counts[0]["seawall_slots_local_total"] >= 1
        assert all("seawall_slots_overshoot_total" not in count for count in counts)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for store in stores:
            await store.close()
        form.remove()


async def test_what_went_on_without_the_store_is_counted_when_it_is_too_much(form: Form) -> None:
    """A worker was cut off, went on by its share, and the store gave its slots to others meanwhile."""
    first, second = await workers(form)
    metrics = Metrics()
    room = Slots(first, metrics, lease=30, workers_alive=lambda: 2)
    try:
        held = [room.hold("big", f"r{n}") for n in range(2)]
        assert await held[0].acquire(4)
        acquire = first.acquire
        first.acquire = _away  # type: ignore[assignment,method-assign]
        assert await held[1].acquire(4)
        first.acquire = acquire  # type: ignore[method-assign]
        assert [(await second.acquire("big", f"o{n}", 4, 30)).granted for n in range(4)] == [True, True, True, False]
        keeping = asyncio.get_running_loop().create_task(room.keep(list))
        room._lost.set()

        def overshoot() -> list[float]:
            return [n for name, _, n in metrics.snapshot()["counters"] if name == "seawall_slots_overshoot_total"]

        await until(lambda: overshoot() == [1])
        keeping.cancel()
        await asyncio.wait([keeping])
    finally:
        await first.close()
        await second.close()


def _away(*_: object) -> "asyncio.Future[Slot]":
    future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
    future.set_exception(StoreUnavailable("cut off"))
    return future


async def test_a_promoted_replica_of_a_cluster_pauses() -> None:
    group = Cluster(replica=True)
    await group.start()
    pool = next(name for name in map(str, range(1000)) if key_slot(keys.pool_holders(name)) < 5461)
    [store] = await workers(group, 1)
    try:
        assert await answered(lambda: store.acquire(pool, "a", 2, 30)) == Slot(True, 1)
        assert await group.nodes[0].ask("WAIT", "1", "5000") == b":1"
        group.nodes[0].kill()
        assert await answered(lambda: store.acquire(pool, "b", 2, 30)) == Slot(False, 1, paused=True)
        assert await store.renew(pool, ["a"], 30) == Renewed(1)
        assert await store.acquire(pool, "b", 2, 30) == Slot(True, 2)
    finally:
        await store.close()
        group.remove()
