"""One rate limit call, decided: what to charge, then what to answer. Pure; the charge itself happens between the two.

Rules of envoyproxy/ratelimit: a descriptor without a limit is OK and counts nowhere; one descriptor over makes the call
OVER_LIMIT, unless it is one of several quotas; others are charged all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seawall.limits.call import MAX_DESCRIPTORS, Descriptor, InvalidCall, check_entries, hits_of
from seawall.limits.charge import Demand, Outcome
from seawall.limits.counter_key import Entries, identity, text
from seawall.limits.descriptor import UNLIMITED, Limit, Match, Node, match
from seawall.limits.window import US, Algorithm, Unit, Window, window_start

OVERRIDE = "(request)"
"""Label of every limit that came with a request: metrics are not to be named by what a client sends."""
_OVERRIDES = frozenset({Unit.SECOND, Unit.MINUTE, Unit.HOUR, Unit.DAY, Unit.MONTH, Unit.YEAR})
"""Units that a request can send: RateLimitUnit has no week."""


class Planned(NamedTuple):
    """A descriptor whose limit counts. `position` is its place in the call, `counted` the entries its counter is named by.

    `match` is None for a limit that came with the request, `identity` the counter's name where it is one of ours.
    """

    position: int
    limit: Limit
    counted: Entries
    hits: int
    give_back: bool
    match: Match | None
    identity: bytes = b""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call charges, and for each descriptor the limit that answers for it (an unlimited one is not charged)."""

    domain: str
    steps: tuple[Planned, ...]
    limits: tuple[Limit | None, ...]
    uncounted: tuple["Status", ...]
    """Status of each descriptor without its counter: what an unlimited one has, or one without a limit."""


class Status(NamedTuple):
    """Answer for one descriptor. Without `window` there is nothing to describe: no limit, an unlimited or hidden one.

    `over` is the code that is sent, `exceeded` what the counter said: a shadow limit is exceeded and not over. `reset`
    is in whole seconds.
    """

    over: bool
    window: Window | None = None
    name: str = ""
    remaining: int = 0
    reset: int = 0
    exceeded: bool = False


_UNMATCHED = Status(False)
_UNLIMITED = Status(False, remaining=UNLIMITED)


def plan(domain: str, tree: Node | None, descriptors: Sequence[Descriptor], request_hits: int) -> Plan:
    """Find what a call charges. `request_hits` 0 means 1, as the protocol's default (rls.proto). Raises InvalidCall."""
    if not domain:
        raise InvalidCall("rate limit domain must not be empty")
    if not descriptors:
        raise InvalidCall("rate limit descriptor list must not be empty")
    if len(descriptors) > MAX_DESCRIPTORS:
        raise InvalidCall(f"{len(descriptors)} descriptors in one call; allowed are {MAX_DESCRIPTORS}")
    found: list[tuple[Limit, Match | None, Entries] | None] = [None] * len(descriptors)
    replaced: set[str] = set()
    if tree is not None:
        for position, descriptor in enumerate(descriptors):
            if descriptor.override is not None:
                found[position] = (_override(descriptor), None, descriptor.entries)
            elif (matched := match(tree, descriptor.entries)) is not None:
                found[position] = (matched.limit, matched, matched.counted)
                replaced |= matched.limit.replaces
    steps: list[Planned] = []
    for position, descriptor in enumerate(descriptors):
        one = found[position]
        if one is None:
            continue
        limit, matched, counted = one
        if limit.name and limit.name in replaced:
            found[position] = None
        elif not limit.unlimited:
            check_entries(descriptor)
            hits = hits_of(descriptor, request_hits)
            name = identity(domain, counted)
            steps.append(Planned(position, limit, counted, hits, descriptor.give_back, matched, name))
    limits = tuple(one[0] if one is not None else None for one in found)
    uncounted = tuple(_UNLIMITED if limit is not None and limit.unlimited else _UNMATCHED for limit in limits)
    return Plan(domain, tuple(steps), limits, uncounted)


def _override(descriptor: Descriptor) -> Limit:
    assert descriptor.override is not None
    requests, unit = descriptor.override
    if unit not in _OVERRIDES:
        allowed = ", ".join(u.name for u in sorted(_OVERRIDES))
        raise InvalidCall(f"unit {unit} of a descriptor's limit is not known; allowed are {allowed}")
    return Limit(OVERRIDE, (Window(Algorithm.FIXED, requests, Unit(unit).seconds),))


def demand(step: Planned, domain: str, now: int, prefix: str | None = None) -> Demand:
    """What a step asks of the store at `now`, unix microseconds.

    The key is free of collisions; with a `prefix` (CACHE_KEY_PREFIX, also "") it is envoyproxy/ratelimit's text wherever
    the limit counts as that does.
    """
    limit = step.limit
    key, whole = step.identity, prefix is not None and limit.plain
    if prefix is not None and whole:
        key = text(prefix, domain, step.counted, window_start(now // US, limit.windows[0].length))
    return Demand(key, limit.windows, step.hits, step.give_back, limit.charge_refused, limit.exhausted, whole)


def conclude(plan: Plan, outcomes: Sequence[Outcome]) -> list[Status]:
    """Give each descriptor its status; `outcomes` are those of the plan's steps, in order."""
    statuses = list(plan.uncounted)
    for step, outcome in zip(plan.steps, outcomes, strict=True):
        statuses[step.position] = _status(step.limit, outcome)
    return statuses


def _status(limit: Limit, outcome: Outcome) -> Status:
    over = outcome.over and not limit.shadow
    if len(limit.windows) == 1 and not limit.windows[0].hidden and outcome.readings[0].over == outcome.over:
        _, _, remaining, reset = outcome.readings[0]
        return Status(over, limit.windows[0], limit.name, remaining, reset, outcome.over)
    shown = [
        (window, reading)
        for window, reading in zip(limit.windows, outcome.readings, strict=True)
        if not window.hidden and (reading.over or not outcome.over)
    ]
    if not shown:
        return Status(over, exceeded=outcome.over)
    # Of several windows the one that refused, else the one with the least left; the first of equals.
    window, reading = min(shown, key=lambda shown: shown[1].remaining)
    return Status(over, window, limit.name, reading.remaining, reading.reset, outcome.over)


def overall(plan: Plan, statuses: Sequence[Status], *, quota_mode: bool = False) -> bool:
    """Whether the call is over: one limit that is no quota, or all the quotas there are.

    With `quota_mode` every descriptor is a quota, also one without a limit, which passes; unlimited ones take no part.
    """
    if not any(status.over for status in statuses):
        return False
    quotas: list[bool] = []
    for limit, status in zip(plan.limits, statuses, strict=True):
        if limit is not None and limit.unlimited:
            continue
        if quota_mode or (limit is not None and limit.quota):
            quotas.append(status.over)
        elif status.over:
            return True
    return bool(quotas) and all(quotas)


def local_share(window: Window, workers: int) -> Window:
    """Part of a window that one of `workers` workers may spend by itself while the store is away, at least 1 hit.

    Over all workers that is at most the limit, or their number where the limit is smaller.
    """
    workers = max(1, workers)
    requests = max(1, window.requests // workers) if window.requests else 0
    burst = max(1, window.burst // workers) if window.burst else 0
    return Window(window.algorithm, requests, window.length, burst, window.hidden)
