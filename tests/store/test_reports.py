"""Reports of workers, the same over every store."""

from seawall.store.contract import Standing, Store, WorkerReport
from tests.store.conftest import World


def report(worker: str, version: int = 1) -> WorkerReport:
    return WorkerReport(worker, 17, "host-a", version, 1000.5, "", "0.1.0")


async def test_a_report_is_seen_and_answered_by_the_standing(store: Store) -> None:
    assert await store.report(report("w1", 0)) == Standing(None, 1)
    await store.push("text", digest="d", author="ann", reason="", needs="0.1")
    assert await store.report(report("w2")) == Standing(1, 2, "d")
    assert await store.report(report("w1")) == Standing(1, 2, "d")
    assert list(await store.workers()) == [report("w1"), report("w2")]


async def test_a_worker_that_ended_is_forgotten(store: Store) -> None:
    await store.report(report("w1"))
    await store.report(report("w2"))
    await store.forget_worker("w1")
    await store.forget_worker("never there")
    assert list(await store.workers()) == [report("w2")]


async def test_a_silent_worker_stops_counting(world: World) -> None:
    store = await world.open()
    await store.report(report("w1"))
    world.pass_time(29)
    assert list(await store.workers()) == [report("w1")]
    world.pass_time(2)
    assert list(await store.workers()) == []


async def test_a_report_makes_room_of_silent_workers(world: World) -> None:
    old = await world.open("w1")
    await old.report(report("w1"))
    if world.form is not None:
        await world.form.ask("ZADD", "sw:{policy}:workers:seen", "1000", "w1")
    else:
        world.pass_time(31)
    assert (await old.report(report("w2"))).workers == 1


async def test_a_report_of_another_shape_hides_no_other(world: World) -> None:
    store = await world.open()
    await store.report(report("w1"))
    if world.form is None:
        return
    await store.report(report("w2"))
    await world.form.ask("HSET", "sw:{policy}:workers", "w1", '{"worker":"w1"}')
    assert list(await store.workers()) == [report("w2")]
