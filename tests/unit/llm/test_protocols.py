"""Which path is which API."""

import pytest

from seawall.llm.protocols import (
    CHAT,
    COMPLETIONS,
    COUNT_TOKENS,
    EMBEDDINGS,
    MESSAGES,
    MODELS,
    RESPONSES,
    Endpoint,
    Family,
    endpoint_of,
    family_of,
    plain_path,
)

OPENAI, ANTHROPIC = Family.OPENAI, Family.ANTHROPIC


@pytest.mark.parametrize(
    ("path", "endpoint", "family"),
    [
        ("/v1/chat/completions", CHAT, OPENAI),
        ("/v1/completions", COMPLETIONS, OPENAI),
        ("/v1/responses", RESPONSES, OPENAI),
        ("/v1/embeddings", EMBEDDINGS, OPENAI),
        ("/v1/messages", MESSAGES, ANTHROPIC),
        ("/v1/messages/count_tokens", COUNT_TOKENS, ANTHROPIC),
        ("/v1/models", MODELS, OPENAI),
        ("/v1/models/org/model-1", MODELS, OPENAI),
        # Spellings that engines take for the same path
        ("/v1/chat/completions?", CHAT, OPENAI),
        ("/v1/chat/completions?api-version=1&x=/v1/messages", CHAT, OPENAI),
        ("/v1/chat/completions/", CHAT, OPENAI),
        ("/v1/chat/completions///?x", CHAT, OPENAI),
        ("/v1/chat/completions#x", CHAT, OPENAI),
        ("/v1/chat/completions#x?y", CHAT, OPENAI),
        ("/v1/%63hat/completions", CHAT, OPENAI),
        ("/v1%2fchat%2Fcompletions", CHAT, OPENAI),
        ("/v1/chat/completions%2f", CHAT, OPENAI),
        ("/v1/messages/?beta=true", MESSAGES, ANTHROPIC),
        ("/v1/%6d%65ssages", MESSAGES, ANTHROPIC),
        # Other paths
        ("/V1/chat/completions", None, OPENAI),
        ("/v1/Chat/Completions", None, OPENAI),
        ("/v1/chat/completions%20", None, OPENAI),
        ("/v1/chat/completions;x", None, OPENAI),
        ("/v1/chat%3Fx/completions", None, OPENAI),
        ("/v1/chat/completions%3Fx", None, OPENAI),
        ("/v1%252fchat/completions", None, OPENAI),
        ("/v1//chat/completions", None, OPENAI),
        ("//v1/chat/completions", None, OPENAI),
        ("/v1/./chat/completions", None, OPENAI),
        ("/v1/chat/completions/x", None, OPENAI),
        ("/v1/chat", None, OPENAI),
        ("/v2/chat/completions", None, OPENAI),
        ("v1/chat/completions", None, OPENAI),
        ("/v1/modelsx", None, OPENAI),
        ("/v1/messagesx", None, OPENAI),
        ("/v1/messages/batches", None, ANTHROPIC),
        ("/v1/MESSAGES", None, OPENAI),
        ("/", None, OPENAI),
        ("", None, OPENAI),
        ("*", None, OPENAI),
        ("?", None, OPENAI),
        ("/%", None, OPENAI),
        ("/%ff%zz", None, OPENAI),
    ],
)
def test_path(path: str, endpoint: Endpoint | None, family: Family) -> None:
    """A path is an API as an engine would read it: query, trailing slashes and percent-encoding make no difference."""
    assert endpoint_of(path) is endpoint
    assert family_of(path) is family


@pytest.mark.parametrize("path", ["", "/", "//", "?x", "/?x", "/#x", "%2f"])
def test_root(path: str) -> None:
    """What is no path is the root."""
    assert plain_path(path) == "/"


def test_caps() -> None:
    """Whatever is capped by default is among the fields that are read, and only what generates is capped."""
    for endpoint in (CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS, MESSAGES, COUNT_TOKENS, MODELS):
        assert endpoint.cap_default in {None, *endpoint.cap_fields}
        assert endpoint.generates or not endpoint.cap_fields
        assert set(endpoint.required) <= set(endpoint.prompt_fields)
