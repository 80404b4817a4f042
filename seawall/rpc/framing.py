"""What gRPC adds to HTTP/2 fields (grpc/doc/PROTOCOL-HTTP2.md): metadata, time-outs, status and message. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

from seawall.rpc.contract import Status

Headers = Sequence[tuple[bytes, bytes]]

_PREFIX = Struct(">BI")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def framed(message: bytes) -> bytes:
    """Put the prefix before a message: no compression, and its length."""
    return _PREFIX.pack(0, len(message)) + message


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
