"""Mistakes in one `rate_limit`: units, windows and names, by the rules of envoyproxy/ratelimit's loader and our own."""

from collections.abc import Iterator
from typing import NamedTuple

from seawall.limits.window import Algorithm, Unit
from seawall.policy import notation, yaml11
from seawall.policy.checks import Checks
from seawall.policy.document import OUR_KEYS
from seawall.policy.mistake import Mistake, Path
from seawall.policy.tree import Items, Leaf, Node, Pairs, Plain, find

UNITS = tuple(unit.name.lower() for unit in sorted(Unit, key=lambda unit: unit.seconds))
LONGEST_REFILL = 10 * 365 * 86400
"""Seconds that an empty bucket may take to fill: times stay below 2^53 µs."""


class _Window(NamedTuple):
    """As much of a window as could be read."""

    algorithm: str
    length: int


def limit_mistakes(checks: Checks, limit: Node | None, path: Path) -> Iterator[Mistake]:
    """Check a `rate_limit`; what has the wrong shape is passed over, `shape` has said so."""
    if not isinstance(limit, Pairs):
        return
    if is_true(find(limit, ("unlimited",))):
        yield from _unlimited(checks, limit, path)
    else:
        yield from _windows(checks, limit, path)
    own, replaces = text_of(limit, "name"), find(limit, ("replaces",))
    if own and isinstance(replaces, Items):
        for index, item in enumerate(replaces.items):
            if text_of(item, "name") == own:
                yield checks.mistake((*path, "replaces", index, "name"), "is the rule's own name", text=own)


def _unlimited(checks: Checks, limit: Pairs, path: Path) -> Iterator[Mistake]:
    unit = text_of(limit, "unit")
    if unit and unit.lower() in UNITS:
        yield checks.mistake((*path, "unit"), "stands beside 'unlimited', which has no unit", ["no unit"], unit)
    for key in OUR_KEYS:
        if has(limit, key):
            yield checks.mistake((*path, key), "stands beside 'unlimited', which counts nothing", key=True)


def _windows(checks: Checks, limit: Pairs, path: Path) -> Iterator[Mistake]:
    seen: dict[_Window, Path] = {}
    also = find(limit, ("also",))
    more = also.items if isinstance(also, Items) else []
    for here, node in [(path, limit), *(((*path, "also", i), item) for i, item in enumerate(more))]:
        if not isinstance(node, Pairs):
            continue
        yield from _window(checks, node, here)
        window = _Window(text_of(node, "algorithm") or Algorithm.FIXED, _length(node))
        if window.length:
            first = seen.setdefault(window, here)
            if first != here:
                why = f"has the algorithm and length of {checks.spot(first)}: the stricter of them says all"
                yield checks.mistake(here, why)


def _window(checks: Checks, node: Pairs, path: Path) -> Iterator[Mistake]:
    unit = text_of(node, "unit")
    if has(node, "window"):
        if unit:
            yield checks.mistake((*path, "unit"), "stands beside 'window'", ["one of the two"], unit)
    elif not unit:
        allowed = [*UNITS, "or window: 30s"]
        yield checks.mistake((*path, "unit"), "is missing" if unit is None else "is empty", allowed)
    elif unit.lower() not in UNITS:
        yield checks.mistake((*path, "unit"), "is no unit", UNITS, unit)
    if not has(node, "burst"):
        return
    if text_of(node, "algorithm") != Algorithm.GCRA:
        yield checks.mistake((*path, "burst"), "is for 'algorithm: gcra' only", key=True)
    requests, burst, length = _number(node, "requests_per_unit"), _number(node, "burst"), _length(node)
    if not requests:
        yield checks.mistake((*path, "burst"), "of a limit that lets nothing through", ["requests_per_unit above 0"])
    elif burst and length and burst * length > LONGEST_REFILL * requests:
        yield checks.mistake((*path, "burst"), "takes more than ten years to fill again", ["a smaller burst"])


def _length(node: Node) -> int:
    """Seconds of a window, 0 where they can't be read."""
    window = text_of(node, "window")
    try:
        if window is not None:
            return int(notation.duration(window))
    except ValueError:
        return 0
    unit = (text_of(node, "unit") or "").upper()
    return Unit[unit].seconds if unit in Unit.__members__ else 0


def _number(node: Node, name: str) -> int:
    leaf = find(node, (name,))
    return (yaml11.integer(leaf.text) or 0) if isinstance(leaf, Leaf) and isinstance(leaf.text, Plain) else 0


def has(node: Node | None, name: str) -> bool:
    """Whether a key is there with a value."""
    found = find(node, (name,))
    return found is not None and not (isinstance(found, Leaf) and found.text is None)


def is_true(node: Node | None) -> bool:
    """Whether a node is an unquoted yes."""
    return isinstance(node, Leaf) and isinstance(node.text, Plain) and yaml11.boolean(node.text) is True


def text_of(node: Node | None, name: str) -> str | None:
    """Text of a scalar below a node, None where there is none."""
    leaf = find(node, (name,))
    return leaf.text if isinstance(leaf, Leaf) else None
