"""Tokens that an engine says it used, from a whole answer or piece by piece from a stream.

Sources by protocol are in docs/wire.md. What is absent stays None: a zero is only ever one that the engine wrote.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from seawall.llm.protocols.contract import MAX_FOLLOWED

MAX_TOKENS = 2**53 - 1
"""A larger number is no count: it would leave the exact range of metrics and of the store."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; None is unknown.

    `cached_tokens` are a part of `input_tokens`, `reasoning_tokens` of `output_tokens`: never add them. `estimated`: the
    engine did not tell all of it, and what is missing was counted by us from the text that went by.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False


class _Piece(msgspec.Struct):
    """Where usage stands: at the top (OpenAI, Anthropic message_delta), or in `message` / `response` of an event."""

    type: Any = None
    usage: Any = None
    message: Any = None
    response: Any = None
    error: Any = None
    choices: Any = None


class Numbers(msgspec.Struct):
    """Usage of OpenAI's chat and completions as nearly all engines write it."""

    prompt_tokens: int = -1
    completion_tokens: int = -1
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


numbers_of = msgspec.json.Decoder(Numbers).decode
"""Read the bytes of one usage object; raises msgspec's errors for anything else."""

_DECODER = msgspec.json.Decoder(_Piece)
_ANY = msgspec.json.Decoder()
_ENDS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
_FAILURES = frozenset({"error", "response.failed"})
_OTHERS = frozenset({"input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"})
_ANTHROPIC_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class UsageReader:
    """Collects usage of one answer. `input_tokens` and `output_tokens` are None until the engine has told them.

    `per_choice`: the engine tells each choice's tokens in an event of its own, as llama.cpp does: they are added up.
    `choices`: the client's `n`. Of several, usage beside a piece is that of the piece's own choice (vLLM, SGLang).
    """

    __slots__ = (
        "_begun",
        "_by_choice",
        "_input",
        "_per_choice",
        "_summed",
        "cached_tokens",
        "done",
        "error",
        "input_tokens",
        "output_tokens",
        "reasoning_tokens",
    )

    def __init__(self, per_choice: bool = False, choices: int = 1) -> None:
        self._by_choice: dict[int, int] | None = {} if choices > 1 else None
        self._begun = 0
        self._input: dict[str, int] | None = None
        self._per_choice = per_choice
        self._summed = 0
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.done = False
        """The protocol's own end was seen: `[DONE]`, message_stop, response.completed and its like."""
        self.error = False
        """The engine reported an error inside the stream."""

    def event(self, data: bytes) -> None:
        """Read the data of one event of a stream."""
        if data.startswith(b"[DONE]"):
            self.done = True
            return
        # Most events hold no usage, or `null`: they needn't be parsed.
        if not (b'"usage"' in data or b'"error"' in data or b'_stop"' in data or b'"response.' in data):
            return
        piece = _decode(data)
        if piece is not None:
            self._take(piece)

    def whole_answer(self, body: bytes) -> None:
        """Read a JSON answer."""
        piece = _decode(body)
        if piece is not None:
            self._take(piece)

    def numbers(self, told: Numbers) -> None:
        """Take one usage object of OpenAI's chat or completions, read by `numbers_of`."""
        if 0 <= told.prompt_tokens <= MAX_TOKENS:
            self.input_tokens = told.prompt_tokens
        if 0 <= told.completion_tokens <= MAX_TOKENS:
            self.output_tokens = told.completion_tokens
        if told.prompt_tokens_details is not None:
            self._cached(told.prompt_tokens_details)
        if told.completion_tokens_details is not None:
            self._reasoning(told.completion_tokens_details)

    def _take(self, piece: _Piece) -> None:
        kind = piece.type if isinstance(piece.type, str) else ""
        if piece.error is not None or kind in _FAILURES:
            self.error = True
        if kind in _ENDS:
            self.done = True
        if isinstance(piece.response, dict):
            self._merge(piece.response.get("usage"))
        if isinstance(piece.message, dict) and isinstance(begun := piece.message.get("usage"), dict):
            # The output of a message that has only begun (1, mostly) is the least that will have come, and no count.
            self._begun = _count(begun, "output_tokens") or 0
            self._merge({name: number for name, number in begun.items() if name != "output_tokens"})
        if self._per_choice and piece.choices == [] and isinstance(piece.usage, dict):
            self._summed += _count(piece.usage, "completion_tokens") or 0
            self._merge({**piece.usage, "completion_tokens": self._summed})
        else:
            self._merge(piece.usage)
            if self._by_choice is not None and isinstance(piece.usage, dict):
                self._add_choice(self._by_choice, piece.choices, piece.usage)

    def _add_choice(self, told: dict[int, int], choices: Any, numbers: dict[str, Any]) -> None:
        output = _count(numbers, "completion_tokens")
        if output is None or not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            return
        index = choices[0].get("index")
        if isinstance(index, int) and (index in told or len(told) < MAX_FOLLOWED):
            told[index] = output
            self.output_tokens = sum(told.values())

    def _merge(self, numbers: Any) -> None:
        if not isinstance(numbers, dict):
            return
        if (prompt := _count(numbers, "prompt_tokens")) is not None:
            self.input_tokens = prompt
            if details := numbers.get("prompt_tokens_details"):
                self._cached(details)
        if (completion := _count(numbers, "completion_tokens")) is not None:
            self.output_tokens = completion
            if details := numbers.get("completion_tokens_details"):
                self._reasoning(details)
        if numbers.keys() & _OTHERS:
            self._merge_other(numbers)

    def _merge_other(self, numbers: dict[str, Any]) -> None:
        # Anthropic's input is the sum of three, told at the start and repeated, perhaps as 0, later: of each the largest.
        parts = self._input or {}
        for name in _ANTHROPIC_INPUT:
            if (part := _count(numbers, name)) is not None:
                parts[name] = max(part, parts.get(name, 0))
        if parts:
            self._input = parts
            self.input_tokens = sum(parts.values())
            if "cache_read_input_tokens" in parts:
                self.cached_tokens = parts["cache_read_input_tokens"]
        if (output := _count(numbers, "output_tokens")) is not None:
            self.output_tokens = max(self.output_tokens or 0, output, self._begun)
        self._cached(numbers.get("input_tokens_details"))
        self._reasoning(numbers.get("output_tokens_details"))

    def _cached(self, details: Any) -> None:
        if isinstance(details, dict) and (cached := _count(details, "cached_tokens")) is not None:
            self.cached_tokens = cached

    def _reasoning(self, details: Any) -> None:
        if isinstance(details, dict):
            for name in ("reasoning_tokens", "thinking_tokens"):
                if (reasoning := _count(details, name)) is not None:
                    self.reasoning_tokens = reasoning


def read_json(data: bytes) -> Any:
    """Read what an engine wrote, None where that is no JSON.

    Leniently where it must be: half of a surrogate pair, NaN, bytes that are no UTF-8.
    """
    try:
        return _ANY.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _leniently(data)


def _decode(data: bytes) -> _Piece | None:
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = _leniently(data)
        if not isinstance(value, dict):
            return None
        return _Piece(**{name: value.get(name) for name in _Piece.__struct_fields__})


def _leniently(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _count(numbers: Mapping[str, Any], name: str) -> int | None:
    value = numbers.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else None
