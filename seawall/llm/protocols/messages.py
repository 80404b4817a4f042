"""Anthropic messages (`/v1/messages`); its count_tokens passes unread."""

from collections.abc import Iterator, Sequence
from typing import Any

from seawall.llm.protocols.contract import (
    MAX_FOLLOWED,
    Delta,
    End,
    Endpoint,
    Family,
    Json,
    Origin,
    Stream,
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

_REASONS = {End.LENGTH: "max_tokens", End.CONTENT: "refusal"}
_DELTAS = {"text": "", "thinking": "/reasoning", "partial_json": "/tool"}
"""Members of a delta that are generated text, and the kind of channel."""
_BLOCKS = {"text": "", "thinking": "/reasoning"}


def deltas(event: Json) -> list[Delta]:
    """Text, thinking or arguments of a tool in a delta, or the text that a block begins with."""
    index = event.get("index", 0)
    for member, names in (("delta", _DELTAS), ("content_block", _BLOCKS)):
        inner = event.get(member)
        if isinstance(inner, dict):
            return [
                Delta(f"{index}{kind}", (member, name), text)
                for name, kind in names.items()
                if isinstance(text := inner.get(name), str) and text
            ]
    return []


class MessageStream(Stream):
    """Follows the content blocks of a stream."""

    __slots__ = ("_begun", "_open", "_origin", "_output", "_reason_told")

    def __init__(self, origin: Origin, expected: int):
        del expected
        self._origin = origin
        self._begun = False
        self._open: dict[Any, bool] = {}
        self._reason_told = False
        self._output = 0

    def take(self, event: Json) -> None:
        """Remember which blocks are open."""
        kind = event.get("type")
        index = event.get("index")
        if kind == "message_start":
            self._begun = True
        elif kind == "content_block_start" and isinstance(index, int) and len(self._open) < MAX_FOLLOWED:
            self._open[index] = True
        elif kind == "content_block_stop":
            self._open.pop(index, None)
        elif kind == "message_delta":
            self._reason_told = True

    def end(self, why: End, tokens: Tokens | None) -> bytes:
        """Close every open block, tell the reason, stop."""
        output = tokens.output if tokens is not None else 0
        events: list[Json] = []
        if not self._begun:
            events.append(_started(self._origin, tokens or Tokens(0, 0)))
        events += [{"type": "content_block_stop", "index": index} for index in self._open]
        if not self._reason_told:
            events.append(_delta(_REASONS[why], output))
        return sse([*events, {"type": "message_stop"}], named=True)


def _started(origin: Origin, tokens: Tokens) -> Json:
    message = {**_message(origin, [], tokens), "stop_reason": None}
    return {"type": "message_start", "message": message}


def _delta(reason: str, output: int) -> Json:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": output},
    }


def _message(origin: Origin, content: list[Any], tokens: Tokens) -> dict[str, Any]:
    return {
        "id": origin.id,
        "type": "message",
        "role": "assistant",
        "model": origin.model,
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": tokens.input, "output_tokens": tokens.output},
    }


def texts(body: Json) -> Iterator[Text]:
    """System, messages with every kind of block, tools."""
    if body.get("system"):
        yield from parts(body["system"], ("system",))
    for i, message in dicts(body.get("messages")):
        if message.get("content"):
            yield from _content(message["content"], ("messages", i, "content"))
    if body.get("tools"):
        yield from all_strings(body["tools"], ("tools",))


def _content(content: Any, path: Path) -> Iterator[Text]:
    if isinstance(content, str):
        yield Text(path, content)
    for i, block in dicts(content):
        source = block.get("source")
        if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
            yield Text((*path, i, "source", "data"), source["data"])
        elif isinstance(source, dict) and isinstance(source.get("content"), str | list):
            yield from parts(source["content"], (*path, i, "source", "content"))
        if block.get("type") == "tool_use":
            yield from all_strings(block.get("input"), (*path, i, "input"))
        elif block.get("type") == "tool_result":
            yield from _content(block.get("content"), (*path, i, "content"))
        else:
            for name in ("text", "thinking", "title", "context"):
                if isinstance(block.get(name), str) and block[name]:
                    yield Text((*path, i, name), block[name])


def spoken(answer: Json) -> Texts:
    """Texts of a whole answer; the input of a tool is an object and no text."""
    return [
        (("content", i, name), text)
        for i, block in dicts(answer.get("content"))
        for name in _BLOCKS
        if isinstance(text := block.get(name), str) and text
    ]


def ended(answer: Json, cut: Sequence[Path], why: End) -> dict[Path, Any]:
    """Say why text was lost."""
    del answer, cut
    return {("stop_reason",): _REASONS[why]}


def static(origin: Origin, text: str, stream: bool, tokens: Tokens | None) -> bytes:
    """A whole answer of ours."""
    tokens = tokens or Tokens(0, 0)
    if not stream:
        return dumps(_message(origin, [{"type": "text", "text": text}], tokens)).encode()
    return sse(
        [
            _started(origin, Tokens(tokens.input, 0)),
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            _delta("end_turn", tokens.output),
            {"type": "message_stop"},
        ],
        named=True,
    )


MESSAGES = Endpoint(
    "messages",
    Family.ANTHROPIC,
    True,
    ("max_tokens",),
    "max_tokens",
    ("messages",),
    ("messages",),
    model_paths=(("message", "model"), ("model",)),
    texts=texts,
    deltas=deltas,
    stream=MessageStream,
    spoken=spoken,
    ended=ended,
    static=static,
    needle=b'"text":"',
)
COUNT_TOKENS = Endpoint("count_tokens", Family.ANTHROPIC, False)
