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
    """State of a worker, and who watches it. Known services: "", `seawall`, and the full name of each service."""

    def __init__(self, services: list[str]):
        self._names = {"", "seawall", *services}
        self._watchers: set[Callable[[], None]] = set()
        self.state = State.STARTING

    def become(self, state: State) -> None:
        """Change the state and tell the watchers; a draining worker never serves again."""
        if self.state is State.DRAINING or self.state is state:
            return
        self.state = state
        for tell in list(self._watchers):
            tell()

    def service(self) -> RpcService:
        """Offer the health service."""
        return RpcService("grpc.health.v1.Health", {"Check": self._check}, {"Watch": self._watch})

    def _check(self, request: bytes, _: Call) -> bytes:
        name = _service_name(request)
        if name not in self._names:
            raise RpcError(Status.NOT_FOUND, f"unknown service '{name[:100]}'")
        return self._answer()

    def _answer(self) -> bytes:
        return _SERVING if self.state is State.SERVING else _NOT_SERVING

    def _watch(self, _: Call, sender: Sender) -> "_Watcher":
        return _Watcher(self, sender)

    def watch(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Register a watcher; returns what ends it."""
        self._watchers.add(tell)
        return lambda: self._watchers.discard(tell)


class _Watcher:
    """One Watch stream: the state now, and each change."""

    def __init__(self, health: Health, sender: Sender):
        self._health = health
        self._sender = sender
        self._stop: Callable[[], None] = lambda: None
        self._gone = asyncio.Event()

    def message(self, data: bytes) -> "asyncio.Future[None] | None":
        if _service_name(data) not in self._health._names:
            self._sender.send(_SERVICE_UNKNOWN)
        else:
            self._stop = self._health.watch(self._tell)
            self._tell()
        # A Watch client half-closes after its one message; the stream must outlive that.
        return asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        await self._gone.wait()

    def _tell(self) -> None:
        self._sender.send(self._health._answer())

    def closed(self, reason: CloseReason) -> None:
        del reason
        self._stop()
        self._gone.set()


def _service_name(request: bytes) -> str:
    try:
        return health_pb2.HealthCheckRequest.FromString(request).service
    except Exception:
        raise RpcError(Status.INVALID_ARGUMENT, "not a HealthCheckRequest") from None
