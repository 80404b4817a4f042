"""Conversations with the codec: calls and streams, refusals, flow control, drain."""

from collections.abc import Callable

import ngh2
import pytest

from seawall.rpc.codec import SURPLUS, Closed, Codec, Event, HalfClosed, Message, Opened
from seawall.rpc.contract import Status
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    CANCEL,
    ECHO,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    REFUSED_STREAM,
    RST_STREAM,
    TALK,
    block,
    data,
    fields,
    frame,
    opening,
    rst,
    split,
)
from tests.rpc.peer import MAX_MESSAGE, Answer, Client, Pair, Raw, serve

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
    assert _works(pair)


def _works(pair: Pair) -> bool:
    """A call of the same connection is served."""
    sid = pair.client.call(b"still", TALK)
    pair.pump()
    return pair.client.answers[sid].messages == [b"still"]


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
    assert _works(pair)


def test_the_largest_message() -> None:
    """A message of exactly the limit passes."""
    pair = Pair(serve)
    sid = pair.client.call(bytes(MAX_MESSAGE), TALK)
    pair.pump()
    assert pair.client.answers[sid].messages == [bytes(MAX_MESSAGE)]


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
    assert _works(pair)


def test_many_fields_within_the_limit() -> None:
    """Their number alone is no reason."""
    pair = Pair(serve)
    pair.open(TALK, *[(b"x-%d" % n, b"") for n in range(1500)])
    assert _works(pair)


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


WINDOW = 1 << 16


def test_a_paused_call_keeps_its_window() -> None:
    """While paused, a client may send no more than the window; after, it has all of it again."""
    pair = Pair(stream_window=WINDOW, connection_window=1 << 20)
    http = pair.client.http
    sid = pair.open()
    pair.codec.pause(sid)
    pair.client.send(sid, *[bytes(1000)] * 200)
    pair.pump()
    assert http.stream_remote_window_size(sid) == 0
    assert http.remote_window_size == (1 << 20) - WINDOW
    assert http.queued_body_size(sid) == 200 * 1005 - WINDOW
    before = len(pair.events)
    pair.codec.resume(sid)
    pair.pump()
    assert http.queued_body_size(sid) == 0
    assert len(pair.events) - before + (before - 1) == 200
    assert http.stream_remote_window_size(sid) > WINDOW // 2


def test_a_paused_call_does_not_stop_others() -> None:
    """With the limits as they are, hundreds of calls that keep all they may leave room for the one they wait for."""
    pair = Pair(serve)
    one = pair.open()
    for _ in range(300):
        sid = pair.open()
        pair.codec.pause(sid)
        pair.client.http.send_data(sid, b"\0" + MAX_MESSAGE.to_bytes(4, "big"))
        pair.client.http.send_data(sid, bytes(MAX_MESSAGE))
        for _ in range(10):
            pair.client.send(sid, bytes(MAX_MESSAGE))
        pair.pump()
        assert pair.client.http.stream_remote_window_size(sid) == 0
    pair.client.send(one, b"through")
    pair.pump()
    assert pair.client.answers[one].messages == [b"through"]


@pytest.mark.parametrize("end", ["reset", "finish", "half-close"])
def test_no_window_is_lost_with_a_call(end: str) -> None:
    """10,000 calls that end with bytes kept back: the connection's window is as it was."""
    window = 1 << 20
    pair = Pair(stream_window=WINDOW, connection_window=window)
    http = pair.client.http
    for n in range(10_000):
        sid = pair.client.open()
        pair.client.send(sid, bytes(1000))
        pair.pump()
        if n % 2:
            pair.codec.pause(sid)
        pair.client.send(sid, bytes(1000), end=end == "half-close")
        pair.pump()
        if end == "reset":
            http.reset_stream(sid, CANCEL)
        else:
            pair.codec.finish(sid, Status.OK)
            pair.pump()
            if end == "finish":
                http.reset_stream(sid, CANCEL)
        pair.pump()
        del pair.events[:]
    assert pair.codec.streams == 0
    # What is consumed is told when it comes to half the window.
    assert http.remote_window_size > window // 2


def test_a_paused_call_that_is_finished() -> None:
    """Nobody will resume it: its client, which may not have heard, gets its window back."""
    pair = Pair(stream_window=WINDOW)
    sid = pair.open()
    pair.codec.pause(sid)
    pair.client.send(sid, bytes(WINDOW - 5))
    pair.pump()
    assert pair.client.http.stream_remote_window_size(sid) == 0
    pair.codec.finish(sid, Status.UNAVAILABLE)
    pair.pump()
    assert pair.client.http.stream_remote_window_size(sid) == WINDOW


def test_a_client_that_talks_on() -> None:
    """After our answer is out, it is heard for a while, then its stream is reset with NO_ERROR."""
    pair = Pair()
    sid = pair.open()
    pair.codec.finish(sid, Status.RESOURCE_EXHAUSTED)
    for _ in range(SURPLUS // MAX_MESSAGE):
        pair.client.send(sid, bytes(MAX_MESSAGE))
        pair.pump()
    assert pair.client.answers[sid].reset is None
    pair.client.send(sid, bytes(MAX_MESSAGE))
    pair.pump()
    answer = pair.client.answers[sid]
    assert (answer.status, answer.reset) == (Status.RESOURCE_EXHAUSTED, NO_ERROR)
    assert pair.codec.streams == 0


def test_what_waits() -> None:
    """`queued` counts what the client's window or `take` holds back, and knows no stream that is gone."""
    pair = Pair(client=Client(INITIAL_WINDOW_SIZE=1000))
    sid = pair.open()
    assert pair.codec.queued(sid) == 0
    pair.codec.send(sid, bytes(5000))
    assert pair.codec.queued(sid) == 5005
    pair.codec.take()
    assert pair.codec.queued(sid) == 4005
    pair.client.http.reset_stream(sid, CANCEL)
    pair.pump()
    assert pair.codec.queued(sid) == 0
    assert pair.codec.queued(999) == 0


def test_answers_larger_than_the_window() -> None:
    """They go out as the client gives way, and nothing is lost."""
    pair = Pair(serve, client=Client(INITIAL_WINDOW_SIZE=1000))
    sid = pair.client.call(bytes(range(250)) * 400, TALK)
    pair.pump()
    assert pair.client.answers[sid].messages == [bytes(range(250)) * 400]
    assert pair.codec.streams == 0


@pytest.mark.parametrize("amount", [1, 9, 10, 1000])
def test_take_in_pieces(amount: int) -> None:
    """`take` gives no more than it was asked for, and the pieces make the whole."""
    whole, pieces = Raw(serve), Raw(serve)
    asked = b"".join(opening(sid) + data(sid, framed(b"m" * sid), END_STREAM) for sid in range(1, 100, 2))
    whole.tell(asked)
    for event in pieces.codec.receive(asked):
        serve(pieces.codec, event)
    out = b""
    while piece := pieces.codec.take(amount):
        assert len(piece) <= amount
        out += piece
    assert out == whole.out[len(pieces.out) :]


Stale = Callable[[Codec, int], None]


@pytest.mark.parametrize(
    "say",
    [
        lambda codec, sid: codec.answer(sid, b"x"),
        lambda codec, sid: codec.send(sid, b"x"),
        lambda codec, sid: codec.finish(sid, Status.OK),
        lambda codec, sid: codec.finish(sid, Status.INTERNAL, "x"),
        lambda codec, sid: (codec.send(sid, b"x"), codec.finish(sid, Status.OK)),
        lambda codec, sid: (codec.pause(sid), codec.resume(sid)),
        lambda codec, sid: codec.queued(sid),
    ],
    ids=["answer", "send", "finish", "fail", "send and finish", "pause", "queued"],
)
def test_a_reset_in_the_same_read(say: Stale) -> None:
    """An answer to what a later frame of the same read has taken back hurts neither itself nor others."""
    raw = Raw(lambda codec, event: say(codec, event.stream))
    raw.tell(opening(1) + data(1, framed(b"m")) + rst(1) + opening(3) + rst(3))
    assert names(raw.events) == ["Opened", "Message", "Closed", "Opened", "Closed"]
    raw.react = serve
    raw.tell(opening(5) + data(5, framed(b"beside"), END_STREAM))
    assert any(f.stream == 5 and f.payload == framed(b"beside") for f in raw.got)
    assert raw.codec.streams == 0
    assert not raw.codec.failed


def test_a_reset_of_one_of_many() -> None:
    """Every second call is taken back in the read that opens it; the others are answered."""
    raw = Raw(lambda codec, e: codec.answer(e.stream, b"ok") if isinstance(e, HalfClosed) else None)
    calls = range(1, 2001, 2)
    raw.tell(
        b"".join(
            opening(sid, ECHO) + data(sid, framed(b"?"), END_STREAM) + (rst(sid) if sid % 4 == 3 else b"")
            for sid in calls
        )
    )
    answered = {f.stream for f in raw.got if f.payload == framed(b"ok")}
    assert answered == {sid for sid in calls if sid % 4 == 1}
    assert raw.codec.streams == 0


def test_every_end_is_told_at_once() -> None:
    """A stream that nghttp2 resets for us ends for its handler with that write, not with the client's next word."""
    raw = Raw()
    raw.tell(opening(1) + opening(1))
    assert names(raw.events) == ["Opened", "Closed"]
    assert raw.codec.streams == 0


def test_the_end_of_the_connection_is_told_once() -> None:
    """Every call that is not over is closed, and the codec stays silent afterwards."""
    pair = Pair(serve)
    sids = [pair.open() for _ in range(3)]
    pair.codec.finish(sids[0], Status.OK)
    assert pair.codec.lost() == [Closed(sid) for sid in sids[1:]]
    assert pair.codec.lost() == []
    assert pair.codec.receive(opening(9)) == []
    assert pair.codec.settle() == []
    assert pair.codec.streams == 0
    for sid in sids:
        pair.codec.send(sid, b"x")
        pair.codec.finish(sid, Status.OK)
        pair.codec.answer(sid, b"x")


def test_drain() -> None:
    """A notice, then the last stream's number after a round trip; what was on its way by then is served."""
    raw = Raw(serve)
    raw.tell(opening(1))
    raw.codec.drain()
    raw.codec.drain()
    notice = raw.flush()
    assert [(f.kind, f.flags) for f in notice] == [(PING, 0), (GOAWAY, 0)]
    assert notice[1].payload == b"\x7f\xff\xff\xff" + b"\0\0\0\0"
    raw.tell(opening(3))
    # The last one arrives together with the answer to the PING.
    (last,) = [f for f in raw.tell(frame(PING, 1, 0, notice[0].payload) + opening(5)) if f.kind == GOAWAY]
    assert last.payload == b"\0\0\0\5" + b"\0\0\0\0"
    raw.tell(opening(7))
    assert [e.stream for e in raw.events if isinstance(e, Opened)] == [1, 3, 5]
    for sid in (1, 3, 5):
        assert not raw.codec.failed
        raw.tell(data(sid, framed(b"m"), END_STREAM))
    assert sorted(f.stream for f in raw.got if f.payload == framed(b"m")) == [1, 3, 5]
    assert raw.codec.failed
    assert raw.codec.streams == 0


def test_drain_of_a_client_that_does_not_answer() -> None:
    """The shell says when it has waited enough."""
    raw = Raw(serve)
    raw.tell(opening(1))
    raw.codec.drained()
    assert raw.flush() == []
    raw.codec.drain()
    raw.codec.drained()
    raw.codec.drained()
    raw.flush()
    assert [f.payload[:4] for f in raw.got if f.kind == GOAWAY] == [b"\x7f\xff\xff\xff", b"\0\0\0\1"]
    raw.tell(data(1, b"", END_STREAM))
    assert raw.codec.failed


def test_drain_waits_for_the_last_answer() -> None:
    """An answer that waits for the client's window is no reason to go."""
    pair = Pair(serve, client=Client(INITIAL_WINDOW_SIZE=1000))
    calls = [pair.client.call(bytes(20_000), TALK) for _ in range(3)]
    pair.seen(pair.codec.receive(pair.client.http.data_to_send()))
    pair.codec.drain()
    pair.codec.drained()
    pair.client.hear(pair.codec.take())
    assert pair.codec.settle() == []
    assert not pair.codec.failed
    pair.pump()
    assert [pair.client.answers[sid].messages for sid in calls] == [[bytes(20_000)]] * 3
    assert pair.codec.failed


def test_drain_of_an_idle_connection() -> None:
    """It ends by itself once the client has seen the notice."""
    raw = Raw(serve)
    raw.codec.drain()
    raw.flush()
    assert not raw.codec.failed
    raw.tell(frame(PING, 1, 0, bytes(8)))
    assert [f.payload[:4] for f in raw.got if f.kind == GOAWAY] == [b"\x7f\xff\xff\xff", bytes(4)]
    assert raw.codec.failed


def test_a_client_that_says_goodbye() -> None:
    """After its GOAWAY its calls go on; with the last one the connection is done."""
    pair = Pair(serve)
    sid = pair.open()
    pair.client.http.send_goaway(0)
    pair.client.send(sid, b"last", end=True)
    pair.pump()
    assert pair.client.answers[sid].messages == [b"last"]
    assert pair.codec.failed


def test_the_greeting() -> None:
    """SETTINGS say what a client must know, before it has said anything."""
    raw = Raw(greeting=b"", max_streams=7, stream_window=70_000, connection_window=80_000, max_metadata=9_000)
    (first, second) = split(raw.out)
    assert first.payload == bytes.fromhex("000400011170 000300000007 000600002328")
    assert second.payload == (80_000 - 65_535).to_bytes(4, "big")
