"""Outages of a node as workers live through them: it hangs for longer than a lease, its disk is full."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from seawall.serve.slots import Slots
from seawall.store.address import parse
from seawall.store.contract import Slot
from seawall.store.redis import RedisStore
from seawall.telemetry.metrics import Metrics
from tests.store.asking import HIT, answered, failure, until, works
from tests.store.node import Valkey

pytestmark = pytest.mark.store

LEASE = 3.0


class Worker:
    """What a worker has of slots."""

    def __init__(self, node: Valkey, name: str) -> None:
        self.store = RedisStore(parse(node.url), owner=name, timeout=0.25)
        self.metrics = Metrics()
        self.slots = Slots(self.store, self.metrics, lease=LEASE, workers_alive=lambda: 2)
        self.name = name
        self.turn = 0

    async def start(self) -> None:
        await self.store.start()
        self.store.workers_alive(2)
        self.keeping = asyncio.get_running_loop().create_task(self.slots.keep(lambda: ["big"]))

    async def take(self, limit: int) -> bool:
        self.turn += 1
        return await self.slots.hold("big", f"{self.name}-{self.turn}").acquire(limit)

    def count(self, name: str) -> float:
        return sum(n for counter, _, n in self.metrics.snapshot()["counters"] if counter == name)

    async def close(self) -> None:
        self.keeping.cancel()
        await asyncio.wait([self.keeping])
        await self.store.close()


@pytest.fixture
async def pair(node: Valkey) -> AsyncIterator[list[Worker]]:
    pair = [Worker(node, "w1"), Worker(node, "w2")]
    for worker in pair:
        await worker.start()
    yield pair
    for worker in pair:
        await worker.close()


async def test_a_node_that_hangs_for_ten_seconds_gives_away_no_slot(node: Valkey, pair: list[Worker]) -> None:
    """Longer than the lease: what is held goes on being held, since the store asks before it grants again."""
    first, second = pair
    assert [await first.take(6) for _ in range(4)] == [True] * 4
    assert await second.take(6)
    node.signal(signal.SIGSTOP)
    try:
        begun = asyncio.get_running_loop().time()
        # First knows of 4 of 6, second of 5: 4 + (6 - 4) // 2 and 1 + (6 - 5) // 2.
        assert [await first.take(6) for _ in range(3)] == [True, False, False]
        assert [await second.take(6) for _ in range(3)] == [False] * 3
        for _ in range(1000):
            await second.take(6)
        # Two calls of each waited for their time; the breaker answered all others.
        assert asyncio.get_running_loop().time() - begun < 6
        await asyncio.sleep(10 - (asyncio.get_running_loop().time() - begun))
    finally:
        node.signal(signal.SIGCONT)
    await until(lambda: first.store.healthy and second.store.healthy)
    # Six are held, and that is the limit, whoever asks first.
    assert not any([await worker.take(6) for worker in pair for _ in range(20)])

    async def told() -> bool:
        return await first.store.holders("big") == 6

    async with asyncio.timeout(30):
        while not await answered(told):
            await asyncio.sleep(0.02)
    assert not any([await worker.take(6) for worker in pair for _ in range(20)])
    assert first.count("seawall_slots_overshoot_total") + second.count("seawall_slots_overshoot_total") == 0
    assert await second.take(7)


async def test_a_full_disk_is_an_outage_until_there_is_room(node: Valkey, pair: list[Worker]) -> None:
    """The append-only file is on a device without room: Valkey refuses what would write, and says MISCONF."""
    first, second = pair
    assert await first.take(4)
    assert await second.take(4)
    assert await works(first.store) == [1]
    # The next file of the log is a full device.
    (node.folder / "appendonlydir" / "appendonly.aof.2.incr.aof").symlink_to("/dev/full")
    await node.ask("BGREWRITEAOF")

    async def refused() -> bool:
        try:
            await first.store.charge(HIT)
        except Exception as error:
            return "MISCONF" in str(error)
        return False

    async with asyncio.timeout(30):
        while not await refused():
            await asyncio.sleep(0.05)
    assert b"No space left on device" in (node.folder / "log").read_bytes()
    # Slots go by the share, limits by `store_loss`; the control path says the same.
    assert [await second.take(4) for _ in range(3)] == [True, False, False]  # 1 held here, 2 seen: 1 + (4 - 2) // 2
    assert second.count("seawall_slots_local_total") > 0
    assert "MISCONF" in await failure(first.store.push("text", digest="d", author="ann", reason="", needs="0.1"))
    assert await first.store.current() is None, "what only reads is answered"
    await until(lambda: not first.store.healthy)

    assert await node.ask("CONFIG", "SET", "appendonly", "no") == b"+OK"
    for file in (node.folder / "appendonlydir").iterdir():
        file.unlink()
    assert await node.ask("CONFIG", "SET", "appendonly", "yes") == b"+OK"
    await works(first.store)
    await until(lambda: first.store.healthy and second.store.healthy)
    assert await answered(lambda: first.store.push("text", digest="d", author="ann", reason="", needs="0.1")) == 1
    async with asyncio.timeout(30):
        while (slot := await answered(lambda: first.store.acquire("big", "last", 4, 30))) != Slot(True, 4):
            assert slot.holders < 4
            await asyncio.sleep(0.05)


async def test_a_snapshot_that_fails_is_an_outage_too(node: Valkey) -> None:
    """`stop-writes-on-bgsave-error`: where the snapshot should be is something else."""
    await node.ask("CONFIG", "SET", "appendonly", "no")
    await node.ask("CONFIG", "SET", "save", "3600 1")
    store = RedisStore(parse(node.url), owner="w", timeout=5)
    await store.start()
    try:
        await works(store)
        (node.folder / "dump.rdb").mkdir()
        await node.ask("BGSAVE")
        async with asyncio.timeout(30):
            while "rdb_last_bgsave_status:err" not in await node.text("INFO", "persistence"):
                await asyncio.sleep(0.02)
        assert await failure(store.charge(HIT)) == "replied MISCONF"
        (node.folder / "dump.rdb").rmdir()
        await node.ask("BGSAVE")
        assert await works(store) == [2]
    finally:
        await store.close()
