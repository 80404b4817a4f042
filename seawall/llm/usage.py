"""Tokens that an engine says it used, from a whole answer or piece by piece from a stream.

Sources by protocol are in docs/wire.md. What is absent stays None: a zero is only ever one that the engine wrote.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from seawall.llm.sse import SseParser

MAX_TOKENS = 2**53 - 1
"""A larger number is no count: it would leave the exact range of metrics and of the store."""


class _Piece(msgspec.Struct):
    """Where usage stands: at the top (OpenAI, Anthropic message_delta), or in `message` / `response` of an event."""

    type: Any = None
    usage: Any = None
    message: Any = None
    response: Any = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Piece)
_ENDS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
_FAILURES = frozenset({"error", "response.failed"})
_ANTHROPIC_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class UsageReader:
    """Collects usage of one answer. `input_tokens` and `output_tokens` are None until the engine has told them."""

    __slots__ = ("_input", "_parser", "done", "error", "input_tokens", "output_tokens")

    def __init__(self) -> None:
        self._parser = SseParser()
        self._input: dict[str, int] = {}
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.done = False
        """The protocol's own end was seen: `[DONE]`, message_stop, response.completed and its like."""
        self.error = False
        """The engine reported an error inside the stream."""

    def stream_piece(self, chunk: bytes) -> None:
        """Read the next bytes of an SSE stream, cut anywhere."""
        for data in self._parser.feed(chunk):
            self._event(data)

    def stream_end(self) -> None:
        """The stream's bytes are over."""
        for data in self._parser.finish():
            self._event(data)

    def whole_answer(self, body: bytes) -> None:
        """Read a JSON answer."""
        piece = _decode(body)
        if piece is not None:
            self._take(piece)

    def _event(self, data: bytes) -> None:
        if data.startswith(b"[DONE]"):
            self.done = True
            return
        # Most events hold no usage, or `null`: they needn't be parsed.
        if not (b'"usage"' in data or b'"error"' in data or b'_stop"' in data or b'"response.' in data):
            return
        piece = _decode(data)
        if piece is not None:
            self._take(piece)

    def _take(self, piece: _Piece) -> None:
        kind = piece.type if isinstance(piece.type, str) else ""
        if piece.error is not None or kind in _FAILURES:
            self.error = True
        if kind in _ENDS:
            self.done = True
        for holder in (piece.message, piece.response):
            if isinstance(holder, dict):
                self._merge(holder.get("usage"))
        self._merge(piece.usage)

    def _merge(self, numbers: Any) -> None:
        if not isinstance(numbers, dict):
            return
        if (prompt := _count(numbers, "prompt_tokens")) is not None:
            self.input_tokens = prompt
        if (completion := _count(numbers, "completion_tokens")) is not None:
            self.output_tokens = completion
        # Anthropic's input is the sum of three, told at the start and repeated, perhaps as 0, later: of each the largest.
        told = False
        for name in _ANTHROPIC_INPUT:
            if (part := _count(numbers, name)) is not None:
                self._input[name] = max(part, self._input.get(name, 0))
                told = True
        if told:
            self.input_tokens = sum(self._input.values())
        if (output := _count(numbers, "output_tokens")) is not None:
            self.output_tokens = max(self.output_tokens or 0, output)


def _decode(data: bytes) -> _Piece | None:
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(data)


def _decode_leniently(data: bytes) -> _Piece | None:
    """Read what engines write and msgspec refuses: half of a surrogate pair, NaN, bytes that are no UTF-8."""
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return _Piece(**{name: value.get(name) for name in _Piece.__struct_fields__})


def _count(numbers: Mapping[str, Any], name: str) -> int | None:
    value = numbers.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else None
