"""One rate limit call, decided: what to charge, then what to answer. Pure; the charge itself happens between the two.

Rules of envoyproxy/ratelimit: a descriptor without a limit is OK and counts nowhere; a call that goes over is charged in
full; one descriptor over makes the whole call OVER_LIMIT.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seawall.limits.descriptor import Entries, Limit, Node, counter_identity, match
from seawall.limits.window import until_reset, window_start

MAX_DESCRIPTORS = 64
MAX_ENTRY_BYTES = 4096
MAX_HITS = 2**63 - 1


class InvalidCall(ValueError):
    """A call that can't be decided; the text names what is wrong and what is allowed."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One descriptor of a call; `hits` None: the request's hits count."""

    entries: Entries
    hits: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A descriptor with a limit: which counter, which window, how many hits. `position` is the descriptor's place."""

    position: int
    limit: Limit
    identity: bytes
    start: int
    hits: int


@dataclass(frozen=True, slots=True)
class Status:
    """Answer for one descriptor. Without a limit only `over` counts, and it is False. Times are whole seconds."""

    over: bool
    limit: Limit | None = None
    remaining: int = 0
    reset: int = 0


def plan(
    domain: str, tree: Node | None, descriptors: Sequence[Descriptor], request_hits: int, now: float
) -> list[Planned]:
    """Find what a call charges. `request_hits` 0 means 1, as the protocol's default (rls.proto). Raises InvalidCall."""
    if not domain:
        raise InvalidCall("rate limit domain must not be empty")
    if not descriptors:
        raise InvalidCall("rate limit descriptor list must not be empty")
    if len(descriptors) > MAX_DESCRIPTORS:
        raise InvalidCall(f"{len(descriptors)} descriptors in one call; allowed are {MAX_DESCRIPTORS}")
    planned: list[Planned] = []
    if tree is None:
        return planned
    for position, descriptor in enumerate(descriptors):
        limit = match(tree, descriptor.entries)
        if limit is None:
            continue
        for key, value in descriptor.entries:
            if len(key) + len(value) > MAX_ENTRY_BYTES:
                raise InvalidCall(f"entry '{key[:40]}' is longer than {MAX_ENTRY_BYTES} characters")
        hits = descriptor.hits if descriptor.hits is not None else request_hits or 1
        if hits > MAX_HITS:
            raise InvalidCall(f"hits_addend {hits} is above {MAX_HITS}")
        identity = counter_identity(domain, descriptor.entries, limit)
        planned.append(Planned(position, limit, identity, window_start(now, limit.unit.seconds), hits))
    return planned


def conclude(planned: Sequence[Planned], counts: Sequence[int], descriptors: int, now: float) -> list[Status]:
    """Turn counters after the charge into a status for each of `descriptors`; over when the counter is above the limit."""
    statuses = [Status(over=False)] * descriptors
    for step, count in zip(planned, counts, strict=True):
        limit = step.limit
        statuses[step.position] = Status(
            over=count > limit.requests_per_unit,
            limit=limit,
            remaining=max(0, limit.requests_per_unit - count),
            reset=until_reset(now, limit.unit.seconds),
        )
    return statuses


def local_share(limit: Limit, workers: int) -> int:
    """Part of a limit that one of `workers` workers may spend by itself while the store is away, at least 1.

    Over all workers that is at most the limit, or their number where the limit is smaller.
    """
    return max(1, limit.requests_per_unit // max(1, workers)) if limit.requests_per_unit else 0
