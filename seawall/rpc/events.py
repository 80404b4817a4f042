"""What the codec tells of one connection: calls that open, their messages, and their ends."""

from collections.abc import Mapping
from typing import NamedTuple

from seawall.rpc.contract import Status


class Opened(NamedTuple):
    """A call of a known method. `timeout` is in seconds, None without a grpc-timeout."""

    stream: int
    path: str
    metadata: Mapping[str, str]
    timeout: float | None


class Message(NamedTuple):
    """One whole message."""

    stream: int
    data: bytes


class HalfClosed(NamedTuple):
    """The peer has sent its last message."""

    stream: int


class Closed(NamedTuple):
    """A stream that we had not finished is over: reset by the peer, or ended by a fault of either side.

    With a status the peer has spoilt it, and is to be told so by `finish`.
    """

    stream: int
    status: Status | None = None
    message: str = ""


Event = Opened | Message | HalfClosed | Closed
