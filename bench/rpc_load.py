"""The load of bench/peers/load in Python, for machines without Go: calls in flight over one connection, on ngh2.

python -m bench.rpc_load -socket PATH -mode unary|stream -n OPS -c IN_FLIGHT -k MESSAGES -warm OPS
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import ngh2
import uvloop

from bench.noop import EXT_PROC, RATELIMIT
from seawall.proto.gen import ext_proc_pb2, ratelimit_pb2
from seawall.rpc.framing import framed

USERS = 1000
MOST = 1 << 20
CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"llama-3-70b",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}\n\n'
)
HEADERS = {
    ":method": "POST",
    ":path": "/v1/chat/completions",
    ":authority": "llm.example",
    ":scheme": "http",
    "content-type": "application/json",
    "authorization": "Bearer sk-0123456789abcdef",
    "user-agent": "OpenAI/Python 1.50",
    "x-request-id": "5b0f3f3e-6a38-4b2c-9a51-6a2f6d2f7a11",
    "content-length": "4096",
}


def fields(path: str) -> list[tuple[bytes, bytes]]:
    """Header fields of a call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]


def limit_request(user: int) -> bytes:
    """A call with two descriptors."""
    request = ratelimit_pb2.RateLimitRequest(domain="llm", hits_addend=1)
    request.descriptors.add().entries.add(key="user", value=f"user-{user}")
    request.descriptors.add().entries.add(key="model", value="llama-3-70b")
    return framed(request.SerializeToString())


def process_requests() -> tuple[bytes, bytes]:
    """The headers of a request, and one piece of an answer."""
    headers, piece = ext_proc_pb2.ProcessingRequest(), ext_proc_pb2.ProcessingRequest()
    for name, value in HEADERS.items():
        headers.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    piece.response_body.body = CHUNK
    return framed(headers.SerializeToString()), framed(piece.SerializeToString())


class _Call:
    __slots__ = ("began", "buffer", "left", "ok")

    def __init__(self, left: int):
        self.buffer = b""
        """Bytes of an answer that is not whole yet."""
        self.left = left
        """Messages still to be sent."""
        self.ok = False
        self.began = time.perf_counter()


class Client(asyncio.Protocol):
    """Keeps `flight` operations going until `total` are done."""

    def __init__(self, mode: str, flight: int, messages: int):
        self.unary = mode == "unary"
        self.flight = flight
        self.messages = messages
        self.http = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self.http.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: MOST})
        self.http.set_local_window_size(1 << 30)
        self.calls: dict[int, _Call] = {}
        self.fields = fields(f"/{RATELIMIT}/ShouldRateLimit" if self.unary else f"/{EXT_PROC}/Process")
        self.limits = [limit_request(user) for user in range(USERS)]
        self.headers, self.piece = process_requests()
        self.took: list[float] = []
        self.started = self.total = self.ended = 0
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    async def run(self, total: int) -> list[float]:
        """Seconds of each operation that went well."""
        self.took, self.started, self.ended, self.total = [], 0, 0, total
        if total:
            self.done = asyncio.get_running_loop().create_future()
            for _ in range(min(self.flight, total)):
                self._begin()
            self._write()
            await self.done
        return self.took

    def _begin(self) -> None:
        sid = self.http.send_request(self.fields)
        self.calls[sid] = _Call(0 if self.unary else self.messages)
        if self.unary:
            self.http.send_data(sid, self.limits[self.started % USERS], end_stream=True)
        else:
            self.http.send_data(sid, self.headers)
        self.started += 1

    def _write(self) -> None:
        if out := self.http.data_to_send():
            self.transport.write(out)

    def data_received(self, data: bytes) -> None:
        self.http.receive_data(data)
        for event in self.http.events():
            if isinstance(event, ngh2.DataReceived):
                self._data(event.stream_id, event.data)
            elif isinstance(event, ngh2.TrailersReceived):
                self.calls[event.stream_id].ok = (b"grpc-status", b"0") in event.headers
            elif isinstance(event, ngh2.StreamClosed):
                self._over(event.stream_id)
        self._write()

    def _data(self, sid: int, data: bytes) -> None:
        call = self.calls[sid]
        if self.unary:
            return
        buffer = call.buffer + data
        while len(buffer) >= 5 and len(buffer) >= (size := 5 + int.from_bytes(buffer[1:5], "big")):
            buffer = buffer[size:]
            # In lock step, as tokens go.
            if call.left:
                call.left -= 1
                self.http.send_data(sid, self.piece)
            else:
                self.http.end_stream(sid)
        call.buffer = buffer

    def _over(self, sid: int) -> None:
        call = self.calls.pop(sid)
        self.ended += 1
        if call.ok and not call.left:
            self.took.append(time.perf_counter() - call.began)
        if self.started < self.total:
            self._begin()
        elif self.ended == self.total and self.done is not None:
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(ConnectionError("the server has closed the connection"))


async def load(options: argparse.Namespace) -> dict[str, Any]:
    """Warm up, wait for the word, run."""
    loop = asyncio.get_running_loop()
    make: Callable[[], Client] = lambda: Client(options.mode, options.c, options.k)  # noqa: E731
    transport, client = await loop.create_unix_connection(make, options.socket)
    await client.run(options.warm)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    took = sorted(await client.run(options.n))
    client.done = None
    transport.close()
    p50 = took[len(took) // 2] * 1e6 if took else 0.0
    return {"ops": len(took), "want": options.n, "p50_us": round(p50)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-socket", required=True)
    parser.add_argument("-mode", choices=("unary", "stream"), default="unary")
    for name, default in (("n", 1000), ("c", 32), ("k", 0), ("warm", 0)):
        parser.add_argument(f"-{name}", type=int, default=default)
    print(json.dumps(uvloop.run(load(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
