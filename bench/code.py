"""What our own code costs without a transport: handlers called with what Envoy once sent (bench/recorded.json).

Yardstick is `json.loads` of the same request's body, 4 KB, measured in the same slices.
"""

import asyncio
import cProfile
import gc
import json
import pstats
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice, product
from typing import Any

import uvloop

from bench.inside import services
from bench.realistic import CLASSES, TENANTS, chat, key, policy_text
from bench.record import recorded
from bench.tables import Goal, Say, Table, turns
from seawall.proto.gen import ext_authz_pb2, ext_proc_pb2, ratelimit_pb2
from seawall.rpc.contract import Call, CloseReason, RpcService, Status, StreamHandler

JSON = "json.loads"
TITLE = "Own code, without transport; each call or message"
SCENARIOS = {
    "check": "Check",
    "limit": "ShouldRateLimit, two descriptors with limits",
    "headers": "ext_proc: open, request headers",
    "body": "ext_proc: request body of 4 KB",
    "answer": "ext_proc: response headers",
    "chunk": "ext_proc: chunk",
    "chunk-null": 'ext_proc: chunk with "usage":null',
    "end": "ext_proc: last chunks, end, record, log line",
}
GOALS = [
    Goal(TITLE, SCENARIOS["check"], JSON, 3.3),
    Goal(TITLE, SCENARIOS["limit"], JSON, 2.2),
    Goal(TITLE, SCENARIOS["chunk"], JSON, 0.9),
    Goal(TITLE, SCENARIOS["chunk-null"], JSON, 0.9),
]
SLICES = 20
"""Turns of every row in a round."""
SLICE = 0.005
"""Seconds of CPU that a row takes in a turn, about."""
MOST = 256
"""Operations of a slice: streams that a busy worker has at once, and no more."""
SETTLE = 0.001
CALL = Call("", {}, None)

Timed = Callable[[], None]
Prepared = Callable[[int], Timed]
"""Takes how many operations are to be timed, does what goes before them, and gives what is to be timed."""


class Sink:
    """Takes what a stream answers."""

    def __init__(self) -> None:
        self.last = b""

    def send(self, message: bytes) -> None:
        self.last = message

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        raise SystemExit(f"a stream was ended by its handler: {status.name} {message}")


def finished(work: bytes | Awaitable[Any] | None) -> Any:
    """What a handler gives: at once, or by a coroutine that waits for nothing (the store is in memory)."""
    if work is None or isinstance(work, bytes):
        return work
    if isinstance(work, asyncio.Future):
        return work.result()
    try:
        work.send(None)  # type: ignore[attr-defined]
    except StopIteration as e:
        return e.value
    raise SystemExit("a handler waits, and there is nothing to wait for")


def unary(service: RpcService, messages: Sequence[bytes]) -> Prepared:
    """Calls of the one method of a service, with each message in turn."""
    (handler,) = service.unary.values()

    def prepared(n: int) -> Timed:
        asked = list(islice(cycle(messages), n))

        def timed() -> None:
            for message in asked:
                finished(handler(message, CALL))

        return timed

    return prepared


def checks(message: bytes) -> list[bytes]:
    """The same call from every key, each with a request id of its own: nobody sends one message over and over."""
    made = []
    for number, (tenant, key_number) in enumerate(product(TENANTS, range(2))):
        request = ext_authz_pb2.CheckRequest.FromString(message)
        headers = request.attributes.request.http.headers
        headers["authorization"] = f"Bearer {key(tenant, key_number)}"
        headers["x-request-id"] = f"{number:08x}{headers['x-request-id'][8:]}"
        made.append(request.SerializeToString())
    return made


def limits(message: bytes) -> list[bytes]:
    """The same call for every tenant and class."""
    made = []
    for tenant, class_ in product(TENANTS, CLASSES):
        values = {"tenant": tenant, "class": class_}
        request = ratelimit_pb2.RateLimitRequest.FromString(message)
        for descriptor in request.descriptors:
            for entry in descriptor.entries:
                # The last descriptor tells the version of the policy.
                entry.value = values.get(entry.key, entry.value)
        made.append(request.SerializeToString())
    return made


@dataclass(frozen=True, slots=True)
class Stages:
    """Messages of one stream, by what they are."""

    headers: bytes
    body: bytes
    answer: bytes
    chunk: bytes
    last: Sequence[bytes]
    rid: bytes

    @classmethod
    def of(cls, messages: Sequence[bytes]) -> "Stages":
        first = ext_proc_pb2.ProcessingRequest.FromString(messages[0])
        ((_, space),) = first.metadata_context.filter_metadata.items()
        return cls(*messages[:3], messages[5], messages[-2:], space.fields["rid"].string_value.encode())

    def headers_of(self, number: int) -> bytes:
        """The headers of another request: a rid of its own, since one that is there already would share a slot."""
        return self.headers.replace(self.rid, b"%016x" % number)

    def null(self) -> bytes:
        """The chunk as engines write it that name `usage` in each."""
        request = ext_proc_pb2.ProcessingRequest.FromString(self.chunk)
        body = request.response_body.body
        request.response_body.body = body.replace(b"}\n\n", b',"usage":null}\n\n')
        return request.SerializeToString()


class Streams:
    """Streams of ext_proc, each brought to where a message is to be measured."""

    def __init__(self, service: RpcService, stages: Stages):
        (self._open,) = service.streams.values()
        self._stages = stages
        self._numbers = count()
        self._running: list[StreamHandler] = []
        self.sink = Sink()

    def _begin(self, n: int) -> list[bytes]:
        """End the streams of the last slice, and give headers for new ones."""
        for stream in self._running:
            stream.closed(CloseReason.DONE)
        self._running = []
        return [self._stages.headers_of(number) for number in islice(self._numbers, n)]

    def _at(self, n: int, *messages: bytes) -> list[StreamHandler]:
        for headers in self._begin(n):
            stream = self._open(CALL, self.sink)
            for message in (headers, *messages):
                finished(stream.message(message))
            self._running.append(stream)
        return self._running

    def opening(self, n: int) -> Timed:
        """Open, and take the request's headers."""
        first, running = self._begin(n), self._running

        def timed() -> None:
            for headers in first:
                stream = self._open(CALL, self.sink)
                finished(stream.message(headers))
                running.append(stream)

        return timed

    def body(self, n: int) -> Timed:
        """Take the body and a slot."""
        return self._one(self._at(n), self._stages.body)

    def answer(self, n: int) -> Timed:
        """Take the headers of the answer."""
        return self._one(self._at(n, self._stages.body), self._stages.answer)

    def chunk(self, message: bytes) -> Prepared:
        """Take pieces of the answer, some streams in turn."""

        def prepared(n: int) -> Timed:
            streams = self._at(16, self._stages.body, self._stages.answer)

            def timed() -> None:
                for _ in range(n // 16):
                    for stream in streams:
                        finished(stream.message(message))

            return timed

        return prepared

    def end(self, n: int) -> Timed:
        """Take the last pieces, with the usage, and the end."""
        streams = self._at(n, self._stages.body, self._stages.answer, self._stages.chunk)
        # Told once: what begins the next slice must not end them again.
        self._running = []

        def timed() -> None:
            for stream in streams:
                for message in self._stages.last:
                    finished(stream.message(message))
                stream.closed(CloseReason.DONE)

        return timed

    @staticmethod
    def _one(streams: Sequence[StreamHandler], message: bytes) -> Timed:
        def timed() -> None:
            for stream in streams:
                finished(stream.message(message))

        return timed


def yardstick(n: int) -> Timed:
    """Parse the body as anybody would."""
    body = chat()

    def timed() -> None:
        for _ in range(n):
            json.loads(body)

    return timed


def rows(own: dict[str, RpcService], loud: dict[str, RpcService]) -> dict[str, Prepared]:
    """What is measured, by scenario. `loud` writes the log line of each request; else that would end up in others."""
    messages = recorded()
    stages = Stages.of(messages["process"])
    streams, ending = Streams(own["ext_proc"], stages), Streams(loud["ext_proc"], stages)
    return {
        "check": unary(own["ext_authz"], checks(messages["check"][0])),
        "limit": unary(own["ratelimit"], limits(messages["limit"][0])),
        "headers": streams.opening,
        "body": streams.body,
        "answer": streams.answer,
        "chunk": streams.chunk(stages.chunk),
        "chunk-null": streams.chunk(stages.null()),
        "end": ending.end,
    }


class Timer:
    """Times a row in slices of about the same CPU."""

    def __init__(self, prepared: Prepared):
        self._prepared = prepared
        self.n = 16

    def calibrate(self) -> None:
        """Choose how many operations make a slice."""
        while self.n < MOST and (each := self.slice()) * self.n < SLICE / 2:
            self.n = min(MOST, max(self.n + 16, int(SLICE / each) // 16 * 16))

    def slice(self) -> float:
        """Seconds of CPU of each operation, with what the log's thread does for it."""
        timed = self._prepared(self.n)
        before = time.process_time()
        timed()
        # The writer of the log has its turn.
        time.sleep(SETTLE)  # noqa: TID251 - nothing else runs here
        return (time.process_time() - before) / self.n


def run(rounds: int, only: Sequence[str], say: Say, *, profiled: bool = False, slices: int = SLICES) -> list[Table]:
    """Measure all rows in turns, and give the table; `profiled` says by function where the time went."""

    async def measured() -> Table:
        async with services(policy_text(), log_level="error") as own, services(policy_text()) as loud:
            wanted = {SCENARIOS[name]: prepared for name, prepared in rows(own, loud).items() if name in only}
            timers = {JSON: Timer(yardstick), **{title: Timer(prepared) for title, prepared in wanted.items()}}
            # As a worker does once it is ready.
            gc.collect()
            gc.freeze()
            for timer in timers.values():
                timer.calibrate()
            found: dict[str, list[float]] = {title: [] for title in timers}
            for round_ in range(rounds):
                used = dict.fromkeys(timers, 0.0)
                for slice_ in range(slices):
                    for title in turns(list(timers), round_ + slice_):
                        used[title] += timers[title].slice()
                for title, seconds in used.items():
                    found[title].append(seconds * 1e6 / slices)
            if profiled:
                for title, prepared in wanted.items():
                    say(profile(title, prepared, timers[title].n * 10))
            return Table(TITLE, found, [JSON])

    table = uvloop.run(measured())
    say(table.markdown())
    return [table]


def profile(title: str, prepared: Prepared, n: int) -> str:
    """Functions by their own time, with cProfile: what calls cost is exaggerated, so only the order counts."""
    timed = prepared(n)
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(timed)
    stats: Any = pstats.Stats(profiler)
    lines = [f"### {title}: where the time goes, {n} operations", ""]
    whole = stats.total_tt
    for (file, line, name), (_, calls, own, below, _) in sorted(stats.stats.items(), key=lambda item: -item[1][2])[:22]:
        place = f"{'/'.join(file.split('/')[-2:])}:{line} {name}" if line else name
        lines.append(f"{own / whole:6.1%} {own * 1e6 / n:7.2f} µs {below * 1e6 / n:7.2f} µs {calls / n:6.1f} × {place}")
    return "\n".join(lines) + "\n"
