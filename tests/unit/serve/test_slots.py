"""Slots of one worker, over a store whose answers are given by hand."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from seawall.serve.slots import Hold, Slots
from seawall.store.contract import Renewed, Slot, StoreUnavailable
from seawall.telemetry.metrics import Metrics

LEASE = 9.0


class FakeStore:
    """Notes what it is asked, in order; `answers` are given to acquire, else the question waits in `open`."""

    def __init__(self, *answers: Slot | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []
        self.open: list[asyncio.Future[Slot]] = []
        self.renewals: list[int | Renewed | Exception] = []
        self.lost: Callable[[], None] = lambda: None

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> asyncio.Future[Slot]:
        self.asked.append(("acquire", pool, rid, limit, lease))
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        if not self.answers:
            self.open.append(future)
            return future
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def release(self, pool: str, rid: str) -> None:
        self.asked.append(("release", pool, rid))

    def renew(self, pool: str, rids: list[str], lease: float, asked: list[str]) -> asyncio.Future[Renewed]:
        self.asked.append(("renew", pool, *rids, *(f"?{rid}" for rid in asked), lease))
        future: asyncio.Future[Renewed] = asyncio.get_running_loop().create_future()
        answer = self.renewals.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer if isinstance(answer, Renewed) else Renewed(answer))
        return future

    def when_lost(self, told: Callable[[], None]) -> None:
        self.lost = told

    @property
    def released(self) -> list[str]:
        return [asked[2] for asked in self.asked if asked[0] == "release"]


AWAY = StoreUnavailable("timed out")


def slots(store: FakeStore, workers: int = 2) -> Slots:
    """Slots of one of `workers` workers."""
    return Slots(store, Metrics(), lease=LEASE, workers_alive=lambda: workers)  # type: ignore[arg-type]


def counters(room: Slots) -> dict[str, float]:
    """Counters by name and label."""
    return {" ".join([name, *labels]): value for name, labels, value in room._metrics.snapshot()["counters"]}


async def started(hold: Hold, limit: int = 4) -> asyncio.Task[bool]:
    """Task that asks, up to the point where it waits for the store."""
    task = asyncio.get_running_loop().create_task(hold.acquire(limit))
    await asyncio.sleep(0)
    return task


async def left(hold: Hold, task: asyncio.Task[bool]) -> None:
    """End of a stream that still asks: its task is cancelled, then the hold is released."""
    task.cancel()
    await asyncio.wait([task])
    hold.release()


async def test_grant() -> None:
    """A granted slot is held until it is given back, once however often that is said."""
    store = FakeStore(Slot(True, 1))
    room = slots(store)
    hold = room.hold("big", "r1")
    assert room.held() == [("big", 0, 0)]
    assert await hold.acquire(4)
    assert room.held() == [("big", 1, 4)]
    for _ in range(3):
        hold.release()
    assert store.asked == [("acquire", "big", "r1", 4, LEASE), ("release", "big", "r1")]
    assert room.held() == [("big", 0, 4)]


async def test_refuse() -> None:
    """A refused slot is not held and not given back."""
    store = FakeStore(Slot(False, 4))
    room = slots(store)
    hold = room.hold("big", "r1")
    assert not await hold.acquire(4)
    hold.release()
    assert store.released == []
    assert room.held() == [("big", 0, 4)]


async def test_never_asked() -> None:
    """A claim that was never asked for gives nothing back."""
    store = FakeStore()
    slots(store).hold("big", "r1").release()
    assert store.asked == []


async def test_pools_are_apart() -> None:
    """Each pool has its own slots and limit."""
    store = FakeStore(Slot(True, 1), Slot(True, 1))
    room = slots(store)
    assert await room.hold("big", "r1").acquire(4)
    assert await room.hold("small", "r1").acquire(2)
    assert room.held() == [("big", 1, 4), ("small", 1, 2)]


async def test_withdraw() -> None:
    """A question that nobody waits for any more is undone behind it, so that a grant does not stay."""
    store = FakeStore()
    room = slots(store)
    hold = room.hold("big", "r1")
    await left(hold, await started(hold))
    hold.release()
    assert store.asked == [("acquire", "big", "r1", 4, LEASE), ("release", "big", "r1")]
    assert room.held() == [("big", 0, 4)]


async def test_answer_after_the_end() -> None:
    """An answer that comes when the stream is over changes nothing."""
    store = FakeStore()
    room = slots(store)
    hold = room.hold("big", "r1")
    task = await started(hold)
    hold.release()
    store.open[0].set_result(Slot(True, 1))
    await task
    hold.release()
    assert store.released == ["r1"]
    assert room.held() == [("big", 0, 4)]


async def test_same_rid_twice() -> None:
    """Two streams of one request (a call that Envoy tried again) share a slot; the last to end gives it back."""
    store = FakeStore(Slot(True, 1), Slot(True, 1))
    room = slots(store)
    first, second = room.hold("big", "r1"), room.hold("big", "r1")
    assert await first.acquire(4)
    assert await second.acquire(4)
    assert room.held() == [("big", 1, 4)]
    first.release()
    assert (store.released, room.held()) == ([], [("big", 1, 4)])
    second.release()
    assert (store.released, room.held()) == (["r1"], [("big", 0, 4)])


async def test_one_of_two_withdraws() -> None:
    """A question is not undone while another stream of the request holds the slot or still asks for it."""
    store = FakeStore(Slot(True, 1))
    room = slots(store)
    first, second = room.hold("big", "r1"), room.hold("big", "r1")
    assert await first.acquire(4)
    await left(second, await started(second))
    assert store.released == []
    first.release()
    assert store.released == ["r1"]

    store = FakeStore()
    room = slots(store)
    first, second = room.hold("big", "r1"), room.hold("big", "r1")
    asking = await started(first)
    await left(second, await started(second))
    assert store.released == []
    store.open[0].set_result(Slot(True, 1))
    assert await asking
    first.release()
    assert store.released == ["r1"]


async def test_both_withdraw() -> None:
    """When all streams of a request have left, the last one undoes the question."""
    store = FakeStore()
    room = slots(store)
    holds = [room.hold("big", "r1") for _ in range(2)]
    tasks = [await started(hold) for hold in holds]
    await left(holds[0], tasks[0])
    await left(holds[1], tasks[1])
    assert store.released == ["r1"]


async def test_refused_beside_one_that_asks() -> None:
    """A refused stream leaves the question of the other alone."""
    store = FakeStore(Slot(False, 4))
    room = slots(store)
    refused, asking = room.hold("big", "r1"), room.hold("big", "r1")
    assert not await refused.acquire(4)
    task = await started(asking)
    refused.release()
    assert store.released == []
    await left(asking, task)
    assert store.released == ["r1"]


async def test_store_away() -> None:
    """Without the store a worker takes its part of what was free, and not more."""
    store = FakeStore(Slot(True, 3), AWAY, AWAY, AWAY, AWAY)
    room = slots(store, workers=3)
    assert await room.hold("big", "r0").acquire(10)
    # Held here 1, seen in all 3: 1 + (10 - 3) // 3.
    granted = [await room.hold("big", f"r{i}").acquire(10) for i in range(1, 5)]
    assert granted == [True, True, False, False]
    assert counters(room) == {"seawall_store_errors_total acquire": 4, "seawall_slots_local_total big": 2}


async def test_store_never_seen() -> None:
    """A worker that never saw the pool takes the even share."""
    room = slots(FakeStore(*[AWAY] * 6), workers=3)
    holds = [room.hold("big", f"r{i}") for i in range(6)]
    assert [await hold.acquire(7) for hold in holds] == [True, True, False, False, False, False]


async def test_cap_shrinks() -> None:
    """As answers end, a worker above the even share comes down to it."""
    store = FakeStore(*(Slot(True, i + 1) for i in range(6)), *[AWAY] * 9)
    room = slots(store, workers=3)
    holds = [room.hold("big", f"r{i}") for i in range(6)]
    for hold in holds:
        assert await hold.acquire(6)
    # All 6 are held here; the even share is 2.
    assert not await room.hold("big", "x").acquire(6)
    for hold in holds[:4]:
        hold.release()
        assert not await room.hold("big", "x").acquire(6)
    assert room.held() == [("big", 2, 6)]
    holds[4].release()
    assert await room.hold("big", "y").acquire(6)


async def test_local_refusal_is_undone() -> None:
    """The store may have granted what it could not tell: a refused request takes it back."""
    store = FakeStore(AWAY)
    hold = slots(store).hold("big", "r1")
    assert not await hold.acquire(0)
    hold.release()
    assert store.released == ["r1"]


async def test_same_rid_while_the_store_is_away() -> None:
    """A second stream of a held request shares its slot without the store too, although the share is used up."""
    store = FakeStore(AWAY, AWAY, AWAY)
    room = slots(store, workers=2)
    first, second = room.hold("big", "r1"), room.hold("big", "r1")
    assert await first.acquire(2)
    assert await second.acquire(2)
    assert not await room.hold("big", "r2").acquire(2)
    assert room.held() == [("big", 1, 2)]
    first.release()
    assert store.released == ["r2"]
    second.release()
    assert store.released == ["r2", "r1"]


async def test_store_back() -> None:
    """Once the store answers again it decides alone, and the next loss is reckoned from what it said."""
    store = FakeStore(AWAY, AWAY, Slot(True, 8), AWAY, AWAY, AWAY)
    room = slots(store, workers=2)
    assert await room.hold("big", "r1").acquire(2)
    assert not await room.hold("big", "r2").acquire(2)
    assert await room.hold("big", "r3").acquire(12)
    # Held here 2, seen in all 8: 2 + (12 - 8) // 2.
    assert [await room.hold("big", f"x{i}").acquire(12) for i in range(3)] == [True, True, False]


class Over(Exception):
    """End of the test's time."""


async def kept(room: Slots, rounds: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the renewal run for some rounds without waiting; the pauses that it made."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > rounds:
            raise Over

    monkeypatch.setattr(room, "_pause", pause)
    with pytest.raises(Over):
        await room.keep(lambda: ["big", "idle"])
    monkeypatch.undo()
    return pauses


async def test_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Granted slots are renewed three times in a lease's life, others are not; pools without any are looked at too."""
    store = FakeStore(Slot(True, 1), Slot(False, 4), Slot(True, 2), Slot(True, 3), Slot(True, 1))
    room = slots(store)
    holds = {rid: room.hold("big", rid) for rid in ("granted", "refused", "returned", "other")}
    for hold in holds.values():
        await hold.acquire(4)
    holds["returned"].release()
    empty = room.hold("small", "gone")
    await empty.acquire(4)
    empty.release()
    asking = room.hold("big", "asking")
    task = await started(asking)
    store.asked.clear()
    store.renewals = [5, 0, 0, 6, 0, 0]
    assert await kept(room, 2, monkeypatch) == [LEASE / 3] * 3
    looks = [("renew", "idle", LEASE), ("renew", "small", LEASE)]
    assert store.asked == [("renew", "big", "granted", "other", "?asking", LEASE), *looks] * 2
    await left(asking, task)


async def test_renewal_without_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that fails is counted and tried again; one that succeeds ends the local share."""
    store = FakeStore(Slot(True, 1), AWAY, AWAY, AWAY, AWAY)
    room = slots(store, workers=1)
    assert await room.hold("big", "r0").acquire(2)
    assert await room.hold("big", "r1").acquire(2)
    assert not await room.hold("big", "r2").acquire(2)
    store.renewals = [AWAY, 0, 1, 0]
    await kept(room, 2, monkeypatch)
    assert counters(room)["seawall_store_errors_total renew"] == 1
    # The store lost one of the two that are held here: these count, 2 + (3 - 2) // 1.
    assert await room.hold("big", "r3").acquire(3)
    assert not await room.hold("big", "r4").acquire(3)


async def test_a_store_that_pauses_is_told_and_the_local_share_decides() -> None:
    """Grants are paused: what was seen before the loss is the base of the share, and each grant is told to the store."""
    store = FakeStore(Slot(True, 4), Slot(False, 0, paused=True), Slot(False, 0, paused=True), Slot(True, 1))
    room = slots(store, workers=2)
    assert await room.hold("big", "r1").acquire(8)
    assert await room.hold("big", "r2").acquire(8)  # 1 + (8 - 4) // 2 = 3
    assert counters(room)["seawall_slots_local_total big"] == 1
    store.renewals = [Renewed(2, 2, paused=True)]
    keeping = asyncio.get_running_loop().create_task(room.keep(list))
    async with asyncio.timeout(20):
        while store.renewals:
            await asyncio.sleep(0.01)
    assert store.asked[-1] == ("renew", "big", "r1", "r2", LEASE)
    assert await room.hold("big", "r3").acquire(8)
    assert "seawall_slots_overshoot_total big" not in counters(room)
    # The store decides again: the next loss is reckoned from what it says, not from what it knew while it paused.
    assert await room.hold("big", "r4").acquire(8)
    assert counters(room)["seawall_slots_local_total big"] == 2
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_loss_is_answered_at_once() -> None:
    """Not at the next renewal: all that is held is told to the store, in one round."""
    store = FakeStore(Slot(True, 1), Slot(True, 1))
    room = slots(store)
    assert await room.hold("big", "r1").acquire(4)
    assert await room.hold("small", "r1").acquire(4)
    store.asked.clear()
    store.renewals = [1, 1, 0]
    keeping = asyncio.get_running_loop().create_task(room.keep(lambda: ["idle"]))
    store.lost()
    async with asyncio.timeout(LEASE / 3):
        while store.renewals:
            await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.wait([keeping])
    renewals = [("renew", "big", "r1", LEASE), ("renew", "idle", LEASE), ("renew", "small", "r1", LEASE)]
    assert store.asked == renewals


@pytest.mark.parametrize(
    ("renewed", "over"),
    [
        (Renewed(4, 2), 0),
        (Renewed(6, 0), 0),  # a limit that was lowered
        (Renewed(6, 1), 1),
        (Renewed(6, 3), 2),
        (Renewed(6, 3, paused=True), 2),
    ],
)
async def test_overshoot_is_what_was_unknown_and_above_the_limit(
    renewed: Renewed, over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FakeStore(Slot(True, 1))
    room = slots(store)
    assert await room.hold("big", "r1").acquire(4)
    store.renewals = [renewed, 0]
    await kept(room, 1, monkeypatch)
    assert counters(room).get("seawall_slots_overshoot_total big", 0) == over
