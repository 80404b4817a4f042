"""Rules become trees, and trees say which rules they hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from seawall.limits.descriptor import Limit, Node
from seawall.limits.wildcard import Wildcards


@dataclass(frozen=True, slots=True)
class Rule:
    """One level of a descriptor. `value` "" is any value; `limit` None for no limit, its label is made here."""

    key: str
    value: str = ""
    limit: Limit | None = None
    below: tuple["Rule", ...] = ()
    share: bool = False
    value_named: bool = False
    detailed: bool = False


def build(rules: Sequence[Rule]) -> Node:
    """Build the tree of one domain. Siblings of the same key and value are the caller's to refuse."""
    return _node(Rule(""), rules, "", named=False)


def _node(rule: Rule, rules: Sequence[Rule], label: str, *, named: bool) -> Node:
    exact: dict[tuple[str, str], Node] = {}
    bare: dict[str, Node] = {}
    wild: list[tuple[str, str, Node]] = []
    below: list[Node] = []
    for each in rules:
        # envoyproxy/ratelimit names its statistics like this: keys joined by ".", "_value" where the rule has one.
        own = f"{each.key}_{each.value}" if each.value else each.key
        node = _node(each, each.below, f"{label}.{own}" if label else own, named=named or each.value_named)
        below.append(node)
        if "*" in each.key or "*" in each.value:
            wild.append((each.key, each.value, node))
        if each.value:
            # Of a wildcard too: a value that is the pattern itself belongs to it, whatever stands before it.
            exact[each.key, each.value] = node
        else:
            bare[each.key] = node
    limit = rule.limit
    if limit is not None:
        limit = replace(limit, label=label, named_by_values=named or rule.detailed)
    return Node(
        limit=limit,
        exact=exact,
        bare=bare,
        wild=Wildcards(wild) if wild else None,
        key=rule.key,
        value=rule.value,
        share=rule.share,
        value_named=rule.value_named,
        detailed=rule.detailed,
        below=tuple(below),
    )


def limits_of(root: Node, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Limit]]:
    """All limits of a tree in the order of the file, each with the keys of the descriptor that reaches it."""
    if root.limit is not None:
        yield above, root.limit
    for node in root.below:
        yield from limits_of(node, (*above, node.key))


def configured(trees: Mapping[str, Node]) -> Iterator[tuple[str, str, int, int]]:
    """Domain, label, length in seconds and requests of each window of each limit."""
    for domain, tree in trees.items():
        for _, limit in limits_of(tree):
            for window in limit.windows:
                yield domain, limit.label, window.length, window.requests
