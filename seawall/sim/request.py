"""From a request's bytes to what the engine is asked for, refused where vLLM refuses.

The parser is lenient on purpose, like vLLM's: the last of duplicate keys wins, NaN and lone surrogates pass, unknown
fields are ignored. A gate in front must cope with an engine that reads so.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from seawall.sim.generate import count_tokens

MESSAGE_OVERHEAD = 4
MOST_CHOICES = 128


@dataclass(frozen=True, slots=True)
class Ask:
    """One valid request. It has `len(prompts) * n` choices; on chat there is one prompt."""

    chat: bool
    model: str
    prompts: tuple[str, ...]
    prompt_tokens: int
    n: int
    cap: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool


class BadRequest(Exception):
    """The engine refuses the request: a message, the parameter at fault, and an HTTP status."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status


def read(body: bytes, *, chat: bool, models: Collection[str]) -> Ask:
    """Parse a chat (`chat=True`) or a completions request for an engine that serves `models`.

    Raises:
        BadRequest: 404 for an unknown model, 400 for everything else that vLLM refuses.
    """
    document = _parse(body)
    model = _typed(document, "model", str, "a string") or next(iter(models))
    if model not in models:
        raise BadRequest(f"The model `{model}` does not exist.", "model", 404)
    stream = bool(_typed(document, "stream", bool, "a boolean"))
    include_usage, continuous_usage = _stream_options(document, stream)
    _refuse_halves(document, stream)
    prompts, prompt_tokens = _chat_prompt(document) if chat else _prompts(document)
    cap = _integer(document, "max_completion_tokens", at_least=1) if chat else None
    older = _integer(document, "max_tokens", at_least=1)
    n = _integer(document, "n", at_least=1) or 1
    if n > MOST_CHOICES:
        raise BadRequest(f"n must be at most {MOST_CHOICES}, got {n}.", "n")
    return Ask(
        chat=chat,
        model=model,
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        n=n,
        cap=older if cap is None else cap,
        ignore_eos=bool(_typed(document, "ignore_eos", bool, "a boolean")),
        stream=stream,
        include_usage=include_usage,
        continuous_usage=include_usage and continuous_usage,
    )


def _parse(body: bytes) -> dict[str, Any]:
    """Read the body as a JSON object."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"Invalid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest("The request body must be a JSON object.")
    return document


def _typed(document: dict[str, Any], name: str, kind: type, wanted: str) -> Any:
    """Return a field, or None where it is absent or null; anything but `kind` is refused."""
    value = document.get(name)
    if value is not None and not isinstance(value, kind):
        raise BadRequest(f"{name} must be {wanted}.", name)
    return value


def _integer(document: dict[str, Any], name: str, at_least: int) -> int | None:
    """Return a whole number, or None where it is absent or null; `true` is no number."""
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{name} must be an integer.", name)
    if value < at_least:
        raise BadRequest(f"{name} must be at least {at_least}, got {value}.", name)
    return value


def _stream_options(document: dict[str, Any], stream: bool) -> tuple[bool, bool]:
    """Return (include_usage, continuous_usage_stats)."""
    options = _typed(document, "stream_options", dict, "an object")
    if options is None:
        return False, False
    if not stream:
        raise BadRequest("Stream options can only be defined when `stream=True`.", "stream_options")
    return bool(options.get("include_usage")), bool(options.get("continuous_usage_stats"))


def _refuse_halves(document: dict[str, Any], stream: bool) -> None:
    """Refuse one half of a pair of fields, which is what a careless gate leaves, and a priority."""
    tools = _typed(document, "tools", list, "a list")
    if tools is not None and not tools:
        raise BadRequest("tools must not be an empty list.", "tools")
    if tools is None and document.get("tool_choice") not in {None, "none"}:
        raise BadRequest("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if document.get("top_logprobs") and not document.get("logprobs"):
        raise BadRequest("When using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    if stream and document.get("prompt_logprobs") is not None:
        raise BadRequest("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    if document.get("priority"):
        raise BadRequest("Got priority but the priority scheduling is not enabled.", "priority")


def _chat_prompt(document: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    """Return the messages as one text, and its tokens: those of every text, and 4 for each message."""
    messages = _typed(document, "messages", list, "a list")
    if not messages:
        raise BadRequest("messages must have at least one item.", "messages")
    lines = []
    tokens = 0
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(f"{where} must be an object with a role.", where)
        text = _content(message.get("content"), f"{where}.content")
        tokens += MESSAGE_OVERHEAD + count_tokens(text)
        lines.append(f"{message['role']}: {text}")
    return ("\n".join(lines),), tokens


def _content(content: Any, where: str) -> str:
    """Return the text of a message: a string, or the text parts of a list; images and sounds count nothing here."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    raise BadRequest(f"{where} must be a string or a list of parts.", where)


def _prompts(document: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    """Return the prompts of a completion (a string, token ids, or a list of either) and their tokens together."""
    prompt = document.get("prompt")
    if isinstance(prompt, str) or _are_ids(prompt):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt must be a string, a list of token ids, or a non-empty list of those.", "prompt")
    texts = []
    tokens = 0
    for item in prompt:
        if isinstance(item, str):
            texts.append(item)
            tokens += count_tokens(item)
        elif _are_ids(item):
            texts.append(" ".join(map(str, item)))
            tokens += len(item)
        else:
            raise BadRequest("prompt must be a string, a list of token ids, or a non-empty list of those.", "prompt")
    return tuple(texts), tokens


def _are_ids(value: Any) -> bool:
    """Tell whether this is a list of token ids."""
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)
