"""A codec and a client in memory: ngh2's own client role, or bytes written by hand."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ngh2

from seawall.rpc.codec import Codec, Limits
from seawall.rpc.contract import Status
from seawall.rpc.events import Closed, Event, HalfClosed, Message, Opened
from seawall.rpc.framing import framed
from tests.rpc.frames import ECHO, PREFACE, TALK, WINDOW_UPDATE, Frame, fields, settings, split

MAX_MESSAGE = 100_000
PATHS = frozenset({TALK, ECHO})
React = Callable[[Codec, Event], None]


def limits(**some: Any) -> Limits:
    return Limits(MAX_MESSAGE, **some)


def nothing(codec: Codec, event: Event) -> None:
    """No handler: the test answers itself."""
    if isinstance(event, Closed) and event.status is not None:
        codec.finish(event.stream, event.status, event.message)


def serve(codec: Codec, event: Event) -> None:
    """Echo: a unary call at its half-close, a stream message by message."""
    if isinstance(event, Message):
        codec.send(event.stream, event.data)
    elif isinstance(event, HalfClosed):
        codec.finish(event.stream, Status.OK)
    else:
        nothing(codec, event)


class Raw:
    """Our codec, spoken to with bytes."""

    def __init__(self, react: React = nothing, greeting: bytes = PREFACE + settings(), **some: Any):
        self.codec = Codec(PATHS, limits(**some))
        self.react = react
        self.events: list[Event] = []
        self.got: list[Frame] = []
        self.out = b""
        self.tell(greeting)
        self.greeted = len(self.got)

    def tell(self, data: bytes) -> list[Frame]:
        """One read and the writes it leads to; the frames that the client gets."""
        self._seen(self.codec.receive(data))
        return self.flush()

    def flush(self, amount: int | None = None) -> list[Frame]:
        out = b""
        while some := self.codec.take(amount):
            out += some
            if amount is not None:
                break
        self._seen(self.codec.settle())
        self.out += out
        frames = split(out)
        self.got += frames
        return frames

    def _seen(self, events: Iterable[Event]) -> None:
        for event in events:
            self.events.append(event)
            self.react(self.codec, event)

    def said(self, *kinds: int) -> list[tuple[int, int]]:
        """(kind, error code) of frames that came after the greeting."""
        return [(f.kind, f.code) for f in self.got[self.greeted :] if f.kind in kinds]

    def given(self, stream: int) -> int:
        """What the client was given back of a window."""
        ours = [f for f in self.got if f.kind == WINDOW_UPDATE and f.stream == stream]
        return sum(int.from_bytes(f.payload, "big") for f in ours)


class Answer:
    """What one call has got back."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.trailers: dict[bytes, bytes] = {}
        self.reset: int | None = None

    @property
    def messages(self) -> list[bytes]:
        found, rest = [], self.body
        while rest:
            size = int.from_bytes(rest[1:5], "big")
            assert rest[0] == 0
            assert len(rest) >= 5 + size
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found

    @property
    def status(self) -> int | None:
        text = (self.headers | self.trailers).get(b"grpc-status")
        return None if text is None else int(text)

    @property
    def message(self) -> bytes:
        return (self.headers | self.trailers).get(b"grpc-message", b"")

    def as_told(self) -> tuple[Any, ...]:
        return self.headers, self.body, self.trailers, self.reset


class Client:
    """ngh2's client role. What it has to say waits in `say`; what it hears is kept in `answers`."""

    def __init__(self, **some: int):
        self.http = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self.http.initiate_connection({ngh2.Setting[name]: value for name, value in some.items()})
        self.answers: dict[int, Answer] = {}
        self.goaways: list[tuple[int, int]] = []
        self.closed: list[int] = []

    def open(self, path: str = TALK, *more: tuple[bytes, bytes], end: bool = False) -> int:
        sid = self.http.send_request(fields(path, *more), end_stream=end)
        self.answers[sid] = Answer()
        return sid

    def send(self, sid: int, *messages: bytes, end: bool = False) -> None:
        self.http.send_data(sid, b"".join(map(framed, messages)), end_stream=end)

    def call(self, message: bytes, path: str = ECHO, *more: tuple[bytes, bytes]) -> int:
        sid = self.open(path, *more)
        self.send(sid, message, end=True)
        return sid

    def hear(self, data: bytes) -> None:
        self.http.receive_data(data)
        for event in self.http.events():
            if isinstance(event, ngh2.ResponseReceived):
                self.answers[event.stream_id].headers = dict(event.headers)
            elif isinstance(event, ngh2.DataReceived):
                self.answers[event.stream_id].body += event.data
            elif isinstance(event, ngh2.TrailersReceived):
                self.answers[event.stream_id].trailers = dict(event.headers)
            elif isinstance(event, ngh2.StreamReset):
                self.answers[event.stream_id].reset = event.error_code
            elif isinstance(event, ngh2.StreamClosed):
                self.closed.append(event.stream_id)
            elif isinstance(event, ngh2.GoAwayReceived):
                self.goaways.append((event.last_stream_id, event.error_code))


class Pair:
    """A client and our codec, joined."""

    def __init__(self, react: React = nothing, client: Client | None = None, **some: Any):
        self.client = client or Client()
        self.codec = Codec(PATHS, limits(**some))
        self.react = react
        self.events: list[Event] = []
        self.pump()

    def pump(self) -> list[Event]:
        """Carry bytes both ways until both are silent; the events of this time."""
        before = len(self.events)
        while True:
            asked = self.client.http.data_to_send()
            if asked:
                self.seen(self.codec.receive(asked))
            told = self.codec.take()
            self.seen(self.codec.settle())
            if told:
                self.client.hear(told)
            if not asked and not told:
                return self.events[before:]

    def seen(self, events: Sequence[Event]) -> None:
        for event in events:
            self.events.append(event)
            self.react(self.codec, event)

    def open(self, *arguments: Any, **options: Any) -> int:
        """Open a call and let it arrive."""
        sid = self.client.open(*arguments, **options)
        assert any(isinstance(e, Opened) and e.stream == sid for e in self.pump())
        return sid


def works(pair: Pair) -> bool:
    """A call of the same connection is served."""
    sid = pair.client.call(b"still", TALK)
    pair.pump()
    return pair.client.answers[sid].messages == [b"still"]
