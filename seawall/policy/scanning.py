"""The section `scan`: its shape, what a model can't see of it, and the rules it becomes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from seawall.policy.checks import Checks
from seawall.policy.document import KIB, Document, Section
from seawall.policy.fields import Items, Label, Placeholder, Switch, Text, lasting, one_of, sized, whole
from seawall.policy.mistake import Mistake, Path
from seawall.policy.tree import Leaf, Node, find, select
from seawall.scan.builtin import BUILTIN
from seawall.scan.checks import CHECKS
from seawall.scan.dialect import Refused, parse
from seawall.scan.rules import Action, OnError, Rule, Side

if TYPE_CHECKING:
    from seawall.scan.sides import Scanning

OnErrorField = Annotated[OnError, one_of("open", "closed")]


class ScanRule(Section):
    """One rule: a pattern or a set of patterns, and what happens where it matches."""

    id: Label
    pattern: Text | None = None
    builtin: Annotated[str, one_of(*BUILTIN)] | None = None
    on: Items[Annotated[Side, one_of("request", "response")]] = ("request", "response")
    do: Annotated[Action, one_of("block", "mask", "flag")] = "flag"
    check: Annotated[str, one_of(*CHECKS)] | None = None
    max_length: Annotated[int, whole(1, 16 * KIB)] | None = None
    normalise: Switch | None = None
    placeholder: Placeholder | None = None
    on_error: OnErrorField | None = None


class HoldBack(Section):
    """How much of a streamed answer may wait until it is known whether it matches, and for how long."""

    size: Annotated[int, sized(64, 16 * KIB, "64 bytes to 16KiB")] = KIB
    time: Annotated[float, lasting(0.01, 60.0, "10ms to 60s")] = 2.0


class Scan(Section):
    """What prompts and answers are looked through for."""

    rules: Items[ScanRule] = ()
    on_error: OnErrorField = "open"
    hold: HoldBack = HoldBack()


class ScanningDocument(Document):
    """A policy document with the section `scan`."""

    scan: Scan = Field(default=Scan())


CURRENT: type[Document] = Document
"""The documents that a gate takes. ScanningDocument once ext_proc applies the rules: until then a policy with `scan`
is refused, and only `seawall scan test` reads it."""


def scan_mistakes(checks: Checks) -> Iterator[Mistake]:
    """Rules that say too much or too little, patterns beyond the dialect, ids given twice."""
    ids: dict[str, Path] = {}
    for path, rule in select(checks.root, ("scan", "rules", "*")):
        name = _text(rule, "id")
        if name is not None and (first := ids.setdefault(name, (*path, "id"))) != (*path, "id"):
            yield checks.mistake((*path, "id"), f"the same id as {checks.spot(first)}", text=name)
        pattern, builtin = _text(rule, "pattern"), _text(rule, "builtin")
        if (pattern is None) == (builtin is None):
            yield checks.mistake(path, "must have either a pattern or a builtin", ["one of the two"])
        if pattern is not None:
            try:
                parse(pattern)
            except Refused as e:
                yield checks.mistake((*path, "pattern"), f"rule '{name or '?'}': {e}")
        if _text(rule, "placeholder") is not None and _text(rule, "do") != "mask":
            yield checks.mistake(
                (*path, "placeholder"), "has no use in a rule that does not mask", ["do: mask"], key=True
            )
        on = find(rule, ("on",))
        if on is not None and not list(select(on, ("*",))) and not isinstance(on, Leaf):
            yield checks.mistake((*path, "on"), "is empty", ["request", "response", "or leave the key out"])


def _text(rule: Node, key: str) -> str | None:
    leaf = find(rule, (key,))
    return leaf.text if isinstance(leaf, Leaf) else None


def rules_of(scan: Scan) -> tuple[Rule, ...]:
    """Rules of the section, defaults filled in."""
    return tuple(
        Rule(
            id=rule.id,
            pattern=rule.pattern,
            builtin=rule.builtin,
            on=rule.on,
            action=rule.do,
            check=rule.check,
            max_length=rule.max_length,
            normalise=rule.normalise,
            placeholder=rule.placeholder or "",
            on_error=rule.on_error or scan.on_error,
        )
        for rule in scan.rules
    )


def compile_scan(document: Document) -> "Scanning | None":
    """Compile the section; None without rules. Raises RuleError where RE2 has no room for a pattern."""
    if not isinstance(document, ScanningDocument) or not document.scan.rules:
        return None
    # Loads Hyperscan, which only a policy with rules needs.
    from seawall.scan.sides import compile_sides
    from seawall.scan.stream import Hold

    hold = document.scan.hold
    return compile_sides(rules_of(document.scan), Hold(hold.size, hold.time))
