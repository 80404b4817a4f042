"""What a call's answer says beside its codes: rate-limit headers, dynamic metadata, both as envoyproxy/ratelimit's."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seawall.limits.call import Descriptor
from seawall.limits.decide import Plan, Status
from seawall.limits.window import Unit

_UNITS = {unit.value: unit.name for unit in Unit}


class HeaderNames(NamedTuple):
    """LIMIT_LIMIT_HEADER, LIMIT_REMAINING_HEADER, LIMIT_RESET_HEADER."""

    limit: str = "RateLimit-Limit"
    remaining: str = "RateLimit-Remaining"
    reset: str = "RateLimit-Reset"


def headers(
    plan: Plan, statuses: Sequence[Status], names: HeaderNames, *, quota_mode: bool = False
) -> list[tuple[str, str]]:
    """Headers of the limit that matters: the last one that is over and no quota, else the one with the least left.

    Of equals the first. Empty when no descriptor has a limit to describe.
    """
    least: Status | None = None
    over: Status | None = None
    for limit, status in zip(plan.limits, statuses, strict=True):
        if limit is None or status.window is None:
            continue
        if status.over and not (quota_mode or limit.quota):
            over = status
        if least is None or status.remaining < least.remaining:
            least = status
    told = over or least
    if told is None or told.window is None:
        return []
    numbers = (told.window.requests, told.remaining, told.reset)
    return [(name, str(number)) for name, number in zip(names, numbers, strict=True)]


def dynamic_metadata(
    plan: Plan, statuses: Sequence[Status], descriptors: Sequence[Descriptor], request_hits: int
) -> dict[str, Any]:
    """The Struct of RESPONSE_DYNAMIC_METADATA: what was asked, and the metadata of the rules that passed."""
    told: dict[str, Any] = {"domain": plan.domain, "descriptors": [_told(d) for d in descriptors]}
    if request_hits:
        told["hitsAddend"] = request_hits
    merged: dict[str, Any] = {}
    for limit, status in zip(plan.limits, statuses, strict=True):
        if limit is not None and not limit.unlimited and not status.over and limit.metadata:
            _merge(merged, limit.metadata)
    if merged:
        told["metadata"] = merged
    return told


def _told(descriptor: Descriptor) -> dict[str, Any]:
    told: dict[str, Any] = {"entries": [f"{key}={value}" for key, value in descriptor.entries]}
    if descriptor.override is not None:
        requests, unit = descriptor.override
        # The text form of a protobuf message: a field of 0 is left out.
        parts = [f"requests_per_unit:{requests}"] if requests else []
        parts += [f"unit:{_UNITS.get(unit, unit)}"] if unit else []
        told["limit"] = " ".join(parts)
    if descriptor.hits is not None:
        told["hitsAddend"] = descriptor.hits
    return told


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Add what is not there; maps merge, on any other conflict the first stays. Nothing of `new` is shared."""
    for key, value in new.items():
        if isinstance(value, Mapping):
            below = into.setdefault(key, {})
            if isinstance(below, dict):
                _merge(below, value)
        else:
            into.setdefault(key, value)
