"""The control path in one process: what the scripts do in Redis, on plain attributes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from seawall.admission.holders import Holders
from seawall.policy.canary import Canary
from seawall.store import key_records, versions
from seawall.store.contract import (
    CanaryShare,
    Conflict,
    PolicyEvent,
    Standing,
    UnknownVersion,
    VersionInfo,
    WorkerReport,
)
from seawall.store.counters import Counters, Ledger
from seawall.store.key_contract import KeyChanges, KeyRecord, KeyUse, UnknownKey


class Shared:
    """The state itself, so that several stores (owners) of one process can stand on it."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.ledger = Ledger()
        self.pools: dict[str, Holders] = {}
        self.kept: dict[int, tuple[bytes, VersionInfo]] = {}
        self.current: int | None = None
        self.previous: int | None = None
        self.last = 0
        self.canary: Canary | None = None
        self.events: list[PolicyEvent] = []
        self.reports: dict[str, tuple[float, WorkerReport]] = {}
        self.inbox: str | None = None
        self.inbox_claim: tuple[str, float] | None = None
        self.inbox_error: tuple[str, float] | None = None
        self.keys: dict[str, KeyRecord] = {}
        self.key_events: list[tuple[str, KeyRecord]] = []
        """What was written, each with its stamp."""
        self.key_writes = 0
        self.key_uses: dict[str, KeyUse] = {}
        self.changes = 0
        self.waiting: set[asyncio.Future[None]] = set()

    def changed(self) -> None:
        """Wake all that wait for a change."""
        self.changes += 1
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_result(None)


class MemoryControl:
    """Control path in memory. `clock` is unix seconds."""

    def __init__(self, *, shared: Shared | None = None, clock: Callable[[], float] = time.time):
        self._shared = Shared() if shared is None else shared
        self._clock = clock
        self._seen_changes = 0

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing; the state goes with the object."""

    async def push(
        self,
        document: str,
        *,
        digest: str,
        author: str,
        reason: str,
        needs: str,
        if_current: int | None = None,
        keep_canary: bool = False,
    ) -> int:
        """See ControlPath. `if_current` 0 means: no version yet."""
        pushed, signed = versions.Pushed(document, digest, needs), self._signed(author, reason)
        change = versions.push(self._view(), pushed, signed, if_current=if_current, keep_canary=keep_canary)
        self._apply(change)
        return change.version

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
        change = versions.rollback(self._view(), version, self._signed(author, reason))
        if change is not None:
            self._apply(change)
        return change.version if change else self._shared.current or 0

    async def canary(self) -> Canary | None:
        """See ControlPath."""
        return self._shared.canary

    async def start_canary(
        self,
        document: str,
        *,
        share: CanaryShare,
        digest: str,
        author: str,
        reason: str,
        needs: str,
        if_current: int | None = None,
    ) -> Canary:
        """See ControlPath."""
        pushed, signed = versions.Pushed(document, digest, needs), self._signed(author, reason)
        self._apply(versions.start_canary(self._view(), pushed, share, signed, if_current=if_current))
        return self._running()

    async def move_canary(self, share: CanaryShare, *, author: str, reason: str) -> Canary:
        """See ControlPath."""
        change = versions.move_canary(self._view(), share, self._signed(author, reason))
        if change is not None:
            self._apply(change)
        return self._running()

    async def promote_canary(self, *, author: str, reason: str, if_current: int | None = None) -> int:
        """See ControlPath."""
        change = versions.promote(self._view(), self._signed(author, reason), if_current=if_current)
        self._apply(change)
        return change.version

    async def abort_canary(self, *, author: str, reason: str) -> Canary:
        """See ControlPath."""
        change = versions.abort(self._view(), self._signed(author, reason))
        ended = self._running()
        self._apply(change)
        return ended

    async def events(self, count: int = 20) -> Sequence[PolicyEvent]:
        """See ControlPath."""
        return self._shared.events[::-1][:count]

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
        return Standing(current, len(reports), digest, self._shared.canary, await self.key_stamp())

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

    async def add_key(self, record: KeyRecord) -> None:
        """See KeysPath."""
        key_records.check_new(record, self._shared.keys.get(record.id))
        if owner := self._id_of(record.sha256):
            raise key_records.taken(owner)
        self._write_key(record)

    async def revoke_key(self, record: KeyRecord, *, by: str, at: float) -> KeyRecord:
        """See KeysPath."""
        kept = self._shared.keys.get(record.id)
        revoked = key_records.revoked(record, kept, by=by, at=at)
        if (owner := self._id_of(record.sha256)) not in {None, record.id}:
            raise key_records.taken(str(owner))
        if revoked is not kept:
            self._write_key(revoked)
        return revoked

    async def key(self, id_: str) -> KeyRecord:
        """See KeysPath."""
        if id_ not in self._shared.keys:
            raise UnknownKey(f"no key '{id_}' is kept")
        return self._shared.keys[id_]

    async def all_keys(self) -> AsyncIterator[Sequence[KeyRecord]]:
        """See KeysPath."""
        if self._shared.keys:
            yield list(self._shared.keys.values())

    async def key_count(self) -> int:
        """See KeysPath."""
        return len(self._shared.keys)

    async def key_stamp(self) -> str:
        """See KeysPath."""
        events = self._shared.key_events
        return events[-1][0] if events else ""

    async def key_changes(self, since: str) -> KeyChanges | None:
        """See KeysPath."""
        events = self._shared.key_events
        stamps = ["", *(stamp for stamp, _ in events)]
        if since not in stamps or since == stamps[-1]:
            return None
        return KeyChanges([record for _, record in events[stamps.index(since) :]], stamps[-1])

    async def restore_keys(self, records: Sequence[KeyRecord]) -> int:
        """See KeysPath."""
        written = 0
        for record in records:
            kept = self._shared.keys.get(record.id)
            if key_records.lost(record, kept) and self._id_of(record.sha256) in {None, record.id}:
                self._write_key(key_records.restored(record, kept))
                written += 1
        return written

    async def add_key_uses(self, counts: Mapping[str, int], at: float) -> None:
        """See KeysPath."""
        uses = self._shared.key_uses
        for id_, count in counts.items():
            uses[id_] = KeyUse(uses[id_].uses + count if id_ in uses else count, at)

    async def key_uses(self) -> Mapping[str, KeyUse]:
        """See KeysPath."""
        return dict(self._shared.key_uses)

    def lose_keys(self) -> None:
        """Do what a store does that lost its data."""
        self._shared.keys.clear()
        self._shared.key_events.clear()
        self._shared.changed()

    def _write_key(self, record: KeyRecord) -> None:
        self._shared.keys[record.id] = record
        self._shared.key_writes += 1
        self._shared.key_events.append((str(self._shared.key_writes), record))
        self._shared.changed()

    def _id_of(self, sha256: str) -> str | None:
        return next((r.id for r in self._shared.keys.values() if r.sha256 == sha256), None)

    def _refuse(self, error: str) -> None:
        self._shared.inbox = self._shared.inbox_claim = None
        self._shared.inbox_error = (error, self._clock())

    def _signed(self, author: str, reason: str) -> versions.Signed:
        return versions.Signed(author, reason, self._clock())

    def _view(self) -> versions.View:
        shared = self._shared
        return versions.View(
            current=shared.current,
            previous=shared.previous,
            last=shared.last,
            digest=shared.kept[shared.current][1].digest if shared.current is not None else "",
            sizes={version: len(packed) for version, (packed, _) in shared.kept.items()},
            canary=shared.canary,
        )

    def _running(self) -> Canary:
        assert self._shared.canary is not None
        return self._shared.canary

    def _apply(self, change: versions.Change) -> None:
        """Do what change.lua does."""
        shared, (author, reason, at) = self._shared, change.signed
        if change.packed:
            info = VersionInfo(change.version, change.digest, author, reason, at, change.needs)
            shared.kept[change.version] = (change.packed, info)
        for old in change.dropped:
            del shared.kept[old]
        shared.current, shared.previous, shared.last = change.current, change.previous, change.last
        shared.canary = change.canary
        shared.events.append(PolicyEvent(at, change.kind, change.version, author, reason, change.detail))
        del shared.events[: -versions.KEPT_EVENTS]
        shared.changed()

    def _info(self, version: int) -> VersionInfo:
        canary = self._shared.canary
        return replace(
            self._shared.kept[version][1],
            current=version == self._shared.current,
            canary=canary is not None and version == canary.version,
        )
