"""Why a call would be let through or not: rules, counters and numbers, found by a look that charges nothing."""

from collections.abc import Callable, Sequence
from typing import Any

from seawall.limits.answer import Asked, Modes
from seawall.limits.charge import Demand, Outcome
from seawall.limits.decide import OVERRIDE, Planned, Status, conclude, overall
from seawall.limits.descriptor import Node, match, reached
from seawall.limits.window import Reading


def looks(asked: Asked) -> tuple[Demand, ...]:
    """What is to be asked of the store: each counter once, read only. `asked` is planned without a cache."""
    return tuple(demand._replace(hits=0, give_back=False) for demand in asked.demands)


def explain(
    asked: Asked, tree: Node | None, outcomes: Sequence[Outcome], modes: Modes, key: Callable[[Demand], str]
) -> dict[str, Any]:
    """Tell a call, with the outcomes of its `looks`: plain data (JSON). `key` names a counter in the store.

    Each descriptor is judged by its counter as it is now: several of one call that share a counter, or stop mode, may
    come out otherwise.
    """
    planned = asked.plan
    would = [_judged(step, outcome) for step, outcome in zip(planned.steps, outcomes, strict=True)]
    statuses = conclude(planned, would)
    over = overall(planned, statuses, quota_mode=modes.quota)
    steps = {
        step.position: (step, demand, outcome)
        for step, demand, outcome in zip(planned.steps, asked.demands, would, strict=True)
    }
    told = []
    for position, descriptor in enumerate(asked.descriptors):
        entries = [f"{name}={value}" for name, value in descriptor.entries]
        if position in steps:
            step, demand, outcome = steps[position]
            told.append({"entries": entries, **_counted(step, demand, outcome, statuses[position], key)})
        else:
            told.append({"entries": entries, "rule": None, "code": "OK", "reason": _uncounted(asked, tree, position)})
    return {
        "domain": planned.domain,
        "code": "OVER_LIMIT" if over and not modes.shadow else "OK",
        "reason": _overall(over, modes, statuses),
        "descriptors": told,
    }


def _judged(step: Planned, outcome: Outcome) -> Outcome:
    """What these hits would meet, by a look at the counter."""
    if step.give_back:
        return Outcome(False, 0, tuple(r._replace(over=False) for r in outcome.readings))
    readings = tuple(
        reading._replace(over=reading.over or step.hits > reading.remaining) for reading in outcome.readings
    )
    return Outcome(outcome.over or any(r.over for r in readings), 0, readings)


def _counted(
    step: Planned, demand: Demand, outcome: Outcome, status: Status, key: Callable[[Demand], str]
) -> dict[str, Any]:
    limit = step.limit
    windows = [
        {
            "algorithm": str(window.algorithm),
            "requests": window.requests,
            "seconds": window.length,
            **({"burst": window.burst} if window.burst else {}),
            "used": reading.used,
            "remaining": reading.remaining,
            "resets_in": reading.reset,
            "over": reading.over,
        }
        for window, reading in zip(limit.windows, outcome.readings, strict=True)
    ]
    flags = [name for name in ("shadow", "quota", "exhausted") if getattr(limit, name)]
    return {
        "rule": "the request's own limit" if limit.label == OVERRIDE else limit.label,
        **({"name": limit.name} if limit.name else {}),
        **({"flags": flags} if flags else {}),
        "hits": -step.hits if step.give_back else step.hits,
        "counter": key(demand),
        "windows": windows,
        "code": "OVER_LIMIT" if status.over else "OK",
        "reason": _reason(step, outcome),
    }


def _reason(step: Planned, outcome: Outcome) -> str:
    if step.give_back:
        return f"{step.hits} hits are given back"
    pairs = list(zip(step.limit.windows, outcome.readings, strict=True))
    # The window that refuses, else the one with the least left.
    window, reading = min(pairs, key=lambda pair: (not pair[1].over, pair[1].remaining))
    numbers = f"{reading.used} of {window.capacity} used in {window.length} s"
    if not outcome.over:
        return f"{numbers}, {_hits(step.hits)} would fit"
    shadow = "; the rule is a shadow, so it passes" if step.limit.shadow else ""
    return f"{numbers}, {_hits(step.hits)} would not fit for {_seconds(reading)}{shadow}"


def _hits(number: int) -> str:
    return "a look" if not number else "1 hit" if number == 1 else f"{number} hits"


def _seconds(reading: Reading) -> str:
    return f"{reading.reset} s"


def _uncounted(asked: Asked, tree: Node | None, position: int) -> str:
    descriptor, limit = asked.descriptors[position], asked.plan.limits[position]
    if limit is not None:
        return f"rule '{limit.label}' is unlimited"
    if tree is None:
        return f"domain '{asked.plan.domain}' has no rules"
    if not descriptor.entries:
        return "the descriptor has no entries"
    found = match(tree, descriptor.entries)
    if found is not None:
        return f"rule '{found.limit.label}' is replaced: another rule of this call replaces '{found.limit.name}'"
    depth = reached(tree, descriptor.entries)
    if depth == len(descriptor.entries):
        return "the rule that it ends at has no limit"
    name, value = descriptor.entries[depth]
    return f"no rule for entry {depth + 1}, '{name}={value}'"


def _overall(over: bool, modes: Modes, statuses: Sequence[Status]) -> str:
    if over:
        return "over a limit, but SHADOW_MODE lets it pass" if modes.shadow else "over a limit"
    if any(status.over for status in statuses):
        return "not all quotas are over"
    return "no limit is over"
