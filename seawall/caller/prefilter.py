"""What is refused before anyone asks who is calling: user agents, header size, unknown paths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from seawall.caller.agents import AgentRules


@dataclass(frozen=True, slots=True)
class Prefilter:
    """Compiled `prefilter` section. Sizes are bytes; `body_per_class` overrides `body_max` for a class."""

    agents: AgentRules
    headers_max: int
    body_max: int
    body_per_class: Mapping[str, int]
    unknown_paths: Literal["deny", "pass"]

    def body_cap(self, class_: str) -> int:
        """Largest request body for a class, in bytes."""
        return self.body_per_class.get(class_, self.body_max)
