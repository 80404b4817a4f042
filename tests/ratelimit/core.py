"""The pure core as a server for the cases: rule files, plans, counters in memory, answers; the clock is a number."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seawall.limits.answer import Modes, answer, ask
from seawall.limits.call import Descriptor, InvalidCall, Override
from seawall.limits.charge import Demand, Outcome
from seawall.limits.descriptor import Node
from seawall.limits.over_limit_cache import OverLimitCache
from seawall.limits.response import HeaderNames
from seawall.limits.statistics import name
from seawall.limits.window import US, Unit
from seawall.policy.mistake import PolicyError
from seawall.policy.rule_files import compile_rule_files
from seawall.store.counters import Ledger
from tests.ratelimit.cases import Refused, Told

Charge = Callable[[Sequence[Demand], int, bool], Sequence[Outcome]]
"""One step of the store at a time in unix microseconds; the flag is stop mode."""
_STATS = "ratelimit.service.rate_limit."
_CALL = "ratelimit.service.call.should_rate_limit."


class Core:
    """A server without a process. `settings` are envoyproxy/ratelimit's variables."""

    def __init__(self, files: Mapping[str, str], settings: Mapping[str, str], now: float, charge: Charge | None = None):
        self.now = now
        self._settings = settings
        names = HeaderNames(
            settings.get("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
            settings.get("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
            settings.get("LIMIT_RESET_HEADER", "RateLimit-Reset"),
        )
        self._modes = Modes(
            quota=self._on("QUOTA_MODE"),
            shadow=self._on("SHADOW_MODE"),
            stop=self._on("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
            headers=names if self._on("LIMIT_RESPONSE_HEADERS_ENABLED") else None,
            metadata=self._on("RESPONSE_DYNAMIC_METADATA"),
            key_prefix=settings.get("CACHE_KEY_PREFIX", ""),
        )
        size = int(settings.get("LOCAL_CACHE_SIZE_IN_BYTES", "0"))
        self._cache = OverLimitCache(size // 128) if size else None
        self._ledger = Ledger()
        self._charge = charge or self._in_memory
        self._stats: Counter[str] = Counter()
        self._limits: Mapping[str, Node] | None = None
        self.load(files)

    def _on(self, variable: str) -> bool:
        return self._settings.get(variable) == "true"

    def load(self, files: Mapping[str, str]) -> bool:
        """A folder with RUNTIME_IGNOREDOTFILES: a bad set leaves the old rules in force."""
        merge = self._on("MERGE_DOMAIN_CONFIG")
        shown = [(name, text) for name, text in files.items() if not name.startswith(".")]
        try:
            self._limits = compile_rule_files(shown, merge=merge).limits
        except PolicyError:
            self._stats["ratelimit.service.config_load_error"] += 1
            return False
        self._stats["ratelimit.service.config_load_success"] += 1
        if self._cache is not None:
            self._cache.clear()
        return True

    def _in_memory(self, demands: Sequence[Demand], now: int, stop: bool) -> list[Outcome]:
        return self._ledger.charge_all(demands, now / US, stop=stop)

    def call(self, domain: str, descriptors: list[dict[str, Any]], hits: int) -> Told:
        """One call from end to end."""
        if self._limits is None:
            raise Refused("UNAVAILABLE", "no rate limit configuration loaded")
        now, asks = int(self.now * US), [_descriptor(d) for d in descriptors]
        try:
            asked = ask(domain, self._limits.get(domain), asks, hits, now, self._modes, self._cache)
        except InvalidCall as invalid:
            self._stats[_CALL + "service_error"] += 1
            raise Refused("INVALID_ARGUMENT", str(invalid)) from None
        outcomes = self._charge(asked.demands, now, self._modes.stop) if asked.demands else []
        told = answer(asked, outcomes, now, self._modes, self._cache)
        if asked.unknown_domain:
            self._stats[f"{_STATS}{domain}.domain_not_found"] += len(asks)
        if told.shadowed:
            self._stats["ratelimit.service.global_shadow_mode"] += 1
        for step, counted in told.counted:
            path = _STATS + name(step, domain, asks[step.position].entries)
            self._stats[f"{path}.total_hits"] += counted.total
            self._stats[f"{path}.within_limit"] += counted.within
            self._stats[f"{path}.near_limit"] += counted.near
            self._stats[f"{path}.over_limit"] += counted.over
            self._stats[f"{path}.shadow_mode"] += counted.shadow
            self._stats[f"{path}.over_limit_with_local_cache"] += counted.over_with_local_cache
        return Told(
            "OVER_LIMIT" if told.over else "OK",
            [
                {
                    "code": "OVER_LIMIT" if status.over else "OK",
                    "limit": status.window.requests if status.window else None,
                    "unit": status.window.unit.name if status.window and status.window.unit else None,
                    "name": status.name,
                    "remaining": status.remaining,
                    "reset": status.reset if status.window else None,
                }
                for status in told.statuses
            ],
            dict(told.headers),
            dict(told.metadata) if told.metadata is not None else None,
        )

    def stats(self) -> Mapping[str, int]:
        """Statistics by their full names."""
        return Counter(self._stats)

    def keys(self) -> Mapping[bytes, int]:
        """Counters by their keys; each has one field here, since only compatible keys are counted."""
        return {key: sum(map(int, counter.fields.values())) for key, counter in self._ledger.counters.items()}


def _descriptor(given: dict[str, Any]) -> Descriptor:
    limit = given.get("limit")
    override = None
    if limit is not None:
        unit = limit["unit"]
        known = 0 if unit == "UNKNOWN" else Unit[unit].value if isinstance(unit, str) else unit
        override = Override(limit["requests_per_unit"], known)
    entries = [(key, value) for key, value in given["entries"]]
    return Descriptor(entries, given.get("hits_addend"), override, given.get("is_negative_hits", False))
