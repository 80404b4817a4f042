"""One gate for the tests that leave it as they found it."""

from collections.abc import Iterator

import pytest

from tests.e2e.running_gate import DEMO, RunningGate, running


@pytest.fixture(scope="session")
def shared_gate() -> Iterator[RunningGate]:
    with running("--workers", "2") as gate:
        yield gate


@pytest.fixture
def gate(shared_gate: RunningGate) -> RunningGate:
    """The shared gate with the demo policy in force and healthy engines."""
    shared_gate.fault()
    if shared_gate.policy not in {None, DEMO}:
        shared_gate.push(DEMO)
    return shared_gate
