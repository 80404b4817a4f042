"""What happens to a request (events) and what is done about it (commands): plain values, no protobuf."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seawall.decision import Reason
from seawall.llm.errors import ErrorAnswer
from seawall.llm.usage import Usage

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
    set_headers: Mapping[str, str] = field(default_factory=dict)
    remove_headers: Sequence[str] = ()


class PassPiece(NamedTuple):
    """Send a piece of the answer on. `metadata`, all strings, is for Envoy's access log."""

    body: bytes
    end_of_stream: bool
    metadata: Mapping[str, str] | None = None


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
class Alarm:
    """Tell the exchange when so many seconds have passed."""

    after: float


@dataclass(frozen=True, slots=True)
class Release:
    """Give the slot back."""


@dataclass(frozen=True, slots=True)
class Record:
    """How a request ended. `usage` is None where nothing was counted; `pool` is "" where no engine was reached.

    `truncated`: the cap that cut the answer, or "". `unread`: a part of the answer passed that could not be read.
    """

    reason: Reason
    latency: float
    tenant: str
    class_: str
    model: str
    pool: str
    usage: Usage | None
    rid: str
    truncated: str = ""
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """Count and log the request."""

    record: Record


Reply = PassHeaders | AskForBody | PassBody | PassResponseHeaders | PassPiece | PassTrailers | Refuse
Command = Reply | Acquire | Alarm | Release | Finished
