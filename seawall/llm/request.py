"""What a request asks for, read once: model, stream, caps on output, usage, prompt."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seawall.decision import Reason, Refusal
from seawall.llm.counting import size_of
from seawall.llm.json_body import JsonObject, parse_object
from seawall.llm.protocols.contract import Endpoint, Text

BYTES_PER_TOKEN = 4
"""Of a prompt, for the estimate where no engine tells: see `counting`."""
_PER_MESSAGE = 4
"""Tokens that a chat template puts around a message, about."""


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A readable request. `model` is "" where the client named none; `output_cap` is its own cap in tokens, or None.

    `choices` is how many answers to each prompt it wants. `usage` and `continuous`: it asks for usage at the end of its
    stream, and beside every piece of it.
    """

    endpoint: Endpoint
    body: JsonObject
    model: str
    stream: bool
    output_cap: int | None
    choices: int = 1
    usage: bool = False
    continuous: bool = False

    def texts(self) -> Iterator[Text]:
        """Every text that a model may read, with the place of its JSON string; names, ids and media are none."""
        return iter(()) if self.endpoint.texts is None else self.endpoint.texts(self.body.value)

    def prompt_estimate(self) -> int:
        """Tokens of the prompt, from the bytes of its texts; token ids count as they are."""
        value = self.body.value
        messages = value.get("messages")
        if isinstance(messages, list):
            # The usual request has only plain texts: no need to look for others.
            size = 0
            for message in messages:
                content = message.get("content")
                size += size_of(content) if type(content) is str else _size_of_parts(content)
            system = value.get("system")
            size += size_of(system) if type(system) is str else _size_of_parts(system)
            return size // BYTES_PER_TOKEN + _PER_MESSAGE * len(messages)
        ids = value.get("prompt", value.get("input"))
        size = sum(size_of(text.text) for text in self.texts())
        return _ids(ids) + -(-size // BYTES_PER_TOKEN)


def _size_of_parts(content: Any) -> int:
    if not isinstance(content, list):
        return 0
    return sum(size_of(p["text"]) for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))


def _ids(prompt: Any) -> int:
    if not isinstance(prompt, list) or not prompt:
        return 0
    if isinstance(prompt[0], int):
        return len(prompt)
    return sum(len(ids) for ids in prompt if isinstance(ids, list))


def read_request(endpoint: Endpoint, body: bytes) -> LlmRequest | Refusal:
    """Read a body for an endpoint; a refusal names the field."""
    parsed = parse_object(body)
    if isinstance(parsed, Refusal):
        return parsed
    get = parsed.value.get
    model = get("model")
    if model is not None and (not isinstance(model, str) or not model):
        return _wrong("model", model, "a non-empty string")
    stream = get("stream")
    if stream is not None and not isinstance(stream, bool):
        return _wrong("stream", stream, "true or false")
    for name in ("n", "best_of"):
        value = get(name)
        if value is not None and not _positive(value):
            return _wrong(name, value, "a whole number of at least 1")
    for name in endpoint.prompt_fields:
        value = get(name)
        if value is None:
            if name in endpoint.required:
                return Refusal(Reason.PARAMETER, f"The parameter '{name}' is required.", name)
            continue
        if name == "messages" and not (isinstance(value, list) and value and all(isinstance(m, dict) for m in value)):
            return _wrong(name, value, "a list of at least one message object")
        if name != "messages" and not isinstance(value, str | list):
            return _wrong(name, value, "a string or a list")
    caps: list[int] = []
    for name in endpoint.cap_fields:
        value = get(name)
        if value is None:
            continue
        if not _positive(value):
            return _wrong(name, value, "a whole number of at least 1")
        caps.append(value)
    options = get("stream_options") if endpoint.usage_asked else None
    if options is not None and not isinstance(options, dict):
        return _wrong("stream_options", options, "an object")
    return LlmRequest(
        endpoint,
        parsed,
        model or "",
        bool(stream),
        caps[0] if caps else None,
        (get("n") or 1) if endpoint.choices else 1,
        options is not None and options.get("include_usage") is True,
        options is not None and options.get("continuous_usage_stats") is True,
    )


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _wrong(name: str, value: Any, allowed: str) -> Refusal:
    kind = {bool: "a boolean", str: "a string", list: "a list", dict: "an object"}.get(type(value))
    if kind is None:
        kind = str(value) if len(str(value)) <= 24 else str(value)[:21] + "..."
    elif value in ("", []):
        kind = f"an empty {kind.split()[-1]}"
    return Refusal(Reason.PARAMETER, f"The parameter '{name}' must be {allowed}, not {kind}.", name)
