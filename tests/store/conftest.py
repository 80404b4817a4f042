"""The one table of stores: every behaviour test runs over each row."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from seawall.store.address import parse
from seawall.store.contract import Store
from seawall.store.memory import MemoryStore, Shared
from seawall.store.redis import RedisStore
from tests.store.forms import Cluster, Form, Secured, Sentinel, Single
from tests.store.node import Valkey

PATIENT = 5.0  # seconds; a busy machine must not fail a test that is not about time-outs


class World:
    """Stores of several owners over one state, and a clock that moves when told."""

    def __init__(self, form: Form | None) -> None:
        self.form = form
        self.passed = 0.0
        self._shared = Shared()
        self._stores: list[Store] = []

    async def open(self, owner: str = "worker-1") -> Store:
        store: Store
        if self.form is None:
            store = MemoryStore(owner=owner, shared=self._shared, clock=lambda: time.time() + self.passed)
        else:
            store = RedisStore(
                parse(self.form.url),
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
        if self.form is None:
            self._stores[0].put_inbox(text)  # type: ignore[attr-defined]
        else:
            assert await self.form.ask("SET", "sw:{policy}:inbox", text.encode("utf-8", "surrogateescape")) == b"+OK"

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


def started(form: Form) -> Iterator[Form]:
    asyncio.run(form.start())
    yield form
    form.remove()


@pytest.fixture(scope="session")
def unix() -> Iterator[Form]:
    yield from started(Single(tcp=False))


@pytest.fixture(scope="session")
def tcp() -> Iterator[Form]:
    yield from started(Single(tcp=True))


@pytest.fixture(scope="session")
def tls() -> Iterator[Form]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make certificates with")
    yield from started(Secured())


@pytest.fixture(scope="session")
def cluster() -> Iterator[Form]:
    yield from started(Cluster())


@pytest.fixture(scope="session")
def sentinel() -> Iterator[Form]:
    yield from started(Sentinel())


@pytest.fixture
async def node() -> AsyncIterator[Valkey]:
    """A node of a test's own, to be killed."""
    node = Valkey(tcp=True)
    await node.start()
    yield node
    node.remove()


@pytest.fixture
def shared_node(unix: Form) -> Valkey:
    return unix.nodes[0]


FORMS = ["unix", "tcp", "tls", "cluster", "sentinel"]


@pytest.fixture(params=["memory", *[pytest.param(form, marks=pytest.mark.store) for form in FORMS]])
def row(request: pytest.FixtureRequest) -> Any:
    """The row of the table: a form of Redis to stand on, or None for memory."""
    return None if request.param == "memory" else request.getfixturevalue(request.param)


@pytest.fixture
async def world(row: Form | None) -> AsyncIterator[World]:
    if row is not None:
        await row.flush()
    world = World(row)
    yield world
    await world.close()


@pytest.fixture
async def store(world: World) -> Store:
    return await world.open()
