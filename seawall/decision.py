"""Why a request was let through or refused: the one closed list of reasons, and refusal as a value.

A reason is the same word wherever it appears: metric label, log field, `x-seawall-reason` header. How it looks to a
client (status, error type, error code) is decided in `seawall.llm.errors`, per protocol.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a request ended as it did; closed, so it can be a metric label."""

    OK = "ok"
    USER_AGENT = "user_agent_denied"
    HEADERS = "request_headers_too_large"
    MISSING_KEY = "missing_api_key"
    INVALID_KEY = "invalid_api_key"
    EXPIRED_KEY = "expired_api_key"
    REVOKED_KEY = "revoked_api_key"
    CONTENT_BLOCKED = "content_blocked"
    UNKNOWN_PATH = "unknown_path"
    METHOD = "method_not_allowed"
    RATE_LIMIT = "rate_limit_exceeded"
    TOO_LARGE = "request_too_large"
    ENCODING = "unsupported_encoding"
    MALFORMED = "malformed_json"
    PARAMETER = "invalid_parameter"
    MODEL = "model_not_found"
    OVERLOADED = "overloaded"
    UNAVAILABLE = "gate_unavailable"
    INTERNAL = "internal_error"
    UPSTREAM_ERROR = "upstream_error"
    ABORTED = "aborted"
    """The answer ended before its end: the client left or the engine cut it; a filter can't tell which."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request is not let through.

    `message` is shown to the client: it never holds a key, an address of ours or a stack. `param` is the field of the
    request that is at fault, if one is. `retry_after` is in seconds; None where a retry can't help.
    """

    reason: Reason
    message: str
    param: str | None = None
    retry_after: float | None = None
