"""What the tests of this folder share: a look at what libraries complain of."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A test during which a library logged a warning has failed."""
    yield
    said = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
    assert said == []
