"""Changes to a request before an engine gets it, each a plain action: what a policy or a rung of the ladder asks for.

Only what an action is about changes; the rest of the body goes on byte for byte. Fields are taken out in the groups in
which vLLM wants them (`top_logprobs` without `logprobs` is a 400), and what was taken out or lowered is told by name.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from seawall.decision import Reason, Refusal
from seawall.llm.answer import Plan
from seawall.llm.json_body import REMOVED
from seawall.llm.protocols.contract import Origin
from seawall.llm.request import LlmRequest
from seawall.llm.spans import Path
from seawall.llm.truncate import Caps

OPERATOR_FIELDS = (
    "priority",
    "request_id",
    "rid",
    "kv_transfer_params",
    "ec_transfer_params",
    "vllm_xargs",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
)
"""Fields of vLLM and SGLang that decide scheduling and placement: never a client's to set."""

_ASKED = b'{"include_usage":true}'
_ASKED_BESIDE = b'{"include_usage":true,"continuous_usage_stats":true}'

CONTINUOUS_KINDS = frozenset({"vllm", "sglang"})
"""Engines that tell usage beside every piece of a stream when asked to."""


@dataclass(frozen=True, slots=True)
class Actions:
    """What is done to a request; the default is nothing.

    `model` is the engine's name for it. `cap` is the most output tokens, `longest` the most tokens of prompt and output
    together: a longer prompt is refused, a larger output cap lowered (`max_sequence`). `priority` is the engine's, lower
    is earlier. `usage` asks for usage in streams, `continuous` beside every piece.
    """

    model: str | None = None
    cap: int | None = None
    drop_logprobs: bool = False
    one_choice: bool = False
    longest: int | None = None
    priority: int | None = None
    usage: bool = False
    continuous: bool = False
    drop: tuple[str, ...] = OPERATOR_FIELDS


NOTHING = Actions()


class Rewritten(NamedTuple):
    """`body` None: nothing changed. `fields` are those of the client that were taken out or lowered, sorted."""

    body: bytes | None
    fields: tuple[str, ...]


def rewrite(request: LlmRequest, actions: Actions) -> Rewritten | Refusal:
    """Apply the actions to a request."""
    value = request.body.value
    changes: dict[Path, Any] = {}
    told: set[str] = set()
    for name in actions.drop:
        if name in value and not (name == "priority" and actions.priority is not None):
            changes[name,] = REMOVED
            told.add(name)
    if actions.drop_logprobs:
        told |= _without_logprobs(request, changes)
    if actions.one_choice and request.endpoint.choices:
        for name in ("n", "best_of"):
            if (value.get(name) or 1) > 1:
                changes[name,] = 1
                told.add(name)
    cap = actions.cap
    if actions.longest is not None:
        room = actions.longest - request.prompt_estimate()
        if room < 1:
            message = f"Prompts of about {actions.longest - room} tokens are too long now; at most {actions.longest}."
            return Refusal(Reason.PARAMETER, message, request.endpoint.prompt_fields[0])
        cap = room if cap is None else min(cap, room)
    if cap is not None:
        told |= _capped(request, cap, changes)
    if actions.model is not None and actions.model != request.model:
        changes["model",] = actions.model
    if actions.priority is not None and value.get("priority") != actions.priority:
        changes["priority",] = actions.priority
    if actions.usage:
        _asking_for_usage(request, actions.continuous, changes)
    return Rewritten(request.body.changed(changes) if changes else None, tuple(sorted(told)))


def _without_logprobs(request: LlmRequest, changes: dict[Path, Any]) -> set[str]:
    value = request.body.value
    told = {name for name in request.endpoint.logprobs if name in value}
    for name in told:
        changes[name,] = REMOVED
    include = value.get("include")
    if isinstance(include, list) and "message.output_text.logprobs" in include:
        changes["include",] = [entry for entry in include if entry != "message.output_text.logprobs"]
        told.add("include")
    return told


def _capped(request: LlmRequest, cap: int, changes: dict[Path, Any]) -> set[str]:
    """Lower every cap that the client gave; without any, set the one that each engine knows.

    vLLM takes `max_completion_tokens` and ignores `max_tokens` where both are given.
    """
    endpoint, value = request.endpoint, request.body.value
    if endpoint.cap_default is None:
        return set()
    given = [name for name in endpoint.cap_fields if value.get(name) is not None]
    lowered = {name for name in given if value[name] > cap}
    for name in lowered:
        changes[name,] = cap
    if not given:
        changes[endpoint.cap_default,] = cap
    smallest = value.get("min_tokens")
    if isinstance(smallest, int) and smallest > cap:
        # More at least than at most is a 400.
        changes["min_tokens",] = cap
        lowered.add("min_tokens")
    return lowered


def _asking_for_usage(request: LlmRequest, continuous: bool, changes: dict[Path, Any]) -> None:
    """Ask for usage whatever the client wrote; its other stream options stay. Without `stream` it would be a 400."""
    if not (request.stream and request.endpoint.usage_asked):
        return
    options = request.body.value.get("stream_options")
    if options is None:
        changes["stream_options",] = _ASKED_BESIDE if continuous else _ASKED
        return
    for name in ("include_usage", "continuous_usage_stats") if continuous else ("include_usage",):
        if options.get(name) is not True:
            changes["stream_options", name] = True


def plan_of(request: LlmRequest, actions: Actions, *, kinds: frozenset[str], caps: Caps, id_: str, count: bool) -> Plan:
    """What is done with the answer to a request after these actions, by engines of these kinds.

    Usage that we asked for is hidden again; so is what an engine tells that forces it on every stream. SGLang tells usage
    beside each piece even if asked for no more than that.
    """
    asks = request.endpoint.usage_asked and request.stream and actions.usage
    continuous = request.continuous and (request.usage or kinds == frozenset({"sglang"}))
    renamed = actions.model if actions.model is not None and actions.model != request.model and request.model else None
    choices = 1 if actions.one_choice else request.choices
    return Plan(
        request.endpoint,
        Origin(id_, request.model),
        renamed,
        choices,
        asked=request.usage,
        hide_event=asks and not request.usage,
        hide_numbers=asks and not continuous and (actions.continuous or not request.usage),
        per_choice=choices > 1 and "llamacpp" in kinds,
        prompt=request.prompt_estimate() if count else 0,
        count=count,
        caps=caps,
    )
