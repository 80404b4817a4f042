"""The contract between a service and whatever carries its calls: bytes in, bytes out.

A unary handler returns its answer at once where nothing has to be waited for, or an awaitable of it. A stream handler is
an object that is told of messages and, exactly once, of the end; it writes through a sender. No service imports grpc:
the transport under this contract can be swapped.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol


class Status(IntEnum):
    """gRPC status codes that we answer with (grpc/doc/statuscodes.md)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class RpcError(Exception):
    """A handler ends its call with a status other than OK; `message` is seen by the client."""

    def __init__(self, status: Status, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


class CloseReason(IntEnum):
    """How a stream ended, as its handler is told."""

    DONE = 0
    """The client half-closed after the last message: a normal end."""
    CANCELLED = 1
    """The client reset the stream or its connection broke; with Envoy also a normal end of a headers-only exchange."""
    DRAINED = 2
    """Our grace period ran out."""
    FAILED = 3
    """The handler raised."""


class Call(NamedTuple):
    """What is known when a call opens.

    `metadata` has lower-case names, the last value of each; `deadline` is in seconds of `time.monotonic()`, or None.
    """

    path: str
    metadata: Mapping[str, str]
    deadline: float | None


class Sender(Protocol):
    """Writes the answers of one stream. Both methods are plain calls; after `finish` or the end they do nothing."""

    def send(self, message: bytes) -> None:
        """Queue one message; messages keep their order."""

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """End the stream from our side after what is queued; the handler is still told `closed`."""


class StreamHandler(Protocol):
    """One stream of a bidirectional call."""

    def message(self, data: bytes) -> Awaitable[None] | None:
        """Take one message. An awaitable is begun at once and cancelled when the stream ends; the next message waits."""

    def closed(self, reason: CloseReason) -> None:
        """Told exactly once, whatever ended the stream, after any running awaitable was cancelled."""


Unary = Callable[[bytes, Call], bytes | Awaitable[bytes]]
StreamOpener = Callable[[Call, Sender], StreamHandler]


@dataclass(frozen=True, slots=True)
class RpcService:
    """What a service offers: full gRPC service name, and handlers by method name."""

    name: str
    unary: Mapping[str, Unary]
    streams: Mapping[str, StreamOpener]


class Transport(Protocol):
    """A running server that carries services."""

    async def start(self) -> None:
        """Listen; raises OSError when the address can't be had."""

    async def drain(self, grace: float) -> None:
        """Refuse new calls (GOAWAY), let running ones end for `grace` seconds, then close what is left."""
