"""Which limit counts for a descriptor: the tree of rules of one domain, matched entry by entry.

The matching rules are those of envoyproxy/ratelimit: one level of the tree for each entry, the exact (key, value) before
the bare key, no way back once a branch is chosen, and a limit counts only where the descriptor ends.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seawall.limits.window import Unit

Entries = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Limit:
    """A rule: `requests_per_unit` hits in each `unit` for each set of values that reaches it.

    `label` is the path of the rule in its domain (`tenant`, `tenant_acme.class`): the metric label.
    """

    label: str
    requests_per_unit: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Node:
    """One level of the tree. `exact` is by (key, value), `bare` by key alone."""

    limit: Limit | None = None
    exact: Mapping[tuple[str, str], "Node"] = field(default_factory=dict)
    bare: Mapping[str, "Node"] = field(default_factory=dict)


def match(root: Node, entries: Entries) -> Limit | None:
    """Find the limit of a descriptor, or None: an unmatched descriptor is let through and counted nowhere."""
    node = root
    for entry in entries:
        below = node.exact.get(entry) or node.bare.get(entry[0])
        if below is None:
            return None
        node = below
    return node.limit if node is not root else None


def counter_identity(domain: str, entries: Entries, limit: Limit) -> bytes:
    """Name the counter of a limit for one caller's values: 16 bytes, free of collisions.

    The number of the limit is no part of it, so a changed number keeps the count; the algorithm, unit and window are,
    so a new one starts afresh. Lengths are written out: ("a", "b_c") and ("a_b", "c") are different counters.
    """
    parts = [domain, "fixed", limit.unit.name]
    for key, value in entries:
        parts += (key, value)
    text = "".join(f"{len(p)}:{p}" for p in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
