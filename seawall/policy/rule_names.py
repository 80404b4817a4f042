"""Names of limits, and which replace which: rules that replace each other would both vanish from a call with both."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from seawall.policy.checks import Checks
from seawall.policy.mistake import Mistake, Path, shown
from seawall.policy.rule_limits import text_of
from seawall.policy.tree import Items, Node, find


@dataclass(slots=True)
class Names:
    """Of one domain, over all its files: name → names it replaces, each with the place that says so."""

    replaces: dict[str, dict[str, tuple[Checks, Path]]] = field(default_factory=dict)

    def add(self, limit: Node, checks: Checks, path: Path) -> None:
        """Take in a `rate_limit`. One without a name can't be replaced, so it is in no circle."""
        own, replaces = text_of(limit, "name"), find(limit, ("replaces",))
        if not own or not isinstance(replaces, Items):
            return
        known = self.replaces.setdefault(own, {})
        for index, item in enumerate(replaces.items):
            name = text_of(item, "name")
            if name and name != own:
                known.setdefault(name, (checks, (*path, "replaces", index, "name")))

    def mistakes(self) -> Iterator[Mistake]:
        """One mistake for each circle: with all its rules in one call, none of them would count."""
        done: set[str] = set()
        for start in self.replaces:
            circle = self._circle(start, done)
            if circle:
                checks, path = self.replaces[circle[0]][circle[1]]
                round_ = " → ".join(shown(name) for name in [*circle[:6], circle[0]])
                yield checks.mistake(path, f"closes a circle of rules that replace each other: {round_}")

    def _circle(self, start: str, done: set[str]) -> list[str]:
        """Names of a circle that can be reached from a name and that no one has seen yet."""
        way: dict[str, Iterator[str]] = {}
        name: str | None = start
        while name is not None:
            if name in way:
                names = list(way)
                done.update(names)
                return names[names.index(name) :]
            if name not in done and name in self.replaces:
                way[name] = iter(self.replaces[name])
            name = None
            while way and name is None:
                last = next(reversed(way))
                name = next(way[last], None)
                if name is None:
                    done.add(last)
                    del way[last]
        return []
