"""The control path on one Redis node, by redis-py: policy versions, inbox, worker reports.

What is read and then written goes by "look, decide, write if nothing changed meanwhile": the decision is plain Python
(`versions`), the script only compares and writes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from seawall.store import keys, scripts, versions
from seawall.store.address import Address
from seawall.store.contract import Conflict, Standing, StoreUnavailable, UnknownVersion, VersionInfo, WorkerReport

T = TypeVar("T")

_RACES = 50
_INFO = ("digest", "author", "reason", "time", "needs")
_WORDS = {
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "NOAUTH",
}
_reports = msgspec.json.Decoder(WorkerReport)


class RedisControl:
    """Control path on one node. `timeout` in seconds is for one command or script; beyond it, StoreUnavailable."""

    def __init__(self, address: Address, *, timeout: float = 2.0):
        self._address = address
        self._timeout = timeout
        self._client = _client(address, timeout)
        self._waiter = _client(address, None)
        self._last_event: bytes | None = None
        self._scripts = {
            name: self._client.register_script(scripts.load(name).text)
            for name in ("push", "rollback", "claim_inbox", "refuse_inbox", "report")
        }

    async def start(self) -> None:
        """Do nothing: redis-py connects when it is asked."""

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()
        await self._waiter.aclose()

    async def push(
        self, document: str, *, digest: str, author: str, reason: str, needs: str, if_current: int | None = None
    ) -> int:
        """See ControlPath. `if_current` 0 means: no version yet."""
        packed = versions.pack(document)
        fields = {"digest": digest, "author": author, "reason": reason, "needs": needs}
        for _ in range(_RACES):
            view = await self._view()
            versions.check_push(view, digest, if_current)
            version, done = await self._write(view, packed, fields, claimant="", claimed=b"")
            if done == 1:
                return version
        raise StoreUnavailable("too many authors at once")

    async def current(self) -> int | None:
        """See ControlPath."""
        return _number(await self._ask(lambda: self._client.get(keys.POLICY_CURRENT)))

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
        info = _info(version, [kept.get(name.encode()) for name in _INFO], await self.current())
        return versions.unpack(version, kept[b"document"]), info

    async def history(self, count: int = 20) -> Sequence[VersionInfo]:
        """See ControlPath."""
        view = await self._view()
        newest = sorted(view.sizes, reverse=True)[:count]
        pipeline = self._client.pipeline(transaction=False)
        for version in newest:
            pipeline.hmget(keys.policy_version(version), list(_INFO))
        rows = await self._ask(pipeline.execute)
        # A version that a push dropped since the look has no digest.
        return [_info(v, row, view.current) for v, row in zip(newest, rows, strict=True) if row[0] is not None]

    async def rollback(self, version: int | None, *, author: str, reason: str) -> int:
        """See ControlPath. Raises UnknownVersion; going back to the current version changes nothing."""
        for _ in range(_RACES):
            view = await self._view()
            target = versions.rollback_target(view, version)
            if target == view.current:
                return target
            done = await self._run(
                "rollback",
                [keys.POLICY_CURRENT, keys.POLICY_PREVIOUS, keys.policy_version(target), keys.POLICY_EVENTS],
                [_text(view.current), _text(view.previous), target, author, reason, versions.KEPT_EVENTS],
            )
            if done == 1:
                return target
        raise StoreUnavailable("too many authors at once")

    async def wait_change(self, timeout: float) -> None:
        """See ControlPath. Returns at once the first time, and after the node was away; absence raises nothing."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            if self._last_event is None:
                newest = await self._ask(lambda: self._waiter.xrevrange(keys.POLICY_EVENTS, count=1))
                self._last_event = newest[0][0] if newest else b"0-0"
                if newest:
                    return
            last, block = self._last_event, max(1, int(timeout * 1000))
            found = await self._ask(
                lambda: self._waiter.xread({keys.POLICY_EVENTS: last}, block=block), self._timeout + timeout
            )
            if found:
                self._last_event = found[0][1][-1][0]
        except StoreUnavailable:
            self._last_event = None
            await asyncio.sleep(max(0.0, until - loop.time()))

    async def report(self, report: WorkerReport) -> Standing:
        """See ControlPath."""
        now = await self._time()
        current, workers = await self._run(
            "report",
            [keys.WORKERS, keys.WORKERS_SEEN, keys.POLICY_CURRENT],
            [report.worker, msgspec.json.encode(report), f"{now:.3f}", f"{now - versions.REPORT_LIFE:.3f}"],
        )
        version = _number(current)
        return Standing(version, workers, await self._digest(version))

    async def workers(self) -> Sequence[WorkerReport]:
        """See ControlPath; by name. A report that another release wrote in another shape is left out."""
        oldest = await self._time() - versions.REPORT_LIFE
        seen = await self._ask(lambda: self._client.zrangebyscore(keys.WORKERS_SEEN, oldest, "+inf"))
        if not seen:
            return []
        texts = await self._ask(lambda: self._client.hmget(keys.WORKERS, seen))
        reports = []
        for text in texts:
            try:
                reports.append(_reports.decode(text or b""))
            except msgspec.DecodeError:
                continue
        return sorted(reports, key=lambda report: report.worker)

    async def forget_worker(self, worker: str) -> None:
        """See ControlPath."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hdel(keys.WORKERS, worker)
        pipeline.zrem(keys.WORKERS_SEEN, worker)
        await self._ask(pipeline.execute)

    async def claim_inbox(self, claimant: str, lease: float) -> str | None:
        """See ControlPath. A document over 8 MiB is refused here and now."""
        text = await self._run(
            "claim_inbox", [keys.INBOX, keys.INBOX_CLAIM], [claimant, int(lease * 1000), versions.INBOX_MOST]
        )
        if isinstance(text, int):
            await self._refuse(claimant, b"", text, f"larger than {versions.INBOX_MOST} bytes")
            return None
        return None if text is None else text.decode("utf-8", "surrogateescape")

    async def settle_inbox(
        self, claimant: str, document: str, error: str | None, push: Mapping[str, str] | None
    ) -> int | None:
        """See ControlPath. `push` has digest, author, reason, needs."""
        claimed = document.encode("utf-8", "surrogateescape")
        if error is None and push is not None:
            packed = versions.pack(document)
            for _ in range(_RACES):
                view = await self._view()
                try:
                    versions.check_push(view, push["digest"], None)
                except Conflict as conflict:
                    error = str(conflict)
                    break
                version, done = await self._write(view, packed, push, claimant=claimant, claimed=claimed)
                if done != 0:
                    return version if done == 1 else None
            else:
                raise StoreUnavailable("too many authors at once")
        await self._refuse(claimant, claimed, len(claimed), error or "refused")
        return None

    async def inbox_error(self) -> tuple[str, float] | None:
        """See ControlPath."""
        error, time = await self._ask(lambda: self._client.hmget(keys.INBOX_ERROR, ["error", "time"]))
        return None if error is None else (error.decode("utf-8", "replace"), float(time or 0))

    async def holders(self, pool: str) -> int:
        """See ControlPath."""
        now = int(await self._time() * 1000)
        return int(await self._ask(lambda: self._client.zcount(keys.pool_holders(pool), f"({now}", "+inf")))

    async def _view(self) -> versions.View:
        pipeline = self._client.pipeline(transaction=True)
        pipeline.mget(keys.POLICY_CURRENT, keys.POLICY_PREVIOUS, keys.POLICY_LAST)
        pipeline.hgetall(keys.POLICY_SIZES)
        (current, previous, last), sizes = await self._ask(pipeline.execute)
        digest = b""
        if current is not None:
            digest = await self._ask(lambda: self._client.hget(keys.policy_version(int(current)), "digest")) or b""
        return versions.View(
            current=_number(current),
            previous=_number(previous),
            last=_number(last) or 0,
            digest=digest.decode(),
            sizes={int(version): int(size) for version, size in sizes.items()},
        )

    async def _write(
        self, view: versions.View, packed: bytes, fields: Mapping[str, str], *, claimant: str, claimed: bytes
    ) -> tuple[int, int]:
        """Try to write a version on top of `view`: its number, and what push.lua says."""
        version = versions.next_version(view)
        dropped = versions.to_drop(view, len(packed))
        named = [keys.POLICY_CURRENT, keys.POLICY_PREVIOUS, keys.POLICY_LAST, keys.POLICY_SIZES, keys.POLICY_EVENTS]
        named += [keys.POLICY_EPOCH, keys.INBOX, keys.INBOX_CLAIM, keys.INBOX_ERROR, keys.policy_version(version)]
        named += [keys.policy_version(old) for old in dropped]
        seen = [_text(view.current), _text(view.previous), _text(view.last or None)]
        described = [fields["digest"], fields["author"], fields["reason"], f"{await self._time():.3f}", fields["needs"]]
        values = [*seen, version, packed, *described, versions.KEPT_EVENTS, claimant, claimed, *dropped]
        return version, await self._run("push", named, values)

    async def _refuse(self, claimant: str, claimed: bytes, length: int, error: str) -> None:
        await self._run(
            "refuse_inbox",
            [keys.INBOX, keys.INBOX_CLAIM, keys.INBOX_ERROR],
            [claimant, claimed, length, error, f"{await self._time():.3f}"],
        )

    async def _time(self) -> float:
        """The node's clock: the control path is too seldom asked to keep an offset."""
        whole, micro = await self._ask(self._client.time)
        return float(whole) + float(micro) / 1e6

    async def _run(self, script: str, named: Sequence[bytes], values: Sequence[Any]) -> Any:
        return await self._ask(lambda: self._scripts[script](keys=list(named), args=list(values)))

    async def _ask(self, ask: Callable[[], Awaitable[Any]], within: float | None = None) -> Any:
        """Ask redis-py under a time-out. Raises StoreUnavailable; of a foreign text only the kind goes further."""
        try:
            async with asyncio.timeout(self._timeout if within is None else within):
                return await ask()
        except (RedisError, OSError) as error:
            raise StoreUnavailable(_kind(error)) from None


def _client(address: Address, timeout: float | None) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(
        host=address.host,
        port=address.port,
        unix_socket_path=address.path or None,
        db=address.db,
        username=address.username or None,
        password=address.password or None,
        socket_timeout=timeout,
        socket_connect_timeout=timeout or 2.0,
        retry=Retry(NoBackoff(), 0),  # a write that may have run is not sent twice
        protocol=2,
    )


def _kind(error: Exception) -> str:
    """Name what went wrong; no more of a foreign text than Redis' own word for it."""
    word = str(error).split(" ", 1)[0]
    # redis-py takes the word away from the errors that it has a class for
    word = _WORDS.get(type(error).__name__, word)
    if isinstance(error, ResponseError | AuthenticationError | BusyLoadingError) and word.isupper() and word.isalpha():
        return f"replied {word}"
    return f"not connected ({type(error).__name__})"


def _number(value: bytes | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        raise StoreUnavailable("a version that is no number: someone wrote over it") from None


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _info(version: int, row: Sequence[bytes | None], current: int | None) -> VersionInfo:
    digest, author, reason, time, needs = ((value or b"").decode("utf-8", "replace") for value in row)
    return VersionInfo(version, digest, author, reason, float(time or 0), needs, version == current)
