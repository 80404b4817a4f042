"""A node that is gone, hangs, forgets its scripts, or says no."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from seawall.store import open_control, open_store
from seawall.store.address import parse
from seawall.store.breaker import Rule
from seawall.store.contract import Charge, Slot, Store, StoreUnavailable, WorkerReport
from seawall.store.redis import RedisStore
from tests.store.asking import HIT, failure, until, works
from tests.store.node import Valkey

pytestmark = pytest.mark.store

QUICK = 0.25


@pytest.fixture
async def opened(node: Valkey) -> AsyncIterator[Callable[[float], Awaitable[Store]]]:
    stores: list[Store] = []

    async def open_it(timeout: float) -> Store:
        store = open_store(node.url, owner="worker-1", timeout=timeout)
        stores.append(store)
        await store.start()
        return store

    yield open_it
    for store in stores:
        await store.close()


async def test_forgotten_scripts_are_loaded_again_unseen(node: Valkey, opened: Callable[..., Awaitable[Store]]) -> None:
    store = await opened(5)
    assert list(await store.charge(HIT)) == [1]
    await node.ask("SCRIPT", "FLUSH")
    futures = [store.charge(HIT) for _ in range(300)]
    assert [(await future)[0] for future in futures] == list(range(2, 302))
    await node.ask("SCRIPT", "FLUSH")
    taken = store.acquire("big", "r1", 1, 30)
    store.release("big", "r1")
    again = store.acquire("big", "r2", 1, 30)
    assert [await taken, await again] == [Slot(True, 1), Slot(True, 1)]
    await node.ask("SCRIPT", "FLUSH")
    assert await store.push("text", digest="d", author="ann", reason="", needs="0.1") == 1


async def test_what_is_pending_fails_when_the_node_dies_and_all_works_again_after(
    node: Valkey, opened: Callable[..., Awaitable[Store]]
) -> None:
    store = await opened(60)
    assert store.healthy
    assert await works(store) == [1]
    await node.ask("CONFIG", "SET", "appendfsync", "always")
    await works(store)
    node.signal(signal.SIGSTOP)
    pending = [store.charge(HIT) for _ in range(10)] + [store.acquire("big", "r1", 1, 30)]
    await asyncio.wait(pending, timeout=0.02)
    node.kill()
    async with asyncio.timeout(20):  # a third of the time-out: the loss itself fails them
        assert {await failure(answer) for answer in pending} <= {
            "connection lost",
            "connection lost (ConnectionResetError)",
        }
        assert not store.healthy
        assert "not connected" in await failure(store.charge(HIT))
        store.release("big", "r1")
        with pytest.raises(StoreUnavailable):
            await store.current()
        await store.wait_change(0.01)
    await node.start()
    assert await works(store) == [3]
    assert store.healthy
    assert await store.current() is None


async def test_a_node_that_hangs_costs_its_time_out_once(node: Valkey, opened: Callable[..., Awaitable[Store]]) -> None:
    store = await opened(QUICK)
    await works(store)
    node.signal(signal.SIGSTOP)
    try:
        assert await failure(store.charge(HIT)) == "timed out"
        answers = [store.charge(HIT) for _ in range(1000)]
        assert all(answer.done() for answer in answers)  # type: ignore[attr-defined]
        assert not store.healthy
        assert "timed out" in store.trouble
    finally:
        node.signal(signal.SIGCONT)
    await works(store)
    await until(lambda: store.healthy)


async def test_a_start_without_a_node_does_not_raise(node: Valkey, opened: Callable[..., Awaitable[Store]]) -> None:
    node.kill()
    store = await opened(QUICK)
    assert not store.healthy
    assert "ConnectionRefusedError" in await failure(store.charge(HIT))
    await node.start()
    await until(lambda: store.healthy)
    assert list(await store.charge(HIT)) == [1]


async def test_an_error_of_the_node_is_told_by_its_kind_and_opens_the_breaker(node: Valkey) -> None:
    store = RedisStore(parse(node.url), owner="w", timeout=5, rule=Rule(failures=2, first=1000, longest=1000))
    await store.start()
    try:
        await node.ask("REPLICAOF", "127.0.0.1", "1")
        assert await failure(store.charge(HIT)) == "replied READONLY"
        # The connection is made anew: behind the same name there may be another master by now.
        assert store.trouble == "not connected (replied READONLY)"
        await until(lambda: "not connected" not in store.trouble)
        assert await failure(store.acquire("big", "r1", 1, 30)) == "replied READONLY"
        await until(lambda: "not connected" not in store.trouble)
        assert "breaker open" in await failure(store.charge(HIT))
        assert not store.healthy
        with pytest.raises(StoreUnavailable, match="replied READONLY"):
            await store.report(WorkerReport("w", 1, "h", 0, 0.0, "", "0.1"))
    finally:
        await store.close()


async def test_a_name_that_leads_to_another_master_by_now_is_followed(node: Valkey, tmp_path: Path) -> None:
    """As behind a DNS name or a virtual address: the old master lives on as a replica, and its connections do too."""
    other, name = Valkey(tcp=True), tmp_path / "s"
    await other.start()
    name.symlink_to(node.socket)
    store = RedisStore(parse(f"unix://{name}"), owner="w", timeout=5)
    await store.start()
    try:
        assert await works(store) == [1]
        assert await store.push("one", digest="1", author="ann", reason="", needs="0.1") == 1
        await node.ask("REPLICAOF", "127.0.0.1", str(other.port))
        name.unlink()
        name.symlink_to(other.socket)
        await other.ask("SET", "sw:{policy}:current", "7")
        assert await works(store) == [1]
        with suppress(StoreUnavailable):  # it told that it is a replica, and is left
            await store.report(WorkerReport("w", 1, "h", 0, 0.0, "", "0.1"))
        assert (await store.report(WorkerReport("w", 1, "h", 0, 0.0, "", "0.1"))).current == 7
    finally:
        await store.close()
        other.remove()


async def test_the_breaker_closes_after_a_probe(node: Valkey) -> None:
    store = RedisStore(parse(node.url), owner="w", timeout=5, rule=Rule(failures=1, first=0.01, longest=0.01))
    await store.start()
    try:
        await node.ask("CONFIG", "SET", "maxmemory", "1")
        assert await failure(store.charge(HIT)) == "replied OOM"
        await until(lambda: store.healthy)
        assert await failure(store.charge(HIT)) == "replied OOM"
        await node.ask("CONFIG", "SET", "maxmemory", "0")
        assert await works(store) == [1]
        assert store.trouble == ""
    finally:
        await store.close()


async def test_one_spoilt_counter_fails_alone(node: Valkey, opened: Callable[..., Awaitable[Store]]) -> None:
    store = await opened(5)
    await node.ask("SET", f"sw:{{c:{b'spoilt'.hex()}}}", "x")
    for _ in range(5):
        assert await failure(store.charge([Charge(b"spoilt", 600, 60, 1)])) == "replied WRONGTYPE"
    assert store.healthy
    assert list(await store.charge(HIT)) == [1]


async def test_a_version_that_someone_wrote_over_is_no_version(node: Valkey) -> None:
    control = open_control(node.url)
    await node.ask("SET", "sw:{policy}:current", "x")
    assert "no number" in await failure(control.current())
    await node.ask("DEL", "sw:{policy}:current")
    await node.ask("LPUSH", "sw:{policy}:current", "x")
    assert await failure(control.current()) == "replied WRONGTYPE"
    await control.close()


async def test_a_wait_that_is_cancelled_spoils_no_later_one(node: Valkey) -> None:
    control = open_control(node.url)
    await control.wait_change(0.01)
    waiting = asyncio.ensure_future(control.wait_change(1000))
    await asyncio.wait([waiting], timeout=0.05)
    waiting.cancel()
    await asyncio.wait([waiting])
    await control.push("text", digest="d", author="ann", reason="", needs="0.1")
    async with asyncio.timeout(20):
        await control.wait_change(1000)
    assert await control.current() == 1
    await control.close()


async def test_counts_survive_a_kill_of_the_node(node: Valkey, opened: Callable[..., Awaitable[Store]]) -> None:
    await node.ask("CONFIG", "SET", "appendfsync", "always")
    store = await opened(5)
    await store.charge([Charge(b"fault", 600, 60, 41)])
    await store.push("text", digest="d", author="ann", reason="", needs="0.1")
    node.kill()
    await node.start()
    assert await works(store) == [42]
    assert await store.current() == 1


async def test_close_fails_what_is_pending(node: Valkey, opened: Callable[..., Awaitable[Store]]) -> None:
    store = await opened(60)
    node.signal(signal.SIGSTOP)
    pending = store.charge(HIT)
    await store.close()
    assert await failure(pending) == "closed"
    assert "closed" in await failure(store.charge(HIT))
    node.signal(signal.SIGCONT)


async def test_passwords_open_the_node_and_appear_nowhere() -> None:
    node = Valkey("--requirepass", "s3cr3t-pw", tcp=True)
    await node.start()
    try:
        store = open_store(f"redis://:s3cr3t-pw@127.0.0.1:{node.port}/3", owner="w", timeout=5)
        await store.start()
        assert list(await store.charge(HIT)) == [1]
        assert await store.push("text", digest="d", author="ann", reason="", needs="0.1") == 1
        assert "s3cr3t" not in repr(store) + repr(vars(store))
        await store.close()

        wrong = open_store(f"redis://default:not-s3cr3t@127.0.0.1:{node.port}", owner="w", timeout=5)
        await wrong.start()
        told = await failure(wrong.charge(HIT)) + await failure(wrong.current())
        assert "WRONGPASS" in told
        assert "s3cr3t" not in told
        await wrong.close()

        none = open_store(node.url, owner="w", timeout=5)
        await none.start()
        assert "NOAUTH" in await failure(none.charge(HIT))
        await none.close()
    finally:
        node.remove()


async def test_control_alone_needs_no_data_path(node: Valkey) -> None:
    control = open_control(node.url)
    await control.start()
    assert await control.push("text", digest="d", author="ann", reason="", needs="0.1") == 1
    assert await control.holders("big") == 0
    assert list(await control.workers()) == []
    await control.close()
    clients = await node.ask("CLIENT", "LIST")
    assert clients.startswith(b"$")
