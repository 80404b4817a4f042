"""Numbers and names of envoyproxy/ratelimit's statistics."""

import re
import struct
from functools import lru_cache
from typing import NamedTuple

from seawall.limits.charge import Outcome
from seawall.limits.counter_key import Entries
from seawall.limits.decide import Planned
from seawall.limits.window import Reading

NEAR_RATIO = 0.8
"""Default of NEAR_LIMIT_RATIO."""

_IPV4 = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}")


class Hits(NamedTuple):
    """What one step adds to the statistics of its limit, in hits."""

    total: int = 0
    within: int = 0
    near: int = 0
    over: int = 0
    shadow: int = 0
    over_with_local_cache: int = 0


@lru_cache(maxsize=4096)
def near_threshold(limit: int, ratio: float) -> int:
    """floor(limit × ratio) in 32-bit float, as the Go service computes: 0.8 × 10 is 8, not 7."""
    return int(_f32(_f32(limit) * _f32(ratio)))


def _f32(number: float) -> float:
    """Nearest 32-bit float. The product of two has 48 bits, so rounding it from a double is rounding once."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def count(step: Planned, outcome: Outcome, ratio: float = NEAR_RATIO) -> Hits:
    """Split a step's hits, by its counter before and after them. Hits given back add nothing.

    Hits that were refused without being charged are all over; hits that were neither refused nor charged (stop mode) are
    in the total alone: envoyproxy/ratelimit counts these as within the limit although its counter does not have them.
    """
    if step.give_back:
        return Hits()
    asked = step.hits
    if outcome.charged == 0 and not outcome.over:
        return Hits(total=asked)
    if outcome.charged == 0:
        return Hits(total=asked, over=asked, shadow=asked if step.limit.shadow else 0)
    index = _telling(outcome.readings, over=outcome.over)
    limit, after = step.limit.windows[index].capacity, outcome.readings[index].used
    before = after - asked
    near = near_threshold(limit, ratio)
    if after <= near:
        told = Hits(asked, asked)
    elif after <= limit:
        told = Hits(asked, asked, min(asked, after - near))
    elif before < limit:
        told = Hits(asked, 0, limit - max(near, before), after - limit)
    else:
        told = Hits(asked, 0, 0, asked)
    return told._replace(shadow=told.over) if step.limit.shadow else told


def _telling(readings: tuple[Reading, ...], *, over: bool) -> int:
    """Of several windows: the first that refused, else the one with the least left."""
    if len(readings) == 1:
        return 0
    return min(range(len(readings)), key=lambda i: (over and not readings[i].over, readings[i].remaining))


def cached(step: Planned) -> Hits:
    """Hits of a step that the cache of exhausted counters refused."""
    hits = step.hits
    return Hits(total=hits, over=hits, shadow=hits if step.limit.shadow else 0, over_with_local_cache=hits)


def name(step: Planned, domain: str, entries: Entries) -> str:
    """Name of the limit's statistics: `<domain>.<path>`, without `ratelimit.service.rate_limit.` in front.

    Keys are joined by "."; `_value` follows where the rule has one. `value_to_metric` puts the request's value there for
    its level, `detailed_metric` on the rule with the limit for all levels; a shared wildcard is always named by its
    pattern. A limit that came with the request is named by all values.
    """
    return safe(f"{domain}.{path(step, entries)}")


def path(step: Planned, entries: Entries) -> str:
    """The name without its domain, before `safe`."""
    if step.match is None:
        return ".".join(f"{key}_{value}" if value else key for key, value in entries)
    if not step.limit.named_by_values:
        return step.limit.label
    rules = step.match.path
    detailed = rules[-1].detailed
    parts = []
    for node, entry in zip(rules, entries, strict=True):
        by_value = not node.share and (detailed or node.value_named)
        key, value = entry if by_value else (node.key, node.value)
        parts.append(f"{key}_{value}" if value else key)
    return ".".join(parts)


def safe(text: str) -> str:
    """Replace what means something to statsd: `:` and `|`, and the dots of an IPv4 address."""
    return _IPV4.sub(lambda found: found[0].replace(".", "_"), text.replace(":", "_").replace("|", "_"))
