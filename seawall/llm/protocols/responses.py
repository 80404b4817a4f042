"""OpenAI responses (`/v1/responses`): typed events with a sequence number, which say each text again when it is over."""

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

MAX_TEXT = 8 * 1024 * 1024
"""Characters of a stream that are kept to be said again at its end; what comes after them is not."""

_REASONS = {End.LENGTH: "max_output_tokens", End.CONTENT: "content_filter"}
_SPOKEN = {
    "response.output_text.delta": "",
    "response.refusal.delta": "/refusal",
    "response.reasoning_text.delta": "/reasoning",
    "response.reasoning_summary_text.delta": "/reasoning",
    "response.function_call_arguments.delta": "/tool",
    "response.custom_tool_call_input.delta": "/tool",
    "response.mcp_call_arguments.delta": "/tool",
}
_PART_TEXT = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
_OVER = frozenset({"response.completed", "response.incomplete", "response.failed"})


def deltas(event: Json) -> list[Delta]:
    """Text, refusal, reasoning or arguments of a tool in a delta."""
    kind = _SPOKEN.get(event.get("type"))  # type: ignore[arg-type]
    text = event.get("delta")
    if kind is None or not isinstance(text, str) or not text:
        return []
    part = event.get("content_index", event.get("summary_index", 0))
    return [Delta(f"{event.get('output_index', 0)}.{part}{kind}", ("delta",), text)]


class ResponseStream(Stream):
    """Follows the items of a stream with their texts: an end of ours has to say them again."""

    __slots__ = ("_items", "_origin", "_over", "_response", "_sequence", "_size")

    def __init__(self, origin: Origin, expected: int):
        del expected
        self._origin = origin
        self._response: dict[str, Any] | None = None
        self._items: dict[int, _Item] = {}
        self._sequence = 0
        self._size = 0
        self._over = False

    def take(self, event: Json) -> None:
        """Remember the response, its items, and what they have said."""
        kind = event.get("type")
        number = event.get("sequence_number")
        if isinstance(number, int) and not isinstance(number, bool):
            self._sequence = max(self._sequence, number + 1)
        if isinstance(response := event.get("response"), dict):
            self._response = response
            self._over = kind in _OVER
            return
        index = event.get("output_index")
        if not isinstance(index, int):
            return
        item = self._items.get(index)
        if isinstance(told := event.get("item"), dict):
            if item is not None or len(self._items) < MAX_FOLLOWED:
                self._items[index] = _Item(dict(told), done=kind == "response.output_item.done")
        elif item is not None:
            for delta in deltas(event):
                if self._size + len(delta.text) <= MAX_TEXT:
                    self._size += len(delta.text)
                    item.add(event, delta.text)

    def end(self, why: End, tokens: Tokens | None) -> bytes:
        """Finish the open items as incomplete, then response.incomplete with all that was said."""
        if self._over:
            return b""
        events: list[dict[str, Any]] = []
        if self._response is None:
            self._response = _response(self._origin)
            events.append({"type": "response.created", "response": self._response})
        output = []
        for index, item in sorted(self._items.items()):
            if not item.done:
                events += item.ending(index)
            output.append(item.told)
        response = {
            **self._response,
            "status": "incomplete",
            "incomplete_details": {"reason": _REASONS[why]},
            "output": output,
            "usage": _usage(tokens) if tokens is not None else None,
        }
        events.append({"type": "response.incomplete", "response": response})
        return _numbered(events, self._sequence)


class _Item:
    """One output item: `told` as the engine told it, with the texts of its parts as far as they have come."""

    __slots__ = ("_arguments", "_parts", "done", "told")

    def __init__(self, told: dict[str, Any], done: bool):
        self.told = told
        self.done = done
        self._parts: dict[tuple[str, int], list[str]] = {}
        self._arguments: list[str] = []

    def add(self, event: Json, text: str) -> None:
        """More of a part's text, or of the arguments."""
        kind = str(event["type"])
        if kind.endswith(("arguments.delta", "input.delta")):
            self._arguments.append(text)
            return
        where = "summary" if "summary" in kind else "content"
        part = {
            "response.refusal.delta": "refusal",
            "response.reasoning_text.delta": "reasoning_text",
            "response.reasoning_summary_text.delta": "summary_text",
        }.get(kind, "output_text")
        index = event.get("summary_index" if where == "summary" else "content_index", 0)
        self._parts.setdefault((part, index if isinstance(index, int) else 0), []).append(text)

    def ending(self, index: int) -> Iterator[dict[str, Any]]:
        """Events that finish it. A cut call of a tool is incomplete, its arguments are what has come."""
        item_id = self.told.get("id")
        told: dict[str, list[Any]] = {}
        for (kind, number), pieces in self._parts.items():
            text = "".join(pieces)
            name = _PART_TEXT[kind]
            part: dict[str, Any] = {"type": kind, name: text}
            if kind == "output_text":
                part["annotations"] = []
            place = {"item_id": item_id, "output_index": index, "content_index": number}
            if kind in ("output_text", "refusal"):
                yield {"type": f"response.{kind}.done", **place, name: text}
                yield {"type": "response.content_part.done", **place, "part": part}
            told.setdefault("summary" if kind == "summary_text" else "content", []).append(part)
        self.told = {**self.told, **told}
        if self._arguments:
            self.told["input" if self.told.get("type") == "custom_tool_call" else "arguments"] = "".join(
                self._arguments
            )
        if "status" in self.told or self.told.get("type") != "reasoning":
            self.told["status"] = "incomplete"
        yield {"type": "response.output_item.done", "output_index": index, "item": self.told}


def _numbered(events: list[dict[str, Any]], first: int) -> bytes:
    return sse(
        [{"type": e["type"], "sequence_number": n, **e} for n, e in enumerate(events, first)],
        named=True,
    )


def _response(origin: Origin) -> dict[str, Any]:
    return {
        "id": origin.id,
        "object": "response",
        "created_at": origin.created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": origin.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.input + tokens.output,
    }


def texts(body: Json) -> Iterator[Text]:
    """Instructions, input as text or items of every kind, tools and text format."""
    for name in ("instructions", "input"):
        if body.get(name):
            yield from parts(body[name], (name,))
    for name in ("tools", "text", "prompt"):
        if body.get(name):
            yield from all_strings(body[name], (name,))


def spoken(answer: Json) -> Texts:
    """Texts of a whole answer, of every item."""
    found: list[tuple[Path, Any]] = []
    for i, item in dicts(answer.get("output")):
        for where in ("summary", "content"):
            for j, part in dicts(item.get(where)):
                found += [(("output", i, where, j, name), part.get(name)) for name in ("text", "refusal")]
        found += [(("output", i, name), item.get(name)) for name in ("arguments", "input")]
    return [(path, text) for path, text in found if isinstance(text, str) and text]


def ended(answer: Json, cut: Sequence[Path], why: End) -> dict[Path, Any]:
    """Say of each item that lost text, and of the whole, that it is incomplete."""
    changes: dict[Path, Any] = {("status",): "incomplete", ("incomplete_details",): {"reason": _REASONS[why]}}
    for index in sorted({path[1] for path in cut}):
        if "status" in answer["output"][index]:
            changes["output", index, "status"] = "incomplete"
    return changes


def static(origin: Origin, text: str, stream: bool, tokens: Tokens | None) -> bytes:
    """A whole answer of ours."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item: dict[str, Any] = {"id": f"msg_{origin.id}", "type": "message", "status": "completed", "role": "assistant"}
    begun = _response(origin)
    done = {
        **begun,
        "status": "completed",
        "output": [{**item, "content": [part]}],
        "usage": _usage(tokens or Tokens(0, 0)),
    }
    if not stream:
        return dumps(done).encode()
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    open_item = {**item, "status": "in_progress", "content": []}
    return _numbered(
        [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": open_item},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": text},
            {"type": "response.output_text.done", **place, "text": text},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": [part]}},
            {"type": "response.completed", "response": done},
        ],
        0,
    )


RESPONSES = Endpoint(
    "responses",
    Family.OPENAI,
    True,
    ("max_output_tokens",),
    "max_output_tokens",
    ("input",),
    logprobs=("top_logprobs",),
    model_paths=(("response", "model"), ("model",)),
    texts=texts,
    deltas=deltas,
    stream=ResponseStream,
    spoken=spoken,
    ended=ended,
    static=static,
    needle=b'"delta":"',
)
