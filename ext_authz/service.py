"""The sequence of one Check: decode, decide, answer. It waits for nothing."""

import time

from ext_authz import wire
from ext_authz.decide import decide, headers_to_remove
from ext_authz.rid import Rids
from seawall.decision import Reason, Refusal
from seawall.llm.errors import answer
from seawall.llm.protocols import family_of
from seawall.rpc.contract import Call, RpcError, RpcService, Status
from seawall.serve.gate import Gate
from seawall.serve.routes import Routes


class Service:
    """Answers Check calls, and chooses the version of the policy that the request has to its end."""

    def __init__(self, gate: Gate):
        self._gate = gate
        self._rids = Rids()
        self._routes = Routes("ext_authz", gate.settings.max_body, gate.metrics, gate.log)

    def check(self, data: bytes, _: Call) -> bytes:
        """Answer one call.

        What Envoy does with a failure: RpcError makes it answer `status_on_error` (503 in our configuration; 403 is
        Envoy's default), or pass the request where someone set `failure_mode_allow`.
        """
        policies = self._gate.policies
        try:
            request = wire.decode(data)
        except ValueError as e:
            raise RpcError(Status.INVALID_ARGUMENT, str(e)) from None
        version = policies.choose(request.headers)
        if version is None:
            raise RpcError(Status.UNAVAILABLE, "no policy yet")
        # Made here, at random: a client's own x-request-id must not name someone else's slot or reservation.
        rid = self._rids.next()
        started = time.perf_counter()
        decision = decide(
            version.policy,
            path=request.path,
            headers=request.headers,
            size=len(data),
            now=time.time(),
            issued=policies.keys.issued,
            route=self._routes.of(version.policy, request.extensions.items()),
        )
        if isinstance(decision, Refusal):
            self._refused(decision, started)
            metadata = {"reason": decision.reason.value, "policy": version.label, "rid": rid}
            return wire.deny(answer(decision, family_of(request.path), rid), metadata)
        self._gate.metrics.count("seawall_decisions_total", "ext_authz", Reason.OK.value)
        if decision.key:
            policies.keys.used(decision.key)
        metadata = {
            "tenant": decision.tenant,
            "class": decision.class_,
            "key": decision.key,
            "policy": version.label,
        }
        return wire.allow(metadata, rid, headers_to_remove(version.policy, request.headers))

    def _refused(self, refusal: Refusal, started: float) -> None:
        self._gate.metrics.count("seawall_decisions_total", "ext_authz", refusal.reason.value)
        self._gate.log(
            "info", "request", service="ext_authz", latency=time.perf_counter() - started, reason=refusal.reason.value
        )


def build(gate: Gate) -> RpcService:
    """Entry point of `seawall.services`."""
    return RpcService(wire.SERVICE, {wire.METHOD: Service(gate).check}, {})
