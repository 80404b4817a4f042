"""Rule files that a policy names instead of a list: they are put into the text before it is loaded.

    limits: {files: [limits/, more.yaml], merge_domains: no}

A policy is one text, versioned and compared as such, so the files become its `limits` where it is read from a file
(`seawall policy push`, SEAWALL_POLICY); the store never holds a name of a file. They are read as envoyproxy/ratelimit's
own loader reads them, and their mistakes have their own places.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seawall.policy.mistake import Mistake, Path, PolicyError, path_text, shown
from seawall.policy.reader import read_tree
from seawall.policy.rule_files import sections_of
from seawall.policy.rule_limits import is_true
from seawall.policy.tree import Items, Leaf, Node, Pairs, find, place

Source = Callable[[str], Sequence[tuple[str, str | bytes]]]
"""Files that a name stands for, each with its own name and text. Raises OSError."""


def with_rule_files(text: str, file: str, source: Source) -> str:
    """Put the files that `limits` names in their place; a text that names none stays as it is.

    Raises PolicyError with the mistakes of all files, or for names that can't be read.
    """
    if "files" not in text:
        return text
    try:
        root, _ = read_tree(text, file)
    except PolicyError:
        return text  # `load` says what is wrong
    limits = find(root, ("limits",))
    if not isinstance(root, Pairs) or not isinstance(limits, Pairs) or "files" not in limits.pairs:
        return text
    files = _files(root, limits, file, source)
    sections = sections_of(files, merge=is_true(find(limits, ("merge_domains",))))
    lines = text.splitlines()
    first, last = _lines(root, len(lines), file)
    domains = [_flow(section.model_dump(exclude_unset=True)) for section in sections]
    written = ["limits:", *(f"  - {domain}" for domain in domains)]
    if not domains or len(written) > last - first:
        written = [f"limits: [{', '.join(domains)}]"]
    # As many lines as before: what follows keeps its place in the author's file.
    written += [""] * (last - first - len(written))
    return "\n".join([*lines[:first], *written, *lines[last:]]) + "\n"


def _files(root: Node, limits: Pairs, file: str, source: Source) -> list[tuple[str, str | bytes]]:
    mistakes = [
        _mistake(root, file, ("limits", name), "unknown key", "files, merge_domains", key=True)
        for name in limits.pairs
        if name not in {"files", "merge_domains"}
    ]
    listed = limits.pairs["files"][1]
    found: list[tuple[str, str | bytes]] = []
    for index, item in enumerate(listed.items if isinstance(listed, Items) else []):
        path: Path = ("limits", "files", index)
        if not isinstance(item, Leaf) or not item.text:
            mistakes.append(_mistake(root, file, path, "is no name of a file", "a file or a folder of files"))
            continue
        try:
            found += source(item.text)
        except OSError as e:
            mistakes.append(_mistake(root, file, path, f"{shown(item.text)} can't be read: {e.strerror}"))
    if not isinstance(listed, Items):
        mistakes.append(_mistake(root, file, ("limits", "files"), "is not a list", "a list of files and folders"))
    if mistakes:
        raise PolicyError(mistakes)
    return found


def _lines(root: Pairs, end: int, file: str) -> tuple[int, int]:
    """First line of the section and the line after it, from 0."""
    keys = [key for key, _ in root.pairs.values()]
    if any(key.column != 1 for key in keys) or len({key.line for key in keys}) < len(keys):
        raise PolicyError(
            [_mistake(root, file, ("limits",), "names files in a document that is one {…} mapping", key=True)]
        )
    first = root.pairs["limits"][0].line - 1
    return first, min((key.line - 1 for key in keys if key.line - 1 > first), default=end)


def _mistake(
    root: Node, file: str, path: Path, message: str, allowed: str | None = None, *, key: bool = False
) -> Mistake:
    return Mistake(file, *place(root, path, key=key), path_text(path), None, message, allowed)


def _flow(value: Any, key: str = "") -> str:
    """YAML on one line: text always quoted, so that it stays what it is."""
    if isinstance(value, Mapping):
        # What is under `metadata` has keys of its own, which are no fields.
        free = key == "metadata"
        pairs = (
            f"{json.dumps(name, ensure_ascii=False)}: {_flow(v, key if free else name)}" for name, v in value.items()
        )
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item, key) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if key == "window" and isinstance(value, int):
        return f"{value}s"
    return json.dumps(value, ensure_ascii=False)
