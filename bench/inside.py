"""The services of a worker in this process: the real objects over a store in memory, without a transport."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from seawall.policy.compile import digest_of
from seawall.rpc.contract import RpcService
from seawall.rpc.tasks import Tasks
from seawall.serve.gate import Gate
from seawall.serve.policies import Policies
from seawall.serve.settings import SERVICES, Settings
from seawall.serve.slots import Slots
from seawall.serve.worker import builders
from seawall.store.memory import MemoryStore
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Metrics

WORKER = "bench-0"


@asynccontextmanager
async def services(policy: str, *, log_level: str = "info") -> AsyncIterator[dict[str, RpcService]]:
    """The three services by name, with a policy in force; what they log is formatted, and written to nowhere."""
    settings = Settings(workers=1)
    store = MemoryStore(owner=WORKER)
    metrics = Metrics()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    log = Log(nowhere, level=log_level)
    policies = Policies(store, settings, WORKER, _refused)
    await store.push(policy, digest=digest_of(policy), author="bench", reason="", needs="0")
    await policies.check()
    slots = Slots(store, metrics, lease=settings.slot_lease, workers_alive=lambda: 1)
    gate = Gate(WORKER, settings, policies, store, slots, metrics, log, Tasks(_failed))
    try:
        yield {name: build(gate) for name, build in builders(SERVICES).items()}
    finally:
        log.close()
        os.close(nowhere)


def _refused(version: int, why: str) -> None:
    raise SystemExit(f"the policy of the benchmark is refused (version {version}): {why}")


def _failed(where: str, error: BaseException) -> None:
    raise SystemExit(f"{where}: {error!r}") from error
