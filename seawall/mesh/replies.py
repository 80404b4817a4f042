"""Envoy's own answers, in the error envelope of the path's protocol.

Envoy refuses some requests itself (bad framing, headers too large) and answers when a side call or an engine is gone,
all in plain text. Each such answer gets the status, type and code that `seawall.llm.errors` gives to a refusal of ours.
Nothing here prints %RESPONSE_CODE_DETAILS%: it names sockets.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from seawall.decision import Reason, Refusal
from seawall.llm.errors import answer
from seawall.llm.protocols import ANTHROPIC_ROOTS, Family
from seawall.mesh.envoy_types import accesslog_v3, cel_v3, core_v3, hcm_v3
from seawall.mesh.message import packed

OURS = "response.code_details.startsWith('seawall.') || response.code_details == 'ext_authz_denied'"
"""Answers of our services, which have their envelope already."""

_GATE = "(response.code_details.startsWith('ext_') || response.code_details.startsWith('rate_limiter_'))"
_INVALID = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class Reply:
    """One kind of answer: a CEL expression, and what it becomes.

    With a `reason` the table of `seawall.llm.errors` says the rest. Without one the answer has no counterpart among our
    refusals, and `openai` (type, code) and `anthropic` (type) are told here.
    """

    when: str
    message: str
    reason: Reason | None = None
    retry_after: float | None = None
    openai: tuple[str, str | None] = (_INVALID, None)
    anthropic: str = _INVALID
    status: int | None = None
    """Status to answer with instead of Envoy's own."""

    def headers(self, family: Family) -> tuple[tuple[str, str], ...]:
        """Headers to add, without content-type."""
        if self.reason is None:
            return ()
        made = answer(self._refusal(self.reason), family)
        return tuple(header for header in made.headers if header[0] != "content-type")

    def body(self, family: Family) -> str:
        """JSON of the envelope."""
        if self.reason is not None:
            return answer(self._refusal(self.reason), family).body.decode()
        if family is Family.ANTHROPIC:
            return json.dumps({"type": "error", "error": {"type": self.anthropic, "message": self.message}})
        type_, code = self.openai
        return json.dumps({"error": {"message": self.message, "type": type_, "param": None, "code": code}})

    def _refusal(self, reason: Reason) -> Refusal:
        return Refusal(reason, self.message, retry_after=self.retry_after)


REPLIES = (
    Reply(
        "response.code == 429 && response.code_details == 'request_rate_limited'",
        "Rate limit reached. The header 'retry-after' says when to try again.",
        Reason.RATE_LIMIT,
    ),
    Reply("response.code == 400", "The request is not valid HTTP, or its path can't be read."),
    Reply("response.code == 404", "There is nothing at this path.", Reason.UNKNOWN_PATH),
    Reply(
        "response.code == 408",
        "The request took too long to arrive.",
        openai=(_INVALID, "request_timeout"),
        anthropic="timeout_error",
    ),
    Reply("response.code == 413", "The request body is too large.", Reason.TOO_LARGE),
    Reply("response.code == 431", "The request headers are too large.", Reason.HEADERS),
    Reply("response.code == 426", "Send the request with HTTP/1.1 or HTTP/2."),
    Reply("response.code >= 400 && response.code < 500", "The request can't be served."),
    Reply("response.code == 500", "Something went wrong on our side.", Reason.INTERNAL),
    Reply("response.code == 501", "This transfer encoding is not supported."),
    Reply(
        "response.code == 502",
        "The engine's answer could not be read.",
        openai=("server_error", "upstream_error"),
        anthropic="api_error",
    ),
    # A body of untold length overshoots Envoy's buffer by what the kernel held, and then a worker's message limit:
    # RESOURCE_EXHAUSTED. The worker is well, the body is too large.
    Reply(
        "response.code == 503 && response.code_details.startsWith('ext_proc_error_gRPC_error_8{')",
        "The request body is too large.",
        Reason.TOO_LARGE,
        status=413,
    ),
    Reply(
        f"response.code == 503 && {_GATE}",
        "The gate is not available right now. Try again shortly.",
        Reason.UNAVAILABLE,
        retry_after=2,
    ),
    Reply(
        "response.code == 503",
        "No engine is available right now. Try again shortly.",
        Reason.OVERLOADED,
        retry_after=2,
    ),
    Reply(
        f"response.code == 504 && {_GATE}",
        "The gate did not answer in time. Try again shortly.",
        Reason.UNAVAILABLE,
        retry_after=2,
        status=503,
    ),
    Reply(
        "response.code == 504",
        "No answer came in time.",
        openai=("server_error", "queue_timeout"),
        anthropic="timeout_error",
    ),
    Reply("response.code >= 500", "Something went wrong on our side.", Reason.INTERNAL),
)
"""The first that matches counts. Upstream answers never come here, whatever their status."""


def local_replies() -> hcm_v3.LocalReplyConfig:
    """Give the mappers: ours first, left as they are; then each kind for Anthropic's paths, then for all others."""
    return hcm_v3.LocalReplyConfig(mappers=[hcm_v3.ResponseMapper(filter=_cel(OURS)), *_mappers()])


def _mappers() -> Iterator[hcm_v3.ResponseMapper]:
    for reply in REPLIES:
        # An error of the codec may come before there is a path: the expression then fails, which is no match, and the
        # mapper after it answers in OpenAI's envelope.
        for root in ANTHROPIC_ROOTS:
            yield _mapper(reply, Family.ANTHROPIC, f"{reply.when} && request.path.startsWith('{root}')")
        yield _mapper(reply, Family.OPENAI, reply.when)


def _mapper(reply: Reply, family: Family, when: str) -> hcm_v3.ResponseMapper:
    return hcm_v3.ResponseMapper(
        filter=_cel(when),
        status_code=reply.status,
        body_format_override=core_v3.SubstitutionFormatString(
            # As text, not as json_format: the bytes are then those that our services send.
            text_format_source=core_v3.DataSource(inline_string=reply.body(family).replace("%", "%%")),
            content_type="application/json",
        ),
        headers_to_add=[
            core_v3.HeaderValueOption(
                header=core_v3.HeaderValue(key=key, value=value),
                append_action=core_v3.HeaderValueOptionHeaderAppendAction.ADD_IF_ABSENT,
            )
            for key, value in reply.headers(family)
        ],
    )


def _cel(expression: str) -> accesslog_v3.AccessLogFilter:
    return accesslog_v3.AccessLogFilter(
        extension_filter=accesslog_v3.ExtensionFilter(
            name="envoy.access_loggers.extension_filters.cel",
            typed_config=packed(cel_v3.ExpressionFilter(expression=expression)),
        )
    )
