"""HTTP/2 by hand (RFC 9113): frames and header blocks to write what no client library would, and to read what came."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, _, FLOW_CONTROL_ERROR, _, STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = range(9)
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 0x9, 0xB

TALK = "/test.Tiny/Talk"
ECHO = "/test.Tiny/Echo"


class Frame(NamedTuple):
    """One frame as it is on the wire."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of RST_STREAM or GOAWAY."""
        return int.from_bytes(self.payload[4:8] if self.kind == GOAWAY else self.payload[:4], "big")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", size: int | None = None) -> bytes:
    """One frame; `size` is what its header says, where that is a lie."""
    length = len(payload) if size is None else size
    return length.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def split(data: bytes) -> list[Frame]:
    """Whole frames; a rest is dropped."""
    found = list(cuts(data))
    return [
        Frame(data[a + 3], data[a + 4], int.from_bytes(data[a + 5 : a + 9], "big"), data[a + 9 : b]) for a, b in found
    ]


def cuts(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each whole frame begins and ends."""
    at = 0
    while at + 9 <= len(data) and (end := at + 9 + int.from_bytes(data[at : at + 3], "big")) <= len(data):
        yield at, end
        at = end


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(k.to_bytes(2, "big") + v.to_bytes(4, "big") for k, v in pairs))


def rst(stream: int, code: int = CANCEL) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def window_update(stream: int, amount: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, amount.to_bytes(4, "big"))


def data(stream: int, payload: bytes, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream, payload)


def _number(value: int) -> bytes:
    """An HPACK integer with a prefix of 7 bits (RFC 7541 §5.1)."""
    if value < 0x7F:
        return bytes((value,))
    value -= 0x7F
    out = [0x7F]
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block: each field a literal without indexing."""
    return b"".join(b"\0" + _number(len(n)) + n + _number(len(v)) + v for n, v in fields)


def fields(path: str = TALK, *more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """What a gRPC client asks with."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]


def opening(stream: int, path: str = TALK, flags: int = 0, more: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """HEADERS that open a call."""
    return frame(HEADERS, END_HEADERS | flags, stream, block(fields(path, *more)))
