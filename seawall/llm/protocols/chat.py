"""OpenAI chat completions (`/v1/chat/completions`), with what vLLM, SGLang and llama.cpp add to them."""

from collections.abc import Iterator
from typing import Any

from seawall.llm.protocols.choices import DONE, ChoicesStream, ended, tool_deltas, usage
from seawall.llm.protocols.contract import (
    Delta,
    Endpoint,
    Family,
    Json,
    Origin,
    Text,
    Texts,
    Tokens,
    all_strings,
    dicts,
    dumps,
    parts,
    sse,
)
from seawall.llm.spans import Path

_SPOKEN = {"content": "", "reasoning": "/reasoning", "reasoning_content": "/reasoning", "refusal": "/refusal"}
"""Members of a delta that are generated text, and the channel that each belongs to."""


def deltas(event: Json) -> list[Delta]:
    """Content, reasoning, refusal and arguments of tool calls, of every choice."""
    found: list[Delta] = []
    for i, choice in dicts(event.get("choices")):
        delta = choice.get("delta")
        if isinstance(delta, dict):
            found += _spoken(delta, str(choice.get("index", i)), ("choices", i, "delta"))
    return found


class ChatStream(ChoicesStream):
    """Follows a stream of chat.completion.chunk."""

    __slots__ = ()

    def __init__(self, origin: Origin, expected: int):
        super().__init__(origin, expected, "chat.completion.chunk", {"delta": {}})


def _spoken(delta: dict[str, Any], channel: str, path: Path) -> Iterator[Delta]:
    for name, suffix in _SPOKEN.items():
        text = delta.get(name)
        if isinstance(text, str) and text:
            yield Delta(channel + suffix, (*path, name), text)
    if delta.get("tool_calls"):
        yield from tool_deltas(delta["tool_calls"], channel, (*path, "tool_calls"))
    function = delta.get("function_call")
    if isinstance(function, dict) and isinstance(text := function.get("arguments"), str) and text:
        yield Delta(f"{channel}/tool/0", (*path, "function_call", "arguments"), text)


def texts(body: Json) -> Iterator[Text]:
    """Messages of every role with their tool calls, tools, response format and prediction."""
    for i, message in dicts(body.get("messages")):
        for name in ("content", "reasoning", "reasoning_content", "refusal"):
            if message.get(name):
                yield from parts(message[name], ("messages", i, name))
        for delta in tool_deltas(message.get("tool_calls"), "", ("messages", i, "tool_calls")):
            yield Text(delta.path, delta.text)
    for name in ("tools", "functions", "response_format", "prediction", "structured_outputs", "documents"):
        if body.get(name):
            yield from all_strings(body[name], (name,))


def spoken(answer: Json) -> Texts:
    """Texts of a whole answer, of every choice."""
    found: Texts = []
    for i, choice in dicts(answer.get("choices")):
        message = choice.get("message")
        if isinstance(message, dict):
            found += [(delta.path, delta.text) for delta in _spoken(message, "", ("choices", i, "message"))]
    return found


def static(origin: Origin, text: str, stream: bool, tokens: Tokens | None) -> bytes:
    """A whole answer of ours; `tokens` None where a stream is not to tell usage."""
    kind = {"id": origin.id, "object": "chat.completion", "created": origin.created, "model": origin.model}
    if not stream:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": "stop",
        }
        return dumps({**kind, "choices": [choice], "usage": usage(tokens or Tokens(0, 0))}).encode()
    kind["object"] = "chat.completion.chunk"
    deltas = [({"role": "assistant", "content": ""}, None), ({"content": text}, None), ({}, "stop")]
    events: list[Json] = [
        {**kind, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas
    ]
    if tokens is not None:
        events.append({**kind, "choices": [], "usage": usage(tokens)})
    return sse(events) + DONE


CHAT = Endpoint(
    "chat",
    Family.OPENAI,
    True,
    ("max_completion_tokens", "max_tokens"),
    "max_tokens",
    ("messages",),
    ("messages",),
    usage_asked=True,
    choices=True,
    logprobs=("logprobs", "top_logprobs", "logprob_token_ids", "prompt_logprobs"),
    texts=texts,
    deltas=deltas,
    stream=ChatStream,
    spoken=spoken,
    ended=ended,
    static=static,
    needle=b'"content":"',
)
