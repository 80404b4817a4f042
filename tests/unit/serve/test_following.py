"""A worker follows current version and canary, and stays on its last good ones."""

from typing import Any

import pytest

from seawall.policy.compile import digest_of
from seawall.serve.policies import Policies
from seawall.serve.settings import Settings
from seawall.store.contract import CanaryShare
from seawall.store.memory import MemoryStore

ONE = "callers: {tenants: {a: {}, b: {}}}\n"
TWO = ONE + "output: {max_tokens: 2}\n"


class Worker:
    """A worker's policies, and the store beside it."""

    def __init__(self) -> None:
        self.store = MemoryStore(owner="w")
        self.refused: list[tuple[int, str]] = []
        self.compiled = 0
        self.policies = Policies(
            self.store, Settings(upstreams=(("http://e", "vllm"),)), "w", lambda *why: self.refused.append(why)
        )
        compile_ = self.policies._compile

        def counted(text: str, file: str) -> Any:
            self.compiled += 1
            return compile_(text, file)

        self.policies._compile = counted  # type: ignore[method-assign]

    async def push(self, text: str, needs: str = "0.1", **more: Any) -> int:
        version = await self.store.push(text, digest=digest_of(text), author="a", reason="", needs=needs, **more)
        await self.policies.check()
        return version

    async def canary(self, text: str, percent: float = 10, needs: str = "0.1") -> None:
        await self.store.start_canary(
            text, share=CanaryShare(percent), digest=digest_of(text), author="a", reason="", needs=needs
        )
        await self.policies.check()

    async def report(self) -> tuple[int, int, str]:
        (report,) = await self.store.workers()
        return report.version, report.canary, report.error


@pytest.fixture
def worker() -> Worker:
    return Worker()


async def test_canary_moved_and_promoted_compiles_once(worker: Worker) -> None:
    await worker.push(ONE)
    await worker.canary(TWO)
    assert await worker.report() == (1, 2, "")
    await worker.store.move_canary(CanaryShare(60), author="a", reason="")
    await worker.policies.check()
    await worker.store.promote_canary(author="a", reason="")
    await worker.policies.check()
    assert await worker.report() == (2, 0, "")
    await worker.store.rollback(None, author="a", reason="")
    await worker.policies.check()
    assert await worker.report() == (1, 0, "")
    assert worker.compiled == 2
    assert worker.policies.held == 2


async def test_an_aborted_canary_goes(worker: Worker) -> None:
    await worker.push(ONE)
    await worker.canary(TWO, 100)
    await worker.store.abort_canary(author="a", reason="")
    await worker.policies.check()
    assert await worker.report() == (1, 0, "")
    # Requests that began with it still find it.
    held = worker.policies.named("2")
    assert held is not None and held.policy.output.max_tokens == 2


async def test_a_version_that_needs_a_later_release_is_refused(worker: Worker) -> None:
    await worker.push(ONE)
    await worker.push(TWO, needs="99.0")
    version, _, error = await worker.report()
    assert version == 1
    assert error.startswith("version 2 needs release 99.0, this is ")
    assert worker.refused == [(2, error)]
    await worker.policies.check()
    assert len(worker.refused) == 1
    await worker.store.rollback(1, author="a", reason="")
    await worker.policies.check()
    assert await worker.report() == (1, 0, "")


async def test_a_canary_that_needs_a_later_release_leaves_all_on_current(worker: Worker) -> None:
    await worker.push(ONE)
    await worker.canary(TWO, 100, needs="99.0")
    version, canary, error = await worker.report()
    assert (version, canary) == (1, 0)
    assert "needs release 99.0" in error
    await worker.policies.check()
    assert len(worker.refused) == 1


async def test_a_canary_that_does_not_fit_is_refused_until_it_does(worker: Worker) -> None:
    gold = "classes: {gold: , batch: }\ncallers: {tenants: {a: {class: gold}}}\n"
    await worker.push(ONE)
    await worker.canary(gold, 100)
    assert (await worker.report())[:2] == (1, 0)
    assert "class 'gold' is not in the current version" in worker.policies.error
    compiled = worker.compiled
    await worker.policies.check()
    assert worker.compiled == compiled
    await worker.push("classes: {gold: , batch: }\n", keep_canary=True)
    assert await worker.report() == (3, 2, "")


async def test_a_broken_version_is_told_and_the_canary_stays(worker: Worker) -> None:
    await worker.push(ONE)
    await worker.canary(TWO)
    await worker.push("no: such key", keep_canary=True)
    version, canary, error = await worker.report()
    assert (version, canary) == (1, 2)
    assert "unknown key" in error


async def test_keys_come_with_the_look(worker: Worker) -> None:
    from tests.unit.serve.test_key_ring import record

    await worker.push(ONE)
    await worker.store.add_key(record("k"))
    await worker.policies.check()
    (report,) = await worker.store.workers()
    assert (report.keys, report.keys_stamp) == (1, await worker.store.key_stamp())
