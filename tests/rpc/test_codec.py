"""Conversations with the codec: calls, streams, and requests that are refused."""

import ngh2
import pytest

from seawall.rpc.contract import Status
from seawall.rpc.events import Closed, Event, HalfClosed, Message, Opened
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    ECHO,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    REFUSED_STREAM,
    RST_STREAM,
    TALK,
    block,
    data,
    fields,
    frame,
    opening,
    split,
)
from tests.rpc.peer import MAX_MESSAGE, Answer, Pair, Raw, serve, works

HEAD = {b":status": b"200", b"content-type": b"application/grpc"}


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_unary_call() -> None:
    """One message in, one out, status OK, and nothing left."""
    pair = Pair(lambda codec, e: codec.answer(e.stream, b"pong") if isinstance(e, HalfClosed) else None)
    sid = pair.client.call(b"ping", ECHO, (b"x-tenant", b"a"), (b"grpc-timeout", b"250m"))
    opened, message, half_closed = pair.pump()
    assert opened == Opened(sid, ECHO, opened.metadata, 0.25)  # type: ignore[union-attr]
    assert opened.metadata["x-tenant"] == "a"  # type: ignore[union-attr]
    assert [message, half_closed] == [Message(sid, b"ping"), HalfClosed(sid)]
    answer = pair.client.answers[sid]
    assert answer.headers == HEAD
    assert answer.messages == [b"pong"]
    assert answer.trailers == {b"grpc-status": b"0"}
    assert pair.client.closed == [sid]
    assert pair.codec.streams == 0


def test_a_call_without_a_timeout() -> None:
    """It has none."""
    pair = Pair()
    pair.client.open(end=True)
    opened, half_closed = pair.pump()
    assert isinstance(opened, Opened)
    assert opened.timeout is None
    assert half_closed == HalfClosed(opened.stream)


def test_a_stream() -> None:
    """Messages both ways in their order, then the status that it ends with."""
    pair = Pair(serve)
    sid = pair.open()
    sent = [b"%d" % n * n for n in range(50)]
    for message in sent:
        pair.client.send(sid, message)
        pair.pump()
    pair.client.http.end_stream(sid)
    pair.pump()
    answer = pair.client.answers[sid]
    assert (answer.headers, answer.messages, answer.trailers) == (HEAD, sent, {b"grpc-status": b"0"})
    assert pair.codec.streams == 0


def test_an_answer_before_any_message() -> None:
    """A stream may be spoken to as soon as it is open."""
    pair = Pair()
    sid = pair.open()
    pair.codec.send(sid, b"hello")
    pair.pump()
    assert pair.client.answers[sid].messages == [b"hello"]


@pytest.mark.parametrize("sent", [0, 2])
def test_finish(sent: int) -> None:
    """Status and text come by trailers, or by trailers alone where nothing was sent; later words are dropped."""
    pair = Pair()
    sid = pair.open()
    for _ in range(sent):
        pair.codec.send(sid, b"m")
    pair.codec.finish(sid, Status.UNAVAILABLE, "vorüber")
    pair.codec.send(sid, b"late")
    pair.codec.finish(sid, Status.OK)
    pair.codec.answer(sid, b"late")
    pair.pump()
    end = {b"grpc-status": b"14", b"grpc-message": b"vor%C3%BCber"}
    answer = pair.client.answers[sid]
    assert answer.messages == [b"m"] * sent
    assert (answer.headers, answer.trailers) == ((HEAD, end) if sent else (HEAD | end, {}))


CUTS = {
    "many messages in one DATA": [framed(b"a") + framed(b"") + framed(b"ccc")],
    "one message over many DATA": [bytes([byte]) for byte in framed(b"abcdef")],
    "prefix and message apart": [framed(b"ab")[:5], framed(b"ab")[5:]],
    "one and a half": [framed(b"aa") + framed(b"bb")[:6], framed(b"bb")[6:] + framed(b"")],
    "empty messages": [framed(b""), framed(b"")],
    "DATA of length 0": [b"", framed(b"a")[:3], b"", framed(b"a")[3:], b""],
    "nothing": [],
}


@pytest.mark.parametrize("chunks", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("end", ["in the last", "in a DATA of its own", "trailers"])
def test_messages_and_frames(chunks: list[bytes], end: str) -> None:
    """Messages do not care for DATA frames, and any frame may end the request."""
    raw = Raw()
    raw.tell(opening(1))
    last = chunks and end == "in the last"
    for n, chunk in enumerate(chunks):
        raw.tell(data(1, chunk, END_STREAM if last and n == len(chunks) - 1 else 0))
    if end == "trailers":
        raw.tell(frame(HEADERS, END_HEADERS | END_STREAM, 1, block([(b"x-trailer", b"1")])))
    elif not last:
        raw.tell(data(1, b"", END_STREAM))
    whole = b"".join(chunks)
    expected: list[Event] = []
    while whole:
        size = int.from_bytes(whole[1:5], "big")
        expected.append(Message(1, whole[5 : 5 + size]))
        whole = whole[5 + size :]
    assert raw.events[1:] == [*expected, HalfClosed(1)]


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (fields("/test.Tiny/Nothing"), {b"grpc-status": b"12", b"grpc-accept-encoding": b"identity"}),
        (fields("/"), {b"grpc-status": b"12"}),
        (fields(TALK, (b"grpc-encoding", b"gzip")), {b"grpc-status": b"12", b"grpc-accept-encoding": b"identity"}),
        (fields(TALK, (b"grpc-timeout", b"soon")), {b"grpc-status": b"3", b"grpc-message": b"malformed grpc-timeout"}),
        ([(b":method", b"GET"), *fields()[1:]], {b":status": b"405"}),
        ([*fields()[:-1], (b"content-type", b"application/json")], {b":status": b"415"}),
        (fields()[:-1], {b":status": b"415"}),
    ],
    ids=["unknown method", "no method", "gzip", "timeout", "GET", "JSON", "no content type"],
)
def test_requests_that_are_none(request_: list[tuple[bytes, bytes]], answer: dict[bytes, bytes], end: bool) -> None:
    """They are answered by headers alone, without an event, and the connection goes on."""
    pair = Pair(serve)
    sid = pair.client.http.send_request(request_, end_stream=end)
    pair.client.answers[sid] = Answer()
    assert pair.pump() == []
    got = pair.client.answers[sid]
    assert got.headers.items() >= answer.items()
    assert (b":status", b"200") in got.headers.items() or b"grpc-status" not in got.headers
    assert (got.body, got.trailers, got.reset) == (b"", {}, None)
    if not end:
        pair.client.send(sid, b"not heard", end=True)
        assert pair.pump() == []
    assert pair.codec.streams == 0
    assert works(pair)


@pytest.mark.parametrize(
    ("chunk", "status"),
    [
        (b"\1\0\0\0\1x", Status.UNIMPLEMENTED),
        (b"\7\0\0\0\1x", Status.INTERNAL),
        (b"\0" + (MAX_MESSAGE + 1).to_bytes(4, "big"), Status.RESOURCE_EXHAUSTED),
        (b"\0\xff\xff\xff\xff", Status.RESOURCE_EXHAUSTED),
    ],
    ids=["compressed", "unknown flags", "too large by one", "4 GiB"],
)
def test_messages_that_are_none(chunk: bytes, status: Status) -> None:
    """They end their call at their prefix, before their bytes have come; the handler is told, once."""
    pair = Pair(serve)
    sid = pair.open()
    pair.client.send(sid, b"good")
    pair.pump()
    pair.client.http.send_data(sid, chunk)
    (closed,) = pair.pump()
    assert isinstance(closed, Closed)
    assert (closed.stream, closed.status) == (sid, status)
    answer = pair.client.answers[sid]
    assert (answer.messages, answer.status) == ([b"good"], status)
    assert (b"grpc-accept-encoding" in answer.trailers) == (status is Status.UNIMPLEMENTED)
    pair.client.http.send_data(sid, b"x" * 1000, end_stream=True)
    assert pair.pump() == []
    assert pair.codec.streams == 0
    assert works(pair)


def test_the_largest_message() -> None:
    """A message of exactly the limit passes."""
    pair = Pair(serve)
    sid = pair.client.call(bytes(MAX_MESSAGE), TALK)
    pair.pump()
    assert pair.client.answers[sid].messages == [bytes(MAX_MESSAGE)]


def test_half_a_message_of_a_finished_call() -> None:
    """It is not kept."""
    pair = Pair()
    sid = pair.open()
    pair.client.http.send_data(sid, framed(bytes(50_000))[:-1])
    pair.pump()
    assert sum(map(len, pair.codec._streams[sid].chunks)) == 50_004
    pair.codec.finish(sid, Status.UNAVAILABLE)
    assert not pair.codec._streams[sid].chunks


@pytest.mark.parametrize("rest", [1, 4, 5, 7])
def test_a_request_that_ends_inside_a_message(rest: int) -> None:
    """It is INTERNAL and the handler is told of the end; messages before count."""
    raw = Raw()
    raw.tell(opening(1))
    raw.tell(data(1, framed(b"good") + framed(b"bad")[:rest], END_STREAM))
    assert raw.events[1:] == [
        Message(1, b"good"),
        Closed(1, Status.INTERNAL, "the request ended inside a message"),
    ]
    assert raw.codec.streams == 0


def test_metadata_over_the_limit() -> None:
    """That call is RESOURCE_EXHAUSTED; others of the connection are not touched."""
    pair = Pair(serve, max_metadata=4096)
    beside = pair.open()
    sid = pair.client.open(TALK, (b"x-large", b"v" * 4096))
    assert pair.pump() == []
    assert pair.client.answers[sid].status == Status.RESOURCE_EXHAUSTED
    pair.client.send(beside, b"after")
    pair.pump()
    assert pair.client.answers[beside].messages == [b"after"]
    assert works(pair)


def test_many_fields_within_the_limit() -> None:
    """Their number alone is no reason."""
    pair = Pair(serve)
    pair.open(TALK, *[(b"x-%d" % n, b"") for n in range(1500)])
    assert works(pair)


def test_metadata_far_over_the_limit() -> None:
    """That is an attack: the connection ends with ENHANCE_YOUR_CALM, its calls are told."""
    pair = Pair(serve, max_metadata=4096)
    sid = pair.open()
    pair.client.open(TALK, (b"x-large", b"v" * 4096 * 5))
    assert pair.pump() == [Closed(sid)]
    assert pair.codec.failed
    assert pair.client.goaways == [(sid, ngh2.ErrorCode.ENHANCE_YOUR_CALM)]


def test_streams_over_the_limit() -> None:
    """The server says how many; one more, from a client that has not heard it, is REFUSED_STREAM: safe to retry."""
    raw = Raw(serve, max_streams=3)
    raw.tell(b"".join(opening(sid) for sid in (1, 3, 5, 7)))
    assert [event.stream for event in raw.events] == [1, 3, 5]
    assert [(f.stream, f.code) for f in raw.got if f.kind == RST_STREAM] == [(7, REFUSED_STREAM)]
    raw.tell(data(1, b"", END_STREAM) + opening(9))
    assert raw.events[3:] == [HalfClosed(1)]  # the read was over before the answer was out
    raw.tell(opening(11))
    assert raw.events[4:] == [Opened(11, TALK, raw.events[4].metadata, None)]  # type: ignore[union-attr]
    assert not raw.codec.failed


def test_a_client_that_waits_for_its_turn() -> None:
    """A client that heeds the limit gets all its calls through."""
    pair = Pair(serve, max_streams=3)
    calls = [pair.client.call(b"%d" % n, TALK) for n in range(20)]
    pair.pump()
    assert [pair.client.answers[sid].messages for sid in calls] == [[b"%d" % n] for n in range(20)]


def test_the_greeting() -> None:
    """SETTINGS say what a client must know, before it has said anything."""
    raw = Raw(greeting=b"", max_streams=7, stream_window=70_000, connection_window=80_000, max_metadata=9_000)
    (first, second) = split(raw.out)
    assert first.payload == bytes.fromhex("000400011170 000300000007 000600002328")
    assert second.payload == (80_000 - 65_535).to_bytes(4, "big")
