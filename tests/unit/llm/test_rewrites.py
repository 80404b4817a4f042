"""Actions on a request: what changes, what is told, and that all else goes on byte for byte."""

import json
from typing import Any

import pytest

from seawall.decision import Reason, Refusal
from seawall.llm.protocols import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES, Endpoint
from seawall.llm.request import LlmRequest, read_request
from seawall.llm.rewrites import Actions, Rewritten, plan_of, rewrite
from seawall.llm.truncate import NO_CAPS, Caps

START = {
    CHAT: '"messages": [{"role": "user", "content": "hi"}]',
    COMPLETIONS: '"prompt": "hi"',
    RESPONSES: '"input": "hi"',
    EMBEDDINGS: '"input": "hi"',
    MESSAGES: '"messages": [{"role": "user", "content": "hi"}]',
}


def request(more: str, endpoint: Endpoint = CHAT) -> LlmRequest:
    """A request with more members."""
    read = read_request(endpoint, f'{{"model": "m", {START[endpoint]}{more}}}'.encode())
    assert isinstance(read, LlmRequest), read
    return read


def done(read: LlmRequest, **actions: Any) -> tuple[str, tuple[str, ...]]:
    """What comes after the prompt of a request once the actions are done, and the fields that are told."""
    found = rewrite(read, Actions(**actions))
    assert isinstance(found, Rewritten)
    body = (found.body or read.body.data).decode()
    head = f'{{"model": "m", {START[read.endpoint]}'
    assert body.startswith(head)
    json.loads(body)
    return body.removeprefix(head)[:-1], found.fields


@pytest.mark.parametrize(
    ("endpoint", "more", "after", "told"),
    [
        (CHAT, ', "logprobs": true, "top_logprobs": 3, "seed": 1', ', "seed": 1', ("logprobs", "top_logprobs")),
        (CHAT, ', "a": 1, "top_logprobs": 3', ', "a": 1', ("top_logprobs",)),
        (CHAT, ', "prompt_logprobs": 1, "logprob_token_ids": [1]', "", ("logprob_token_ids", "prompt_logprobs")),
        (COMPLETIONS, ', "logprobs": 5, "echo": true, "x": 1', ', "x": 1', ("echo", "logprobs")),
        (
            RESPONSES,
            ', "top_logprobs": 2, "include": ["message.output_text.logprobs", "x"]',
            ', "include": ["x"]',
            ("include", "top_logprobs"),
        ),
        (MESSAGES, ', "top_logprobs": 2', ', "top_logprobs": 2', ()),
        (CHAT, "", "", ()),
    ],
)
def test_logprobs_go_together(endpoint: Endpoint, more: str, after: str, told: tuple[str, ...]) -> None:
    """VLLM refuses one of a pair without the other."""
    assert done(request(more, endpoint), drop_logprobs=True) == (after, told)


@pytest.mark.parametrize(
    ("more", "after", "told"),
    [
        (', "n": 4', ', "n": 1', ("n",)),
        (', "n": 4, "best_of": 8', ', "n": 1, "best_of": 1', ("best_of", "n")),
        (', "n": 1, "best_of": null', ', "n": 1, "best_of": null', ()),
        ("", "", ()),
    ],
)
def test_one_choice(more: str, after: str, told: tuple[str, ...]) -> None:
    """Several choices become one, said by name."""
    assert done(request(more, COMPLETIONS), one_choice=True) == (after, told)
    if not told:
        assert rewrite(request(more), Actions(one_choice=True)) == Rewritten(None, ())


@pytest.mark.parametrize(
    ("endpoint", "more", "after", "told"),
    [
        (
            CHAT,
            ', "max_tokens": 99, "max_completion_tokens": 8',
            ', "max_tokens": 10, "max_completion_tokens": 8',
            ("max_tokens",),
        ),
        (CHAT, "", ',"max_tokens":10', ()),
        (
            CHAT,
            ', "max_tokens": 99, "min_tokens": 50',
            ', "max_tokens": 10, "min_tokens": 10',
            ("max_tokens", "min_tokens"),
        ),
        (RESPONSES, ', "max_output_tokens": 99', ', "max_output_tokens": 10', ("max_output_tokens",)),
        (MESSAGES, ', "max_tokens": 99', ', "max_tokens": 10', ("max_tokens",)),
        (EMBEDDINGS, ', "max_tokens": 99', ', "max_tokens": 99', ()),
    ],
)
def test_cap(endpoint: Endpoint, more: str, after: str, told: tuple[str, ...]) -> None:
    """Every spelling of a cap is lowered; one that the client did not send is not told as changed."""
    assert done(request(more, endpoint), cap=10) == (after, told)


def test_longest_sequence() -> None:
    """The output has what the prompt leaves; a prompt that leaves nothing is refused by its field."""
    assert done(request(', "max_tokens": 99'), longest=50) == (', "max_tokens": 46', ("max_tokens",))
    assert done(request(""), longest=50, cap=7) == (',"max_tokens":7', ())
    for endpoint, field in ((CHAT, "messages"), (COMPLETIONS, "prompt")):
        text = START[endpoint].replace("hi", "long " * 100)
        read = read_request(endpoint, f"{{{text}}}".encode())
        assert isinstance(read, LlmRequest)
        refused = rewrite(read, Actions(longest=50))
        assert isinstance(refused, Refusal)
        assert (refused.reason, refused.param) == (Reason.PARAMETER, field)


@pytest.mark.parametrize(
    ("more", "priority", "after", "told"),
    [
        (', "priority": -100', None, "", ("priority",)),
        (', "priority": -100', 5, ', "priority": 5', ()),
        (', "priority": 5', 5, ', "priority": 5', ()),
        ("", 5, ',"priority":5', ()),
        (
            ', "kv_transfer_params": {"x": 1}, "vllm_xargs": {}, "cache_salt": "s"',
            None,
            ', "cache_salt": "s"',
            ("kv_transfer_params", "vllm_xargs"),
        ),
    ],
)
def test_fields_of_the_operator(more: str, priority: int | None, after: str, told: tuple[str, ...]) -> None:
    """Scheduling and placement are never a client's; the priority is ours or absent."""
    assert done(request(more), priority=priority) == (after, told)


EXTENSIONS = (
    ', "seed": 18446744073709551615, "top_k": 5, "min_p": 0.10, "guided_json": {"type": "object"}, "cache_salt": "s",'
    ' "structured_outputs": {"json": {}}, "chat_template_kwargs": {"enable_thinking": false}, "ignore_eos": true,'
    ' "logit_bias": {"50256": -1e2}, "reasoning_effort": "low", "x_future": {"a": [null, 1.50, "\\u00e9"]}'
)


@pytest.mark.parametrize("endpoint", START, ids=lambda e: e.name)
def test_extensions_pass(endpoint: Endpoint) -> None:
    """What the gate does not know goes on as it was written, whatever else changes."""
    after, _ = done(request(EXTENSIONS, endpoint), cap=5, drop_logprobs=True, one_choice=True, usage=True, priority=3)
    assert after.startswith(EXTENSIONS)
    assert rewrite(request(EXTENSIONS, endpoint), Actions(model="m")) == Rewritten(None, ())


ASKED = '{"include_usage":true,"continuous_usage_stats":true}'


@pytest.mark.parametrize(
    ("more", "after"),
    [
        (', "stream": true', f', "stream": true,"stream_options":{ASKED}'),
        (', "stream": true, "stream_options": null', f', "stream": true, "stream_options": {ASKED}'),
        (
            ', "stream": true, "stream_options": {}',
            ', "stream": true, "stream_options": {"include_usage":true,"continuous_usage_stats":true}',
        ),
        (
            ', "stream": true, "stream_options": {"include_usage": false, "x": 1 }',
            ', "stream": true, "stream_options": {"include_usage": true, "x": 1 ,"continuous_usage_stats":true}',
        ),
        (f', "stream": true, "stream_options": {ASKED}', f', "stream": true, "stream_options": {ASKED}'),
        (', "stream": false', ', "stream": false'),
        ("", ""),
    ],
)
def test_usage_is_asked_for(more: str, after: str) -> None:
    """On every stream that allows it, whatever the client wrote; its other options stay."""
    for endpoint in (CHAT, COMPLETIONS):
        assert done(request(more, endpoint), usage=True, continuous=True) == (after, ())
    for endpoint in (RESPONSES, MESSAGES):
        assert done(request(more, endpoint), usage=True, continuous=True) == (more, ())


def test_stream_options_must_be_an_object() -> None:
    """Anything else is refused here: no engine would take it."""
    refused = read_request(CHAT, b'{"messages": [{}], "stream": true, "stream_options": "x"}')
    assert isinstance(refused, Refusal)
    assert refused.param == "stream_options"


VLLM, SGLANG, LLAMA = frozenset({"vllm"}), frozenset({"sglang"}), frozenset({"llamacpp"})
BOTH = ', "stream_options": {"include_usage": true, "continuous_usage_stats": true}'
END = ', "stream_options": {"include_usage": true}'
EACH = ', "stream_options": {"continuous_usage_stats": true}'


@pytest.mark.parametrize(
    ("options", "kinds", "event", "numbers"),
    [
        ("", VLLM, True, True),
        (END, VLLM, False, True),
        (BOTH, VLLM, False, False),
        # vLLM tells nothing without include_usage, SGLang does.
        (EACH, VLLM, True, True),
        (EACH, SGLANG, True, False),
        ("", LLAMA, True, True),
        (END, LLAMA, False, False),
    ],
)
def test_what_is_hidden_again(options: str, kinds: frozenset[str], event: bool, numbers: bool) -> None:
    """What the client did not ask for, and nothing that it did."""
    read = request(', "stream": true' + options)
    actions = Actions(usage=True, continuous=kinds != LLAMA)
    plan = plan_of(read, actions, kinds=kinds, caps=NO_CAPS, id_="r", count=True)
    assert (plan.hide_event, plan.hide_numbers, plan.asked) == (event, numbers, "include" in options)


def test_the_plan_of_an_answer() -> None:
    """The client's name of the model, its choices, and an estimate of its prompt."""
    read = request(', "n": 3, "stream": true')
    plan = plan_of(read, Actions(model="org/m", usage=True), kinds=LLAMA, caps=Caps(5), id_="r", count=True)
    assert (plan.renamed, plan.origin.model, plan.choices, plan.per_choice) == ("org/m", "m", 3, True)
    assert plan.prompt == 4
    plan = plan_of(read, Actions(model="m", one_choice=True), kinds=LLAMA, caps=NO_CAPS, id_="r", count=False)
    assert (plan.renamed, plan.choices, plan.per_choice, plan.hide_event) == (None, 1, False, False)
    assert not plan.changes_stream
    assert not plan.changes_whole


@pytest.mark.parametrize(
    ("endpoint", "body", "tokens"),
    [
        (CHAT, {"messages": [{"content": "a" * 400}, {"content": [{"type": "text", "text": "b" * 40}]}]}, 118),
        (CHAT, {"messages": [{"content": None}]}, 4),
        (MESSAGES, {"system": "a" * 40, "messages": [{"content": "你" * 40}]}, 44),
        (COMPLETIONS, {"prompt": ["a" * 8, "b" * 8]}, 4),
        (COMPLETIONS, {"prompt": [1, 2, 3]}, 3),
        (EMBEDDINGS, {"input": [[1, 2], [3]]}, 3),
        (RESPONSES, {"input": [{"role": "user", "content": "a" * 40}], "instructions": "b" * 40}, 20),
    ],
)
def test_prompt_estimate(endpoint: Endpoint, body: dict[str, Any], tokens: int) -> None:
    """Four bytes a token, four tokens a message; ids count as they are."""
    read = read_request(endpoint, json.dumps(body).encode())
    assert isinstance(read, LlmRequest)
    assert read.prompt_estimate() == tokens


TEXTS: list[tuple[Endpoint, dict[str, Any], list[str]]] = [
    (
        CHAT,
        {
            "messages": [
                {"role": "system", "content": "one"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "two"}, {"type": "image_url", "image_url": {"url": "x"}}],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "three"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "four"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "five"}}],
        },
        ["one", "two", "three", "four", "function", "f", "five"],
    ),
    (COMPLETIONS, {"prompt": ["one", [1, 2], "two"], "suffix": "three"}, ["one", "two", "three"]),
    (EMBEDDINGS, {"input": "one"}, ["one"]),
    (
        RESPONSES,
        {
            "instructions": "one",
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "two"}, {"type": "input_image", "image_url": "x"}],
                },
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "three"},
                {"type": "function_call_output", "call_id": "c", "output": "four"},
            ],
        },
        ["one", "two", "three", "four"],
    ),
    (
        MESSAGES,
        {
            "system": [{"type": "text", "text": "one"}],
            "messages": [
                {"role": "user", "content": "two"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": ["three"]}}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "four"}]},
                        {"type": "image", "source": {"type": "base64", "data": "x"}},
                        {
                            "type": "document",
                            "title": "five",
                            "source": {"type": "text", "media_type": "text/plain", "data": "six"},
                        },
                    ],
                },
            ],
        },
        ["one", "two", "three", "four", "six", "five"],
    ),
]


@pytest.mark.parametrize(("endpoint", "body", "texts"), TEXTS, ids=lambda v: v.name if isinstance(v, Endpoint) else "")
def test_texts_of_a_request(endpoint: Endpoint, body: dict[str, Any], texts: list[str]) -> None:
    """Every text that a model may read, each with the place of its JSON string in the body."""
    from seawall.llm.spans import locate

    read = read_request(endpoint, json.dumps(body).encode())
    assert isinstance(read, LlmRequest)
    found = list(read.texts())
    assert [text.text for text in found] == texts
    for text in found:
        span = locate(read.body.data, text.path)
        assert span is not None
        assert json.loads(read.body.data[span[0] : span[1]]) == text.text
