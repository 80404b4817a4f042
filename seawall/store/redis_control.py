"""The control path on Redis in any of its forms: inbox and worker reports; with policy versions and API keys."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from seawall.store import client, keys, scripts, versions
from seawall.store.address import Address
from seawall.store.contract import Conflict, Standing, StoreUnavailable, WorkerReport
from seawall.store.redis_keys import RedisKeys
from seawall.store.redis_versions import RedisVersions, number

_STREAMS = (keys.POLICY_EVENTS, keys.API_KEY_EVENTS)
_NEVER = b"0-0"
_WORDS = {
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "NOAUTH",
}
_reports = msgspec.json.Decoder(WorkerReport)


class RedisControl(RedisVersions, RedisKeys):
    """Control path. `timeout` in seconds is for one command or script; beyond it, StoreUnavailable."""

    def __init__(self, address: Address, *, timeout: float = 2.0):
        self._address = address
        self._timeout = timeout
        self._client = client.control(address, timeout)
        self._waiter = client.control(address, None)
        self._last_events: dict[bytes, bytes] = {}
        """By stream: the newest entry that `wait_change` has seen."""
        self._scripts = {
            name: self._client.register_script(scripts.load(name).text)
            for name in ("change", "claim_inbox", "refuse_inbox", "report", "write_keys")
        }

    async def start(self) -> None:
        """Do nothing: redis-py connects when it is asked."""

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()
        await self._waiter.aclose()

    async def wait_change(self, timeout: float) -> None:
        """See ControlPath. Returns at once the first time, and after the node was away; absence raises nothing."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            if not self._last_events:
                self._last_events = {stream: await self._newest(stream) for stream in _STREAMS}
                if any(last != _NEVER for last in self._last_events.values()):
                    return
            seen, block = dict(self._last_events), max(1, int(timeout * 1000))
            found = await self._ask(lambda: self._waiter.xread(seen, block=block), self._timeout + timeout)
            self._last_events |= {stream: entries[-1][0] for stream, entries in found or ()}
        except StoreUnavailable:
            self._last_events = {}
            await asyncio.sleep(max(0.0, until - loop.time()))

    async def _newest(self, stream: bytes) -> bytes:
        newest = await self._ask(lambda: self._waiter.xrevrange(stream, count=1))
        entry: bytes = newest[0][0] if newest else _NEVER
        return entry

    async def report(self, report: WorkerReport) -> Standing:
        """See ControlPath."""
        now = await self._time()
        current, workers, canary, stamp = await self._run(
            "report",
            [keys.WORKERS, keys.WORKERS_SEEN, keys.POLICY_CURRENT, keys.POLICY_CANARY, keys.API_KEY_STAMP],
            [report.worker, msgspec.json.encode(report), f"{now:.3f}", f"{now - versions.REPORT_LIFE:.3f}"],
        )
        version, digest = number(current), await self._digest(number(current))
        try:
            running = versions.read_canary(canary)
        except StoreUnavailable:
            # Commands say so; a worker goes on with the current version.
            running = None
        return Standing(version, workers, digest, running, (stamp or b"").decode())

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
            pushed = versions.Pushed(document, push["digest"], push["needs"])

            def decide(view: versions.View, now: float) -> versions.Change:
                signed = versions.Signed(push["author"], push["reason"], now)
                return versions.push(view, pushed, signed, if_current=None)

            try:
                change = await self._try(decide, claimant=claimant, claimed=claimed)
            except Conflict as conflict:
                error = str(conflict)
            else:
                return change.version if change else None
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


def _kind(error: Exception) -> str:
    """Name what went wrong; no more of a foreign text than Redis' own word for it."""
    word = str(error).split(" ", 1)[0]
    # redis-py takes the word away from the errors that it has a class for
    word = _WORDS.get(type(error).__name__, word)
    if isinstance(error, ResponseError | AuthenticationError | BusyLoadingError) and word.isupper() and word.isalpha():
        return f"replied {word}"
    return f"not connected ({type(error).__name__})"
