"""Windows: what a client may send, what waits for it, and that nothing of either is lost."""

import pytest

from seawall.rpc.codec import SURPLUS
from seawall.rpc.contract import Status
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    CANCEL,
    END_STREAM,
    NO_ERROR,
    TALK,
    data,
    opening,
)
from tests.rpc.peer import MAX_MESSAGE, Client, Pair, Raw, serve

HEAD = {b":status": b"200", b"content-type": b"application/grpc"}


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
