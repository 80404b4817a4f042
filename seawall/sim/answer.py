"""The JSON that the engine sends, field for field as vLLM does: whole answers, stream frames, errors.

Two habits of vLLM's that a gate meets are kept: chat chunks leave `usage` out and completions chunks have it null, and
with `continuous_usage_stats` a chunk counts the tokens of its own choice only; the last one has the sum.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from seawall.sim.generate import Finish

DONE = b"data: [DONE]\n\n"

Usage = dict[str, int]


def encoded(document: Any) -> bytes:
    """JSON of an answer; what a client wrote may hold half a surrogate pair, which only an escape can carry."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(document).encode()


def usage(prompt_tokens: int, completion_tokens: int) -> Usage:
    """Return a usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def error(status: int, message: str, param: str | None = None) -> bytes:
    """Return vLLM's error object, whose `code` is the HTTP status as a number."""
    kinds = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Error"
    kind = kinds.get(status, phrase)
    return encoded({"error": {"message": message, "type": kind, "param": param, "code": status}})


@dataclass(frozen=True, slots=True)
class Reply:
    """Builds everything that is sent in answer to one request. `created` is in unix seconds."""

    id: str
    created: int
    model: str
    chat: bool

    def whole(self, choices: Sequence[tuple[str, Finish]], total: Usage | None) -> bytes:
        """Return an answer that is not streamed; without `total` it has no usage."""
        document = self._head("chat.completion" if self.chat else "text_completion")
        document["choices"] = [self._whole_choice(index, text, finish) for index, (text, finish) in enumerate(choices)]
        if total is not None:
            document["usage"] = total
        return encoded(document)

    def role(self, choice: int, so_far: Usage | None) -> bytes:
        """Return the first frame of a chat choice."""
        return self._frame([self._choice(choice, {"delta": {"role": "assistant", "content": ""}}, None)], so_far)

    def text(self, choice: int, text: str, so_far: Usage | None) -> bytes:
        """Return the frame of one token."""
        return self._frame([self._choice(choice, self._delta(text), None)], so_far)

    def finish(self, choice: int, finish: Finish, so_far: Usage | None) -> bytes:
        """Return the last frame of a choice."""
        delta = {"delta": {}} if self.chat else self._delta("")
        return self._frame([self._choice(choice, delta, finish)], so_far)

    def usage(self, total: Usage) -> bytes:
        """Return the frame that has the usage of all choices, and no choice."""
        return self._frame([], total)

    def _head(self, kind: str) -> dict[str, Any]:
        """Return the fields that every document begins with."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _frame(self, choices: list[dict[str, Any]], so_far: Usage | None) -> bytes:
        """Return one SSE event."""
        document = self._head("chat.completion.chunk" if self.chat else "text_completion")
        document["choices"] = choices
        if so_far is not None or not self.chat:
            document["usage"] = so_far
        return b"data: " + encoded(document) + b"\n\n"

    def _delta(self, text: str) -> dict[str, Any]:
        """Return the part of a choice that holds its text."""
        return {"delta": {"content": text}} if self.chat else {"text": text}

    @staticmethod
    def _choice(index: int, delta: dict[str, Any], finish: Finish | None) -> dict[str, Any]:
        """Return one streamed choice."""
        return {"index": index, **delta, "logprobs": None, "finish_reason": finish}

    def _whole_choice(self, index: int, text: str, finish: Finish) -> dict[str, Any]:
        """Return one choice that is not streamed."""
        content = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return self._choice(index, content, finish)
