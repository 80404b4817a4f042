"""The sequence of one ShouldRateLimit call: decode, plan, charge in one step, conclude."""

import time
from collections.abc import Awaitable
from typing import Any, NamedTuple

from ratelimit import wire
from ratelimit.counting import Counting
from seawall.decision import Reason
from seawall.limits.answer import Answer, Asked, answer, ask, passed
from seawall.limits.call import InvalidCall
from seawall.limits.charge import Outcome
from seawall.limits.decide import Plan, local_share
from seawall.limits.descriptor import Node
from seawall.limits.explain import explain, looks
from seawall.limits.over_limit_cache import OverLimitCache
from seawall.limits.window import US, Reading, Window
from seawall.policy.compiled import Policy
from seawall.rpc.contract import Call, RpcError, RpcService
from seawall.rpc.contract import Status as RpcStatus
from seawall.serve.gate import Gate
from seawall.store.charging import name
from seawall.store.contract import StoreUnavailable
from seawall.store.memory import MemoryStore

_KEPT = 4096
_KEPT_BYTES = 1024
"""How many calls are kept, and how large: clients choose what stands in them."""


class _Known(NamedTuple):
    """What a call says, and what it charges by these rules."""

    call: wire.RateLimitCall
    tree: Node | None
    plan: Plan


class Service:
    """Answers ShouldRateLimit calls by the limits in force."""

    def __init__(self, gate: Gate):
        self._gate = gate
        limit = gate.settings.limit
        self._modes = limit.modes
        self._cache = OverLimitCache(limit.cache) if limit.cache else None
        self._cached_for: Policy | None = None
        """The policy that the cache has counters of."""
        self._counting = Counting(gate.metrics)
        self._local = MemoryStore(owner=gate.worker)
        """Counts a worker's share while the store is away."""
        self._known: dict[bytes, _Known] = {}
        """By the bytes of the call: a caller asks the same again and again."""

    def should_rate_limit(self, data: bytes, _: Call) -> bytes | Awaitable[bytes]:
        """Answer one call; at once where nothing is to be charged.

        What Envoy does with a failure: UNAVAILABLE passes the request, or answers 503 with `failure_mode_deny: true` (as
        our configuration has it). UNKNOWN as an overall code would always pass, so it is never sent.
        """
        started = time.perf_counter()
        now = int(self._gate.store.now() * US)
        try:
            known = self._known.get(data)
            call = known.call if known is not None else wire.decode(data)
            policy = self._policy(call.version)
            tree = policy.limits.get(call.domain)
            planned = known.plan if known is not None and known.tree is tree else None
            cache = self._cache_of(policy)
            asked = ask(call.domain, tree, call.descriptors, call.hits, now, self._modes, cache, planned)
            if planned is None:
                self._keep(data, _Known(call, tree, asked.plan))
        except ValueError as e:
            self._counting.failed(store=False)
            self._counting.called(time.perf_counter() - started)
            raise RpcError(RpcStatus.INVALID_ARGUMENT, str(e)) from (None if isinstance(e, InvalidCall) else e)
        if not asked.demands:
            return self._told(asked, answer(asked, (), now, self._modes), started)
        return self._charge(policy, asked, now, started)

    @property
    def policy(self) -> Policy | None:
        """The current policy, for who asks what is in force."""
        version = self._gate.version("", "ratelimit")
        return version.policy if version is not None else None

    async def explain(self, data: bytes) -> dict[str, Any]:
        """Why a call would pass or not. Raises ValueError, RpcError, StoreUnavailable."""
        now = int(self._gate.store.now() * US)
        call = wire.decode(data)
        tree = self._policy(call.version).limits.get(call.domain)
        asked = ask(call.domain, tree, call.descriptors, call.hits, now, self._modes)
        demands = looks(asked)
        outcomes = await self._gate.store.charge_all(demands) if demands else ()
        return explain(asked, tree, outcomes, self._modes, lambda d: name(d).decode("utf-8", "surrogateescape"))

    def _keep(self, data: bytes, known: _Known) -> None:
        if len(data) <= _KEPT_BYTES:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[data] = known

    def _policy(self, label: str) -> Policy:
        version = self._gate.version(label, "ratelimit")
        if version is None:
            self._counting.failed(store=False)
            raise RpcError(RpcStatus.UNAVAILABLE, "no rate limit configuration loaded")
        return version.policy

    def _cache_of(self, policy: Policy) -> OverLimitCache | None:
        """The cache of refused counters; another policy begins with an empty one."""
        if self._cache is not None and policy is not self._cached_for:
            self._cache.clear()
            self._cached_for = policy
        return self._cache

    async def _charge(self, policy: Policy, asked: Asked, now: int, started: float) -> bytes:
        try:
            outcomes = await self._gate.store.charge_all(asked.demands, stop=self._modes.stop)
        except StoreUnavailable:
            self._gate.metrics.count("seawall_store_errors_total", "charge")
            self._counting.failed(store=True)
            try:
                told = await self._without_store(policy, asked, now)
            except RpcError:
                self._counting.called(time.perf_counter() - started)
                raise
        else:
            # Of a policy that has been replaced meanwhile nothing is learnt.
            cache = self._cache if policy is self._cached_for else None
            told = answer(asked, outcomes, now, self._modes, cache)
        return self._told(asked, told, started)

    async def _without_store(self, policy: Policy, asked: Asked, now: int) -> Answer:
        """`store_loss.limits`: this worker's share, everything, or an error that lets Envoy's own setting decide."""
        law = policy.store_loss.limits
        refused = self._refused_for_certain(asked, now)
        if refused is not None and refused.over:
            return refused
        self._gate.metrics.count("seawall_limit_local_total")
        if law == "deny":
            raise RpcError(RpcStatus.UNAVAILABLE, "the store of the counters is away")
        if law == "allow":
            return passed(asked)
        workers = self._gate.policies.workers_alive
        shares = [
            demand._replace(windows=tuple(local_share(window, workers) for window in demand.windows))
            for demand in asked.demands
        ]
        return answer(asked, await self._local.charge_all(shares, stop=self._modes.stop), now, self._modes)

    def _refused_for_certain(self, asked: Asked, now: int) -> Answer | None:
        """What counters say that are known to be used up: a definite refusal wins over an error."""
        if not asked.known:
            return None
        unknown = [Outcome(False, 0, tuple(_unread(window) for window in d.windows)) for d in asked.demands]
        return answer(asked, unknown, now, self._modes)

    def _told(self, asked: Asked, told: Answer, started: float) -> bytes:
        self._counting.answered(asked, told)
        self._counting.called(time.perf_counter() - started)
        for step, hits in told.counted:
            outcome = "over" if told.statuses[step.position].exceeded else "ok"
            self._gate.metrics.count("seawall_limit_hits_total", step.limit.label, outcome, n=hits.total)
        reason = (Reason.RATE_LIMIT if told.over else Reason.OK).value
        self._gate.metrics.count("seawall_decisions_total", "ratelimit", reason)
        if told.over:
            latency = time.perf_counter() - started
            self._gate.log("info", "request", service="ratelimit", latency=latency, reason=reason)
        return wire.encode(told.over, told.statuses, told.headers, told.metadata)


def _unread(window: Window) -> Reading:
    """A window that nobody could ask: nothing used as far as we know."""
    return Reading(False, 0, window.capacity, window.length)


def build(gate: Gate) -> RpcService:
    """Entry point of `seawall.services`."""
    from ratelimit.http import pages

    service = Service(gate)
    gate.pages.update(pages(service))
    return RpcService(wire.SERVICE, {wire.METHOD: service.should_rate_limit}, {})
