"""One gate worker: a process with one loop, one socket, and the services it was told to carry."""

import asyncio
import contextlib
import gc
import importlib.metadata
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import uvloop

from seawall import __version__
from seawall.limits.build import configured
from seawall.policy.compile import digest_of
from seawall.policy.mistake import Mistake
from seawall.rpc.codec import UNLIMITED_RESETS, Limits
from seawall.rpc.contract import Transport
from seawall.rpc.reference import GrpcioServer
from seawall.rpc.server import CodecServer
from seawall.rpc.tasks import Tasks
from seawall.rpc.tls import Certificates
from seawall.serve import control, errands
from seawall.serve.gate import Gate, ServiceBuilder
from seawall.serve.handoff import Receiver
from seawall.serve.health import Health, State
from seawall.serve.policies import Policies
from seawall.serve.policy_text import read_policy
from seawall.serve.reflection import reflection
from seawall.serve.settings import Settings
from seawall.serve.slots import Slots
from seawall.serve.sockets import Listening
from seawall.store import open_store
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Metrics

MESSAGE_MARGIN = 256 * 1024
"""What a gRPC message may hold beside a request body of the largest size."""
MOST_LIMITS_TOLD = 1_000
"""Windows of limits of which `seawall_limit_configured` tells; they travel to the supervisor once a second."""
POLL = 0.02
SETTLE = 0.2
"""Seconds that a worker whose name was taken still accepts: who found the name before may be connecting."""


def builders(names: Iterable[str]) -> dict[str, ServiceBuilder]:
    """Load the services by entry point; raises LookupError that names one that is not installed."""
    found = {e.name: e for e in importlib.metadata.entry_points(group="seawall.services")}
    missing = [name for name in names if name not in found]
    if missing:
        raise LookupError(f"no service '{missing[0]}' is installed; there are: {', '.join(sorted(found))}")
    return {name: found[name].load() for name in names}


class Worker:
    """Start, serve, drain."""

    def __init__(
        self,
        settings: Settings,
        index: int,
        control_fd: int | None = None,
        handoff_fd: int | None = None,
        errands_fd: int | None = None,
    ):
        self.settings = settings
        self.index = index
        self.name = f"{os.uname().nodename}-{index}-{os.getpid()}"
        self.log = Log(level=settings.log_level)
        self.metrics = Metrics()
        self.tasks = Tasks(self._fault)
        self.store = open_store(
            settings.store, owner=self.name, timeout=settings.store_timeout, jitter=settings.limit.jitter
        )
        self.policies = Policies(
            self.store,
            settings,
            self.name,
            self._policy_refused,
            self._store_changed,
            lambda error: self._fault("policies", error),
            on_unsure=self._policy_unsure,
            on_rules=self._rules_loaded,
        )
        self.slots = Slots(
            self.store, self.metrics, lease=settings.slot_lease, workers_alive=lambda: self.policies.workers_alive
        )
        self._control_fd = control_fd
        self._handoff_fd = handoff_fd
        self._errands_fd = errands_fd
        self._stop = asyncio.Event()
        self._at_once = False
        self._dropped_told = 0
        self._succeeded = False
        self.draining = False
        gate = Gate(self.name, settings, self.policies, self.store, self.slots, self.metrics, self.log, self.tasks)
        services = [build(gate) for build in builders(settings.services).values()]
        self._pages = gate.pages
        self.health = Health([*settings.services, *(service.name for service in services)])
        own = [*services, self.health.service()]
        self._services = [*own, *reflection(own)]
        self._certificates = certificates(settings)
        self.metrics.gauges(self._gauges)

    async def run(self) -> int:
        """Serve until told to stop; the exit status."""
        loop = asyncio.get_running_loop()
        # SIGHUP is our supervisor's business; from a terminal it reaches us too.
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self.stop, True)
        transport, listening = self._transport()
        try:
            await self.store.start()
            if self.settings.store == "memory" and self.settings.policy_file:
                await self._seed_memory(self.settings.policy_file)
            await transport.start()
        except OSError as e:
            self.log("error", "can't listen", error=str(e))
            self.log.close()
            return 1
        if listening is not None and not listening.named():
            listening.publish()
        self.tasks.start(self.policies.follow(), "policies")
        self.tasks.start(self.slots.keep(self._pools), "slots")
        self.tasks.start(self._become_serving(listening), "health")
        if self._control_fd is not None:
            self.tasks.start(self._answer_supervisor(self._control_fd, listening), "control")
        if self._errands_fd is not None:
            self.tasks.start(errands.answer(self._errands_fd, self._pages, self.tasks), "errands")
        if self._certificates is not None:
            self.tasks.start(self._refresh(self._certificates), "certificates")
        gc.collect()
        gc.freeze()
        await self._stop.wait()
        await self._drain(transport)
        if listening is not None:
            listening.withdraw()
        with contextlib.suppress(Exception):
            await self.policies.keys.flush()
        with contextlib.suppress(Exception):
            await self.store.forget_worker(self.name)
        await self.tasks.cancel_all()
        await self.store.close()
        self.log("info", "worker stopped", worker=self.name)
        self.log.close()
        return 0

    def stop(self, at_once: bool = False) -> None:
        """Begin to drain (SIGTERM); `at_once` (SIGINT) gives running requests no time."""
        self._at_once = self._at_once or at_once
        self._stop.set()

    def leave(self) -> None:
        """Go because a successor serves in our place: no NOT_SERVING, which would be taken for its word."""
        self._succeeded = True
        self._stop.set()

    def _transport(self) -> tuple[Transport, Listening | None]:
        settings = self.settings
        listening = Listening(settings.socket(self.index)) if settings.socket_dir else None
        addresses = [f"unix:{listening.own}"] if listening else []
        most = settings.max_body + MESSAGE_MARGIN
        if settings.transport == "grpcio":
            if settings.listen is not None:
                addresses.append(settings.listen)
            return GrpcioServer(self._services, addresses, max_message=most, on_error=self._fault), listening
        # Only Envoy reaches the socket, and it resets every finished headers-only exchange: no limit on resets there.
        server = CodecServer(self._services, addresses, max_message=most, on_error=self._fault)
        if self._handoff_fd is not None:
            self._receive_connections(server, public_limits(most, settings.listen_resets))
        return server, listening

    def _receive_connections(self, server: CodecServer, limits: Limits) -> None:
        """Take connections of `listen` from the supervisor, which accepts them for all workers."""
        assert self._handoff_fd is not None
        age = self.settings.max_connection_age
        tls = self._certificates.context if self._certificates is not None else None

        def take(sock: socket.socket) -> None:
            # Spread, so that connections that came together don't all go together.
            spread = age * random.uniform(0.9, 1.1)
            adopting = server.adopt(sock, limits=limits, tls=tls, age=spread, over=receiver.over)
            self.tasks.start(adopting, "adopt")

        receiver = Receiver(self._handoff_fd, take, server.shed)
        receiver.start()

    async def _refresh(self, certificates: Certificates) -> None:
        """Look once a second whether certificate files have changed."""
        while True:
            await asyncio.sleep(1.0)
            try:
                if certificates.refresh():
                    self.log("info", "certificates read again", worker=self.name)
            except ValueError as e:
                self.log("error", "certificates can't be read, the last good ones stay", error=str(e))

    async def _become_serving(self, listening: Listening | None) -> None:
        while self.policies.current is None and not self.settings.serve_without_limits:
            await asyncio.sleep(POLL)
        if self._stop.is_set():
            return
        if listening is not None:
            # A name that someone had before is taken over only now: Envoy may not have noticed that its owner died, and
            # would call at once.
            listening.publish()
        self.health.become(State.SERVING)
        self.log("info", "worker serving", worker=self.name, policy=self.policies.version)
        while listening is not None and not self._stop.is_set():
            await asyncio.sleep(self.settings.check_interval)
            if not listening.leads() and not self._stop.is_set():
                # Someone removed it, or a successor took it and was gone before it had our place.
                listening.publish()

    async def _drain(self, transport: Transport) -> None:
        """Keep accepting until every Envoy has seen NOT_SERVING, then GOAWAY, then wait for running streams.

        With a successor in our place GOAWAY is enough: whoever connects again finds that one.
        """
        self.draining = True
        if not self._succeeded:
            self.health.become(State.DRAINING)
        if not self._at_once:
            self.log("info", "worker draining", worker=self.name, succeeded=self._succeeded)
            ends = time.monotonic() + (SETTLE if self._succeeded else 2 * self.settings.check_interval + 1)
            while time.monotonic() < ends and not self._at_once:
                await asyncio.sleep(0.05)
        # A watcher has no reason to leave, and would hold us for the whole grace.
        self.health.end_watches()
        draining = self.tasks.start(transport.drain(0 if self._at_once else self.settings.grace), "drain")
        while not draining.done():
            await asyncio.wait([draining], timeout=0.1)
            if self._at_once and not draining.done():
                draining.cancel()
                await transport.drain(0)

    async def _answer_supervisor(self, fd: int, listening: Listening | None) -> None:
        await control.answer(fd, self._snapshot, self.leave, self.policies.hand)
        if self._stop.is_set():
            return
        self.log("warn", "supervisor is gone", worker=self.name)
        if self.health.state is not State.SERVING:
            # Ready later than the next supervisor's worker, it would take the name from that one.
            self.stop()
        ends = time.monotonic() + self.settings.orphan_time
        while time.monotonic() < ends and not self._stop.is_set():
            if listening is not None and listening.leads() and not listening.ours():
                self.leave()
            await asyncio.sleep(0.05)
        self.stop()

    async def _seed_memory(self, path: str) -> None:
        text = await asyncio.to_thread(read_policy, path)
        # Whether this release understands it shows when it is compiled.
        await self.store.push(text, digest=digest_of(text), author="file", reason=path, needs=__version__)

    def _pools(self) -> Iterable[str]:
        policy = self.policies.current
        return policy.pools if policy is not None else ()

    def _snapshot(self) -> dict[str, Any]:
        dropped, self._dropped_told = self.log.dropped - self._dropped_told, self.log.dropped
        if dropped:
            self.metrics.count("seawall_log_dropped_total", n=dropped)
        return {
            "worker": self.name,
            "state": self._state(),
            "policy": self.policies.version,
            "domains": len(self.policies.current.limits) if self.policies.current is not None else 0,
            "policy_error": self.policies.error,
            "store_up": self.store.healthy,
            "store_trouble": self.store.trouble,
            "waiting": self.policies.waiting,
            "limits": self.policies.judged,
            "metrics": self.metrics.snapshot(),
        }

    def _state(self) -> str:
        # To gRPC health one whose successor serves never says that it drains.
        return (State.DRAINING if self.draining else self.health.state).value

    def _gauges(self) -> Iterable[tuple[str, tuple[str, ...], float]]:
        index = f"w{self.index}"
        yield "seawall_store_up", (index,), float(self.store.healthy)
        yield "seawall_policy_version", (index, "current"), self.policies.version
        yield "seawall_policy_version", (index, "canary"), self.policies.canary
        yield "seawall_policy_held", (index,), self.policies.held
        yield "seawall_keys", (index,), len(self.policies.keys.issued)
        if self.policies.checked:
            yield "seawall_policy_check_age_seconds", (index,), max(0.0, time.time() - self.policies.checked)
        for pool, held, limit in self.slots.held():
            yield "seawall_slots", (pool,), held
            yield "seawall_slots_limit", (pool, index), limit
        yield "seawall_workers", (self._state(),), 1
        if self.index == 0 and (policy := self.policies.current) is not None:
            for domain, label, length, requests in islice(configured(policy.limits), MOST_LIMITS_TOLD):
                yield "seawall_limit_configured", (domain, label, str(length), index), requests

    def _fault(self, where: str, error: BaseException) -> None:
        self.metrics.count("seawall_faults_total", where.rpartition("/")[2].split(" ", maxsplit=1)[0])
        place = traceback.extract_tb(error.__traceback__)[-1:] if error.__traceback__ else []
        at = f"{Path(place[0].filename).name}:{place[0].lineno}" if place else ""
        # The text of an exception may quote a request; its type and place don't.
        self.log("error", "fault", where=where, error=type(error).__name__, at=at)

    def _store_changed(self, trouble: str) -> None:
        if trouble:
            self.log("warn", "store is away", why=trouble, worker=self.name, policy=self.policies.version)
        else:
            self.log("info", "store answers", worker=self.name)

    def _policy_unsure(self, why: str) -> None:
        self.metrics.count("seawall_policy_unsure_total")
        self.log("warn", "policy used although Envoy may not have its pools", why=why, worker=self.name)

    def _rules_loaded(self, warnings: Sequence[Mistake]) -> None:
        self.metrics.count("ratelimit_service_config_load_success")
        for warning in warnings:
            self.log("warn", "rule file", where=str(warning))

    def _policy_refused(self, version: int, why: str) -> None:
        self.metrics.count("seawall_policy_refused_total")
        if self.settings.without_policy:
            self.metrics.count("ratelimit_service_config_load_error")
        self.log("error", "policy refused, the last good one stays", version=version, error=why.splitlines()[0])


def public_limits(most: int, resets: tuple[int, int] | None) -> Limits:
    """Limits of an address that strangers may reach: what one connection can make us hold is 256 MiB at most."""
    return Limits(
        most,
        max_streams=1_000,
        stream_window=256 * 1024,
        connection_window=1_000 * 256 * 1024,
        resets=resets or UNLIMITED_RESETS,
    )


def certificates(settings: Settings) -> Certificates | None:
    """Read the certificates of `listen`; ValueError names the file that can't be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def main() -> int:
    """Run a worker as its supervisor started it: settings by environment, control line by descriptor."""
    settings = Settings.from_json(os.environ.pop("SEAWALL_WORKER_SETTINGS"))
    index, control_fd = int(sys.argv[1]), int(sys.argv[2])
    errands_fd, handoff_fd = (int(arg) if arg else None for arg in (*sys.argv[3:5], "", "")[:2])

    async def run() -> int:
        return await Worker(settings, index, control_fd, handoff_fd, errands_fd).run()

    return uvloop.run(run())


if __name__ == "__main__":
    sys.exit(main())
