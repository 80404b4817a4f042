"""A worker's place under its supervisor, and the processes in it."""

from dataclasses import dataclass
from typing import Any

from seawall.serve.child import Child
from seawall.serve.roll import Place, Successor

GONE: dict[str, Any] = {
    "pid": None,
    "age": 0.0,
    "state": "unknown",
    "policy": None,
    "policy_error": "",
    "store": "unknown",
    "store_trouble": "",
    "waiting_for": "",
}
"""What is said of a place without a worker."""


@dataclass(slots=True)
class Seat:
    """One worker's place: its number and name stay, its processes change. Two at most live in it, one at rest."""

    index: int
    generation: int = 0
    current: Child | None = None
    coming: Child | None = None
    """The successor of a rolling restart, until it serves."""
    leaving: Child | None = None
    """The predecessor that still ends its answers."""
    deaths: int = 0
    trouble: str = ""
    """How its newest process ended."""

    def children(self) -> list[Child]:
        """All its processes, the one that serves first."""
        return [child for child in (self.current, self.coming, self.leaving) if child is not None]

    def seen(self) -> Place:
        """Itself as the roll sees it."""
        newest = self.coming or self.current
        waits = newest.snapshot["waiting"] if newest is not None and newest.snapshot else ""
        return Place(
            born=self.current.born if self.current else None,
            serving=self.current is not None and self.current.state == "serving",
            successor=Successor.NONE
            if self.coming is None
            else Successor.SERVING
            if self.coming.state == "serving"
            else Successor.STARTING,
            leaving=self.leaving is not None,
            trouble=f"it waits for {waits}" if waits else self.trouble,
        )

    def told(self) -> dict[str, Any]:
        """What /readyz says of it."""
        return (self.current.told() if self.current else GONE | {"generation": self.generation}) | {
            "successor": self.coming.told() if self.coming else None,
            "leaving": self.leaving.told() if self.leaving else None,
        }
