"""Where in a stream's text a match may have begun that is not decided yet."""

from collections.abc import Iterable
from dataclasses import dataclass

from seawall.scan.matcher import undecided
from seawall.scan.pattern import Node
from seawall.scan.re2_program import ANYWHERE, Program, program
from seawall.scan.rules import Rule

_TOGETHER = 400
_UTF8 = 4
"""Most bytes of a character."""


@dataclass(frozen=True, slots=True)
class Began:
    """Patterns whose beginnings are looked for together.

    `holds`: text waits for them (they mask or block). `limit`: the longest match that counts, bytes.
    """

    program: Program
    holds: bool
    limit: int | None

    def since(self, data: bytes, start: int) -> int:
        """Offset from `start` on of the earliest undecided beginning; the text's length if there is none."""
        size = len(data)
        at = self.program.Match(ANYWHERE, data, start, size)[0][0]
        if self.limit is not None and at < size - self.limit:
            at = size - self.limit
            while data[at] & 0xC0 == 0x80:
                at += 1
        return at


def groups(searches: Iterable[tuple[Rule, Node]]) -> tuple[Began, ...]:
    """Compile beginnings: apart are those that hold text back and those that don't, and each length.

    A group has so many patterns at most that RE2, which keeps the interpreter while it compiles, takes some tens of
    milliseconds for it: a worker serves on while its next policy is compiled.
    """
    nodes: dict[tuple[bool, int | None], list[Node]] = {}
    for rule, node in searches:
        limit = None if rule.max_length is None else rule.max_length * _UTF8
        nodes.setdefault((rule.action != "flag", limit), []).append(node)
    return tuple(
        Began(program(undecided(group[i : i + _TOGETHER])), holds, limit)
        for (holds, limit), group in nodes.items()
        for i in range(0, len(group), _TOGETHER)
    )
