"""The APIs that the gate reads: which path is which, whose envelope it speaks, and which fields cap its output."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote


class Family(StrEnum):
    """Whose error envelope a path speaks."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API.

    `generates`: it takes a body and a slot. `cap_fields` hold the client's cap on output tokens, the one that wins
    first; a cap of ours is written into those that the client used, else into `cap_default`, the one that every engine
    knows. `required` must be there; `prompt_fields` are checked for their type where they are there.
    """

    name: str
    family: Family
    generates: bool
    cap_fields: tuple[str, ...] = ()
    cap_default: str | None = None
    prompt_fields: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


_OPENAI, _ANTHROPIC = Family.OPENAI, Family.ANTHROPIC

CHAT = Endpoint(
    "chat", _OPENAI, True, ("max_completion_tokens", "max_tokens"), "max_tokens", ("messages",), ("messages",)
)
COMPLETIONS = Endpoint("completions", _OPENAI, True, ("max_tokens",), "max_tokens", ("prompt",))
RESPONSES = Endpoint("responses", _OPENAI, True, ("max_output_tokens",), "max_output_tokens", ("input",))
EMBEDDINGS = Endpoint("embeddings", _OPENAI, True, (), None, ("input",))
MESSAGES = Endpoint("messages", _ANTHROPIC, True, ("max_tokens",), "max_tokens", ("messages",), ("messages",))
COUNT_TOKENS = Endpoint("count_tokens", _ANTHROPIC, False)
MODELS = Endpoint("models", _OPENAI, False)

_PATHS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": COUNT_TOKENS,
    "/v1/models": MODELS,
}


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
    return _ANTHROPIC if bare == "/v1/messages" or bare.startswith("/v1/messages/") else _OPENAI
