"""Clients of a gate that is being broken: answers that are held until the test lets them go, and short questions."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx

from tests.e2e.running_gate import RunningGate, until

ASKERS = 4
"""Clients that ask for short answers all the while: no kill can cost more than one request of each."""


class Crowd:
    """Streams that the engines hold after their first chunks until they are let go, and how each of them ended."""

    def __init__(self, gate: RunningGate, client: httpx.AsyncClient, count: int):
        self.gate = gate
        self.client = client
        self.seen: Counter[str] = Counter()
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self._stream()) for _ in range(count)]

    async def _stream(self) -> None:
        sent = {"model": self.gate.model, "stream": True, "max_tokens": 20, "ignore_eos": True}
        sent["messages"] = [{"role": "user", "content": "hold"}]
        url, headers = f"{self.gate.base}/v1/chat/completions", self.gate.headers("vip")
        lines: list[str] = []
        try:
            async with self.client.stream("POST", url, json=sent, headers=headers) as response:
                assert response.status_code == 200
                async for line in response.aiter_lines():
                    lines += [line] if line else []
        except httpx.HTTPError:
            self.seen["cut"] += 1
            return
        assert lines[-1] == "data: [DONE]", lines[-1]
        assert sum(1 for line in lines if '"content"' in line) >= 20
        self.seen["whole"] += 1

    async def become(self, **counts: int) -> None:
        """Wait until so many have ended so; no other may."""
        async with asyncio.timeout(60):
            while self.seen != counts:
                assert all(n <= counts.get(end, 0) for end, n in self.seen.items()), self.seen
                await asyncio.sleep(0.02)

    async def some_cut(self) -> int:
        """Wait until some streams are cut and all others, and no more, hold a slot; how many have been cut.

        Envoy keeps a connection that it cuts open for a second (`delayed_close_timeout`).
        """

        def settled() -> int:
            cut = self.seen["cut"]
            return cut if self.gate.in_flight() == len(self.tasks) - cut else 0

        return int(await asyncio.to_thread(until, settled, "some are cut, the others hold slots", 60))

    async def held(self, count: int, what: str) -> None:
        await asyncio.to_thread(until, lambda: self.gate.in_flight() == count, what, 60)


@asynccontextmanager
async def asking(gate: RunningGate, client: httpx.AsyncClient) -> AsyncIterator[Counter[str]]:
    """Ask for short answers while the block runs; counts of "200", or of status and code of the error."""
    stop = asyncio.Event()
    seen: Counter[str] = Counter()
    sent = {"model": gate.model, "max_tokens": 3, "messages": [{"role": "user", "content": "short"}]}

    async def ask() -> None:
        while not stop.is_set():
            answer = await client.post(f"{gate.base}/v1/chat/completions", json=sent, headers=gate.headers("standard"))
            if answer.status_code == 200:
                seen["200"] += 1
            else:
                # Whatever fails is told as JSON, with a time to come back.
                assert int(answer.headers["retry-after"]) >= 1
                seen[f"{answer.status_code} {json.loads(answer.text)['error']['code']}"] += 1

    tasks = [asyncio.get_running_loop().create_task(ask()) for _ in range(ASKERS)]
    await until_seen(seen, 20)
    yield seen
    await until_seen(seen, seen["200"] + 20)
    stop.set()
    await asyncio.gather(*tasks)


async def until_seen(seen: Counter[str], good: int) -> None:
    async with asyncio.timeout(60):
        while seen["200"] < good:
            await asyncio.sleep(0.02)


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=100))


def reachable(gate: RunningGate, index: int) -> bool:
    """Whether an engine answers."""
    try:
        return bool(gate.engine(index))
    except httpx.HTTPError:
        return False
