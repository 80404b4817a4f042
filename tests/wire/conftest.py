"""What the tests of this folder share: one event loop, processes, Valkey, and a look at what libraries complain of.

One loop, since grpcio still tells a loop of calls that a test is done with, and a closed one must not be told.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from seawall.rpc.reference import GrpcioServer
from seawall.rpc.server import CodecServer
from tests.store.node import Valkey
from tests.wire import carried
from tests.wire.processes import Folder, folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder on one loop."""
    for item in items:
        if item.path.parent == Path(__file__).parent and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(params=[CodecServer, GrpcioServer], ids=["own", "grpcio"])
def transport(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test over each transport: what a client and a handler see must be the same."""
    carried.transport.kind = request.param
    yield
    carried.transport.kind = CodecServer


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A test during which a library logged a warning has failed."""
    yield
    said = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
    assert said == []


@pytest_asyncio.fixture(loop_scope="session")
async def here() -> AsyncIterator[Folder]:
    """A folder for processes, and the end of them."""
    with folder() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def node() -> AsyncIterator[Valkey]:
    """A running Valkey without a policy."""
    node = Valkey()
    try:
        await node.start()
        yield node
    finally:
        node.remove()
