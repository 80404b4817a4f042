"""Counts are exact whatever the number of processes: never one more than the limit, never one less."""

import asyncio
import sys
import time
from pathlib import Path

import pytest

from seawall.limits.charge import Demand
from seawall.limits.window import window_start
from seawall.store import open_store
from tests.store.contender import WINDOWS
from tests.store.forms import Form

pytestmark = pytest.mark.store

CONTENDER = Path(__file__).with_name("contender.py")
PROCESSES, TASKS = 4, 50


@pytest.fixture(params=["unix", "cluster", "sentinel"])
def named(request: pytest.FixtureRequest) -> Form:
    form: Form = request.getfixturevalue(request.param)
    return form


@pytest.fixture
async def form(named: Form) -> Form:
    await named.flush()
    return named


async def contend(form: Form, *args: str) -> list[int]:
    """Run the contender in each process; what each says it was granted."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(CONTENDER), form.url, str(n), str(TASKS), *args, stdout=asyncio.subprocess.PIPE
        )
        for n in range(PROCESSES)
    ]
    outputs = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES
    return [int(out) for out, _ in outputs]


async def test_200_tasks_in_4_processes_admit_exactly_a_limit_of_1000_a_day(form: Form) -> None:
    day = window_start(time.time(), 86400)
    granted = await contend(form, "charge", str(day), "1000")
    assert sum(granted) == 1000


async def test_200_tasks_in_4_processes_take_exactly_the_slots_there_are(form: Form) -> None:
    granted = await contend(form, "acquire", "0", "37")
    assert sum(granted) == 37


@pytest.mark.parametrize("what", sorted(WINDOWS))
async def test_each_algorithm_admits_exactly_the_limit(form: Form, what: str) -> None:
    """Several windows on one counter too: what is refused is charged in none of them."""
    assert sum(await contend(form, what, "0", "700")) == 700
    store = open_store(form.url, owner="looker", timeout=20)
    await store.start()
    [outcome] = await store.charge_all([Demand(b"race", WINDOWS[what](700), 0)])
    await store.close()
    assert [reading.used for reading in outcome.readings] == [700] * len(WINDOWS[what](700))
