"""Mistakes in engines, pools and retries that one section alone doesn't show."""

from collections.abc import Iterator

from seawall.policy.checks import Checks
from seawall.policy.document import Callers, Health
from seawall.policy.fields import HEALTH_OFF
from seawall.policy.mistake import Mistake, Path
from seawall.policy.notation import duration
from seawall.policy.tree import Items, Leaf, Node, Pairs, find, select

_HEALTH_DEFAULTS = {name: str(info.default) for name, info in Health.model_fields.items()}


def upstream_mistakes(checks: Checks) -> Iterator[Mistake]:
    """Check how engines are looked after, what pools hash by, and what is retried."""
    yield from _health_checks(checks)
    yield from _affinities(checks)
    for path, node in select(checks.root, ("retries", "on")):
        if isinstance(node, Items) and not node.items:
            yield checks.mistake(path, "is empty", ["at least one condition, or attempts: 0"])


def _health_checks(checks: Checks) -> Iterator[Mistake]:
    """Envoy has one health check for a cluster, so the engines of a pool are checked alike or not at all."""
    engines = find(checks.root, ("engines",))
    every = list(engines.pairs) if isinstance(engines, Pairs) else []
    told: set[str] = set()
    for pool in checks.names("pools"):
        listed = find(checks.root, ("pools", pool, "engines"))
        names = every
        if isinstance(listed, Items):
            names = [leaf.text for leaf in listed.items if isinstance(leaf, Leaf) and leaf.text in every]
        first: tuple[str, dict[str, str]] | None = None
        for name in names:
            checked = _checked(find(checks.root, ("engines", name, "health")))
            if checked is None:
                continue
            if first is None:
                first = name, checked
                continue
            differing = [key for key, value in checked.items() if value != first[1][key]]
            if differing and name not in told:
                told.add(name)
                path: Path = ("engines", name, "health")
                why = f"differs from that of '{first[0]}' in {', '.join(differing)}, and both are in pool '{pool}'"
                yield checks.mistake(path, why, ["the same for all engines of a pool", f"health: {HEALTH_OFF}"])


def _checked(health: Node | None) -> dict[str, str] | None:
    """What an engine's health check says, in a form that can be compared; None where Envoy does not look."""
    if isinstance(health, Leaf) and health.text == HEALTH_OFF:
        return None
    found = dict(_HEALTH_DEFAULTS)
    for name in found:
        leaf = find(health, (name,))
        if isinstance(leaf, Leaf) and leaf.text is not None:
            found[name] = leaf.text
            if name in {"interval", "timeout"}:
                try:
                    found[name] = str(duration(leaf.text))
                except ValueError:
                    continue
    return found


def _affinities(checks: Checks) -> Iterator[Mistake]:
    """A header with a key is taken off before an engine is chosen: to hash by it would be to hash by nothing."""
    given = find(checks.root, ("callers", "key_headers"))
    keys = (
        {leaf.text.lower() for leaf in given.items if isinstance(leaf, Leaf) and leaf.text}
        if isinstance(given, Items)
        else set(Callers().key_headers)
    )
    for path, node in select(checks.root, ("pools", "*", "affinity")):
        text = node.text if isinstance(node, Leaf) else None
        if text is not None and text.lower().startswith("header:") and text.lower().removeprefix("header:") in keys:
            why = "holds keys (callers.key_headers), which are taken off before an engine is chosen"
            yield checks.mistake(path, why, ["tenant", "another header"], text)
