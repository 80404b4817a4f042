"""Tokens that an engine says it used, from a whole answer or piece by piece from a stream.

Sources by protocol are in docs/wire.md. What is absent stays None: a zero is only ever one that the engine wrote.
"""

from typing import Any

import msgspec

from seawall.llm.sse import SseParser


class _Numbers(msgspec.Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_read_input_tokens: Any = None


class _Inner(msgspec.Struct):
    usage: _Numbers | None = None


class _Piece(msgspec.Struct):
    """Where usage stands: at the top (OpenAI, Anthropic message_delta), or in `message` / `response` of an event."""

    type: Any = None
    usage: _Numbers | None = None
    message: Any = None
    response: Any = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Piece)


class UsageReader:
    """Collects usage of one answer. `input_tokens` and `output_tokens` are None until the engine has told them."""

    __slots__ = ("_parser", "done", "error", "input_tokens", "output_tokens")

    def __init__(self) -> None:
        self._parser = SseParser()
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.done = False
        """The protocol's own end was seen: `[DONE]`, message_stop, response.completed."""
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
        if piece.error is not None or piece.type == "error":
            self.error = True
        if piece.type in ("message_stop", "response.completed", "response.incomplete"):
            self.done = True
        for numbers in (piece.usage, _inner(piece.message), _inner(piece.response)):
            if numbers is not None:
                self._merge(numbers)

    def _merge(self, numbers: _Numbers) -> None:
        if (prompt := _count(numbers.prompt_tokens)) is not None:
            self.input_tokens = prompt
        if (completion := _count(numbers.completion_tokens)) is not None:
            self.output_tokens = completion
        # Anthropic's input is the sum of three, told at the start and repeated, perhaps as 0, later: the largest is true.
        parts = [
            _count(n)
            for n in (numbers.input_tokens, numbers.cache_creation_input_tokens, numbers.cache_read_input_tokens)
        ]
        if any(n is not None for n in parts):
            self.input_tokens = max(self.input_tokens or 0, sum(n or 0 for n in parts))
        if (output := _count(numbers.output_tokens)) is not None:
            self.output_tokens = max(self.output_tokens or 0, output)


def _decode(data: bytes) -> _Piece | None:
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _inner(value: Any) -> _Numbers | None:
    if not isinstance(value, dict):
        return None
    try:
        return msgspec.convert(value, _Inner).usage
    except msgspec.MsgspecError:
        return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
