"""What is wrong with a policy: each mistake with its place, the value, what is allowed, and the nearest known name.

A mistake is shown to people and kept in logs, so it is bounded and never holds a secret: callers leave `value` out
where a key, a digest or a credential could stand.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

SHOWN = 80
"""Longest piece of an author's text that a mistake repeats, in characters."""
NAMES_SHOWN = 16
MISTAKES_SHOWN = 100

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing to correct. `line` and `column` count from 1; `value` is a bounded rendering, None where not shown.

    Line 0 is of what came as a message and has no lines: its path alone says where.
    """

    file: str
    line: int
    column: int
    path: str
    value: str | None
    message: str
    allowed: str | None = None
    did_you_mean: str | None = None

    def __str__(self) -> str:
        """One line: `policy.yaml:12:7: callers.tenants.acme.clas: unknown key; did you mean 'class'? allowed: …`."""
        where = f"{spot(self.file, self.line, self.column)}: " + (f"{self.path}: " if self.path else "")
        what = f"{self.value} {self.message}" if self.value is not None else self.message
        mean = f"did you mean '{self.did_you_mean}'?" if self.did_you_mean else ""
        allowed = f"allowed: {self.allowed}" if self.allowed else ""
        if mean:
            return f"{where}{what}; {mean} {allowed}".rstrip()
        return f"{where}{what}; {allowed}" if allowed else where + what

    def as_dict(self) -> dict[str, Any]:
        """Fields by name, for `--json`."""
        return asdict(self)


class PolicyError(Exception):
    """A document that is not a policy; `mistakes` holds them all, in the order of the document."""

    def __init__(self, mistakes: Sequence[Mistake]):
        ordered = sorted(mistakes, key=lambda m: (m.file, m.line, m.column))
        self.mistakes: tuple[Mistake, ...] = tuple(ordered[:MISTAKES_SHOWN])
        self.left_out = len(ordered) - len(self.mistakes)
        super().__init__(str(self))

    def __str__(self) -> str:
        """Each mistake on a line of its own."""
        lines = [str(m) for m in self.mistakes]
        if self.left_out:
            lines.append(f"and {self.left_out} more")
        return "\n".join(lines)


def spot(file: str, line: int, column: int) -> str:
    """Name a place in a file, or what has no lines."""
    return f"{file}:{line}:{column}" if line else file


def shown(value: str) -> str:
    """Quote an author's text: control characters escaped, at most SHOWN characters."""
    return repr(value) if len(value) <= SHOWN else repr(value[:SHOWN]) + "…"


def path_text(path: Path) -> str:
    """Write a path: `limits[0].descriptors[1].key`; a name that could be misread is quoted."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
            continue
        name = part if re.fullmatch(r"[\w:/@+-]{1,80}", part) else shown(part)
        out += f".{name}" if out else name
    return out


def listing(names: Iterable[str]) -> str:
    """Join the allowed names, cut where they would fill a screen."""
    every = list(names)
    text = ", ".join(n if len(n) <= SHOWN else n[:SHOWN] + "…" for n in every[:NAMES_SHOWN])
    return text + (f" and {len(every) - NAMES_SHOWN} more" if len(every) > NAMES_SHOWN else "")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Find the known name that the author most likely meant."""
    if not 0 < len(name) <= SHOWN:
        return None
    known = [n for n in names if len(n) <= SHOWN][:1000]
    by_lower = {n.lower(): n for n in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None
