"""User-Agent rules: globs and `~regular expressions`, in linear time whatever a client sends (RE2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import re2

_KNOWN = 1024
_SHORT = 256


@dataclass(frozen=True, slots=True)
class AgentRules:
    """Compiled rules; an `allow` hit wins over a `deny` hit. None stands for "no rule of this kind"."""

    deny: Any = None
    allow: Any = None
    _known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)
    """Verdicts of short values: clients send the same few again and again."""

    def denied(self, agent: str | None) -> bool:
        """Say whether a request with this User-Agent is refused; an absent header matches like an empty one."""
        if self.deny is None:
            return False
        text = agent or ""
        verdict = self._known.get(text)
        if verdict is None:
            verdict = not (self.allow is not None and self.allow.search(text)) and bool(self.deny.search(text))
            if len(text) <= _SHORT:
                if len(self._known) >= _KNOWN:
                    self._known.clear()
                self._known[text] = verdict
        return verdict


def compile_agents(deny: Sequence[str], allow: Sequence[str]) -> AgentRules:
    """Compile patterns: a glob (`*`, `?`; whole value, any case) or `~` and an RE2 expression (searched, any case).

    Raises ValueError that names the pattern RE2 can't read.
    """
    return AgentRules(_union(deny), _union(allow))


def _union(patterns: Sequence[str]) -> Any:
    if not patterns:
        return None
    return _compile("(?is)" + "|".join(f"(?:{_expression(p)})" for p in patterns))


def _compile(expression: str) -> Any:
    options = re2.Options()
    # The error is raised; RE2 would write it to stderr too.
    options.log_errors = False
    return re2.compile(expression, options)


def _expression(pattern: str) -> str:
    if not pattern.startswith("~"):
        body = "".join({"*": ".*", "?": "."}.get(c) or re2.escape(c) for c in pattern)
        return f"^{body}$"
    expression = pattern[1:]
    try:
        _compile(expression)
    except re2.error as e:
        why = e.args[0].decode() if e.args and isinstance(e.args[0], bytes) else str(e)
        raise ValueError(f"'{pattern}' is not an RE2 expression: {why}") from None
    return expression
