"""Which of many patterns a text may hold: one look at the bytes for all of them.

Hyperscan where it has a wheel, else a set of RE2's. Both read the loose forms, so that a pattern they pass over is
certainly not there. Hyperscan scans blocks: a stream's undecided text is scanned again with each piece, which costs
what stream mode costs (0.3 µs for 20 bytes) and leaves no state of the C library behind for a stream that is
dropped; what may have begun and not ended, no mode of Hyperscan tells.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from seawall.scan.forms import loose
from seawall.scan.pattern import Node
from seawall.scan.re2_program import program_set

Engine = Literal["hyperscan", "re2"]


def _import_hyperscan() -> Any:
    try:
        return importlib.import_module("hyperscan")
    except ImportError:
        # No wheel for this machine.
        return None


hyperscan = _import_hyperscan()
DEFAULT_ENGINE: Engine = "re2" if hyperscan is None else "hyperscan"
_COPIES = 16


class Prefilter(Protocol):
    """Many patterns, compiled together."""

    def candidates(self, data: bytes) -> Sequence[int]:
        """Numbers of the patterns that may have a match in these bytes; others have none."""


def prefilter(nodes: Sequence[Node], engine: Engine = DEFAULT_ENGINE) -> Prefilter:
    """Compile patterns, numbered from 0. Raises ValueError where the engine isn't there."""
    if not nodes:
        return Nothing()
    if engine == "re2":
        return Re2Prefilter(nodes)
    if hyperscan is None:
        raise ValueError("hyperscan is not installed here")
    return HyperscanPrefilter(nodes)


class Nothing:
    """No patterns."""

    def candidates(self, data: bytes) -> Sequence[int]:
        """None."""
        return ()


class HyperscanPrefilter:
    """Patterns in a Hyperscan database of block mode."""

    def __init__(self, nodes: Sequence[Node]):
        flags = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_PREFILTER | hyperscan.HS_FLAG_DOTALL
        self._always: list[int] = []
        ids, expressions = [], []
        for number, node in enumerate(nodes):
            ids.append(number)
            expressions.append(loose(node, _COPIES))
        try:
            self._database: Any = _database(expressions, ids, flags)
        except hyperscan.error:
            ids, expressions = self._readable(ids, expressions, flags)
            self._database = _database(expressions, ids, flags) if ids else None

    def _readable(self, ids: list[int], expressions: list[bytes], flags: int) -> tuple[list[int], list[bytes]]:
        """Leave out what Hyperscan can't take by itself: it is looked for in every text."""
        kept = []
        for number, expression in zip(ids, expressions, strict=True):
            try:
                _database([expression], [number], flags)
                kept.append((number, expression))
            except hyperscan.error:
                self._always.append(number)
        return [number for number, _ in kept], [expression for _, expression in kept]

    def candidates(self, data: bytes) -> Sequence[int]:
        """Numbers of the patterns that may have a match in these bytes."""
        found = list(self._always)
        if self._database is not None and data:
            self._database.scan(data, match_event_handler=_note, context=found)
        return found


def _note(number: int, _start: int, _end: int, _flags: int, found: list[int]) -> None:
    found.append(number)


def _database(expressions: list[bytes], ids: list[int], flags: int) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=expressions, ids=ids, elements=len(ids), flags=[flags] * len(ids))
    return database


class Re2Prefilter:
    """Patterns in an RE2 set."""

    def __init__(self, nodes: Sequence[Node]):
        self._set = program_set([loose(node, _COPIES) for node in nodes])

    def candidates(self, data: bytes) -> Sequence[int]:
        """Numbers of the patterns that may have a match in these bytes."""
        return self._set.Match(data)
