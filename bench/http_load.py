"""Chat requests through an Envoy: a fixed number, some at once, over HTTP/1.1 connections that are kept.

    python -m bench.http_load PORT --n REQUESTS -c CONNECTIONS [--stream] [--warm REQUESTS]

Once warm it prints "ready" and waits for a line; then it runs and prints one JSON object.
"""

import argparse
import asyncio
import json
import sys
import time
from typing import Any, cast

import uvloop

KEY = "sk-bench"
PATIENCE = 60.0


def request(stream: bool) -> bytes:
    """One chat request, byte by byte the same each time."""
    text = "You are a helpful assistant. Answer shortly and name your sources. " * 6
    document = {
        "model": "bench",
        # For the simulator, which takes 5 ms for each.
        "max_tokens": 100 if stream else 1,
        "messages": [{"role": "system", "content": text}, {"role": "user", "content": "How high is the Zugspitze?"}],
        **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
    }
    body = json.dumps(document, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: llm.example\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {KEY}\r\nuser-agent: OpenAI/Python 1.50\r\naccept: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


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
    """What all connections share: how many requests are still to be sent, and what came back."""

    def __init__(self, total: int, flight: int):
        self.left = total
        self.open = flight
        self.good = 0
        self.events = 0
        self.wrong: dict[int, int] = {}
        self.took: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, request: bytes):
        self.request = request
        self.run: Run | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def begin(self, run: Run) -> None:
        """Take part in a run."""
        self.run = run
        self._next(run)

    def _next(self, run: Run) -> None:
        if run.left:
            run.left -= 1
            self.reader = Reader()
            self.began = time.perf_counter()
            self.transport.write(self.request)
            return
        self.run = None
        run.open -= 1
        if not run.open:
            run.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        run = self.run
        if run is None or not self.reader.over(data):
            return
        if self.reader.status == 200:
            run.good += 1
            run.events += self.reader.events
            run.took.append(time.perf_counter() - self.began)
        else:
            run.wrong[self.reader.status] = run.wrong.get(self.reader.status, 0) + 1
        self._next(run)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.run is not None and not self.run.done.done():
            self.run.done.set_exception(ConnectionError("Envoy has closed a connection"))


async def load(options: argparse.Namespace) -> dict[str, Any]:
    """Warm up, wait for the word, run."""
    loop = asyncio.get_running_loop()
    said = request(options.stream)
    connections = [
        (await loop.create_connection(lambda: Connection(said), "127.0.0.1", options.port))[1] for _ in range(options.c)
    ]

    async def run(total: int) -> Run:
        made = Run(total, len(connections))
        for connection in connections:
            connection.begin(made)
        async with asyncio.timeout(PATIENCE):
            await made.done
        return made

    await run(options.warm)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    done = await run(options.n)
    took = sorted(done.took)
    return {
        "good": done.good,
        "wrong": done.wrong,
        "events": done.events,
        "p50_us": round(took[len(took) // 2] * 1e6) if took else 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("-c", type=int, default=8)
    parser.add_argument("--warm", type=int, default=100)
    parser.add_argument("--stream", action="store_true")
    print(json.dumps(uvloop.run(load(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
