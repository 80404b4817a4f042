"""A simulated engine on a real socket, and the clients that talk to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import openai
import pytest

from seawall.sim.app import serving
from seawall.sim.engine import Settings


class Sim:
    """One running engine: its URL, its control endpoints, and waiting for a state of it."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def state(self) -> dict[str, Any]:
        async with self.http.get(f"{self.url}/sim/state") as response:
            state: dict[str, Any] = await response.json()
            return state

    async def metric(self, name: str) -> float:
        async with self.http.get(f"{self.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    async def fault(self, **fault: Any) -> None:
        async with self.http.put(f"{self.url}/sim/faults", json=fault) as response:
            assert response.status == 200, await response.text()

    async def until(self, **wanted: int) -> dict[str, Any]:
        """Poll, for at most some ten seconds, until the state has these values."""
        for _ in range(1000):
            state = await self.state()
            if all(state[name] == value for name, value in wanted.items()):
                return state
            await asyncio.sleep(0.01)
        raise AssertionError(f"never {wanted}, last {state}")


StartSim = Callable[..., Awaitable[Sim]]


@pytest.fixture
async def start() -> AsyncIterator[StartSim]:
    """Start engines; service times are zero where a test does not say otherwise."""
    contexts = []
    async with aiohttp.ClientSession() as http:

        async def start(**settings: Any) -> Sim:
            context = serving(Settings(**{"ttft": 0.0, "tpot": 0.0} | settings))
            url = await context.__aenter__()
            contexts.append(context)
            return Sim(url, http)

        yield start
        for context in contexts:
            await context.__aexit__(None, None, None)


@pytest.fixture
async def sim(start: StartSim) -> Sim:
    return await start()


@pytest.fixture
async def client(sim: Sim) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key="none", max_retries=0) as client:
        yield client
