"""What a rule is, and what comes of it: plain data."""

from dataclasses import dataclass
from typing import Literal

Side = Literal["request", "response"]
Action = Literal["block", "mask", "flag"]
OnError = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a policy; exactly one of `pattern` and `builtin` is given.

    `normalise` looks for matches behind disguises: full-width letters, digits of other scripts, invisible characters,
    and a space or hyphen between digits. None: for sets, and for patterns with a check. Without it a pattern means
    exactly what Python's `re` says. `max_length` is in characters: a longer match is none. `placeholder` stands in the
    place of a match where `action` is mask.
    """

    id: str
    pattern: str | None = None
    builtin: str | None = None
    on: tuple[Side, ...] = ("request", "response")
    action: Action = "flag"
    check: str | None = None
    max_length: int | None = None
    normalise: bool | None = None
    placeholder: str = ""
    on_error: OnError = "open"

    @property
    def normalises(self) -> bool:
        """Whether matches are looked for behind disguises."""
        return self.builtin is not None or self.check is not None if self.normalise is None else self.normalise

    @property
    def replacement(self) -> str:
        """What a masked match becomes."""
        return self.placeholder or f"[{self.id}]"


@dataclass(frozen=True, slots=True)
class Hit:
    """A match: characters `start` to `end` (excluded) of the text, or of the stream since its beginning.

    `late`: some of it had left before it was known to be one.
    """

    rule: Rule
    start: int
    end: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """The scanner failed to look for one rule, or for all (None); `why` never has any of the text."""

    rule: Rule | None
    why: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Hits in the order of their beginnings, and what could not be looked for."""

    hits: tuple[Hit, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def blocks(self) -> Hit | Fault | None:
        """What forbids the text to pass: the first hit of a rule that blocks, or a fault of one that closes."""
        closed = next((fault for fault in self.faults if fault.closed), None)
        return next((hit for hit in self.hits if hit.rule.action == "block"), closed)

    def counts(self) -> dict[str, int]:
        """Number of hits by rule id: all that logs and headers may tell."""
        counts: dict[str, int] = {}
        for hit in self.hits:
            counts[hit.rule.id] = counts.get(hit.rule.id, 0) + 1
        return counts


class RuleError(ValueError):
    """A rule that can't be compiled: `rule` is its id, `position` a character of its pattern, from 0, if there is one."""

    def __init__(self, rule: str, why: str, position: int | None = None):
        self.rule = rule
        self.why = why
        self.position = position
        super().__init__(f"rule '{rule}': {why}" + (f" at position {position}" if position is not None else ""))
