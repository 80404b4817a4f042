"""What holds for any split of a conversation, and for any conversation that is none."""

import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.rpc.codec import PUBLIC_RESETS, Codec
from seawall.rpc.contract import Status
from seawall.rpc.events import Closed, Event, HalfClosed, Message, Opened
from tests.rpc.frames import CANCEL, CONTINUATION, ECHO, TALK, WINDOW_UPDATE, cuts, frame, opening, rst
from tests.rpc.peer import PATHS, Client, Pair, Raw, limits, serve

Script = list[Callable[[Client], object]]
"""Steps of a client; streams are known by their numbers, 1, 3, 5 and so on."""


def interleaved(streams: int, messages: int, size: int) -> Script:
    """Streams that talk in turns."""
    steps: Script = [lambda c: c.open() for _ in range(streams)]
    for n in range(messages):
        steps += [lambda c, sid=sid, n=n: c.send(sid, b"%d" % n * size, b"") for sid in range(1, 2 * streams, 2)]
    return steps + [lambda c, sid=sid: c.http.end_stream(sid) for sid in range(1, 2 * streams, 2)]


SCRIPTS: dict[str, Script] = {
    "one unary call": [lambda c: c.call(b"ping")],
    "unary calls at once": [lambda c: [c.call(b"%d" % n, (ECHO, TALK)[n % 2]) for n in range(20)]],
    "streams in turns": interleaved(5, 6, 10),
    "beyond the windows": interleaved(3, 4, 9_000),
    "many ways to end": [
        lambda c: c.open(),
        lambda c: c.open("/test.Tiny/Nothing"),
        lambda c: c.open(TALK, (b"grpc-timeout", b"x")),
        lambda c: c.send(1, b"m"),
        lambda c: c.http.send_data(1, b"\1\0\0\0\0"),
        lambda c: c.open(end=True),
        lambda c: c.call(b"x" * 100_000),
        lambda c: (c.open(), c.http.send_data(11, b"\0\0"), c.http.end_stream(11)),
        lambda c: (c.open(), c.send(13, b"last"), c.http.send_trailers(13, [(b"x", b"y")])),
        lambda c: c.http.ping(b"12345678"),
        lambda c: [c.http.end_stream(sid) for sid in (1, 3, 5)],
    ],
}
RESETS: Script = [
    lambda c: [c.open() for _ in range(4)],
    lambda c: c.send(1, b"one", b"two"),
    lambda c: c.http.reset_stream(1, CANCEL),
    lambda c: c.send(3, b"x", end=True),
    lambda c: c.http.reset_stream(3, CANCEL),
    lambda c: (c.send(5, b"x"), c.http.reset_stream(5, CANCEL)),
    lambda c: c.send(7, b"beside", end=True),
]


def recorded(script: Script) -> bytes:
    """What a client says in this conversation, all of it."""
    pair = Pair(serve)
    said: list[bytes] = []
    whole = Client()
    pair.client = whole
    pair.codec = Codec(PATHS, limits())
    for step in [lambda _: None, *script, lambda c: c.http.set_local_window_size(1 << 30)]:
        step(whole)
        while True:
            asked = whole.http.data_to_send()
            said.append(asked)
            pair.seen(pair.codec.receive(asked))
            told = pair.codec.take()
            pair.seen(pair.codec.settle())
            if told:
                whole.hear(told)
            if not asked and not told:
                break
    return b"".join(said)


def heard(script: Script, out: bytes) -> dict[int, tuple[object, ...]]:
    """What the client of this conversation reads in our bytes."""
    client = Client(INITIAL_WINDOW_SIZE=1 << 20)
    client.http.set_local_window_size(1 << 20)
    for step in script:
        step(client)
        client.http.data_to_send()
    client.hear(out)
    return {sid: answer.as_told() for sid, answer in client.answers.items()}


def replay(said: bytes, places: list[int]) -> Raw:
    raw = Raw(serve, greeting=b"")
    for start, end in zip([0, *places], [*places, len(said)], strict=True):
        raw.tell(said[start:end])
    return raw


RECORDED = {name: recorded(script) for name, script in SCRIPTS.items()}
BEFORE = {name: replay(said, []) for name, said in RECORDED.items()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_byte_by_byte(name: str) -> None:
    """The least of reads gives what one read gives."""
    said = RECORDED[name]
    raw = replay(said, list(range(1, len(said))) if len(said) < 20_000 else list(range(1, len(said), 17)))
    assert raw.events == BEFORE[name].events
    assert heard(SCRIPTS[name], raw.out) == heard(SCRIPTS[name], BEFORE[name].out)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SCRIPTS)), st.data())
def test_any_split(name: str, draw: st.DataObject) -> None:
    """The same events in the same order, and the same answers."""
    said = RECORDED[name]
    places = sorted(draw.draw(st.lists(st.integers(0, len(said)), max_size=12)))
    raw = replay(said, places)
    assert raw.events == BEFORE[name].events
    assert heard(SCRIPTS[name], raw.out) == heard(SCRIPTS[name], BEFORE[name].out)
    assert raw.codec.streams == 0


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_split_with_resets(draw: st.DataObject) -> None:
    """A reset takes back what it meets, so answers differ; messages, ends and the streams beside do not."""
    said = recorded(RESETS)
    whole = replay(said, [])
    raw = replay(said, sorted(draw.draw(st.lists(st.integers(0, len(said)), max_size=12))))

    def told(events: list[Event]) -> list[Event]:
        answered = {event.stream for event in events if isinstance(event, HalfClosed)}
        return [event for event in events if not (isinstance(event, Closed) and event.stream in answered)]

    assert told(raw.events) == told(whole.events)
    assert heard(RESETS, raw.out)[7] == heard(RESETS, whole.out)[7]
    assert raw.codec.streams == 0


class Restless:
    """Handlers that do anything at any time; it holds what the codec owes them."""

    def __init__(self, draw: random.Random):
        self._draw = draw
        self.open: dict[int, bool] = {}
        """Streams, and whether they have half-closed."""

    def __call__(self, codec: Codec, event: Event) -> None:
        sid = event.stream
        if isinstance(event, Opened):
            assert sid not in self.open
            self.open[sid] = False
        elif isinstance(event, Message):
            assert self.open[sid] is False
        elif isinstance(event, HalfClosed):
            assert self.open[sid] is False
            self.open[sid] = True
        else:
            assert sid in self.open
            del self.open[sid]
            if event.status is not None:
                codec.finish(sid, event.status, event.message)
        stream = self._draw.choice([sid, self._draw.choice([*self.open, 1, 3, 99])])
        self._draw.choice(ACTS)(codec, stream)


ACTS: list[Callable[[Codec, int], object]] = [
    lambda codec, sid: codec.answer(sid, b"answer"),
    lambda codec, sid: codec.send(sid, b"message" * 100),
    lambda codec, sid: codec.send(sid, bytes(50_000)),
    lambda codec, sid: codec.finish(sid, Status.OK),
    lambda codec, sid: codec.finish(sid, Status.INTERNAL, "größer\n"),
    lambda codec, sid: codec.pause(sid),
    lambda codec, sid: codec.resume(sid),
    lambda codec, sid: codec.queued(sid),
    lambda codec, sid: codec.settle,
    lambda codec, sid: None,
]


def spoilt(draw: random.Random, said: bytes) -> bytes:
    """The same conversation after some accidents to its frames and bytes."""
    parts = [said[:24], *(said[24 + a : 24 + b] for a, b in cuts(said[24:]))]
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(parts))
        accident = draw.randrange(8)
        part = bytearray(parts[at])
        if accident == 0 and part:
            part[draw.randrange(len(part))] ^= 1 << draw.randrange(8)
        elif accident == 1 and part:
            part[draw.randrange(min(9, len(part)))] = draw.randrange(256)
        elif accident == 2:
            part = part[: draw.randrange(len(part) + 1)]
        elif accident == 3:
            part = part * 2
        elif accident == 4:
            part.clear()
        elif accident == 5:
            other = draw.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
            continue
        elif accident == 6:
            kind, sid = draw.randrange(12), draw.choice([0, 1, 2, 3, 5, 99])
            part += frame(kind, draw.randrange(256), sid, draw.randbytes(draw.choice([0, 1, 4, 5, 6, 8, 30])))
        else:
            sid = draw.choice([1, 3, 5, 7, 99])
            part += draw.choice(
                [
                    rst(sid),
                    opening(sid, flags=draw.choice([0, 1])),
                    frame(WINDOW_UPDATE, 0, sid, draw.randbytes(4)),
                    frame(CONTINUATION, 4, sid, b""),
                    frame(0, draw.choice([0, 1, 8]), sid, draw.randbytes(30)),
                ]
            )
        parts[at] = bytes(part)
    return b"".join(parts)


def survive(seed: int) -> None:
    """One spoilt conversation, cut anywhere, with handlers that do anything: nothing raises, nothing is left."""
    draw = random.Random(seed)
    restless = Restless(draw)
    said = spoilt(draw, RECORDED[draw.choice(sorted(SCRIPTS))])
    codec = Codec(PATHS, limits(max_streams=draw.choice([2, 100]), resets=PUBLIC_RESETS, max_metadata=4096))
    try:
        at = 0
        while at < len(said):
            size = draw.choice([1, 10, 100, 1000, 100_000])
            for event in codec.receive(said[at : at + size]):
                restless(codec, event)
            at += size
            if draw.random() < 0.9:
                codec.take(draw.choice([None, 1, 9, 1000]))
                for event in codec.settle():
                    restless(codec, event)
            if draw.random() < 0.02:
                codec.drain()
        streams = codec._streams.values()
        assert sum(len(chunk) for stream in streams for chunk in stream.chunks) <= len(said)
        assert sum(stream.held for stream in streams) <= len(said)
        for event in codec.lost():
            restless(codec, event)
        assert codec.streams == 0
        assert codec.receive(said) == []
        codec.take()
        codec.drain()
        assert codec.settle() == []
    except BaseException as e:
        e.add_note(f"survive({seed})")
        raise


def test_spoilt_conversations() -> None:
    """2,000 of them, and no memory is kept of any."""
    for seed in range(100):
        survive(seed)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for seed in range(2_000):
            survive(seed)
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000
    assert peak - before < 10_000_000


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_spoilt_conversations() -> None:
    """The same, for longer."""
    for seed in range(2_000, 200_000):
        survive(seed)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes(chunks: list[bytes]) -> None:
    """Bytes of no protocol, after the greeting of a good client or without one."""
    for greeting in (b"", RECORDED["one unary call"][:80]):
        raw = Raw(serve, greeting=greeting)
        for chunk in chunks:
            raw.tell(chunk)
        raw.codec.lost()
        assert raw.codec.streams == 0
