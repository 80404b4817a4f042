"""What happens to a request (events) and what is done about it (commands): plain values, no protobuf."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seawall.decision import Reason
from seawall.llm.errors import ErrorAnswer

MAX_COLLECTED = 8 * 1024 * 1024
"""Bytes of a JSON answer that are kept to read its usage; a larger answer passes with usage unknown."""


REQUEST_HEADERS = frozenset({":method", ":path", "content-encoding", "content-length", "x-request-id"})
RESPONSE_HEADERS = frozenset({":status", "content-encoding", "content-type"})
"""What of a request's and of an answer's headers is read; the events hold no other."""


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """`headers` are those of REQUEST_HEADERS that came, by lower-case name; `source` is the peer with its port."""

    headers: Mapping[str, str]
    end_of_stream: bool
    metadata: Mapping[str, str]
    source: str


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The whole body (BUFFERED). `end_of_stream` False: trailers follow it."""

    body: bytes
    end_of_stream: bool


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """Headers of the answer, from the engine or from Envoy itself."""

    headers: Mapping[str, str]
    end_of_stream: bool


class ResponseBody(NamedTuple):
    """A piece of the answer, cut anywhere."""

    body: bytes
    end_of_stream: bool


@dataclass(frozen=True, slots=True)
class Trailers:
    """Trailers of the request or of the answer."""

    response: bool


Event = RequestHeaders | RequestBody | ResponseHeaders | ResponseBody | Trailers


@dataclass(frozen=True, slots=True)
class PassHeaders:
    """Let the request on, set headers; nothing more is asked of it."""

    set_headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AskForBody:
    """Let the headers wait for the whole body, and keep the stream to the end of the answer.

    Always BUFFERED: with BUFFERED_PARTIAL Envoy (1.40) lets the headers go on to the router, which has no pool yet, when
    the body is not complete at the time of this answer.
    """


@dataclass(frozen=True, slots=True)
class PassBody:
    """Let the request on; `body` None leaves it as it is."""

    body: bytes | None = None
    set_headers: Mapping[str, str] = field(default_factory=dict)
    remove_headers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PassResponseHeaders:
    """Let the answer's headers on; `stream_body` asks for its body piece by piece."""

    stream_body: bool


class PassPiece(NamedTuple):
    """Send a piece of the answer on."""

    body: bytes
    end_of_stream: bool


@dataclass(frozen=True, slots=True)
class PassTrailers:
    """Send trailers on."""

    response: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer the request ourselves; `details` begins with `seawall.`, so that Envoy's mappers leave the body alone."""

    answer: ErrorAnswer
    details: str


@dataclass(frozen=True, slots=True)
class Acquire:
    """Take a slot, then tell the exchange."""

    pool: str
    rid: str
    limit: int


@dataclass(frozen=True, slots=True)
class Release:
    """Give the slot back."""


@dataclass(frozen=True, slots=True)
class Record:
    """How a request ended. Tokens are None where the engine told none; `pool` is "" where no engine was reached."""

    reason: Reason
    latency: float
    tenant: str
    class_: str
    model: str
    pool: str
    input_tokens: int | None
    output_tokens: int | None
    rid: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Count and log the request."""

    record: Record


Reply = PassHeaders | AskForBody | PassBody | PassResponseHeaders | PassPiece | PassTrailers | Refuse
Command = Reply | Acquire | Release | Finished
