"""A handler's coroutine without a task: begun at once, told of its end once, cancelled where it waits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from seawall.rpc.waiting import Wait, begin

End = tuple[Any, type[BaseException] | None]


class Watch:
    """Begins work and notes its ends."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.over = asyncio.Event()

    def begin(self, work: Awaitable[Any]) -> Wait | None:
        return begin(asyncio.get_running_loop(), work, self._ended)

    def _ended(self, result: Any, error: BaseException | None) -> None:
        self.ends.append((result, None if error is None else type(error)))
        self.over.set()

    async def end(self) -> End:
        async with asyncio.timeout(5):
            await self.over.wait()
        await asyncio.sleep(0)
        (end,) = self.ends
        return end


def outside(work: Callable[[], None]) -> None:
    """Run in a turn of the loop in which no task is current, as the events of a connection are."""
    asyncio.get_running_loop().call_soon(work)


async def test_work_that_waits_for_nothing_ends_before_begin_returns() -> None:
    watch = Watch()

    async def work() -> int:
        return 7

    assert watch.begin(work()) is None
    assert watch.ends == [(7, None)]


async def test_begins_at_once_and_ends_in_the_turn_that_lets_it() -> None:
    watch, seen = Watch(), list[str]()
    awaited: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        seen.append("begun")
        return await awaited

    assert watch.begin(work()) is not None
    assert seen == ["begun"]
    awaited.set_result("there")
    await asyncio.sleep(0)
    assert watch.ends == [("there", None)]


async def _raises(error: BaseException, turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    raise error


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError(), GeneratorExit()])
async def test_what_it_raises_is_told(error: BaseException, turns: int) -> None:
    watch = Watch()
    watch.begin(_raises(error, turns))
    assert await watch.end() == (None, type(error))


async def test_cancel_is_raised_where_it_waits_and_told() -> None:
    watch, cleaned = Watch(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("yes")

    wait = watch.begin(work())
    assert wait is not None
    wait.cancel()
    assert await watch.end() == (None, asyncio.CancelledError)
    assert cleaned == ["yes"]


async def test_cancel_between_two_turns() -> None:
    watch = Watch()

    async def work() -> None:
        while True:
            await asyncio.sleep(0)

    wait = watch.begin(work())
    assert wait is not None
    wait.cancel()
    assert await watch.end() == (None, asyncio.CancelledError)


async def test_a_cancelled_one_may_go_on() -> None:
    watch = Watch()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "tidied"

    wait = watch.begin(work())
    assert wait is not None
    wait.cancel()
    assert await watch.end() == ("tidied", None)
    assert not wait.cancel()


async def test_it_may_cancel_itself() -> None:
    watch = Watch()
    made: list[Wait | None] = []

    async def work() -> None:
        await asyncio.sleep(0)
        wait = made[0]
        assert wait is not None
        wait.cancel()
        await asyncio.Event().wait()

    made.append(watch.begin(work()))
    assert await watch.end() == (None, asyncio.CancelledError)


async def test_the_library_finds_its_current_task() -> None:
    """`timeout`, `wait_for`, `gather`, `shield` and tasks of its own work within it, begun within a task or not."""
    for starter in (outside, lambda work: work()):
        watch = Watch()

        async def work() -> list[str]:
            seen = []
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                seen.append("timeout")
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 0.01)
            except TimeoutError:
                seen.append("wait_for")
            seen += await asyncio.gather(asyncio.sleep(0, "a"), asyncio.shield(asyncio.sleep(0, "b")))
            async with asyncio.TaskGroup() as group:
                child = group.create_task(asyncio.sleep(0, "c"))
            return [*seen, child.result()]

        def start(watch: Watch = watch, work: Callable[[], Awaitable[Any]] = work) -> None:
            watch.begin(work())

        starter(start)
        assert await watch.end() == (["timeout", "wait_for", "a", "b", "c"], None)


async def test_who_begins_it_within_a_task_stays_that_task() -> None:
    watch = Watch()
    inside = list[object]()

    async def work() -> None:
        inside.append(asyncio.current_task())
        await asyncio.sleep(0)
        inside.append(asyncio.current_task())

    own = asyncio.current_task()
    wait = watch.begin(work())
    assert asyncio.current_task() is own
    await watch.end()
    assert inside == [wait, wait]


async def test_a_cancelled_timeout_is_no_cancellation_of_the_whole() -> None:
    watch = Watch()

    async def work() -> int:
        for _ in range(3):
            try:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            except TimeoutError:
                continue
        return 3

    watch.begin(work())
    assert await watch.end() == (3, None)


async def test_a_future_is_waited_for_as_it_is() -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()
    done.set_result(1)
    failed: asyncio.Future[int] = loop.create_future()
    failed.set_exception(ValueError("x"))
    later: asyncio.Future[int] = loop.create_future()
    loop.call_soon(later.set_result, 2)
    given_up: asyncio.Future[int] = loop.create_future()
    watches = [Watch() for _ in range(4)]
    waits = [watch.begin(work) for watch, work in zip(watches, (done, failed, later, given_up), strict=True)]
    assert waits[:2] == [None, None]
    assert waits[3] is not None
    waits[3].cancel()
    ends = [await watch.end() for watch in watches]
    assert ends == [(1, None), (None, ValueError), (2, None), (None, asyncio.CancelledError)]


async def test_any_awaitable_will_do() -> None:
    class Odd:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "odd"

    watch = Watch()
    watch.begin(Odd())
    assert await watch.end() == ("odd", None)
