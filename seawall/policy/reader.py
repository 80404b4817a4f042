"""YAML text to a tree, bounded in every direction.

Built from libyaml's events rather than by `yaml.load`: no tag is ever executed, depth is checked as it grows, and what
an alias would expand to is known before it is expanded.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from seawall.policy.mistake import MISTAKES_SHOWN, Mistake, PolicyError, path_text, shown
from seawall.policy.tree import Items, Leaf, Node, Pairs, Plain

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 1_000_000
MAX_ALIASED = 100_000
"""Nodes that all aliases of a document together may add."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NO_KEY = Leaf(0, 0)
"""Stands for a key that is no scalar: its pair is left out, the mistake is made."""
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_KNOWN_TAGS = frozenset({"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_PLAIN_TAGS = frozenset({f"tag:yaml.org,2002:{name}" for name in ("int", "bool", "float", "null")})
"""Tags that say what an unquoted scalar would be anyway; read in files of envoyproxy/ratelimit only."""


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read."""

    node: Items | Pairs
    anchor: str | None
    key: Leaf | None = None
    name: str | int | None = None
    merges: list[Node] = field(default_factory=list)


def read_tree(text: str | bytes, file: str) -> tuple[Node | None, list[Mistake]]:
    """Read one YAML document; None for an empty one.

    Returns mistakes that leave the rest readable (a key given twice, an unknown tag); raises PolicyError where it can't
    be read on: no YAML, no UTF-8, too large, too deep, too many nodes.
    """
    return _Reader(file).read(_decode(text, file))


def read_foreign_tree(text: str | bytes, file: str) -> tuple[Node | None, list[Mistake], list[Mistake]]:
    """Read YAML as Go's yaml.v2 does: the first document only, of a key given twice the last.

    Returns the tree, mistakes, and warnings about what is passed over. Raises PolicyError as `read_tree` does.
    """
    reader = _Reader(file, foreign=True)
    root, mistakes = reader.read(_decode(text, file))
    return root, mistakes, reader.warnings


def _decode(text: str | bytes, file: str) -> str:
    try:
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        if len(raw) > MAX_BYTES:
            raise _fatal(file, 1, 1, f"the document has {len(raw)} bytes", allowed=f"{MAX_BYTES} bytes (4 MiB)")
        text = text if isinstance(text, str) else raw.decode("utf-8")
    except UnicodeDecodeError as e:
        before = raw[: e.start].decode("utf-8")
        raise _fatal(file, *_end_of(before), f"byte 0x{raw[e.start]:02x} is not UTF-8") from None
    text = text.removeprefix("\ufeff")
    if bad := _UNPRINTABLE.search(text):
        line, column = _end_of(text[: bad.start()])
        raise _fatal(file, line, column, f"control character U+{ord(bad[0]):04X} is not allowed in YAML")
    return text


def _end_of(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _fatal(file: str, line: int, column: int, message: str, *, allowed: str | None = None) -> PolicyError:
    return PolicyError([Mistake(file, line, column, "", None, message, allowed)])


class _Reader:
    """Events in, nodes out."""

    def __init__(self, file: str, *, foreign: bool = False):
        self.file = file
        self.foreign = foreign
        self.warnings: list[Mistake] = []
        self.mistakes: list[Mistake] = []
        self.stack: list[_Open] = []
        self.anchors: dict[str, Node | None] = {}
        self.nodes = 0
        self.aliased = 0
        self.root: Node | None = None
        self.documents = 0

    def read(self, text: str) -> tuple[Node | None, list[Mistake]]:
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._event(event)
                if self.documents > 1:
                    break
        except yaml.MarkedYAMLError as e:
            mark: Any = e.problem_mark or e.context_mark
            line, column = (mark.line, mark.column) if mark else (0, 0)
            lines = text.split("\n")
            here = lines[line][column : column + 1] if line < len(lines) else ""
            why = "a tab can't indent YAML, use spaces" if here == "\t" else str(e.problem or e.context)
            raise _fatal(self.file, line + 1, column + 1, f"not YAML: {why}") from None
        except yaml.YAMLError as e:
            why = str(getattr(e, "reason", "unreadable"))
            raise _fatal(self.file, 1, 1, f"not YAML: {why}") from None
        return self.root, self.mistakes

    def _event(self, event: Any) -> None:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        match event:
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1 and not self.foreign:
                    raise self._stop(line, column, "a second document starts here", "one document a file")
                if self.documents > 1:
                    self._warn(line, column, "only the first document of a file counts; the rest is not read")
            case yaml.AliasEvent():
                self._alias(str(event.anchor), line, column)
            case yaml.ScalarEvent():
                self._tag(event.tag, line, column)
                tagged = event.tag is not None and not (self.foreign and event.tag in _PLAIN_TAGS)
                plain = (event.style in {None, ""} or event.tag in _PLAIN_TAGS) and not tagged
                value = Plain(event.value) if plain else event.value
                self._count(line, column)
                leaf = Leaf(line, column, text=None if plain and value in _NULL else value)
                self._add(leaf, event.anchor)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._tag(event.tag, line, column)
                self._count(line, column)
                if len(self.stack) >= MAX_DEPTH:
                    raise self._stop(line, column, "nested too deep", f"{MAX_DEPTH} levels")
                kind = Pairs if isinstance(event, yaml.MappingStartEvent) else Items
                if event.anchor:
                    self.anchors[event.anchor] = None
                self.stack.append(_Open(kind(line, column), event.anchor))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()

    def _count(self, line: int, column: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._stop(line, column, "the document has too many values", f"{MAX_NODES}")

    def _tag(self, tag: str | None, line: int, column: int) -> None:
        if tag is not None and tag not in _KNOWN_TAGS and not (self.foreign and tag in _PLAIN_TAGS):
            self._mistake(line, column, f"tag {shown(tag)} is not known", "no tags")

    def _alias(self, name: str, line: int, column: int) -> None:
        if name not in self.anchors:
            raise self._stop(line, column, f"alias {shown(name)} has no anchor before it")
        node = self.anchors[name]
        if node is None:
            raise self._stop(line, column, f"alias {shown(name)} contains itself")
        self.aliased += node.size
        if self.aliased > MAX_ALIASED:
            raise self._stop(line, column, "aliases expand to too many values", f"{MAX_ALIASED} in all")
        if len(self.stack) + node.height > MAX_DEPTH:
            raise self._stop(line, column, "nested too deep", f"{MAX_DEPTH} levels")
        self._add(node, None)

    def _close(self) -> None:
        done = self.stack.pop()
        node = done.node
        if isinstance(node, Pairs):
            self._merge(node, done.merges)
        below = node.items if isinstance(node, Items) else [value for _, value in node.pairs.values()]
        node.size += sum(n.size for n in below) + (len(below) if isinstance(node, Pairs) else 0)
        node.height += max((n.height for n in below), default=0)
        self._add(node, done.anchor)

    def _merge(self, node: Pairs, merges: list[Node]) -> None:
        """Add what `<<` brings (YAML merge key): the mapping's own keys win, then the earlier source."""
        for source in merges:
            for mapping in source.items if isinstance(source, Items) else [source]:
                if not isinstance(mapping, Pairs):
                    self._mistake(
                        mapping.line, mapping.column, "'<<' merges mappings only", "an alias, or a list of them"
                    )
                    continue
                for name, pair in mapping.pairs.items():
                    node.pairs.setdefault(name, pair)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if isinstance(parent.node, Items):
            parent.node.items.append(node)
        elif parent.key is None:
            parent.key = self._key(node)
        else:
            self._pair(parent, parent.key, node)
            parent.key = None

    def _key(self, node: Node) -> Leaf:
        if isinstance(node, Leaf):
            return node
        self._mistake(node.line, node.column, "a key is text, not a list or mapping")
        return _NO_KEY

    def _pair(self, parent: _Open, key: Leaf, value: Node) -> None:
        assert isinstance(parent.node, Pairs)
        if key is _NO_KEY:
            return
        if isinstance(key.text, Plain) and key.text == "<<":
            parent.merges.append(value)
            return
        name = str(key.text) if key.text is not None else "null"
        first = parent.node.pairs.get(name)
        if first is None:
            parent.node.pairs[name] = (key, value)
            return
        before = first[0]
        if self.foreign:
            parent.node.pairs[name] = (key, value)
            self._warn(before.line, before.column, f"key {shown(name)} is given twice; the last counts")
            return
        message = f"key {shown(name)} is given twice; first at {self.file}:{before.line}:{before.column}"
        self._mistake(key.line, key.column, message)

    def _path(self) -> str:
        parts: list[str | int] = []
        for open_ in self.stack:
            if isinstance(open_.node, Items):
                parts.append(len(open_.node.items))
            elif open_.key is not None:
                parts.append(str(open_.key.text))
        return path_text(tuple(parts))

    def _mistake(self, line: int, column: int, message: str, allowed: str | None = None) -> None:
        self.mistakes.append(Mistake(self.file, line, column, self._path(), None, message, allowed))

    def _warn(self, line: int, column: int, message: str) -> None:
        if len(self.warnings) < MISTAKES_SHOWN:
            self.warnings.append(Mistake(self.file, line, column, self._path(), None, message))

    def _stop(self, line: int, column: int, message: str, allowed: str | None = None) -> PolicyError:
        stop = Mistake(self.file, line, column, "", None, message, allowed)
        return PolicyError([*self.mistakes, stop])
