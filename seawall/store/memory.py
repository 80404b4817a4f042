"""The whole store in one process: for one worker, for tests, and as the definition of what the scripts do in Redis."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from seawall.admission.holders import Holders
from seawall.store import versions
from seawall.store.contract import (
    Charge,
    Conflict,
    Slot,
    Standing,
    UnknownVersion,
    VersionInfo,
    WorkerReport,
)
from seawall.store.counters import Counters

T = TypeVar("T")


class Shared:
    """The state itself, so that several stores (owners) of one process can stand on it."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.pools: dict[str, Holders] = {}
        self.kept: dict[int, tuple[bytes, VersionInfo]] = {}
        self.current: int | None = None
        self.previous: int | None = None
        self.last = 0
        self.reports: dict[str, tuple[float, WorkerReport]] = {}
        self.inbox: str | None = None
        self.inbox_claim: tuple[str, float] | None = None
        self.inbox_error: tuple[str, float] | None = None
        self.changes = 0
        self.waiting: set[asyncio.Future[None]] = set()

    def changed(self) -> None:
        """Wake all that wait for another current version."""
        self.changes += 1
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_result(None)


class MemoryStore:
    """Store in memory for one owner. `clock` is unix seconds."""

    def __init__(self, *, owner: str, shared: Shared | None = None, clock: Callable[[], float] = time.time):
        self._owner = owner
        self._shared = Shared() if shared is None else shared
        self._clock = clock
        self._seen_changes = 0

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing; the state goes with the object."""

    @property
    def healthy(self) -> bool:
        """Always."""
        return True

    @property
    def trouble(self) -> str:
        """Never any."""
        return ""

    def now(self) -> float:
        """See DataPath."""
        return self._clock()

    def charge(self, charges: Sequence[Charge]) -> Awaitable[Sequence[int]]:
        """See DataPath. Counts stop at 2^53 - 1."""
        return _answer(self._shared.counters.charge(charges, self._clock()))

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> Awaitable[Slot]:
        """See DataPath."""
        now, expires = self._lease(lease)
        return _answer(Slot(*self._pool(pool).acquire(rid, self._owner, limit, now, expires)))

    def release(self, pool: str, rid: str) -> None:
        """See DataPath."""
        self._pool(pool).release(rid, self._owner)

    def renew(self, pool: str, rids: Sequence[str], lease: float) -> Awaitable[int]:
        """See DataPath."""
        now, expires = self._lease(lease)
        return _answer(self._pool(pool).renew(rids, self._owner, now, expires))

    async def push(
        self, document: str, *, digest: str, author: str, reason: str, needs: str, if_current: int | None = None
    ) -> int:
        """See ControlPath. `if_current` 0 means: no version yet."""
        shared, view, packed = self._shared, self._view(), versions.pack(document)
        versions.check_push(view, digest, if_current)
        version = versions.next_version(view)
        for old in versions.to_drop(view, len(packed)):
            del shared.kept[old]
        shared.kept[version] = (packed, VersionInfo(version, digest, author, reason, self._clock(), needs))
        shared.last = version
        self._point_to(version)
        return version

    async def current(self) -> int | None:
        """See ControlPath."""
        return self._shared.current

    async def current_digest(self) -> tuple[int | None, str]:
        """See ControlPath."""
        current = self._shared.current
        return current, "" if current is None else self._shared.kept[current][1].digest

    async def document(self, version: int) -> tuple[str, VersionInfo]:
        """See ControlPath."""
        if version not in self._shared.kept:
            raise UnknownVersion(f"version {version} is not kept")
        return versions.unpack(version, self._shared.kept[version][0]), self._info(version)

    async def history(self, count: int = 20) -> Sequence[VersionInfo]:
        """See ControlPath."""
        return [self._info(version) for version in sorted(self._shared.kept, reverse=True)[:count]]

    async def rollback(self, version: int | None, *, author: str, reason: str) -> int:
        """See ControlPath. Raises UnknownVersion; going back to the current version changes nothing."""
        target = versions.rollback_target(self._view(), version)
        if target != self._shared.current:
            self._point_to(target)
        return target

    async def wait_change(self, timeout: float) -> None:
        """See ControlPath. Returns at once when something changed since the last call."""
        shared = self._shared
        if self._seen_changes == shared.changes:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            shared.waiting.add(waiting)
            try:
                await asyncio.wait([waiting], timeout=timeout)
            finally:
                shared.waiting.discard(waiting)
        self._seen_changes = shared.changes

    async def report(self, report: WorkerReport) -> Standing:
        """See ControlPath."""
        now, reports = self._clock(), self._shared.reports
        reports[report.worker] = (now, report)
        for worker in [w for w, (seen, _) in reports.items() if seen < now - versions.REPORT_LIFE]:
            del reports[worker]
        current, digest = await self.current_digest()
        return Standing(current, len(reports), digest)

    async def workers(self) -> Sequence[WorkerReport]:
        """See ControlPath; by name."""
        oldest = self._clock() - versions.REPORT_LIFE
        return [report for _, (seen, report) in sorted(self._shared.reports.items()) if seen >= oldest]

    async def forget_worker(self, worker: str) -> None:
        """See ControlPath."""
        self._shared.reports.pop(worker, None)

    def put_inbox(self, document: str) -> None:
        """Do what `redis-cli SET sw:{policy}:inbox` does."""
        self._shared.inbox = document

    async def claim_inbox(self, claimant: str, lease: float) -> str | None:
        """See ControlPath. A document over 8 MiB is refused here and now."""
        shared, now = self._shared, self._clock()
        claim = shared.inbox_claim
        if shared.inbox is None or (claim is not None and claim[0] != claimant and claim[1] > now):
            return None
        shared.inbox_claim = (claimant, now + lease)
        if len(shared.inbox.encode("utf-8", "surrogateescape")) > versions.INBOX_MOST:
            self._refuse(f"larger than {versions.INBOX_MOST} bytes")
        return shared.inbox

    async def settle_inbox(
        self, claimant: str, document: str, error: str | None, push: Mapping[str, str] | None
    ) -> int | None:
        """See ControlPath. `push` has digest, author, reason, needs."""
        shared, claim = self._shared, self._shared.inbox_claim
        if claim is None or claim[0] != claimant or claim[1] <= self._clock() or shared.inbox != document:
            return None
        if error is None and push is not None:
            try:
                version = await self.push(
                    document,
                    digest=push["digest"],
                    author=push["author"],
                    reason=push["reason"],
                    needs=push["needs"],
                )
            except Conflict as conflict:
                error = str(conflict)
            else:
                shared.inbox = shared.inbox_claim = shared.inbox_error = None
                return version
        self._refuse(error or "refused")
        return None

    async def inbox_error(self) -> tuple[str, float] | None:
        """See ControlPath."""
        return self._shared.inbox_error

    async def holders(self, pool: str) -> int:
        """See ControlPath."""
        return self._pool(pool).live(int(self._clock() * 1000))

    def _refuse(self, error: str) -> None:
        self._shared.inbox = self._shared.inbox_claim = None
        self._shared.inbox_error = (error, self._clock())

    def _view(self) -> versions.View:
        shared = self._shared
        return versions.View(
            current=shared.current,
            previous=shared.previous,
            last=shared.last,
            digest=shared.kept[shared.current][1].digest if shared.current is not None else "",
            sizes={version: len(packed) for version, (packed, _) in shared.kept.items()},
        )

    def _point_to(self, version: int) -> None:
        if self._shared.current is not None:
            self._shared.previous = self._shared.current
        self._shared.current = version
        self._shared.changed()

    def _info(self, version: int) -> VersionInfo:
        v = self._shared.kept[version][1]
        return VersionInfo(v.version, v.digest, v.author, v.reason, v.time, v.needs, version == self._shared.current)

    def _pool(self, pool: str) -> Holders:
        found = self._shared.pools.get(pool)
        if found is None:
            found = self._shared.pools[pool] = Holders()
        return found

    def _lease(self, lease: float) -> tuple[int, int]:
        now = int(self._clock() * 1000)
        return now, now + int(lease * 1000)


def _answer(value: T) -> "asyncio.Future[T]":
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
