"""Events of a stream with their bytes, however it was cut."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.llm import sse
from seawall.llm.sse import MAX_EVENT, TAIL, Event, SseEvents, with_data

BOM = b"\xef\xbb\xbf"
STREAMS = {
    "nothing": (b"", []),
    "one": (b"data: a\n\n", [b"a"]),
    "two": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "no space": (b"data:a\n\n", [b"a"]),
    "only one space goes": (b"data:  a \n\n", [b" a "]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "CR": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "mixed": (b"data: a\r\ndata: b\rdata: c\n\rdata: d\n\r\n", [b"a\nb\nc", b"d"]),
    "CR, then CRLF": (b"data: a\r\r\ndata: b\n\n", [b"a", b"b"]),
    "several lines": (b"data: a\ndata: b\ndata:\ndata: c\n\n", [b"a\nb\n\nc"]),
    "empty data": (b"data\n\ndata:\n\n", [b"", b""]),
    "no final empty line": (b"data: a\n\ndata: b\n", [b"a", b"b"]),
    "no final line end": (b"data: a\n\ndata: b", [b"a", b"b"]),
    "ends with CR": (b"data: a\n\ndata: b\r", [b"a", b"b"]),
    "ends with CR CR": (b"data: b\r\r", [b"b"]),
    "comments": (b": hi\n\n:\ndata: a\n:data: x\ndata: b\n\n: bye\n\n", [b"a\nb"]),
    "other fields": (b"event: ping\nid: 1\nretry: 5\ndata: a\nfoo: x\n\nevent: ping\n\nid: 2\n\n", [b"a"]),
    "no such field": (b" data: x\nDATA: x\ndatax: x\ndata : x\ndata: a\n\n", [b"a"]),
    "empty lines": (b"\n\n\r\r\r\n\ndata: a\n\n\n\n", [b"a"]),
    "BOM": (BOM + b"data: a\n\n", [b"a"]),
    "BOM alone": (BOM, []),
    "half a BOM": (BOM[:2], []),
    "half a BOM before data": (BOM[:2] + b"data: x\n\ndata: a\n\n", [b"a"]),
    "BOM later": (b"data: a\n\n" + BOM + b"data: x\n\n", [b"a"]),
    "two BOMs": (BOM + BOM + b"data: x\n\ndata: a\n\n", [b"a"]),
    "UTF-8 and what is none": (
        "data: ü😀\u2028\x85\n\n".encode() + b"data: \xff\xc3\n\n",
        ["ü😀\u2028\x85".encode(), b"\xff\xc3"],
    ),
    "NUL and friends": (b"data: \x00\x0b\x0c\x1c\n\n", [b"\x00\x0b\x0c\x1c"]),
    "colons": (b"data: a: b:c\n\n", [b"a: b:c"]),
}


def pieces(*chunks: bytes) -> list[Event]:
    """All events of a stream that comes in these pieces; no byte is lost, and what is not given yet is `rest`."""
    parser = SseEvents()
    found: list[Event] = []
    for i, chunk in enumerate(chunks):
        found += parser.feed(chunk)
        assert b"".join(raw for raw, _ in found) + parser.rest == b"".join(chunks[: i + 1])
    found += parser.finish()
    assert b"".join(raw for raw, _ in found) == b"".join(chunks)
    assert not parser.rest
    return found


def events(*chunks: bytes) -> list[bytes]:
    """Data of the events of a stream that comes in these pieces."""
    return [data for _, data in pieces(*chunks) if data is not None]


@pytest.mark.parametrize("name", STREAMS)
def test_every_cut(name: str) -> None:
    """A stream has the same events whole, cut in two or three anywhere, and byte by byte."""
    stream, expected = STREAMS[name]
    assert events(stream) == expected
    assert events(*(bytes([b]) for b in stream)) == expected
    for i in range(len(stream) + 1):
        assert events(stream[:i], stream[i:]) == expected
        assert events(stream[:i], b"", stream[i : i + 1], stream[i + 1 :]) == expected


@given(st.text("da:t x\r\n\ufeff", max_size=40).map(str.encode), st.lists(st.integers(0, 60), max_size=6))
@settings(max_examples=200)
def test_any_cut(stream: bytes, cuts: list[int]) -> None:
    """Cutting makes no difference, and the events are those of a plain reading of the standard."""
    chunks = [stream[a:b] for a, b in pairwise([0, *sorted(cuts), len(stream) + 60])]
    assert events(*chunks) == events(stream) == plain_reading(stream)


def plain_reading(stream: bytes) -> list[bytes]:
    """Events of a whole stream, by the text of WHATWG HTML §9.2.6, with the last event delivered too."""
    lines = stream.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    found, data = [], []
    for line in [*lines, b""]:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value[1:] if value.startswith(b" ") else value)
        elif not line and data:
            found.append(b"\n".join(data))
            data = []
    return found


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("cut", [1000, MAX_EVENT // 2, MAX_EVENT, 2 * MAX_EVENT])
def test_largest_event(end: bytes, cut: int) -> None:
    """An event of the largest size is found; after one byte more all passes unread, wherever the stream is cut."""
    line = b"data: " + b"x" * (MAX_EVENT - 6 - 2 * len(end))
    for extra, expected in ((b"", [b"a", line[6:], b"b"]), (b"x", [b"a"])):
        stream = b"data: a" + end * 2 + line + extra + end * 2 + b"data: b" + end * 2
        parser = SseEvents()
        found = [event for i in range(0, len(stream), cut) for event in parser.feed(stream[i : i + cut])]
        found += parser.finish()
        assert [data for _, data in found if data is not None] == expected
        assert b"".join(raw for raw, _ in found) == stream
        assert parser.overflowed == bool(extra)


@pytest.mark.parametrize(
    "chunk", [b"data: xxxxxxxxxx\n", b"data:\n", b"data\n", b"id: 1\r\n", b": comment without end ", b"\xffx"]
)
def test_memory_is_bounded(chunk: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However an event is made to grow, it is given up past the bound, and nothing is kept."""
    monkeypatch.setattr(sse, "MAX_EVENT", 1000)
    parser = SseEvents()
    fed = 0
    found: list[Event] = []
    while not parser.overflowed and fed < 20_000:
        assert found == []
        found = parser.feed(chunk)
        fed += len(chunk)
        assert len(parser.rest) <= 1000
    assert parser.overflowed
    [(raw, data)] = found
    assert (len(raw), data) == (fed, None)
    assert parser.feed(b"\n\ndata: a\n\n") == [(b"\n\ndata: a\n\n", None)]
    assert parser.finish() == []
    assert not parser.rest
    assert not parser._data


@given(
    st.lists(st.sampled_from([b"data: 12345\n", b"data:\r", b":c\r\n", b"\n", b"x" * 15, b"data: a\n\n"]), max_size=30)
)
@settings(max_examples=100)
def test_bound_does_not_depend_on_cuts(lines: list[bytes]) -> None:
    """Which events are found before the bound depends on the stream alone."""
    stream = b"".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MAX_EVENT", 20)
        assert events(stream) == events(*(bytes([b]) for b in stream)) == events(*lines)


def test_comments_wait_for_nothing() -> None:
    """A comment between two events goes on at once, without the empty line after it; so does an empty line."""
    parser = SseEvents()
    assert parser.feed(b": ping\n") == [(b": ping\n", None)]
    assert parser.feed(b"\n") == [(b"\n", None)]
    assert parser.feed(b"data: a\n: inside\n") == []
    assert parser.feed(b"\n") == [(b"data: a\n: inside\n\n", b"a")]


def test_the_second_half_of_a_line_end() -> None:
    """An event that ends by CR is over at once; an LF that comes later belongs to it, and one after that does not."""
    parser = SseEvents()
    assert parser.feed(b"data: a\r\n\r") == [(b"data: a\r\n\r", b"a")]
    [tail, line] = parser.feed(b"\n\n")
    assert tail is TAIL
    assert line == (b"\n", None)
    assert line is not TAIL


def test_events_without_data() -> None:
    """An event without data is one of its own, and nothing in it is to be read."""
    assert pieces(b"event: ping\nid: 1\n\ndata: a\n\n") == [(b"event: ping\nid: 1\n\n", None), (b"data: a\n\n", b"a")]


@pytest.mark.parametrize(
    ("raw", "new", "expected"),
    [
        (b"data: {1}\n\n", b"{}", b"data: {}\n\n"),
        (b"data:{1}\r\n\r\n", b"{}", b"data:{}\r\n\r\n"),
        (b"event: x\ndata: {1}\nid: 7\n\n", b"{22}", b"event: x\ndata: {22}\nid: 7\n\n"),
        (b"data: {1,\ndata: 2}\n\n", b"{1,\n2,3}", b"data: {1,\ndata: 2,3}\n\n"),
        (b"data: {1,\r\nid: 7\r\ndata: 2}\r\n\r\n", b"{}", b"data: {}\r\nid: 7\r\n\r\n"),
    ],
)
def test_with_data(raw: bytes, new: bytes, expected: bytes) -> None:
    """Other data takes the place of the old; lines around it stay."""
    [(whole, data)] = pieces(raw)
    assert data is not None
    assert with_data(whole, data, new) == expected
    assert with_data(whole, data, data).replace(b"data:{", b"data: {") == raw.replace(b"data:{", b"data: {")


def test_a_byte_a_packet_costs_no_more_the_longer_the_event() -> None:
    """A long event of many lines that comes byte by byte is put together once."""
    stream = b"".join(b"data: %d\n" % i for i in range(20_000)) + b"\n"
    [(raw, data)] = pieces_of_bytes(stream)
    assert raw == stream
    assert data is not None
    assert data.count(b"\n") == 19_999


def pieces_of_bytes(stream: bytes) -> list[Event]:
    """Events of a stream that comes byte by byte."""
    parser = SseEvents()
    return [event for b in stream for event in parser.feed(bytes([b]))] + parser.finish()
