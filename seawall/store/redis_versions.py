"""Policy versions and the canary on Redis.

What is read and then written goes by "look, decide, write if nothing changed meanwhile": the decision is plain Python
(`versions`), the script only compares and writes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from seawall.policy.canary import Canary
from seawall.store import keys, versions
from seawall.store.contract import CanaryShare, PolicyEvent, StoreUnavailable, UnknownVersion, VersionInfo
from seawall.store.redis_asking import RACES, Asking

Decide = Callable[[versions.View, float], versions.Change | None]
"""From what an author sees and the time to what he wants; None where that is so already."""

_INFO = ("digest", "author", "reason", "time", "needs")


class RedisVersions(Asking):
    """Part of the control path; see ControlPath for what each does."""

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
        pushed = versions.Pushed(document, digest, needs)

        def decide(view: versions.View, now: float) -> versions.Change:
            signed = versions.Signed(author, reason, now)
            return versions.push(view, pushed, signed, if_current=if_current, keep_canary=keep_canary)

        return (await self._make(decide)).version

    async def current(self) -> int | None:
        """See ControlPath."""
        return number(await self._ask(lambda: self._client.get(keys.POLICY_CURRENT)))

    async def current_digest(self) -> tuple[int | None, str]:
        """See ControlPath."""
        version = await self.current()
        return version, await self._digest(version)

    async def _digest(self, version: int | None) -> str:
        if version is None:
            return ""
        found = await self._ask(lambda: self._client.hget(keys.policy_version(version), "digest"))
        return (found or b"").decode("utf-8", "replace")

    async def document(self, version: int) -> tuple[str, VersionInfo]:
        """See ControlPath."""
        kept = await self._ask(lambda: self._client.hgetall(keys.policy_version(version)))
        if b"document" not in kept:
            raise UnknownVersion(f"version {version} is not kept")
        row = [kept.get(name.encode()) for name in _INFO]
        info = _info(version, row, await self.current(), await self.canary())
        return versions.unpack(version, kept[b"document"]), info

    async def history(self, count: int = 20) -> Sequence[VersionInfo]:
        """See ControlPath."""
        view, _ = await self._view()
        newest = sorted(view.sizes, reverse=True)[:count]
        pipeline = self._client.pipeline(transaction=False)
        for version in newest:
            pipeline.hmget(keys.policy_version(version), list(_INFO))
        rows = await self._ask(pipeline.execute)
        # A version that a push dropped since the look has no digest.
        found = zip(newest, rows, strict=True)
        return [_info(v, row, view.current, view.canary) for v, row in found if row[0] is not None]

    async def rollback(self, version: int | None, *, author: str, reason: str) -> int:
        """See ControlPath. Raises UnknownVersion; going back to the current version changes nothing."""
        target = 0

        def decide(view: versions.View, now: float) -> versions.Change | None:
            nonlocal target
            target = versions.rollback_target(view, version)
            return versions.rollback(view, target, versions.Signed(author, reason, now))

        await self._try(decide)
        return target

    async def canary(self) -> Canary | None:
        """See ControlPath."""
        return versions.read_canary(await self._ask(lambda: self._client.get(keys.POLICY_CANARY)))

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
        pushed = versions.Pushed(document, digest, needs)

        def decide(view: versions.View, now: float) -> versions.Change:
            signed = versions.Signed(author, reason, now)
            return versions.start_canary(view, pushed, share, signed, if_current=if_current)

        return _canary_of(await self._make(decide))

    async def move_canary(self, share: CanaryShare, *, author: str, reason: str) -> Canary:
        """See ControlPath."""
        seen: Canary | None = None

        def decide(view: versions.View, now: float) -> versions.Change | None:
            nonlocal seen
            seen = view.canary
            return versions.move_canary(view, share, versions.Signed(author, reason, now))

        change = await self._try(decide)
        assert seen is not None
        return seen if change is None else _canary_of(change)

    async def promote_canary(self, *, author: str, reason: str, if_current: int | None = None) -> int:
        """See ControlPath."""

        def decide(view: versions.View, now: float) -> versions.Change:
            return versions.promote(view, versions.Signed(author, reason, now), if_current=if_current)

        return (await self._make(decide)).version

    async def abort_canary(self, *, author: str, reason: str) -> Canary:
        """See ControlPath."""
        ended: Canary | None = None

        def decide(view: versions.View, now: float) -> versions.Change:
            nonlocal ended
            ended = view.canary
            return versions.abort(view, versions.Signed(author, reason, now))

        await self._make(decide)
        assert ended is not None
        return ended

    async def events(self, count: int = 20) -> Sequence[PolicyEvent]:
        """See ControlPath."""
        found = await self._ask(lambda: self._client.xrevrange(keys.POLICY_EVENTS, count=count))
        return [_event(entry, fields) for entry, fields in found]

    async def _make(self, decide: Decide) -> versions.Change:
        change = await self._try(decide)
        assert change is not None
        return change

    async def _try(self, decide: Decide, *, claimant: str = "", claimed: bytes = b"") -> versions.Change | None:
        """Look, decide, write; again where someone else was quicker. None where nothing is to do, or a claim is lost."""
        for _ in range(RACES):
            view, seen = await self._view()
            change = decide(view, await self._time())
            if change is None:
                return None
            done = await self._write(seen, change, claimant, claimed)
            if done == 1:
                return change
            if done == -1:
                return None
        raise StoreUnavailable("too many authors at once")

    async def _view(self) -> tuple[versions.View, list[bytes]]:
        """Look at the versions: what is there, and the four pointers as they stand in the store."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.mget(keys.POLICY_CURRENT, keys.POLICY_PREVIOUS, keys.POLICY_LAST, keys.POLICY_CANARY)
        pipeline.hgetall(keys.POLICY_SIZES)
        pointers, sizes = await self._ask(pipeline.execute)
        current, previous, last, canary = pointers
        view = versions.View(
            current=number(current),
            previous=number(previous),
            last=number(last) or 0,
            digest=await self._digest(number(current)),
            sizes={int(version): int(size) for version, size in sizes.items()},
            canary=versions.read_canary(canary),
        )
        return view, [pointer or b"" for pointer in pointers]

    async def _write(self, seen: Sequence[bytes], change: versions.Change, claimant: str, claimed: bytes) -> int:
        """Try to make a change on top of what was seen; what change.lua says."""
        named = [keys.POLICY_CURRENT, keys.POLICY_PREVIOUS, keys.POLICY_LAST, keys.POLICY_CANARY, keys.POLICY_SIZES]
        named += [keys.POLICY_EVENTS, keys.POLICY_EPOCH, keys.INBOX, keys.INBOX_CLAIM, keys.INBOX_ERROR]
        named += [keys.policy_version(version) for version in (change.version, *change.dropped)]
        author, reason, now = change.signed
        wanted = [_text(change.current), _text(change.previous), _text(change.last or None)]
        values: list[Any] = [*seen, *wanted, versions.canary_text(change.canary)]
        values += [change.version, change.packed, change.digest, author, reason]
        values += [f"{now:.3f}", change.needs, change.kind, change.detail, versions.KEPT_EVENTS, claimant, claimed]
        return int(await self._run("change", named, [*values, *change.dropped]))


def _canary_of(change: versions.Change) -> Canary:
    assert change.canary is not None
    return change.canary


def number(value: bytes | None) -> int | None:
    """Read the number of a version. Raises StoreUnavailable."""
    try:
        return None if value is None else int(value)
    except ValueError:
        raise StoreUnavailable("a version that is no number: someone wrote over it") from None


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _info(version: int, row: Sequence[bytes | None], current: int | None, canary: Canary | None) -> VersionInfo:
    digest, author, reason, time, needs = ((value or b"").decode("utf-8", "replace") for value in row)
    is_canary = canary is not None and canary.version == version
    return VersionInfo(version, digest, author, reason, float(time or 0), needs, version == current, is_canary)


def _event(entry: bytes, fields: dict[bytes, bytes]) -> PolicyEvent:
    told = {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}
    milliseconds = int(entry.partition(b"-")[0])
    version = int(told.get("version") or 0)
    words = (told.get(name, "") for name in ("author", "reason", "detail"))
    return PolicyEvent(milliseconds / 1000, told.get("kind", ""), version, *words)
