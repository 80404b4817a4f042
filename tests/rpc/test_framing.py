"""What gRPC adds to HTTP/2 fields, value by value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seawall.rpc import framing
from seawall.rpc.contract import Status
from seawall.rpc.framing import Assembly, Metadata, framed, parse_timeout, percent_encoded, refusal, size_of, trailers
from tests.rpc.frames import ECHO, GOAWAY, TALK, Frame, fields, split

TIMEOUTS = {
    b"1H": 3600.0,
    b"2M": 120.0,
    b"3S": 3.0,
    b"4m": 0.004,
    b"5u": 5e-6,
    b"6n": 6e-9,
    b"0n": 0.0,
    b"007S": 7.0,
    b"12345678S": 12345678.0,
    b"99999999H": 99999999 * 3600.0,
    b"123456789S": None,
    b"S": None,
    b"": None,
    b"1": None,
    b"12": None,
    b"1s": None,
    b"1h": None,
    b"1SS": None,
    b"-1S": None,
    b"+1S": None,
    b" 1S": None,
    b"1 S": None,
    b"1.5S": None,
    b"1_0S": None,
    b"0x1S": None,
    "1µ".encode(): None,
    "١S".encode(): None,
    b"\xb2S": None,
}


@pytest.mark.parametrize(("text", "seconds"), TIMEOUTS.items(), ids=repr)
def test_timeouts(text: bytes, seconds: float | None) -> None:
    """A grpc-timeout is 1 to 8 digits and a unit, and nothing else is one."""
    assert parse_timeout(text) == (seconds if seconds is None else pytest.approx(seconds, rel=1e-12))


TEXTS = {
    "plain text, ~ too": b"plain text, ~ too",
    "": b"",
    "100%": b"100%25",
    "größer": b"gr%C3%B6%C3%9Fer",
    "请": b"%E8%AF%B7",
    "🌊": b"%F0%9F%8C%8A",
    "a\nb\r\0\t\x7f": b"a%0Ab%0D%00%09%7F",
    "\ud800": b"?",
}


@pytest.mark.parametrize(("text", "encoded"), TEXTS.items(), ids=repr)
def test_percent_encoding(text: str, encoded: bytes) -> None:
    """Printable ASCII stands, all else is escaped, and a text that is none does not raise."""
    assert percent_encoded(text) == encoded


@given(st.text())
def test_percent_encoding_keeps_the_text(text: str) -> None:
    """What is encoded is printable ASCII, and decodes to the same text."""
    from urllib.parse import unquote

    encoded = percent_encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote(encoded.decode("ascii")) == text.encode("utf-8", "replace").decode()


def test_metadata() -> None:
    """The last value of each name; no pseudo-headers, no binary fields."""
    headers = [
        (b":path", b"/x"),
        (b"x-tenant", b"one"),
        (b"x-key-bin", b"AAE="),
        (b"x-tenant", b"two"),
        (b"x-empty", b""),
        (b"x-latin", b"\xe9"),
    ]
    read = {"x-tenant": "two", "x-empty": "", "x-latin": "é"}
    metadata = Metadata(headers)
    assert metadata == read
    assert list(metadata) == list(read)
    assert len(metadata) == 3
    assert metadata["x-tenant"] == "two"
    assert metadata.get("x-key-bin") is None
    assert metadata.get(":path") is None
    with pytest.raises(KeyError):
        metadata["X-Tenant"]


def test_metadata_is_read_when_asked() -> None:
    """Nothing is decoded before the first question, and nothing twice."""

    class Counted(list[tuple[bytes, bytes]]):
        reads = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            Counted.reads += 1
            return super().__iter__()

    metadata = Metadata(Counted([(b"a", b"b")]))
    assert Counted.reads == 0
    assert metadata["a"] == "b"
    assert "c" not in metadata
    assert Counted.reads == 1


def test_trailers() -> None:
    """A status, and a message where there is one."""
    assert trailers(Status.OK, "") == [(b"grpc-status", b"0")]
    assert trailers(Status.UNAVAILABLE, "ü") == [(b"grpc-status", b"14"), (b"grpc-message", b"%C3%BC")]


REFUSED = {
    "fine": (fields(ECHO), None),
    "proto": (fields(ECHO, (b"content-type", b"application/grpc+proto")), None),
    "with a parameter": (fields(ECHO, (b"content-type", b"application/grpc;v=1")), None),
    "identity": (fields(ECHO, (b"grpc-encoding", b"identity")), None),
    "GET": (fields(ECHO, (b":method", b"GET")), (b"405", "")),
    "JSON": (fields(ECHO, (b"content-type", b"application/json")), (b"415", "")),
    "gRPC-Web": (fields(ECHO, (b"content-type", b"application/grpc-web")), (b"415", "")),
    "no content type": ([f for f in fields(ECHO) if f[0] != b"content-type"], (b"415", "")),
    "gzip": (fields(ECHO, (b"grpc-encoding", b"gzip")), (b"", "only the identity encoding is supported")),
    "unknown": (fields("/x" * 150), (b"", "unknown method " + "/x" * 100)),
    "no path": ([f for f in fields(ECHO) if f[0] != b":path"], (b"", "unknown method ")),
}


@pytest.mark.parametrize(("headers", "why"), REFUSED.values(), ids=REFUSED)
def test_refusals(headers: list[tuple[bytes, bytes]], why: tuple[bytes, str] | None) -> None:
    """What is no call of ours, and how it is told."""
    assert refusal(dict(headers), {TALK.encode(), ECHO.encode()}) == why


def test_size_of_a_header_list() -> None:
    """Names, values and 32 bytes for each field (RFC 9113 §6.5.2)."""
    assert size_of([]) == 0
    assert size_of([(b"a", b"bc"), (b"", b"")]) == 3 + 64


def test_goaway() -> None:
    """The frame that we write ourselves is one."""
    assert split(framing.goaway(7, 11)) == [Frame(GOAWAY, 0, 0, b"\0\0\0\x07\0\0\0\x0b")]


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_messages_of_any_split(messages: list[bytes], draw: st.DataObject) -> None:
    """However their bytes are cut, the same messages come out, each as soon as it is whole."""
    stream = b"".join(map(framed, messages))
    places = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    assembly, found = Assembly(), list[bytes]()
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        if start < end:
            found += assembly.add(stream[start:end], 40)
            assert assembly.fault is None
        whole, size = 0, 0
        for message in messages:
            size += 5 + len(message)
            whole += size <= end
        assert found == messages[:whole]
    assert assembly.have == 0
    assert not assembly.chunks


BAD = {
    "compressed": (b"\1\0\0\0\1x", Status.UNIMPLEMENTED),
    "flags": (b"\2\0\0\0\1x", Status.INTERNAL),
    "too large, before it came": (b"\0\0\0\0\x0b", Status.RESOURCE_EXHAUSTED),
    "far too large": (b"\0\xff\xff\xff\xff", Status.RESOURCE_EXHAUSTED),
}


@pytest.mark.parametrize(("data", "status"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("cut", range(6))
def test_bad_messages(data: bytes, status: Status, cut: int) -> None:
    """They are known by their prefix; messages before them count."""
    assembly = Assembly()
    found = assembly.add(framed(b"good") + data[:cut], 10)
    if assembly.fault is None and cut < len(data):
        found += assembly.add(data[cut:], 10)
    assert found == [b"good"]
    assert assembly.fault is not None
    assert assembly.fault[0] is status
