"""Requests are read as vLLM reads them, and refused where it refuses."""

import json
from typing import Any

import pytest

from seawall.sim.request import Ask, BadRequest, read

MODELS = ("sim-chat", "sim-other")
CHAT = {"model": "sim-chat", "messages": [{"role": "user", "content": "hello"}]}


def ask(document: dict[str, Any], *, chat: bool = True) -> Ask:
    return read(json.dumps(document).encode(), chat=chat, models=MODELS)


@pytest.mark.parametrize(
    ("change", "param", "status"),
    [
        ({"model": "gpt-9"}, "model", 404),
        ({"model": 5}, "model", 400),
        ({"messages": []}, "messages", 400),
        ({"messages": None}, "messages", 400),
        ({"messages": ["hi"]}, "messages.0", 400),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content", 400),
        ({"max_tokens": 0}, "max_tokens", 400),
        ({"max_tokens": -1}, "max_tokens", 400),
        ({"max_tokens": "5"}, "max_tokens", 400),
        ({"max_tokens": 5.0}, "max_tokens", 400),
        ({"max_tokens": True}, "max_tokens", 400),
        ({"max_tokens": 5, "max_completion_tokens": 0}, "max_completion_tokens", 400),
        ({"max_tokens": 0, "max_completion_tokens": 5}, "max_tokens", 400),
        ({"n": 0}, "n", 400),
        ({"n": 129}, "n", 400),
        ({"stream": "yes"}, "stream", 400),
        ({"stream_options": {"include_usage": True}}, "stream_options", 400),
        ({"stream": True, "stream_options": True}, "stream_options", 400),
        ({"tools": []}, "tools", 400),
        ({"tool_choice": "auto"}, "tool_choice", 400),
        ({"top_logprobs": 3}, "top_logprobs", 400),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs", 400),
        ({"priority": 1}, "priority", 400),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], param: str, status: int):
    """Every refusal says which parameter is at fault."""
    with pytest.raises(BadRequest) as caught:
        ask(CHAT | change)
    assert (caught.value.param, caught.value.status) == (param, status)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000], ids=lambda body: repr(body[:5]))
def test_a_body_that_is_no_object_is_refused(body: bytes):
    """Broken JSON, other JSON and endless nesting are 400s."""
    with pytest.raises(BadRequest) as caught:
        read(body, chat=True, models=MODELS)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("change", "cap"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": None}, None),
    ],
)
def test_the_newer_cap_wins(change: dict[str, Any], cap: int | None):
    """`max_completion_tokens` hides `max_tokens`; null is absent."""
    assert ask(CHAT | change).cap == cap


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (False, False)),
        ({"include_usage": True}, (True, False)),
        ({"include_usage": True, "continuous_usage_stats": True}, (True, True)),
        ({"continuous_usage_stats": True}, (False, False)),
    ],
)
def test_continuous_usage_needs_usage(options: dict[str, Any], expected: tuple[bool, bool]):
    """As in vLLM `continuous_usage_stats` has no effect alone."""
    read_back = ask(CHAT | {"stream": True, "stream_options": options})
    assert (read_back.include_usage, read_back.continuous_usage) == expected


def test_prompt_tokens_of_a_chat():
    """Four for each message, and its text parts; images count nothing."""
    parts = [{"type": "text", "text": "12345678"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = [{"role": "system", "content": "1234"}, {"role": "user", "content": parts}, {"role": "assistant"}]
    assert ask(CHAT | {"messages": messages}).prompt_tokens == (4 + 1) + (4 + 2) + 4


@pytest.mark.parametrize(
    ("prompt", "prompts", "tokens"),
    [
        ("12345", ("12345",), 2),
        (["1234", "5"], ("1234", "5"), 2),
        ([1, 2, 3], ("1 2 3",), 3),
        ([[1, 2], [3]], ("1 2", "3"), 3),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: object, prompts: tuple[str, ...], tokens: int):
    """A completion takes a string, strings, token ids, or lists of those."""
    read_back = ask({"model": "sim-chat", "prompt": prompt}, chat=False)
    assert (read_back.prompts, read_back.prompt_tokens) == (prompts, tokens)


@pytest.mark.parametrize("prompt", [None, [], 5, ["", 5], [[]], [True], {}], ids=repr)
def test_other_prompts_are_refused(prompt: object):
    """Anything else is a 400 that names `prompt`."""
    with pytest.raises(BadRequest) as caught:
        ask({"prompt": prompt}, chat=False)
    assert caught.value.param == "prompt"


def test_the_parser_is_as_lenient_as_vllms():
    """The last duplicate wins, unknown fields and NaN pass, and a missing model is the first one."""
    body = b'{"max_tokens": 1, "max_tokens": 2, "x": NaN, "messages": [{"role": "user", "content": "\\ud83d"}]}'
    read_back = read(body, chat=True, models=MODELS)
    assert (read_back.cap, read_back.model) == (2, "sim-chat")
