"""One function from a refusal to what the client sees: status, headers, envelope of the path's protocol.

The table is ours and stable; the shapes are those of the OpenAI and Anthropic APIs, so that the official clients raise
the class that a developer expects.
"""

import json
from dataclasses import dataclass
from math import ceil
from typing import Any

from seawall.decision import Reason, Refusal
from seawall.llm.protocols import RESPONSES, Endpoint, Family
from seawall.llm.protocols.choices import DONE
from seawall.llm.protocols.contract import sse


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error before the headers: HTTP status, headers (lower-case names) and JSON body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Row:
    status: int
    openai_type: str
    code: str | None
    anthropic_type: str
    anthropic_status: int | None = None


_INVALID = "invalid_request_error"
_ROWS: dict[Reason, _Row] = {
    Reason.MALFORMED: _Row(400, _INVALID, "malformed_json", _INVALID),
    Reason.PARAMETER: _Row(400, _INVALID, "invalid_parameter", _INVALID),
    Reason.MISSING_KEY: _Row(401, _INVALID, "invalid_api_key", "authentication_error"),
    Reason.INVALID_KEY: _Row(401, _INVALID, "invalid_api_key", "authentication_error"),
    Reason.EXPIRED_KEY: _Row(401, _INVALID, "invalid_api_key", "authentication_error"),
    Reason.REVOKED_KEY: _Row(401, _INVALID, "invalid_api_key", "authentication_error"),
    Reason.USER_AGENT: _Row(403, "permission_error", "user_agent_denied", "permission_error"),
    Reason.CONTENT_BLOCKED: _Row(403, "permission_error", "content_blocked", "permission_error"),
    Reason.UNKNOWN_PATH: _Row(404, _INVALID, "unknown_path", "not_found_error"),
    Reason.MODEL: _Row(404, _INVALID, "model_not_found", "not_found_error"),
    Reason.METHOD: _Row(405, _INVALID, "method_not_allowed", _INVALID),
    Reason.TOO_LARGE: _Row(413, _INVALID, "request_too_large", "request_too_large"),
    Reason.ENCODING: _Row(415, _INVALID, "unsupported_encoding", _INVALID),
    Reason.RATE_LIMIT: _Row(429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"),
    Reason.HEADERS: _Row(431, _INVALID, "request_headers_too_large", _INVALID),
    Reason.INTERNAL: _Row(500, "server_error", "internal_error", "api_error"),
    Reason.OVERLOADED: _Row(503, "server_error", "overloaded", "overloaded_error"),
    Reason.UNAVAILABLE: _Row(503, "server_error", "gate_unavailable", "overloaded_error"),
}


def answer(refusal: Refusal, family: Family, rid: str = "") -> ErrorAnswer:
    """Render a refusal. `rid` is shown where the protocol has a place for a request id.

    `retry-after` is whole seconds, at least 1 (RFC 9110 §10.2.3; the official clients ignore 0); a shorter wait is told
    in `retry-after-ms`, which they read first.
    """
    row = _ROWS[refusal.reason]
    headers = [("content-type", "application/json"), ("x-seawall-reason", refusal.reason.value)]
    if family is Family.ANTHROPIC and rid:
        # Its clients show this header; OpenAI's show x-request-id, which Envoy sets.
        headers.append(("request-id", rid))
    if refusal.retry_after is not None:
        headers.append(("retry-after", str(max(1, ceil(refusal.retry_after)))))
        if refusal.retry_after < 1:
            headers.append(("retry-after-ms", str(max(1, int(refusal.retry_after * 1000)))))
    if refusal.reason is Reason.METHOD:
        headers.append(("allow", "POST"))
    return ErrorAnswer(row.status, tuple(headers), _encoded(_envelope(refusal, family, rid)))


def stream_error(refusal: Refusal, endpoint: Endpoint, rid: str = "", sequence: int = 0) -> bytes:
    """Render a refusal as the events that end a stream whose headers are out, after its last whole event.

    `sequence` is the next number of a stream of responses. The official clients raise what chat, completions and messages
    say here; of responses OpenAI's client gives it to the caller as an event.
    """
    error = _envelope(refusal, endpoint.family, rid)
    if endpoint.family is Family.ANTHROPIC:
        return sse([error], named=True)
    if endpoint is RESPONSES:
        inner = error["error"]
        told = {name: inner[name] for name in ("code", "message", "param")}
        return sse([{"type": "error", **told, "sequence_number": sequence}], named=True)
    return sse([error]) + DONE


def _envelope(refusal: Refusal, family: Family, rid: str) -> dict[str, Any]:
    row = _ROWS[refusal.reason]
    if family is Family.ANTHROPIC:
        message = refusal.message if refusal.param is None else f"{refusal.param}: {refusal.message}"
        error: dict[str, Any] = {"type": "error", "error": {"type": row.anthropic_type, "message": message}}
        return {**error, "request_id": rid} if rid else error
    return {"error": {"message": refusal.message, "type": row.openai_type, "param": refusal.param, "code": row.code}}


def _encoded(error: dict[str, object]) -> bytes:
    # A client may write half of a surrogate pair; JSON has an escape for it where UTF-8 has nothing.
    return json.dumps(error, ensure_ascii=False).encode("utf-8", "backslashreplace")


def status_of(reason: Reason) -> int:
    """HTTP status of a refusal for this reason; KeyError for reasons that refuse nothing."""
    return _ROWS[reason].status
