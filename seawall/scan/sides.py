"""What a policy says about scanning, compiled: the rules of each side of an exchange."""

from collections.abc import Iterable
from dataclasses import dataclass

from seawall.scan.pattern import known_after
from seawall.scan.prefilter import DEFAULT_ENGINE, Engine
from seawall.scan.rules import Rule, Side
from seawall.scan.ruleset import RuleSet, compile_rules
from seawall.scan.stream import Hold, StreamScanner


@dataclass(frozen=True, slots=True)
class Scanning:
    """Rules on prompts, rules on answers, and how long a streamed answer may wait for them. None: no rules."""

    request: RuleSet | None
    response: RuleSet | None
    hold: Hold

    def stream(self) -> StreamScanner | None:
        """Scanner for one stream of an answer's text."""
        return None if self.response is None else StreamScanner(self.response, self.hold)

    def late(self) -> list[tuple[str, int | None]]:
        """Rules on answers whose match may be known only after some of it had to leave: id, and after how many bytes."""
        found: dict[str, int | None] = {}
        for search in self.response.searches if self.response is not None else ():
            if search.rule.action == "flag":
                continue
            most = known_after(search.node)
            if search.rule.max_length is not None:
                most = min(most or search.rule.max_length, search.rule.max_length)
            size = None if most is None else most * search.widest
            if size is None or size > self.hold.size:
                before = found.get(search.rule.id, 0)
                found[search.rule.id] = None if size is None or before is None else max(size, before)
        return list(found.items())


def compile_sides(rules: Iterable[Rule], hold: Hold, engine: Engine = DEFAULT_ENGINE) -> Scanning:
    """Compile a policy's rules, once for both sides where these have the same. Raises RuleError."""
    every = tuple(rules)

    def on(side: Side) -> tuple[Rule, ...]:
        return tuple(rule for rule in every if side in rule.on)

    request = compile_rules(on("request"), engine) if on("request") else None
    same = on("request") == on("response")
    response = request if same else compile_rules(on("response"), engine) if on("response") else None
    return Scanning(request, response, hold)
