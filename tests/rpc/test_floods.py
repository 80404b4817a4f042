"""Clients that break RFC 9113, or that keep to it and mean harm: a table of what they say and what they get.

Where nghttp2 answers otherwise than the RFC's first choice, the row says why that is allowed.
"""

from typing import NamedTuple

import pytest

from seawall.rpc.codec import PUBLIC_RESETS
from seawall.rpc.events import Closed, HalfClosed, Message, Opened
from seawall.rpc.framing import framed
from tests.rpc.frames import (
    ACK,
    CANCEL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    ECHO,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    TALK,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    block,
    data,
    fields,
    frame,
    opening,
    rst,
    settings,
    window_update,
)
from tests.rpc.peer import Raw, serve

PLAIN = block(fields())
PONG = frame(PING, ACK, 0, b"12345678")
MOST = (1 << 31) - 1


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in fields() if field[0] != name]


def headers(*some: tuple[bytes, bytes]) -> bytes:
    return frame(HEADERS, END_HEADERS, 1, block(some))


GREETINGS = {
    # The RFC lets GOAWAY be left out here; a client of HTTP/1.1 gets it all the same.
    "no preface": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", PROTOCOL_ERROR),
    "half a preface, then anything": (PREFACE[:16] + b"xxxxxxxxxxxx", PROTOCOL_ERROR),
    "preface without SETTINGS": (PREFACE + frame(PING, 0, 0, bytes(8)), PROTOCOL_ERROR),
    "SETTINGS acknowledgement first": (PREFACE + frame(SETTINGS, ACK), PROTOCOL_ERROR),
}


@pytest.mark.parametrize(("said", "code"), GREETINGS.values(), ids=GREETINGS)
def test_greetings(said: bytes, code: int) -> None:
    """A connection that does not begin as HTTP/2 does ends at once."""
    raw = Raw(greeting=said)
    assert [(f.kind, f.code) for f in raw.got if f.kind == GOAWAY] == [(GOAWAY, code)]
    assert raw.codec.failed
    assert raw.events == []


FATAL = {
    "SETTINGS of odd length": (frame(SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    "SETTINGS acknowledgement with a payload": (frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    "SETTINGS: push of 2": (settings((2, 2)), PROTOCOL_ERROR),
    "SETTINGS: window too large": (settings((4, 1 << 31)), FLOW_CONTROL_ERROR),
    "SETTINGS: frame size too small": (settings((5, 16_383)), PROTOCOL_ERROR),
    "SETTINGS: frame size too large": (settings((5, 1 << 24)), PROTOCOL_ERROR),
    "SETTINGS with too many entries": (settings(*[(0x99, 1)] * 33), ENHANCE_YOUR_CALM),
    "PING of odd length": (frame(PING, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "PING on a stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "GOAWAY on a stream": (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "GOAWAY too short": (frame(GOAWAY, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "window of the connection over 2^31-1": (window_update(0, MOST), FLOW_CONTROL_ERROR),
    "WINDOW_UPDATE of 0, connection": (window_update(0, 0), PROTOCOL_ERROR),
    # The RFC asks for a stream error, and allows to make any such one of the connection (§5.4.2).
    "WINDOW_UPDATE of 0, stream": (window_update(1, 0), PROTOCOL_ERROR),
    "WINDOW_UPDATE too short": (frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    "WINDOW_UPDATE on an idle stream": (window_update(9, 1), PROTOCOL_ERROR),
    "DATA on an idle stream": (data(9, b"x"), PROTOCOL_ERROR),
    "DATA on stream 0": (data(0, b"x"), PROTOCOL_ERROR),
    "DATA after END_STREAM": (data(1, b"", END_STREAM) + data(1, b"x"), STREAM_CLOSED),
    "HEADERS after END_STREAM": (data(1, b"", END_STREAM) + opening(1), STREAM_CLOSED),
    "HEADERS on an even stream": (opening(2), PROTOCOL_ERROR),
    "HEADERS on stream 0": (opening(0), PROTOCOL_ERROR),
    "HEADERS with padding over its length": (frame(HEADERS, END_HEADERS | PADDED, 3, b"\xff" + PLAIN), PROTOCOL_ERROR),
    "HEADERS that HPACK can't read": (frame(HEADERS, END_HEADERS, 3, b"\xff" * 20), COMPRESSION_ERROR),
    "HEADERS that name no field": (frame(HEADERS, END_HEADERS, 3, b"\x80"), COMPRESSION_ERROR),
    "HEADERS cut short": (frame(HEADERS, END_HEADERS, 3, PLAIN[:-1]), COMPRESSION_ERROR),
    "a table larger than allowed": (frame(HEADERS, END_HEADERS, 3, b"\x3f\xe1\xff\x03" + PLAIN), COMPRESSION_ERROR),
    "another frame inside a header block": (frame(HEADERS, 0, 3, PLAIN) + PONG, PROTOCOL_ERROR),
    "another stream inside a header block": (
        frame(HEADERS, 0, 3, PLAIN) + frame(CONTINUATION, END_HEADERS, 5),
        PROTOCOL_ERROR,
    ),
    "CONTINUATION of nothing": (frame(CONTINUATION, END_HEADERS, 1), PROTOCOL_ERROR),
    "CONTINUATION after the end of the headers": (
        opening(3) + frame(CONTINUATION, END_HEADERS, 3, block([(b"x", b"y")])),
        PROTOCOL_ERROR,
    ),
    "RST_STREAM on an idle stream": (rst(9), PROTOCOL_ERROR),
    "RST_STREAM on stream 0": (rst(0), PROTOCOL_ERROR),
    "RST_STREAM too short": (frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    "PRIORITY of odd length": (frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "a push by the client": (frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + PLAIN), PROTOCOL_ERROR),
    "DATA with padding over its length": (data(1, b"\xffxx", PADDED), PROTOCOL_ERROR),
    "a frame over 16,384 bytes": (data(1, bytes(16_385)), FRAME_SIZE_ERROR),
    "a frame of 16 MiB that never comes": (frame(DATA, 0, 1, b"", size=(1 << 24) - 1), FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize(("said", "code"), FATAL.values(), ids=FATAL)
def test_errors_of_the_connection(said: bytes, code: int) -> None:
    """GOAWAY with the RFC's code; the call that was open is told, once, and nothing is taken any more."""
    raw = Raw()
    raw.tell(opening(1))
    raw.tell(said)
    assert raw.said(GOAWAY, RST_STREAM) == [(GOAWAY, code)]
    assert raw.codec.failed
    assert [event for event in raw.events if event == Closed(1)] == [Closed(1)]
    assert raw.codec.streams == 0
    assert raw.tell(opening(11)) == []


SPOILT = {
    "content-length that is not kept": (opening(3, more=[(b"content-length", b"3")]) + data(3, b"12345", END_STREAM)),
    "HEADERS again without END_STREAM": opening(3) + opening(3),
    "trailers with a pseudo-header": opening(3)
    + frame(HEADERS, END_HEADERS | END_STREAM, 3, block([(b":path", TALK.encode())])),
    "upper-case name": opening(3, more=[(b"X-Up", b"1")]),
    "connection": opening(3, more=[(b"connection", b"close")]),
    "transfer-encoding": opening(3, more=[(b"transfer-encoding", b"chunked")]),
    "te that is not trailers": opening(3, more=[(b"te", b"gzip")]),
    "a space in a name": opening(3, more=[(b"a b", b"1")]),
    "a line break in a value": opening(3, more=[(b"a", b"1\r\nb: 2")]),
    "an empty name": opening(3, more=[(b"", b"1")]),
    "unknown pseudo-header": frame(HEADERS, END_HEADERS, 3, block([(b":status", b"200"), *fields()])),
    "no :method": frame(HEADERS, END_HEADERS, 3, block(without(b":method"))),
    "no :path": frame(HEADERS, END_HEADERS, 3, block(without(b":path"))),
    "no :scheme": frame(HEADERS, END_HEADERS, 3, block(without(b":scheme"))),
    "empty :path": opening(3, ""),
    "pseudo-header after others": frame(HEADERS, END_HEADERS, 3, block([*fields()[1:], fields()[0]])),
    "pseudo-header twice": frame(HEADERS, END_HEADERS, 3, block([fields()[0], *fields()])),
}


@pytest.mark.parametrize("said", SPOILT.values(), ids=SPOILT)
def test_errors_of_a_stream(said: bytes) -> None:
    """RST_STREAM with PROTOCOL_ERROR; a call that was opened is told at once, others go on."""
    raw = Raw(serve)
    raw.tell(opening(1))
    raw.tell(said)
    assert raw.said(GOAWAY, RST_STREAM) == [(RST_STREAM, PROTOCOL_ERROR)]
    opened = [e.stream for e in raw.events if isinstance(e, Opened)]
    assert [e.stream for e in raw.events if isinstance(e, Closed)] == opened[1:]
    assert raw.codec.streams == 1
    raw.tell(data(1, framed(b"beside")))
    assert [f.payload for f in raw.got if f.kind == DATA] == [framed(b"beside")]


def test_a_window_over_its_limit() -> None:
    """A stream's window over 2^31-1 costs that stream or the connection, with FLOW_CONTROL_ERROR (§6.9.1)."""
    raw = Raw()
    raw.tell(opening(1))
    raw.tell(window_update(1, MOST))
    assert {code for _, code in raw.said(GOAWAY, RST_STREAM)} == {FLOW_CONTROL_ERROR}
    assert Closed(1) in raw.events


def test_more_data_than_the_window() -> None:
    """A client that does not heed the window of a stream or of the connection is stopped with FLOW_CONTROL_ERROR."""
    for some in ({"stream_window": 20_000}, {"connection_window": 65_535}):
        raw = Raw(**some)
        raw.tell(frame(SETTINGS, ACK) + opening(1))
        raw.codec.pause(1)
        for _ in range(5):
            raw.tell(data(1, b"\0\0\0\xff\xff" + bytes(16_000)))
        assert {code for _, code in raw.said(GOAWAY, RST_STREAM)} == {FLOW_CONTROL_ERROR}
        assert [e for e in raw.events if e == Closed(1)] == [Closed(1)]
        assert raw.codec.streams == 0


IGNORED = {
    "PRIORITY": frame(PRIORITY, 0, 1, bytes(5)),
    "PRIORITY on an idle stream": frame(PRIORITY, 0, 77, bytes(5)),
    # RFC 9113 has no dependencies any more.
    "PRIORITY on itself": frame(PRIORITY, 0, 1, b"\0\0\0\1\0"),
    # RFC: PROTOCOL_ERROR. nghttp2 counts it among what it bears a limited number of.
    "PRIORITY on stream 0": frame(PRIORITY, 0, 0, bytes(5)),
    "an unknown frame": frame(0x77, 0xFF, 1, b"anything"),
    "an unknown frame on the connection": frame(0xFE, 0, 0, bytes(16_384)),
    "an unknown SETTING": settings((0x99, 7), (0xFFFF, MOST)),
    "SETTINGS of nothing": settings(),
    "PING": frame(PING, 0, 0, b"12345678"),
    "a PING answer that nobody waits for": PONG,
    "unknown flags": frame(PING, 0xFE, 0, bytes(8)),
    "a reserved bit": frame(WINDOW_UPDATE, 0, 0, b"\x80\0\0\1"),
    "WINDOW_UPDATE on a closed stream": window_update(3, 1),
    # RFC: STREAM_CLOSED. After a reset of its own a client can't be told from one whose frames crossed ours.
    "DATA on a closed stream": data(3, b"x"),
    "RST_STREAM on a closed stream": rst(3),
    # RFC: PROTOCOL_ERROR of the connection. nghttp2 takes the stream for one that has been closed.
    "HEADERS on a lower stream": opening(3),
    "a push refused": settings((2, 0)),
}


@pytest.mark.parametrize("said", IGNORED.values(), ids=IGNORED)
def test_what_is_ignored(said: bytes) -> None:
    """It changes nothing: no event, no error, and the call that is open goes on."""
    raw = Raw(serve)
    raw.tell(opening(1) + opening(3) + rst(3) + opening(5))
    before = len(raw.events)
    raw.tell(said)
    assert len(raw.events) == before
    assert raw.said(GOAWAY, RST_STREAM) == []
    raw.tell(data(1, framed(b"on")))
    assert [f.payload for f in raw.got if f.kind == DATA] == [framed(b"on")]


def test_ping_and_settings_are_acknowledged() -> None:
    """Each gets its answer, in order."""
    raw = Raw()
    frames = raw.tell(frame(PING, 0, 0, b"12345678") + settings() + frame(PING, 0, 0, b"abcdefgh"))
    assert [(f.kind, f.flags, f.payload) for f in frames] == [
        (PING, ACK, b"12345678"),
        (SETTINGS, ACK, b""),
        (PING, ACK, b"abcdefgh"),
    ]


def test_padding() -> None:
    """Padding of DATA and HEADERS is no content, and its window comes back."""
    raw = Raw(stream_window=100_000, connection_window=100_000)
    raw.tell(frame(HEADERS, END_HEADERS | PADDED | WITH_PRIORITY, 1, b"\x09" + bytes(5) + PLAIN + bytes(9)))
    for _ in range(1000):
        raw.tell(data(1, b"\xff" + framed(b"m") + bytes(255), PADDED))
    assert [event for event in raw.events if isinstance(event, Message)] == [Message(1, b"m")] * 1000
    for scope in (0, 1):
        assert raw.given(scope) > 200_000
    assert not raw.codec.failed


def test_continuation() -> None:
    """A header block over some frames is one header block."""
    raw = Raw()
    raw.tell(
        frame(HEADERS, END_STREAM, 1, PLAIN[:20])
        + frame(CONTINUATION, 0, 1, PLAIN[20:21])
        + frame(CONTINUATION, 0, 1)
        + frame(CONTINUATION, END_HEADERS, 1, PLAIN[21:])
    )
    assert [type(event) for event in raw.events] == [Opened, HalfClosed]


class Flood(NamedTuple):
    """Bytes said again and again, and how often at most until the connection ends."""

    said: bytes
    most: int
    reads: bool = True


FLOODS = {
    "PING, unread": Flood(frame(PING, 0, 0, bytes(8)), 1_001, reads=False),
    "SETTINGS, unread": Flood(settings(), 1_001, reads=False),
    "CONTINUATION": Flood(frame(CONTINUATION, 0, 3), 10),
    "PRIORITY": Flood(frame(PRIORITY, 0, 1, bytes(5)), 11_000),
    "unknown frames": Flood(frame(0x77), 11_000),
    "DATA without data": Flood(data(1, b""), 11_000),
    "requests that are none": Flood(opening(3, more=[(b"connection", b"x")]), 11_000),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_floods(flood: Flood) -> None:
    """The connection ends with ENHANCE_YOUR_CALM, and its call is told."""
    raw = Raw()
    raw.tell(opening(1))
    if flood.said[3] == CONTINUATION:
        raw.tell(frame(HEADERS, 0, 3, PLAIN))
    sid, times = 3, 0
    while not raw.codec.failed and times < 50_000:
        said = flood.said
        if said[3] == HEADERS:
            said = said[:5] + sid.to_bytes(4, "big") + said[9:]
            sid += 2
        times += 1
        if flood.reads:
            raw.tell(said)
        else:
            raw._seen(raw.codec.receive(said))
    raw.flush()
    assert raw.codec.failed
    assert times <= flood.most
    assert raw.said(GOAWAY) == [(GOAWAY, ENHANCE_YOUR_CALM)]
    assert raw.events[1:] == [Closed(1)]


def test_goaway_does_not_cut_a_frame() -> None:
    """Where the client has read a part of a frame only, the end comes without a word."""
    raw = Raw(serve)
    raw.tell(opening(1))
    raw.codec.send(1, bytes(10_000))
    assert len(raw.codec.take(100)) == 100
    for event in raw.codec.receive(frame(PING, 0, 0, bytes(8)) * 1_001):
        assert event == Closed(1)
    assert raw.codec.failed
    assert raw.codec.take() == b""


def test_header_bomb() -> None:
    """A small block that HPACK makes large (each byte repeats 4,000) is stopped before it is large."""
    raw = Raw()
    raw.tell(opening(1))
    bomb = b"\x40\x01x\x7f\x81\x1e" + b"v" * 3968 + b"\xbe" * 12_000
    raw.tell(frame(HEADERS, END_HEADERS, 3, PLAIN + bomb))
    assert raw.said(GOAWAY) == [(GOAWAY, ENHANCE_YOUR_CALM)]
    assert raw.events[1:] == [Closed(1)]


def test_rapid_reset_on_a_public_port() -> None:
    """About a thousand calls that are taken back at once are suffered, then the connection is closed."""
    raw = Raw(serve, resets=PUBLIC_RESETS)
    sid = 1
    while not raw.codec.failed and sid < 20_000:
        raw.tell(opening(sid, ECHO) + rst(sid))
        sid += 2
    assert raw.codec.failed
    # The RFC's code for it is ENHANCE_YOUR_CALM, a "may"; nghttp2 says INTERNAL_ERROR.
    assert [kind for kind, _ in raw.said(GOAWAY)] == [GOAWAY]
    assert 1_000 < sid // 2 < 1_500
    assert raw.codec.streams == 0


RESETS = {
    "in one read": [lambda sid: opening(sid) + rst(sid)],
    "in two reads": [opening, rst],
    "with a message": [lambda sid: opening(sid) + data(sid, framed(b"headers")), lambda sid: rst(sid, 2)],
    "after the half-close": [
        lambda sid: opening(sid) + data(sid, framed(b"headers"), END_STREAM),
        lambda sid: rst(sid, CANCEL),
    ],
    "and DATA after it": [lambda sid: opening(sid) + rst(sid) + data(sid, framed(b"late"))],
    "and WINDOW_UPDATE after the end": [
        lambda sid: opening(sid) + data(sid, framed(b"m"), END_STREAM),
        lambda sid: window_update(sid, 1),
    ],
}


@pytest.mark.parametrize("steps", RESETS.values(), ids=RESETS)
def test_resets_of_envoy(steps: list) -> None:  # type: ignore[type-arg]
    """5,000 streams that are opened and reset, as Envoy ends its exchanges, are all in order and leave nothing."""
    raw = Raw(serve, PREFACE + settings() + window_update(0, 1 << 30))
    for sid in range(1, 10_001, 2):
        for step in steps:
            raw.tell(step(sid))
        del raw.events[:], raw.got[:]
        raw.out = b""
        assert raw.codec.streams == 0
    raw.tell(opening(10_001) + data(10_001, framed(b"still"), END_STREAM))
    assert framed(b"still") in [f.payload for f in raw.got]
    assert not raw.codec.failed
