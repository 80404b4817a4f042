"""Ends: a reset that meets its answer, a lost connection, a drain."""

from collections.abc import Callable

import pytest

from seawall.rpc.codec import Codec
from seawall.rpc.contract import Status
from seawall.rpc.events import Closed, Event, HalfClosed, Opened
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    ECHO,
    END_STREAM,
    GOAWAY,
    PING,
    TALK,
    data,
    frame,
    opening,
    rst,
)
from tests.rpc.peer import Client, Pair, Raw, serve

HEAD = {b":status": b"200", b"content-type": b"application/grpc"}


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


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
