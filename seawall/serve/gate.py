"""What a worker hands to each of its services: the rooms they share, and nothing of the transport."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from seawall.policy.held import Version
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
    pages: dict[str, Any] = field(default_factory=dict)
    """What services answer by HTTP (`errands.Pages`): each adds its own."""

    def version(self, label: str, service: str) -> Version | None:
        """Give the version that a request carries, for what is decided after ext_authz; None without any policy.

        A worker that does not hold it (another one was quicker to follow a push, or it was used too long ago) answers
        by the current one at once, and counts it: no request waits for a policy.
        """
        version = self.policies.named(label)
        if version is None:
            version = self.policies.named("")
            if version is not None:
                self.metrics.count("seawall_policy_fallback_total", service)
        return version


ServiceBuilder = Callable[[Gate], RpcService]
"""What an entry point of the group `seawall.services` names."""
