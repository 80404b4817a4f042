"""The one table of stores: every behaviour test runs over each row."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from seawall.store.address import parse
from seawall.store.contract import Store
from seawall.store.memory import MemoryStore, Shared
from seawall.store.redis import RedisStore
from tests.store.node import Valkey

PATIENT = 5.0  # seconds; a busy machine must not fail a test that is not about time-outs


class World:
    """Stores of several owners over one state, and a clock that moves when told."""

    def __init__(self, node: Valkey | None) -> None:
        self.node = node
        self.passed = 0.0
        self._shared = Shared()
        self._stores: list[Store] = []

    async def open(self, owner: str = "worker-1") -> Store:
        store: Store
        if self.node is None:
            store = MemoryStore(owner=owner, shared=self._shared, clock=lambda: time.time() + self.passed)
        else:
            store = RedisStore(
                parse(self.node.url),
                owner=owner,
                timeout=PATIENT,
                local_clock=lambda: time.monotonic() + self.passed,
            )
        await store.start()
        self._stores.append(store)
        return store

    def pass_time(self, seconds: float) -> None:
        """Move the clock that leases, windows and reports are counted by."""
        self.passed += seconds

    async def put_inbox(self, text: str) -> None:
        """What a person does with redis-cli."""
        if self.node is None:
            self._stores[0].put_inbox(text)  # type: ignore[attr-defined]
        else:
            assert await self.node.ask("SET", "sw:{policy}:inbox", text.encode("utf-8", "surrogateescape")) == b"+OK"

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


@pytest.fixture(scope="session")
def shared_node() -> Iterator[Valkey]:
    node = Valkey()
    asyncio.run(node.start())
    yield node
    node.remove()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.store)])
def row(request: pytest.FixtureRequest) -> Any:
    """The row of the table: a node to stand on, or None for memory."""
    return None if request.param == "memory" else request.getfixturevalue("shared_node")


@pytest.fixture
async def world(row: Valkey | None) -> AsyncIterator[World]:
    if row is not None:
        await row.ask("FLUSHALL")
    world = World(row)
    yield world
    await world.close()


@pytest.fixture
async def store(world: World) -> Store:
    return await world.open()
