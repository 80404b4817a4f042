"""What a request asks for, read once: model, stream, caps on output; and the changes that the gate makes to it."""

from dataclasses import dataclass
from typing import Any

from seawall.decision import Reason, Refusal
from seawall.llm.json_body import JsonObject, parse_object
from seawall.llm.protocols import Endpoint


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A readable request. `model` is "" where the client named none; `output_cap` is its own cap in tokens, or None."""

    endpoint: Endpoint
    body: JsonObject
    model: str
    stream: bool
    output_cap: int | None

    def rewritten(self, *, model: str, cap: int | None) -> bytes | None:
        """Body with the engine's model name and the cap applied, or None where nothing changes.

        The cap goes where the engine looks first: vLLM takes `max_completion_tokens` and ignores `max_tokens` when both
        are given, so every given field is capped, and without any the endpoint's default field is added.
        """
        changes: dict[str, object] = {}
        if model != self.model:
            changes["model"] = model
        if cap is not None and self.endpoint.cap_default is not None:
            given = [name for name in self.endpoint.cap_fields if self.body.get(name) is not None]
            for name in given:
                if self.body.get(name) > cap:
                    changes[name] = cap
            if not given:
                changes[self.endpoint.cap_default] = cap
        return self.body.replaced(changes) if changes else None


def read_request(endpoint: Endpoint, body: bytes) -> LlmRequest | Refusal:
    """Read a body for an endpoint; a refusal names the field."""
    parsed = parse_object(body)
    if isinstance(parsed, Refusal):
        return parsed
    model = parsed.get("model")
    if model is not None and (not isinstance(model, str) or not model):
        return _wrong("model", model, "a non-empty string")
    stream = parsed.get("stream")
    if stream is not None and not isinstance(stream, bool):
        return _wrong("stream", stream, "true or false")
    for name in ("n", "best_of"):
        value = parsed.get(name)
        if value is not None and not _positive(value):
            return _wrong(name, value, "a whole number of at least 1")
    for name in endpoint.prompt_fields:
        value = parsed.get(name)
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
        value = parsed.get(name)
        if value is None:
            continue
        if not _positive(value):
            return _wrong(name, value, "a whole number of at least 1")
        caps.append(value)
    return LlmRequest(endpoint, parsed, model or "", bool(stream), caps[0] if caps else None)


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _wrong(name: str, value: Any, allowed: str) -> Refusal:
    kind = {bool: "a boolean", str: "a string", list: "a list", dict: "an object"}.get(type(value))
    if kind is None:
        kind = str(value) if len(str(value)) <= 24 else str(value)[:21] + "..."
    elif value in ("", []):
        kind = f"an empty {kind.split()[-1]}"
    return Refusal(Reason.PARAMETER, f"The parameter '{name}' must be {allowed}, not {kind}.", name)
