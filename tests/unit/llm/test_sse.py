"""Events of a stream, however it was cut."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.llm import sse
from seawall.llm.sse import MAX_EVENT, SseParser

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


def events(*chunks: bytes) -> list[bytes]:
    """All events of a stream that comes in these pieces."""
    parser = SseParser()
    found = [data for chunk in chunks for data in parser.feed(chunk)]
    return found + parser.finish()


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
    """An event of the largest size is found, one byte more stops the parser for good, wherever the stream is cut."""
    line = b"data: " + b"x" * (MAX_EVENT - 6)
    for extra, expected in ((b"", [b"a", line[6:], b"b"]), (b"x", [b"a"])):
        stream = b"data: a" + end * 2 + line + extra + end * 2 + b"data: b" + end * 2
        parser = SseParser()
        found = [data for i in range(0, len(stream), cut) for data in parser.feed(stream[i : i + cut])]
        assert found + parser.finish() == expected
        assert parser.overflowed == bool(extra)


@pytest.mark.parametrize("chunk", [b"data: xxxxxxxxxx\n", b"data:\n", b"data\n", b": comment without end ", b"\xffx"])
def test_memory_is_bounded(chunk: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However an event is made to grow, it is given up past the bound, and nothing is kept."""
    monkeypatch.setattr(sse, "MAX_EVENT", 1000)
    parser = SseParser()
    fed = 0
    while not parser.overflowed and fed < 20_000:
        assert parser.feed(chunk) == []
        fed += len(chunk)
    assert parser.overflowed
    assert parser.feed(b"\n\ndata: a\n\n") == parser.finish() == []
    assert not parser._rest
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
