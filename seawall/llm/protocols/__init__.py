"""The APIs that the gate reads: which path is which, whose envelope it speaks, and which module knows its details."""

from urllib.parse import unquote

from seawall.llm.protocols.chat import CHAT
from seawall.llm.protocols.completions import COMPLETIONS
from seawall.llm.protocols.contract import Endpoint, Family
from seawall.llm.protocols.embeddings import EMBEDDINGS
from seawall.llm.protocols.messages import COUNT_TOKENS, MESSAGES
from seawall.llm.protocols.responses import RESPONSES

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "COUNT_TOKENS",
    "EMBEDDINGS",
    "MESSAGES",
    "MODELS",
    "RESPONSES",
    "Endpoint",
    "Family",
    "endpoint_of",
    "family_of",
    "plain_path",
]

MODELS = Endpoint("models", Family.OPENAI, False)

_PATHS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": COUNT_TOKENS,
    "/v1/models": MODELS,
}

ANTHROPIC_ROOTS = tuple(
    path for path, endpoint in _PATHS.items() if endpoint.family is Family.ANTHROPIC and endpoint.generates
)
"""Paths that speak Anthropic's envelope, with all that is below them; every other path speaks OpenAI's."""

_BELOW_ANTHROPIC = tuple(f"{root}/" for root in ANTHROPIC_ROOTS)


def plain_path(path: str) -> str:
    """Path of a `:path` value as engines understand it: without query and trailing slashes, percent-decoded."""
    bare = path.partition("?")[0].partition("#")[0]
    return (unquote(bare) if "%" in bare else bare).rstrip("/") or "/"


def endpoint_of(path: str) -> Endpoint | None:
    """API of a `:path`, or None for a path that the gate doesn't know."""
    bare = plain_path(path)
    known = _PATHS.get(bare)
    if known is None and bare.startswith("/v1/models/"):
        return MODELS
    return known


def family_of(path: str) -> Family:
    """Whose error envelope a path speaks, known or not."""
    bare = plain_path(path)
    return Family.ANTHROPIC if bare in ANTHROPIC_ROOTS or bare.startswith(_BELOW_ANTHROPIC) else Family.OPENAI
