"""gRPC health of a worker (grpc.health.v1): what Envoy asks once a second.

SERVING once a policy is compiled and the store has answered once, or the policy allows to start without it. A later loss
of the store never changes it: all workers lose it at once, and Envoy would be left with none. Draining is NOT_SERVING.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum

from seawall.proto.gen import health_pb2
from seawall.rpc.contract import Call, CloseReason, RpcError, RpcService, Sender, Status

_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING).SerializeToString()
_NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING).SerializeToString()
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse(
    status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
).SerializeToString()


class State(StrEnum):
    """Life of a worker."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Health:
    """State of a worker, and who watches it.

    Known services: "", `seawall`, the name of each service as the settings have it (envoyproxy/ratelimit is asked for
    `ratelimit`), and its full name.
    """

    def __init__(self, services: list[str]):
        self._names = {"", "seawall", *services}
        self._watchers: set[_Watcher] = set()
        self.state = State.STARTING

    def become(self, state: State) -> None:
        """Change the state and tell the watchers; a draining worker never serves again."""
        if self.state is State.DRAINING or self.state is state:
            return
        self.state = state
        for watcher in list(self._watchers):
            watcher.tell()

    def end_watches(self) -> None:
        """End all Watch streams: the server goes."""
        for watcher in list(self._watchers):
            watcher.finish()

    def service(self) -> RpcService:
        """Offer the health service."""
        return RpcService("grpc.health.v1.Health", {"Check": self._check}, {"Watch": self._watch})

    def _check(self, request: bytes, _: Call) -> bytes:
        name = _service_name(request)
        if not self.knows(name):
            raise RpcError(Status.NOT_FOUND, f"unknown service '{name[:100]}'")
        return self.answer()

    def knows(self, name: str) -> bool:
        """Say whether there is such a service here."""
        return name in self._names

    def answer(self) -> bytes:
        """Write the state of every service known here."""
        return _SERVING if self.state is State.SERVING else _NOT_SERVING

    def _watch(self, _: Call, sender: Sender) -> "_Watcher":
        watcher = _Watcher(self, sender, self._watchers.discard)
        self._watchers.add(watcher)
        return watcher


class _Watcher:
    """One Watch stream: the state now, and each change."""

    def __init__(self, health: Health, sender: Sender, left: Callable[["_Watcher"], None]):
        self._health = health
        self._sender = sender
        self._left = left
        self._known = False

    async def message(self, data: bytes) -> None:
        self._known = self._health.knows(_service_name(data))
        if self._known:
            self.tell()
        else:
            self._sender.send(_SERVICE_UNKNOWN)
        # A Watch client half-closes after its one message; the stream must outlive that. Its end cancels us.
        await asyncio.Event().wait()

    def tell(self) -> None:
        """Send the state, once the client has said of what."""
        if self._known:
            self._sender.send(self._health.answer())

    def finish(self) -> None:
        """End the stream from our side."""
        self._sender.finish()

    def closed(self, reason: CloseReason) -> None:
        del reason
        self._left(self)


def _service_name(request: bytes) -> str:
    try:
        return health_pb2.HealthCheckRequest.FromString(request).service
    except Exception:
        raise RpcError(Status.INVALID_ARGUMENT, "not a HealthCheckRequest") from None
