"""What gRPC adds to HTTP/2 fields (grpc/doc/PROTOCOL-HTTP2.md): metadata, time-outs, status and message. Pure."""

from collections.abc import Container, Iterator, Mapping, Sequence
from struct import Struct

from seawall.rpc.contract import Status

Headers = Sequence[tuple[bytes, bytes]]

_PREFIX = Struct(">BI")
PREFIX = _PREFIX.size
"""Bytes before each message: whether it is compressed, and its length."""
prefix_of = _PREFIX.unpack_from
_pack_prefix = _PREFIX.pack
_GOAWAY = Struct(">IBIII")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def framed(message: bytes) -> bytes:
    """Put the prefix before a message: no compression, and its length."""
    return _pack_prefix(0, len(message)) + message


class Assembly:
    """Bytes of a message that is not whole yet."""

    __slots__ = ("chunks", "fault", "have", "need")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.have = 0
        self.need = PREFIX
        """Bytes of the next step: the prefix, or prefix and message."""
        self.fault: tuple[Status, str] | None = None

    def add(self, data: bytes, most: int) -> list[bytes]:
        """Return the messages that are whole now; `fault` is set by bytes that are none, and then nothing may be added."""
        have = self.have = self.have + len(data)
        if have < self.need:
            self.chunks.append(data)
            return []
        if self.chunks:
            self.chunks.append(data)
            data = b"".join(self.chunks)
            self.chunks = []
        messages: list[bytes] = []
        at, need = 0, PREFIX
        while have - at >= PREFIX:
            flag, size = prefix_of(data, at)
            end = at + PREFIX + size
            if flag or size > most:
                self.fault = _fault(flag, size, most)
                return messages
            if end > have:
                need = PREFIX + size
                break
            messages.append(data[at + PREFIX : end])
            at = end
        self.need = need
        self.have = have - at
        if at < have:
            self.chunks.append(data[at:])
        return messages


def _fault(flag: int, size: int, most: int) -> tuple[Status, str]:
    if flag == 1:
        return Status.UNIMPLEMENTED, "compressed message, only identity is supported"
    if flag:
        return Status.INTERNAL, f"message with flags {flag}"
    return Status.RESOURCE_EXHAUSTED, f"message of {size} bytes, allowed are {most}"


def goaway(last_stream: int, code: int) -> bytes:
    """A GOAWAY frame, for a connection whose codec is past writing one."""
    return _GOAWAY.pack(8 << 8 | 7, 0, 0, last_stream, code)


def refusal(fields: Mapping[bytes, bytes], paths: Container[bytes]) -> tuple[bytes, str] | None:
    """Why a request can't be served: an HTTP status where it is not gRPC, else b"" and what is UNIMPLEMENTED."""
    if fields.get(b":method") != b"POST":
        return b"405", ""
    kind = fields.get(b"content-type", b"")
    if not kind.startswith(b"application/grpc") or kind[16:17] not in (b"", b"+", b";"):
        return b"415", ""
    if (path := fields.get(b":path", b"")) not in paths:
        return b"", f"unknown method {path[:200].decode('latin-1')}"
    if fields.get(b"grpc-encoding", b"identity") != b"identity":
        return b"", "only the identity encoding is supported"
    return None


def size_of(headers: Headers) -> int:
    """Size of a header list as RFC 9113 counts it (§6.5.2)."""
    return len(b"".join(map(b"".join, headers))) + 32 * len(headers)


class Metadata(Mapping[str, str]):
    """Header fields of a call, read when someone asks: most calls are decided without them.

    Names are in lower case, the last value counts; pseudo-headers and binary fields (`-bin`) are left out.
    """

    __slots__ = ("_headers", "_read")

    def __init__(self, headers: Headers):
        self._headers = headers
        self._read: dict[str, str] | None = None

    def _fields(self) -> dict[str, str]:
        if self._read is None:
            self._read = {
                name.decode("ascii"): value.decode("latin-1")
                for name, value in self._headers
                if not name.startswith(b":") and not name.endswith(b"-bin")
            }
        return self._read

    def __getitem__(self, name: str) -> str:
        return self._fields()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def __len__(self) -> int:
        return len(self._fields())


def trailers(status: Status, message: str) -> list[tuple[bytes, bytes]]:
    """Fields that end a call."""
    fields = [(b"grpc-status", b"%d" % status)]
    if message:
        fields.append((b"grpc-message", percent_encoded(message)))
    return fields


def percent_encoded(message: str) -> bytes:
    """Write a status message as gRPC wants it: printable ASCII but `%` stands, every other byte of UTF-8 as %XX."""
    return b"".join(
        b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        for byte in message.encode("utf-8", "replace")
    )


def parse_timeout(text: bytes) -> float | None:
    """Seconds of a grpc-timeout: 1 to 8 digits and a unit (H M S m u n); None for anything else."""
    digits, unit = text[:-1], text[-1:].decode("latin-1")
    if not 1 <= len(digits) <= 8 or not digits.isdigit() or unit not in _UNITS:
        return None
    return int(digits) * _UNITS[unit]
