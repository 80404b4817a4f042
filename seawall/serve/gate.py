"""What a worker hands to each of its services: the rooms they share, and nothing of the transport."""

from collections.abc import Callable
from dataclasses import dataclass

from seawall.rpc.contract import RpcService
from seawall.rpc.tasks import Tasks
from seawall.serve.policies import Policies
from seawall.serve.settings import Settings
from seawall.serve.slots import Slots
from seawall.store.contract import Store
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Gate:
    """One worker's rooms."""

    worker: str
    settings: Settings
    policies: Policies
    store: Store
    slots: Slots
    metrics: Metrics
    log: Log
    tasks: Tasks


ServiceBuilder = Callable[[Gate], RpcService]
"""What an entry point of the group `seawall.services` names."""
