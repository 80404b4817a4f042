"""A cluster that changes while it is used: slots move, a master dies, keys of one script lie on two nodes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.crc import key_slot

from seawall.store import keys, open_control
from seawall.store.address import parse
from seawall.store.contract import Charge, Renewed, Slot, StoreUnavailable
from seawall.store.redis import RedisStore
from tests.store.asking import answered, failure, until, works
from tests.store.forms import Cluster
from tests.store.forms import until as until_node

pytestmark = pytest.mark.store


def counter(slot_of: int, cluster: Cluster) -> bytes:
    """Identity of a counter that a certain master has."""
    return next(
        name
        for name in (b"c%d" % n for n in range(1000))
        if cluster.of(key_slot(keys.counter(name))) is cluster.masters[slot_of]
    )


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[RedisStore]:
    await cluster.flush()
    store = RedisStore(parse(cluster.url), owner="w", timeout=5)
    await store.start()
    yield store
    await store.close()


class Move:
    """A slot on its way from the master that has it to another, by the steps of `valkey-cli --cluster reshard`."""

    def __init__(self, cluster: Cluster, key: bytes) -> None:
        self.slot = key_slot(key)
        self.cluster = cluster
        self.source = cluster.of(self.slot)
        self.target = next(node for node in cluster.masters if node is not self.source)

    async def begin(self) -> None:
        source, target = await self.source.text("CLUSTER", "MYID"), await self.target.text("CLUSTER", "MYID")
        assert await self.target.ask("CLUSTER", "SETSLOT", str(self.slot), "IMPORTING", source) == b"+OK"
        assert await self.source.ask("CLUSTER", "SETSLOT", str(self.slot), "MIGRATING", target) == b"+OK"

    async def carry(self, *named: bytes) -> None:
        reply = await self.source.ask("MIGRATE", "127.0.0.1", str(self.target.port), "", "0", "5000", "KEYS", *named)
        assert reply == b"+OK", reply

    async def end(self) -> None:
        name = await self.target.text("CLUSTER", "MYID")
        for node in (self.target, self.source, *self.cluster.masters):
            assert await node.ask("CLUSTER", "SETSLOT", str(self.slot), "NODE", name) == b"+OK"
        # The claim has a number that all must have heard of, before anyone makes another.
        await until_node(self._agreed)

    async def _agreed(self) -> bool:
        seen = [await node.text("CLUSTER", "INFO") for node in self.cluster.masters]
        epochs = {line for text in seen for line in text.splitlines() if "current_epoch" in line}
        own = (await self.target.text("CLUSTER", "INFO")).partition("cluster_my_epoch:")[2].split()[0]
        return epochs == {f"cluster_current_epoch:{own}"}

    async def back(self, *named: bytes) -> None:
        """Bring the slot home, for the tests that follow."""
        home = Move(self.cluster, b"")
        home.slot, home.source, home.target = self.slot, self.target, self.source
        await home.begin()
        await home.carry(*named)
        await home.end()


async def test_a_call_over_several_slots_is_answered_in_order(cluster: Cluster, store: RedisStore) -> None:
    names = [counter(n % 3, cluster) for n in range(3)]
    charges = [Charge(names[n], 600, 60, n + 1) for n in (2, 0, 1, 0)]
    assert list(await store.charge(charges)) == [3, 1, 2, 2]
    assert list(await store.charge([])) == []


async def test_a_slot_that_moves_costs_no_call_and_no_count(cluster: Cluster, store: RedisStore) -> None:
    """Before, while and after: ASK, then MOVED, are followed; every hit counts once."""
    name = counter(0, cluster)
    move, seen, stop = Move(cluster, keys.counter(name)), [], asyncio.Event()

    async def charge() -> None:
        while not stop.is_set():
            seen.append((await store.charge([Charge(name, 600, 60, 1)]))[0])

    charging = asyncio.gather(*(charge() for _ in range(4)))
    await until(lambda: len(seen) > 20)
    await move.begin()
    count = len(seen)
    await until(lambda: len(seen) > count + 20)
    await move.carry(keys.counter(name))
    count = len(seen)
    await until(lambda: len(seen) > count + 20)  # ASK, each time
    await move.end()
    count = len(seen)
    await until(lambda: len(seen) > count + 20)
    stop.set()
    await charging
    assert sorted(seen) == list(range(1, len(seen) + 1))
    assert store.healthy
    await move.back(keys.counter(name))
    assert list(await store.charge([Charge(name, 600, 60, 0)])) == [len(seen)]


async def test_a_slot_that_moved_is_followed_by_acquire_release_and_renew(cluster: Cluster, store: RedisStore) -> None:
    pool = [keys.pool_holders("big"), keys.pool_owners("big"), keys.pool_life("big")]
    await store.acquire("big", "r1", 2, 30)
    move = Move(cluster, pool[0])
    await move.begin()
    await move.carry(*pool)
    assert (await store.renew("big", ["r1"], 30)).holders == 1
    await move.end()
    store.release("big", "r1")
    taken = [store.acquire("big", f"n{n}", 2, 30) for n in range(3)]
    assert [(await slot).granted for slot in taken] == [True, True, False]
    await move.back(*pool)
    assert await store.renew("big", ["n0", "n1"], 30) == Renewed(2)


async def test_keys_on_their_way_are_waited_for_and_not_held_against_the_node(
    cluster: Cluster, store: RedisStore
) -> None:
    """TRYAGAIN: one key of a script is here, one is there."""
    pool = [keys.pool_holders("big"), keys.pool_owners("big"), keys.pool_life("big")]
    await store.acquire("big", "r1", 2, 30)
    move = Move(cluster, pool[0])
    await move.begin()
    await move.carry(pool[0])
    assert (await move.source.ask("EXISTS", *pool)).startswith(b"-TRYAGAIN")
    waiting = store.acquire("big", "r2", 2, 30)
    await asyncio.wait([asyncio.ensure_future(waiting)], timeout=0.1)
    await move.carry(*pool[1:])
    assert await waiting == Slot(True, 2)
    await move.end()
    await move.back(*pool)


async def test_keys_that_stay_on_their_way_are_told_when_the_time_is_over(cluster: Cluster) -> None:
    quick = RedisStore(parse(cluster.url), owner="w", timeout=0.1)
    await cluster.flush()
    await quick.start()
    pool = [keys.pool_holders("big"), keys.pool_owners("big"), keys.pool_life("big")]
    await answered(lambda: quick.acquire("big", "r1", 9, 30))
    move = Move(cluster, pool[0])
    await move.begin()
    await move.carry(pool[0])
    try:
        for n in range(5):
            assert await failure(quick.acquire("big", f"r{n}", 9, 30)) == "replied TRYAGAIN"
        assert quick.healthy
    finally:
        await move.carry(*pool[1:])
        await move.end()
        await move.back(*pool)
        await quick.close()


async def test_a_call_to_many_slots_fails_as_a_whole(cluster: Cluster, store: RedisStore) -> None:
    spoilt = counter(1, cluster)
    await cluster.masters[1].ask("SET", keys.counter(spoilt), "x")
    charges = [Charge(counter(0, cluster), 600, 60, 1), Charge(spoilt, 600, 60, 1)]
    assert await failure(store.charge(charges)) == "replied WRONGTYPE"
    assert store.healthy


async def test_control_follows_a_slot_that_moved(cluster: Cluster) -> None:
    await cluster.flush()
    control = open_control(cluster.url)
    await control.push("one", digest="1", author="ann", reason="", needs="0.1")
    move = Move(cluster, keys.POLICY_CURRENT)
    fixed = [value for name, value in vars(keys).items() if name.isupper()] + [keys.policy_version(1)]
    await move.begin()
    await move.carry(*fixed)
    await move.end()
    assert await control.push("two", digest="2", author="ann", reason="", needs="0.1") == 2
    assert [info.version for info in await control.history()] == [2, 1]
    await move.back(*fixed, keys.policy_version(2))
    assert await control.current() == 2
    await control.close()


async def test_a_replica_is_found_when_it_was_promoted() -> None:
    """A master dies: its slots fail at once until the replica has them, all others answer all the time.

    The latter because of `cluster-require-full-coverage no`; by default all slots are CLUSTERDOWN meanwhile.
    """
    group = Cluster(replica=True, full_coverage=False)
    await group.start()
    store = RedisStore(parse(group.url), owner="w", timeout=5)
    await store.start()
    try:
        lost, kept = counter(0, group), counter(1, group)
        await store.charge([Charge(lost, 600, 60, 41)])
        assert await group.nodes[0].ask("WAIT", "1", "5000") == b":1"
        group.nodes[0].kill()
        promoted = asyncio.ensure_future(works(store, [Charge(lost, 600, 60, 1)]))
        others = 0
        while not promoted.done():
            others = (await store.charge([Charge(kept, 600, 60, 1)]))[0]
            await asyncio.sleep(0.01)
        assert await promoted == [42]
        assert list(await store.charge([Charge(kept, 600, 60, 0)])) == [others]
        await until(lambda: store.healthy)
    finally:
        await store.close()
        group.remove()


async def test_no_node_at_start_is_told_and_found_later() -> None:
    group = Cluster()
    store = RedisStore(parse(group.url), owner="w", timeout=5)
    await store.start()
    assert "no node tells the slots" in store.trouble
    assert "not connected" in await failure(store.charge([Charge(b"x", 600, 60, 1)]))
    with pytest.raises(StoreUnavailable, match="not connected"):
        await store.current()
    with pytest.raises(StoreUnavailable, match="not connected"):
        await store.history()
    await group.start()
    try:
        assert await works(store, [Charge(b"x", 600, 60, 1)]) == [1]
        await until(lambda: store.healthy)
        assert await answered(store.current) is None
    finally:
        await store.close()
        group.remove()
