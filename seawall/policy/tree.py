"""The tree of a YAML document: nodes that know their place, and ways to find them.

The tree keeps the *source text* of each scalar and gives it no type: the field that a scalar belongs to decides whether
`007`, `yes` or `12:30` is text or a number. So none of YAML 1.1's surprises exists here, and a rate limit `value: 007`
matches "007" as it does with envoyproxy/ratelimit's typed decoder.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seawall.policy.mistake import Path


class Plain(str):
    """Text of a scalar that was written without quotes: only such a one can be a number."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class Node:
    """A place in the document; `size` counts the nodes below it and itself, aliases expanded."""

    line: int
    column: int
    size: int = 1
    height: int = 1


@dataclass(slots=True, eq=False)
class Leaf(Node):
    """A scalar; `text` is None for an unquoted null."""

    text: str | None = None


@dataclass(slots=True, eq=False)
class Items(Node):
    """A list."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Pairs(Node):
    """A mapping: name → (key, value), in the order of the document."""

    pairs: dict[str, tuple[Leaf, Node]] = field(default_factory=dict)


def plain_data(node: Node | None) -> Any:
    """Turn a tree into dicts, lists, `Plain` or str, and None: what the document's models are validated from."""
    match node:
        case Leaf():
            return node.text
        case Items():
            return [plain_data(n) for n in node.items]
        case Pairs():
            return {name: plain_data(value) for name, (_, value) in node.pairs.items()}
    return None


def of_data(data: Any) -> Node:
    """Make a tree of dicts, lists, text, numbers, booleans and None that came as a message: a tree without places.

    Text is quoted, so none of it is ever taken for a number.
    """
    match data:
        case dict():
            pairs = {str(name): (Leaf(0, 0, text=str(name)), of_data(value)) for name, value in data.items()}
            return Pairs(0, 0, pairs=pairs)
        case list() | tuple():
            return Items(0, 0, items=[of_data(item) for item in data])
        case bool():
            return Leaf(0, 0, text=Plain("true" if data else "false"))
        case int() | float():
            return Leaf(0, 0, text=Plain(_number(data)))
        case None:
            return Leaf(0, 0)
    return Leaf(0, 0, text=str(data))


def _number(number: int | float) -> str:
    if isinstance(number, int):
        return str(number)
    if not math.isfinite(number):
        return ".nan" if math.isnan(number) else ".inf" if number > 0 else "-.inf"
    # A protobuf number that is whole is one to everybody who reads it as JSON.
    return str(int(number)) if number.is_integer() and abs(number) < 2.0**53 else repr(number)


def place(root: Node | None, path: Path, *, key: bool = False) -> tuple[int, int]:
    """Line and column of a value (or of its key); of the nearest thing above it where the path ends early."""
    line, column = (root.line, root.column) if root else (1, 1)
    node = root
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(node, Pairs) and isinstance(part, str) and part in node.pairs:
            name, node = node.pairs[part]
            spot: Node = name if key and last else node
            # A missing thing inside a mapping is best looked for at the mapping's name.
            line, column = (spot.line, spot.column) if last else (name.line, name.column)
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            line, column = node.line, node.column
        else:
            break
    return line, column


def find(root: Node | None, path: Path) -> Node | None:
    """The node at a path, or None."""
    for part in path:
        if isinstance(root, Pairs) and isinstance(part, str) and part in root.pairs:
            root = root.pairs[part][1]
        elif isinstance(root, Items) and isinstance(part, int) and part < len(root.items):
            root = root.items[part]
        else:
            return None
    return root


def select(root: Node | None, pattern: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """All nodes that a pattern reaches, with their paths; `*` stands for each key or each item."""
    if root is None:
        return
    if not pattern:
        yield path, root
        return
    head, rest = pattern[0], pattern[1:]
    if isinstance(root, Pairs):
        for name, (_, value) in root.pairs.items() if head == "*" else _one(root, head):
            yield from select(value, rest, (*path, name))
    elif isinstance(root, Items) and head == "*":
        for index, item in enumerate(root.items):
            yield from select(item, rest, (*path, index))


def _one(node: Pairs, name: str) -> list[tuple[str, tuple[Leaf, Node]]]:
    return [(name, node.pairs[name])] if name in node.pairs else []
