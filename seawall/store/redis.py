"""The store on one Redis (or Valkey) node.

The data path goes through `Pipe`: one script a call, all calls of a loop tick in one write. The control path goes
through redis-py (`RedisControl`), on connections of its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache

from seawall.store import breaker, keys, scripts
from seawall.store.address import Address
from seawall.store.clock import Clock, seconds
from seawall.store.connection import Connection
from seawall.store.contract import Charge, Slot, Standing, StoreUnavailable, WorkerReport
from seawall.store.counters import MOST
from seawall.store.pipe import Pipe
from seawall.store.redis_control import RedisControl
from seawall.store.resp import bulk, command

CHARGE = scripts.load("charge")
ACQUIRE = scripts.load("acquire")
RELEASE = scripts.load("release")
RENEW = scripts.load("renew")

_TIME = command(b"TIME")


class RedisStore(RedisControl):
    """Store on one node for one worker (`owner`); `timeout` is that of a data path command, seconds.

    `local_clock` is monotonic seconds; the node's clock is known as an offset to it, measured on each connection and
    with each report.
    """

    def __init__(
        self,
        address: Address,
        *,
        owner: str,
        timeout: float = 0.25,
        rule: breaker.Rule | None = None,
        local_clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(address)
        self._owner = owner
        self._owner_bulk = bulk(owner.encode())
        self._read = local_clock
        self._clock = Clock(time.time() - local_clock())
        self._pipe = Pipe(
            address, (CHARGE, ACQUIRE, RELEASE, RENEW), timeout=timeout, rule=rule, greet=self._measure_new_node
        )

    async def start(self) -> None:
        """Connect; returns after the first attempt, and keeps trying if it failed."""
        await super().start()
        await self._pipe.start()

    async def close(self) -> None:
        """Close connections; calls that are pending fail."""
        await self._pipe.close()
        await super().close()

    @property
    def healthy(self) -> bool:
        """Whether a call would be sent now; a look, no I/O."""
        return not self._pipe.trouble

    @property
    def trouble(self) -> str:
        """Why the store is not healthy, without secrets; "" while it is."""
        return self._pipe.trouble

    def now(self) -> float:
        """The node's time, unix seconds."""
        return self._read() + self._clock.offset

    def charge(self, charges: Sequence[Charge]) -> Awaitable[Sequence[int]]:
        """See DataPath. Counts stop at 2^53 - 1."""
        named: list[bytes] = []
        values: list[bytes] = []
        for identity, start, length, hits in charges:
            key = keys.counter(identity)
            named.append(b"$%d\r\n%b\r\n" % (len(key), key))
            for number in (start, length, min(hits, MOST)):
                text = b"%d" % number
                values.append(b"$%d\r\n%b\r\n" % (len(text), text))
        count = len(named)
        text = b"%d" % count
        head = b"*%d\r\n%b$%d\r\n%b\r\n" % (3 + 4 * count, CHARGE.call_head, len(text), text)
        return self._pipe.call(head + b"".join(named) + b"".join(values), None, CHARGE)

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> Awaitable[Slot]:
        """See DataPath."""
        now, expires = self._lease(lease)
        payload = b"*10\r\n%b%b%b%b%b%b%b" % (
            ACQUIRE.call_head,
            _pool(pool),
            bulk(_rid(rid)),
            self._owner_bulk,
            bulk(b"%d" % limit),
            now,
            expires,
        )
        return self._pipe.call(payload, _slot, ACQUIRE)

    def release(self, pool: str, rid: str) -> None:
        """See DataPath."""
        payload = b"*7\r\n%b%b%b%b" % (RELEASE.call_head, _pool(pool), bulk(_rid(rid)), self._owner_bulk)
        self._pipe.tell(payload, RELEASE)

    def renew(self, pool: str, rids: Sequence[str], lease: float) -> Awaitable[int]:
        """See DataPath."""
        now, expires = self._lease(lease)
        named = b"".join([bulk(_rid(rid)) for rid in rids])
        payload = b"*%d\r\n%b%b%b%b%b%b" % (
            8 + len(rids),
            RENEW.call_head,
            _pool(pool),
            self._owner_bulk,
            now,
            expires,
            named,
        )
        return self._pipe.call(payload, int, RENEW)

    async def report(self, report: WorkerReport) -> Standing:
        """See ControlPath; measures the node's clock on the way."""
        with suppress(StoreUnavailable):  # the report itself may still get through, and says so if not
            await self._measure(self._pipe.call)
        return await super().report(report)

    async def _time(self) -> float:
        return self.now()

    def _lease(self, lease: float) -> tuple[bytes, bytes]:
        now = int(self.now() * 1000)
        return bulk(b"%d" % now), bulk(b"%d" % (now + int(lease * 1000)))

    async def _measure(self, call: Callable[[bytes], asyncio.Future[list[bytes]]]) -> None:
        sent = self._read()
        reply = await call(_TIME)
        self._clock.measured(sent, self._read(), seconds(reply))

    async def _measure_new_node(self, connection: Connection) -> None:
        self._clock.reset()
        await self._measure(connection.call)


@lru_cache(maxsize=1024)
def _pool(pool: str) -> bytes:
    """Write the keys of a pool, as the count of keys and both of them."""
    return bulk(b"2") + bulk(keys.pool_holders(pool)) + bulk(keys.pool_owners(pool))


def _rid(rid: str) -> bytes:
    return rid.encode("utf-8", "surrogatepass")


def _slot(reply: list[int]) -> Slot:
    granted, holders = reply
    return Slot(granted == 1, holders)
