"""What the tests of this folder share. Nothing that grpcio or asyncio has to complain of goes unseen."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.store.node import Valkey
from tests.wire.processes import Folder, folder


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A test during which a library logged a warning has failed."""
    yield
    said = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
    assert said == []


@pytest.fixture
async def here() -> AsyncIterator[Folder]:
    """A folder for processes, and the end of them."""
    with folder() as made:
        yield made


@pytest.fixture
async def node() -> AsyncIterator[Valkey]:
    """A running Valkey without a policy."""
    node = Valkey()
    try:
        await node.start()
        yield node
    finally:
        node.remove()
