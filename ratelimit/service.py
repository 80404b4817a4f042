"""The sequence of one ShouldRateLimit call: decode, plan, charge in one step, conclude."""

import time
from collections.abc import Awaitable, Sequence

from ratelimit import wire
from seawall.decision import Reason
from seawall.limits.decide import InvalidCall, Planned, Status, conclude, local_share, plan
from seawall.policy.compiled import Policy
from seawall.rpc.contract import Call, RpcError, RpcService
from seawall.rpc.contract import Status as RpcStatus
from seawall.serve.gate import Gate
from seawall.store.contract import Charge, StoreUnavailable
from seawall.store.memory import MemoryStore


class Service:
    """Answers ShouldRateLimit calls by the limits in force."""

    def __init__(self, gate: Gate):
        self._gate = gate
        self._local = MemoryStore(owner=gate.worker)
        """Counts a worker's share while the store is away."""

    def should_rate_limit(self, data: bytes, _: Call) -> bytes | Awaitable[bytes]:
        """Answer one call; at once where nothing is to be charged.

        What Envoy does with a failure: UNAVAILABLE passes the request, or answers 503 with `failure_mode_deny: true` (as
        our configuration has it). UNKNOWN as an overall code would always pass, so it is never sent.
        """
        started = time.perf_counter()
        now = self._gate.store.now()
        try:
            call = wire.decode(data)
            policy = self._policy(call.version)
            planned = plan(call.domain, policy.limits.get(call.domain), call.descriptors, call.hits, now)
        except ValueError as e:
            raise RpcError(RpcStatus.INVALID_ARGUMENT, str(e)) from (None if isinstance(e, InvalidCall) else e)
        if not planned:
            return self._answer([Status(over=False)] * len(call.descriptors), started)
        return self._charge(policy, planned, len(call.descriptors), now, started)

    def _policy(self, label: str) -> Policy:
        version = self._gate.version(label, "ratelimit")
        if version is None:
            raise RpcError(RpcStatus.UNAVAILABLE, "no rate limit configuration loaded")
        return version.policy

    async def _charge(
        self, policy: Policy, planned: Sequence[Planned], descriptors: int, now: float, started: float
    ) -> bytes:
        charges = [Charge(p.identity, p.start, p.limit.unit.seconds, p.hits) for p in planned]
        try:
            counts = await self._gate.store.charge(charges)
        except StoreUnavailable:
            self._gate.metrics.count("seawall_store_errors_total", "charge")
            return self._answer(await self._without_store(policy, planned, charges, descriptors, now), started)
        statuses = conclude(planned, counts, descriptors, now)
        self._count_hits(planned, statuses)
        return self._answer(statuses, started)

    async def _without_store(
        self, policy: Policy, planned: Sequence[Planned], charges: Sequence[Charge], descriptors: int, now: float
    ) -> list[Status]:
        """`store_loss.limits`: this worker's share, everything, or an error that lets Envoy's own setting decide."""
        self._gate.metrics.count("seawall_limit_local_total")
        law = policy.store_loss.limits
        if law == "deny":
            raise RpcError(RpcStatus.UNAVAILABLE, "the store of the counters is away")
        if law == "allow":
            return [Status(over=False)] * descriptors
        counts = await self._local.charge(charges)
        statuses = conclude(planned, counts, descriptors, now)
        workers = self._gate.policies.workers_alive
        for step, count in zip(planned, counts, strict=True):
            share = local_share(step.limit, workers)
            told = statuses[step.position]
            statuses[step.position] = Status(count > share, told.limit, max(0, share - count), told.reset)
        self._count_hits(planned, statuses)
        return statuses

    def _count_hits(self, planned: Sequence[Planned], statuses: Sequence[Status]) -> None:
        for step in planned:
            outcome = "over" if statuses[step.position].over else "ok"
            self._gate.metrics.count("seawall_limit_hits_total", step.limit.label, outcome, n=step.hits)

    def _answer(self, statuses: Sequence[Status], started: float) -> bytes:
        over = any(status.over for status in statuses)
        reason = (Reason.RATE_LIMIT if over else Reason.OK).value
        self._gate.metrics.count("seawall_decisions_total", "ratelimit", reason)
        if over:
            latency = time.perf_counter() - started
            self._gate.log("info", "request", service="ratelimit", latency=latency, reason=reason)
        return wire.encode(statuses)


def build(gate: Gate) -> RpcService:
    """Entry point of `seawall.services`."""
    return RpcService(wire.SERVICE, {wire.METHOD: Service(gate).should_rate_limit}, {})
