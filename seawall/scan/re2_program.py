"""Compiled RE2 expressions over bytes, with the offsets of what they find and nothing else."""

from collections.abc import Sequence
from typing import Any, Protocol

import re2

Buffer = bytes | memoryview
MEMORY = 256 << 20
"""RE2's bound on the memory of one expression, bytes; what is used is a small part of it."""


class TooLarge(ValueError):
    """RE2 has no room for an expression."""


class Program(Protocol):
    """One compiled expression."""

    def Match(self, anchor: Any, data: Buffer, start: int, end: int, /) -> Sequence[tuple[int, int]]:  # noqa: N802
        """Spans of the match and of its groups; (-1, -1) for none."""


class ProgramSet(Protocol):
    """Many compiled expressions, searched together."""

    def Match(self, data: Buffer, /) -> Sequence[int]:  # noqa: N802
        """Numbers of those that match."""


ANYWHERE: Any = re2._re2.RE2.Anchor.UNANCHORED


def program(expression: str | bytes) -> Program:
    """Compile an expression: str is over UTF-8, bytes is over bytes. Raises TooLarge."""
    made = re2._re2.RE2(
        expression.encode() if isinstance(expression, str) else expression, _options(isinstance(expression, bytes))
    )
    if not made.ok():
        # All that we write is well formed.
        raise TooLarge(made.error().decode("utf-8", "replace")[:80])
    result: Program = made
    return result


def program_set(expressions: Sequence[bytes]) -> ProgramSet:
    """Compile expressions over bytes into one set. Raises TooLarge."""
    made = re2._re2.Set(ANYWHERE, _options(over_bytes=True))
    try:
        for expression in expressions:
            made.Add(expression)
        made.Compile()
    except re2.error as e:
        raise TooLarge(str(e)[:80]) from None
    result: ProgramSet = made
    return result


def _options(over_bytes: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MEMORY
    # Over bytes an expression has a byte for each character: Latin-1.
    options.encoding = options.Encoding.LATIN1 if over_bytes else options.Encoding.UTF8
    return options
