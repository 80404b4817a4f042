"""What chat completions and completions share: an answer is a list of choices, each with its own end."""

from collections.abc import Iterator, Sequence
from typing import Any

from seawall.llm.protocols.contract import MAX_FOLLOWED, Delta, End, Json, Origin, Stream, Tokens, dicts, dumps
from seawall.llm.spans import Path

DONE = b"data: [DONE]\n\n"


class ChoicesStream(Stream):
    """Follows the choices of a stream. `expected` is the client's `n`: a choice that has not begun is ended as well."""

    __slots__ = ("_kind", "_open", "_origin", "_over", "_rest", "_shape")

    def __init__(self, origin: Origin, expected: int, shape: str, rest: dict[str, Any]):
        self._origin = origin
        self._kind: dict[str, Any] | None = None
        self._open = dict.fromkeys(range(min(expected, MAX_FOLLOWED)), True)
        self._over = False
        self._shape = shape
        self._rest = rest

    def take(self, event: Json) -> None:
        """Remember what the stream calls itself, and which choices are over."""
        if self._kind is None and "choices" in event:
            self._kind = {name: event[name] for name in ("id", "object", "created", "model") if name in event}
        for _, choice in dicts(event.get("choices")):
            index = choice.get("index", 0)
            if isinstance(index, int) and (index in self._open or len(self._open) < MAX_FOLLOWED):
                self._open[index] = self._open.get(index, True) and choice.get("finish_reason") is None

    def is_indifferent(self, data: bytes) -> bool:
        """After the first, only an event that finishes a choice matters."""
        return self._kind is not None and b'"finish_reason":"' not in data and b'"finish_reason": "' not in data

    def unfinished(self, event: Json) -> dict[Path, Any]:
        """No choice of the event is finished, and its logprobs, which repeat the text, are away."""
        changes: dict[Path, Any] = {}
        for i, choice in dicts(event.get("choices")):
            for name in ("finish_reason", "logprobs"):
                if choice.get(name) is not None:
                    changes["choices", i, name] = None
        return changes

    def end(self, why: End, tokens: Tokens | None) -> bytes:
        """One finish for each choice that is open, usage if asked for, `[DONE]`."""
        kind = self._kind or {
            "id": self._origin.id,
            "object": self._shape,
            "created": self._origin.created,
            "model": self._origin.model,
        }
        events = [
            {**kind, "choices": [{"index": index, **self._rest, "finish_reason": why.value}]}
            for index, is_open in self._open.items()
            if is_open
        ]
        if tokens is not None:
            events.append({**kind, "choices": [], "usage": usage(tokens)})
        written = "".join(f"data: {dumps(event)}\n\n" for event in events)
        return written.encode("utf-8", "backslashreplace") + DONE


def usage(tokens: Tokens) -> dict[str, int]:
    """Usage as chat and completions tell it."""
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    }


def ended(answer: Json, cut: Sequence[Path], why: End) -> dict[Path, Any]:
    """Say of each choice that lost text why, and take its logprobs away: they repeat the text."""
    changes: dict[Path, Any] = {}
    for index in sorted({path[1] for path in cut}):
        changes["choices", index, "finish_reason"] = why.value
        if answer["choices"][index].get("logprobs") is not None:
            changes["choices", index, "logprobs"] = None
    return changes


def tool_deltas(calls: Any, channel: str, path: Path) -> Iterator[Delta]:
    """Arguments of the tool calls of a delta or message."""
    for i, call in dicts(calls):
        function = call.get("function")
        if isinstance(function, dict) and isinstance(text := function.get("arguments"), str) and text:
            yield Delta(f"{channel}/tool/{call.get('index', i)}", (*path, i, "function", "arguments"), text)
