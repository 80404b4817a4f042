"""Rules become trees, and trees say which rules they hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seawall.limits.descriptor import Limit, Node
from seawall.limits.window import Unit


@dataclass(frozen=True, slots=True)
class Rule:
    """One level of a descriptor. `value` "" is any value; `rate` is (requests per unit, unit), None for no limit."""

    key: str
    value: str = ""
    rate: tuple[int, Unit] | None = None
    below: tuple["Rule", ...] = ()


def build(rules: Sequence[Rule]) -> Node:
    """Build the tree of one domain. Siblings of the same key and value are the caller's to refuse."""
    return _node(None, rules, "")


def _node(limit: Limit | None, rules: Sequence[Rule], above: str) -> Node:
    exact: dict[tuple[str, str], Node] = {}
    bare: dict[str, Node] = {}
    for rule in rules:
        # envoyproxy/ratelimit names its statistics like this: keys joined by ".", "_value" where the rule has one.
        own = f"{rule.key}_{rule.value}" if rule.value else rule.key
        label = f"{above}.{own}" if above else own
        node = _node(Limit(label, *rule.rate) if rule.rate else None, rule.below, label)
        if rule.value:
            exact[rule.key, rule.value] = node
        else:
            bare[rule.key] = node
    return Node(limit, exact, bare)


def limits_of(root: Node, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Limit]]:
    """All limits of a tree, each with the keys of the descriptor that reaches it."""
    if root.limit is not None:
        yield above, root.limit
    for (key, _), node in root.exact.items():
        yield from limits_of(node, (*above, key))
    for key, node in root.bare.items():
        yield from limits_of(node, (*above, key))
