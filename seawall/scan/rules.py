"""What a rule is, and what comes of it: plain data."""

from dataclasses import dataclass
from typing import Literal

Side = Literal["request", "response"]
Action = Literal["block", "mask", "flag"]
OnError = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a policy; exactly one of `pattern` and `builtin` is given.

    `normalise` looks for matches behind disguises: full-width digits and letters, invisible characters, and a space or
    hyphen between digits. Without it a pattern means exactly what Python's `re` says. `max_length` is in characters: a
    longer match is none. `placeholder` stands in its place where `action` is mask.
    """

    id: str
    pattern: str | None = None
    builtin: str | None = None
    on: tuple[Side, ...] = ("request", "response")
    action: Action = "flag"
    check: str | None = None
    max_length: int | None = None
    normalise: bool = False
    placeholder: str = ""
    on_error: OnError = "open"

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
