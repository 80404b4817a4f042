"""Which limit counts for a descriptor: the tree of rules of one domain, matched entry by entry.

The matching rules are those of envoyproxy/ratelimit: one level of the tree for each entry; the exact (key, value), then
the level's wildcard rules in the order of the file, then the bare key; no way back once a branch is chosen; and a limit
counts only where the descriptor ends. Unlike there, an entry (`a`, `b`) never meets a rule of the key `a_b`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seawall.limits.counter_key import Entries
from seawall.limits.wildcard import Wildcards
from seawall.limits.window import Algorithm, Unit, Window

UNLIMITED = 2**32 - 1
"""What remains of a limit without a number, as envoyproxy/ratelimit answers."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A rule: its first window is the rule's own, the others are those of `also`; none when it is unlimited.

    `label` is the path of the rule in its domain (`tenant`, `tenant_acme.class`): the metric label. `named_by_values`:
    its statistics are named by the values of a request (`statistic_name`). `replaces` are names of rules that don't count
    when this one matched. `metadata` is a tree of dict, list, text, number, bool and None, returned when it passed.
    `charge_refused`: hits count although they were over. `exhausted`: a look is over when nothing remains.
    """

    label: str
    windows: tuple[Window, ...]
    name: str = ""
    replaces: frozenset[str] = frozenset()
    shadow: bool = False
    quota: bool = False
    charge_refused: bool = True
    exhausted: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    named_by_values: bool = False

    @property
    def unlimited(self) -> bool:
        """Passes everything, counts nothing."""
        return not self.windows

    @property
    def requests_per_unit(self) -> int:
        """Number of the rule's own window."""
        return self.windows[0].requests if self.windows else UNLIMITED

    @property
    def unit(self) -> Unit | None:
        """Unit of the rule's own window."""
        return self.windows[0].unit if self.windows else None

    @property
    def plain(self) -> bool:
        """Whether it counts exactly as envoyproxy/ratelimit does, so that its key text can be used."""
        return (
            len(self.windows) == 1
            and self.windows[0].algorithm is Algorithm.FIXED
            and self.windows[0].unit is not None
            and self.charge_refused
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One level of the tree. `exact` is by (key, value), `bare` by key alone, `wild` has the rules with a star.

    `key` and `value` are the rule's own, "" for any value. `share`: all values that reach it count together.
    `value_named`, `detailed`: `value_to_metric` and `detailed_metric` of the rule.
    """

    limit: Limit | None = None
    exact: Mapping[tuple[str, str], "Node"] = field(default_factory=dict, compare=False, repr=False)
    bare: Mapping[str, "Node"] = field(default_factory=dict, compare=False, repr=False)
    wild: "Wildcards[Node] | None" = field(default=None, compare=False, repr=False)
    key: str = ""
    value: str = ""
    share: bool = False
    value_named: bool = False
    detailed: bool = False
    below: tuple["Node", ...] = ()
    """All rules of the next level, in the order of the file: what the three look-ups above are made of."""


class Match(NamedTuple):
    """A limit that counts for a descriptor, the rules on the way, and the entries that name its counter."""

    limit: Limit
    path: tuple[Node, ...]
    counted: Entries


def match(root: Node, entries: Entries) -> Match | None:
    """Find the limit of a descriptor, or None: an unmatched descriptor is let through and counted nowhere."""
    node, path, shared = root, [], False
    for entry in entries:
        below = _below(node, entry)
        if below is None:
            return None
        node = below
        path.append(node)
        shared = shared or node.share
    if node.limit is None or not path:
        return None
    counted = [(n.key, n.value) if n.share else e for n, e in zip(path, entries, strict=True)] if shared else entries
    return Match(node.limit, tuple(path), counted)


def _below(node: Node, entry: tuple[str, str]) -> Node | None:
    """The rule of the next level for an entry: exact, then wildcards in their order, then the bare key."""
    below = node.exact.get(entry)
    if below is None and node.wild is not None:
        below = node.wild.first(*entry)
    return below if below is not None else node.bare.get(entry[0])


def reached(root: Node, entries: Entries) -> int:
    """How many of a descriptor's entries, from the first, find a rule."""
    node = root
    for depth, entry in enumerate(entries):
        below = _below(node, entry)
        if below is None:
            return depth
        node = below
    return len(entries)
