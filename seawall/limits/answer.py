"""One rate limit call from question to answer: `ask` says what the store is asked, `answer` what is told.

What both services and tests go by; between the two lies the store's one step, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seawall.limits import statistics
from seawall.limits.call import Descriptor
from seawall.limits.charge import Demand, Outcome
from seawall.limits.decide import Plan, Planned, Status, conclude, demand, overall, plan
from seawall.limits.descriptor import Node
from seawall.limits.over_limit_cache import OverLimitCache
from seawall.limits.response import HeaderNames, dynamic_metadata, headers


@dataclass(frozen=True, slots=True)
class Modes:
    """Settings that say how calls are answered, named after envoyproxy/ratelimit's variables.

    `key_prefix` is CACHE_KEY_PREFIX: with it counters have envoyproxy/ratelimit's key text, None has keys of our own.
    `headers` None adds none.
    """

    quota: bool = False
    shadow: bool = False
    stop: bool = False
    near_ratio: float = statistics.NEAR_RATIO
    headers: HeaderNames | None = None
    metadata: bool = False
    key_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A planned call. `demands` are for the store, in one step; `known` are outcomes that need none, by step."""

    plan: Plan
    descriptors: Sequence[Descriptor]
    request_hits: int
    demands: tuple[Demand, ...]
    known: Mapping[int, Outcome]
    unknown_domain: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What is told. `counted` are the hits to add to the statistics of each step's limit.

    `shadowed`: the call was over and SHADOW_MODE let it pass.
    """

    over: bool
    shadowed: bool
    statuses: Sequence[Status]
    headers: Sequence[tuple[str, str]]
    metadata: Mapping[str, Any] | None
    counted: Sequence[tuple[Planned, statistics.Hits]]


def ask(
    domain: str,
    tree: Node | None,
    descriptors: Sequence[Descriptor],
    request_hits: int,
    now: int,
    modes: Modes = Modes(),
    cache: OverLimitCache | None = None,
    planned: Plan | None = None,
) -> Asked:
    """Plan a call; `tree` None: the domain has no rules. `now` is unix microseconds. Raises InvalidCall.

    `planned` is the plan of the same call by the same rules, where it was made before.
    """
    if planned is None:
        planned = plan(domain, tree, descriptors, request_hits)
    demands = [demand(step, domain, now, modes.key_prefix) for step in planned.steps]
    known: dict[int, Outcome] = {}
    if cache is not None:
        for index, asked in enumerate(demands):
            if (outcome := cache.refuses(asked, now)) is not None:
                known[index] = outcome
    open_demands = [asked for index, asked in enumerate(demands) if index not in known]
    if modes.stop and known:
        # One is refused for certain: in stop mode the others are looked at.
        open_demands = [asked if asked.give_back else asked._replace(hits=0) for asked in open_demands]
    return Asked(planned, descriptors, request_hits, tuple(open_demands), known, tree is None)


def answer(
    asked: Asked,
    outcomes: Sequence[Outcome],
    now: int,
    modes: Modes = Modes(),
    cache: OverLimitCache | None = None,
) -> Answer:
    """Answer a call with the outcomes of its demands, in their order."""
    planned = asked.plan
    if cache is not None:
        for told, outcome in zip(asked.demands, outcomes, strict=True):
            cache.learn(told, outcome, now)
    every = outcomes
    if asked.known:
        rest = iter(outcomes)
        every = [asked.known[i] if i in asked.known else next(rest) for i in range(len(planned.steps))]
    statuses = conclude(planned, every)
    over = overall(planned, statuses, quota_mode=modes.quota)
    counted = [
        (step, statistics.cached(step) if i in asked.known else statistics.count(step, outcome, modes.near_ratio))
        for i, (step, outcome) in enumerate(zip(planned.steps, every, strict=True))
    ]
    return Answer(
        over=over and not modes.shadow,
        shadowed=over and modes.shadow,
        statuses=statuses,
        headers=headers(planned, statuses, modes.headers, quota_mode=modes.quota) if modes.headers else (),
        metadata=(
            dynamic_metadata(planned, statuses, asked.descriptors, asked.request_hits) if modes.metadata else None
        ),
        counted=counted,
    )


def passed(asked: Asked) -> Answer:
    """Let everything through uncounted, with nothing to describe: no counter could be asked."""
    return Answer(False, False, [Status(over=False)] * len(asked.plan.limits), (), None, ())
