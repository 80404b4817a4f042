"""Chat requests through an Envoy: a fixed number, over HTTP/1.1 connections that are kept.

    python -m bench.http_load PORT --n REQUESTS -c CONNECTIONS [--rate A_SECOND] [--stream] [--size BYTES] [--warm REQUESTS]

Each connection sends the next request when it has its answer; with --rate requests begin at even distances, whatever
the answers do, and one that finds no free connection has begun to wait.

Once warm it prints "ready" and waits for a line; then it runs and prints one JSON object.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import uvloop

from bench.realistic import HEADERS, SIZE, chat

PATIENCE = 60.0


def request(stream: bool, size: int) -> bytes:
    """One chat request, byte by byte the same each time."""
    # The number of tokens is for the simulator, which takes 5 ms for each.
    body = chat(stream=stream, max_tokens=100 if stream else 1, size=size)
    lines = [f"{name}: {value}\r\n" for name, value in HEADERS.items()]
    head = ["POST /v1/chat/completions HTTP/1.1\r\n", *lines, f"content-length: {len(body)}\r\n\r\n"]
    return "".join(head).encode() + body


class Reader:
    """Sees the end of one answer: by its length, or by its last chunk."""

    def __init__(self) -> None:
        self.head = b""
        self.status = 0
        self.left: int | None = None
        """Bytes of the body that are still to come; None: chunked."""
        self.tail = b""
        self.events = 0

    def over(self, data: bytes) -> bool:
        """Take what was read."""
        if not self.status:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return False
            self.status = int(head[9:12])
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    self.left = int(line.partition(b":")[2])
        self.events += data.count(b"data: ")
        if self.left is None:
            self.tail = (self.tail + data)[-7:]
            return self.tail.endswith(b"\r\n0\r\n\r\n")
        self.left -= len(data)
        return self.left <= 0


class Run:
    """What all connections share: how many requests are still to be sent, and what came back.

    `rate` is how many begin in a second; None: as many as the connections can carry.
    """

    def __init__(self, total: int, connections: Sequence["Connection"], rate: float | None):
        self.left = total
        self.open = total
        self.good = 0
        self.events = 0
        self.wrong: dict[int, int] = {}
        self.took: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._free = list(connections)
        self._waiting: deque[float] = deque()
        """When requests began that found no free connection."""
        self._rate = rate
        self.done: asyncio.Future[None] = self._loop.create_future()

    def begin(self) -> None:
        """Send what is to be sent at once."""
        if self._rate is not None:
            self._began = self._loop.time()
            self._sent = 0
            self._tick()
            return
        free, self._free = self._free[: self.left], []
        for connection in free:
            self.left -= 1
            connection.send(self, time.perf_counter())

    def _tick(self) -> None:
        """One more request; the loop's clock may be a millisecond late, which is no latency of a server."""
        self.left -= 1
        self._sent += 1
        if self._free:
            self._free.pop().send(self, time.perf_counter())
        else:
            self._waiting.append(time.perf_counter())
        if self.left:
            assert self._rate is not None
            self._loop.call_at(self._began + self._sent / self._rate, self._tick)

    def over(self, connection: "Connection") -> None:
        """An answer is there: the connection sends the next request, or is free."""
        self.open -= 1
        if self._waiting:
            connection.send(self, self._waiting.popleft())
        elif self._rate is None and self.left:
            self.left -= 1
            connection.send(self, time.perf_counter())
        else:
            self._free.append(connection)
        if not self.open:
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, request: bytes):
        self.request = request
        self.run: Run | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self, run: Run, began: float) -> None:
        """Send one request that began then (seconds of `perf_counter`)."""
        self.run = run
        self.reader = Reader()
        self.began = began
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        run = self.run
        if run is None or not self.reader.over(data):
            return
        self.run = None
        if self.reader.status == 200:
            run.good += 1
            run.events += self.reader.events
            run.took.append(time.perf_counter() - self.began)
        else:
            run.wrong[self.reader.status] = run.wrong.get(self.reader.status, 0) + 1
        run.over(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.run is not None and not self.run.done.done():
            self.run.done.set_exception(ConnectionError("Envoy has closed a connection"))


async def load(options: argparse.Namespace) -> dict[str, Any]:
    """Warm up, wait for the word, run."""
    loop = asyncio.get_running_loop()
    said = request(options.stream, options.size)
    connections = [
        (await loop.create_connection(lambda: Connection(said), "127.0.0.1", options.port))[1] for _ in range(options.c)
    ]

    async def run(total: int, rate: float | None) -> Run:
        made = Run(total, connections, rate)
        made.begin()
        async with asyncio.timeout(PATIENCE):
            await made.done
        return made

    await run(options.warm, None)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    done = await run(options.n, options.rate)
    took = sorted(done.took)
    told = {f"p{p}_us": round(took[len(took) * p // 100] * 1e6, 1) if took else 0 for p in (50, 99)}
    return {"good": done.good, "wrong": done.wrong, "events": done.events, **told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("-c", type=int, default=8)
    parser.add_argument("--warm", type=int, default=100)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--stream", action="store_true")
    print(json.dumps(uvloop.run(load(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
