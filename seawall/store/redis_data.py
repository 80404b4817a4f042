"""The data path on Redis in any of its forms: one script a call, all calls of a loop tick in one write a node.

On a Cluster a call that touches counters of several slots is one script a slot; if one of them fails the call fails, and
what the others counted stays counted.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from seawall.admission.holders import ASSERT, GRANTED
from seawall.limits.charge import Demand, Outcome
from seawall.limits.window import US
from seawall.store import breaker, charging, keys, scripts
from seawall.store.address import Address
from seawall.store.clock import Clock, seconds
from seawall.store.cluster import ClusterNodes, grouped
from seawall.store.connection import Connection, Reply
from seawall.store.contract import Charge, Renewed, Slot
from seawall.store.counters import MOST
from seawall.store.endpoint import Access
from seawall.store.nodes import MakePipe, Nodes, OfSentinels, OneNode
from seawall.store.pipe import Pipe, Strayed, Where
from seawall.store.resp import bulk, command

CHARGE = scripts.load("charge")
CHARGE_ALL = scripts.load("charge_all")
CHARGE_FIXED = scripts.load("charge_fixed")
CHARGE_TEXT = scripts.load("charge_text")
ACQUIRE = scripts.load("acquire")
RELEASE = scripts.load("release")
RENEW = scripts.load("renew")

_TIME = command(b"TIME")
_CLOCK = keys.POLICY_CURRENT
"""All workers go by the clock of the node that has this key."""
_REMEMBERED = 30.0
"""Seconds for which a number of workers is believed."""


class RedisData:
    """Data path for one worker (`owner`); `timeout` is that of a command, seconds.

    `jitter`: counters with envoyproxy/ratelimit's keys live up to so many seconds longer than their window, at random.

    `local_clock` is monotonic seconds; the node's clock is known as an offset to it, measured on each connection.
    """

    def __init__(
        self,
        address: Address,
        *,
        owner: str,
        timeout: float = 0.25,
        rule: breaker.Rule | None = None,
        local_clock: Callable[[], float] = time.monotonic,
        jitter: int = 0,
    ):
        self._jitter = jitter
        self._owner = owner
        self._owner_bulk = bulk(owner.encode())
        self._read = local_clock
        self._clock = Clock(time.time() - local_clock())
        self._workers = Workers()
        self._lives: dict[str, bytes] = {}
        """Pool to the life of its state that was known last; see admission.holders."""
        self._told: Callable[[], None] = _nobody
        self._call_timeout = timeout
        self._rule = rule
        self._nodes = _nodes(address, self._make_pipe)
        self._one = self._nodes.one
        self._pipe = self._nodes.pipe

    def _make_pipe(self, where: Where, access: Access, strayed: Strayed | None, master: bool) -> Pipe:
        return Pipe(
            where,
            access,
            (CHARGE, CHARGE_ALL, CHARGE_FIXED, CHARGE_TEXT, ACQUIRE, RELEASE, RENEW),
            timeout=self._call_timeout,
            rule=self._rule,
            greet=self._greet,
            strayed=strayed,
            master=master,
        )

    async def start(self) -> None:
        """Connect; returns after the first attempt, and keeps trying if it failed."""
        await self._nodes.start()

    async def close(self) -> None:
        """Close connections; calls that are pending fail."""
        await self._nodes.close()

    @property
    def healthy(self) -> bool:
        """Whether a call would be sent now; a look, no I/O."""
        return not self._nodes.trouble

    @property
    def trouble(self) -> str:
        """Why the store is not healthy, without secrets; "" while it is."""
        return self._nodes.trouble

    def now(self) -> float:
        """The node's time, unix seconds."""
        return self._read() + self._clock.offset

    def charge(self, charges: Sequence[Charge]) -> Awaitable[Sequence[int]]:
        """See DataPath. Counts stop at 2^53 - 1."""
        named = [keys.counter(charge.identity) for charge in charges]
        if self._one or len(named) < 2:
            return self._charge(charges, named)
        groups = grouped(named)
        if len(groups) == 1:
            return self._charge(charges, named)
        parts = [
            (places, self._charge([charges[n] for n in places], [named[n] for n in places]))
            for places in groups.values()
        ]
        return _together(len(named), parts)

    def _charge(self, charges: Sequence[Charge], named: Sequence[bytes]) -> Reply:
        written: list[bytes] = []
        values: list[bytes] = []
        for (_, start, length, hits), key in zip(charges, named, strict=True):
            written.append(b"$%d\r\n%b\r\n" % (len(key), key))
            for number in (start, length, min(hits, MOST)):
                text = b"%d" % number
                values.append(b"$%d\r\n%b\r\n" % (len(text), text))
        count = len(named)
        text = b"%d" % count
        head = b"*%d\r\n%b$%d\r\n%b\r\n" % (3 + 4 * count, CHARGE.call_head, len(text), text)
        pipe = self._pipe(named[0] if named else b"")
        return pipe.call(head + b"".join(written) + b"".join(values), None, CHARGE)

    def charge_all(self, demands: Sequence[Demand], *, stop: bool = False) -> Awaitable[Sequence[Outcome]]:
        """See DataPath. On a Cluster `stop` holds among the counters of one slot: their script knows no others."""
        now = int(self.now() * US)
        named = [charging.name(demand) for demand in demands]
        if self._one or len(named) < 2 or len(groups := grouped(named)) == 1:
            return self._charge_all(demands, named, now, stop)
        parts = [
            (places, self._charge_all([demands[n] for n in places], [named[n] for n in places], now, stop))
            for places in groups.values()
        ]
        return _together(len(named), parts)

    def _charge_all(self, demands: Sequence[Demand], named: Sequence[bytes], now: int, stop: bool) -> Reply:
        pipe = self._pipe(named[0] if named else b"")
        if not stop and charging.short(demands):
            payload = charging.short_payload(CHARGE_FIXED.call_head, demands, named, now)
            return pipe.call(payload, lambda reply: charging.short_outcomes(reply, demands, now), CHARGE_FIXED)
        jitter = random.randrange(self._jitter) if self._jitter else 0
        if not stop and charging.plain(demands):
            payload = charging.plain_payload(CHARGE_TEXT.call_head, demands, named, jitter)
            return pipe.call(payload, lambda reply: charging.short_outcomes(reply, demands, now), CHARGE_TEXT)
        payload = charging.payload(CHARGE_ALL.call_head, demands, named, now, stop=stop, jitter=jitter)
        return pipe.call(payload, lambda reply: charging.outcomes(reply, demands, now), CHARGE_ALL)

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> Awaitable[Slot]:
        """See DataPath."""
        now, expires = self._lease(lease)
        place, named = _pool(pool)
        pipe, seen = self._pipe(place), self._lives.get(pool, b"")
        payload = b"*14\r\n%b%b%b%b%b%b%b%b%b%b" % (
            ACQUIRE.call_head,
            named,
            bulk(_rid(rid)),
            self._owner_bulk,
            bulk(b"%d" % limit),
            now,
            expires,
            bulk(pipe.run),
            bulk(seen),
            bulk(b"%d" % self._workers.most()),
        )
        return pipe.call(payload, partial(self._slot, pool), ACQUIRE)

    def release(self, pool: str, rid: str) -> None:
        """See DataPath."""
        place, named = _pool(pool)
        payload = b"*8\r\n%b%b%b%b" % (RELEASE.call_head, named, bulk(_rid(rid)), self._owner_bulk)
        self._pipe(place).tell(payload, RELEASE)

    def renew(self, pool: str, rids: Sequence[str], lease: float, asked: Sequence[str] = ()) -> Awaitable[Renewed]:
        """See DataPath."""
        now, expires = self._lease(lease)
        place, named = _pool(pool)
        pipe = self._pipe(place)
        head = [self._owner_bulk, now, expires, bulk(pipe.run), bulk(self._lives.get(pool, b""))]
        head += [bulk(b"%d" % self._workers.most()), bulk(b"%d" % len(rids))]
        all_of_it = b"".join([*head, *(bulk(_rid(rid)) for rid in (*rids, *asked))])
        payload = b"*%d\r\n%b%b%b" % (13 + len(rids) + len(asked), RENEW.call_head, named, all_of_it)
        return pipe.call(payload, partial(self._renewed, pool), RENEW)

    def when_lost(self, told: Callable[[], None]) -> None:
        """See DataPath."""
        self._told = told

    def _slot(self, pool: str, reply: list[Any]) -> Slot:
        what, holders, *other = reply
        if other:
            seen, self._lives[pool] = self._lives.get(pool, b""), other[0]
            if seen:
                self._told()
        elif what == ASSERT:
            self._told()
        return Slot(what == GRANTED, holders, what < 0)

    def _renewed(self, pool: str, reply: list[Any]) -> Renewed:
        holders, added, paused, self._lives[pool] = reply
        return Renewed(holders, added, paused == 1)

    def _lease(self, lease: float) -> tuple[bytes, bytes]:
        now = int(self.now() * 1000)
        return bulk(b"%d" % now), bulk(b"%d" % (now + int(lease * 1000)))

    def workers_alive(self, count: int) -> None:
        """Take in how many workers reported lately: so many must renew before grants go on after a loss."""
        self._workers.tell(count, self._read())

    async def measure(self) -> None:
        """Look at the node's clock. Raises StoreUnavailable."""
        await self._measure(self._pipe(_CLOCK).call)

    async def _measure(self, call: Callable[[bytes], asyncio.Future[list[bytes]]]) -> None:
        sent = self._read()
        reply = await call(_TIME)
        self._clock.measured(sent, self._read(), seconds(reply))

    async def _greet(self, pipe: Pipe, connection: Connection) -> None:
        if pipe is self._pipe(_CLOCK):
            self._clock.reset()
            await self._measure(connection.call)
        self._told()


def _together(count: int, parts: Sequence[tuple[Sequence[int], Reply]]) -> Reply:
    """Join the answers of several scripts, each for some places; the first failure is the failure of all."""
    whole: Reply = asyncio.get_running_loop().create_future()
    answer: list[Any] = [None] * count
    left = len(parts)

    def ended(places: Sequence[int], part: Reply) -> None:
        nonlocal left
        error = part.exception()
        if whole.done():
            return
        if error is not None:
            whole.set_exception(error)
            whole.exception()  # a caller that has gone is no reason for "exception was never retrieved"
            return
        for place, one in zip(places, part.result(), strict=True):
            answer[place] = one
        left -= 1
        if not left:
            whole.set_result(answer)

    for places, part in parts:
        part.add_done_callback(partial(ended, places))
    return whole


def _nodes(address: Address, make: MakePipe) -> Nodes:
    if address.form == "cluster":
        return ClusterNodes(address, make)
    return OfSentinels(address, make) if address.form == "sentinel" else OneNode(address, make)


class Workers:
    """How many workers are alive: the most that was told of late. A store that lost all knows none at first."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque()

    def tell(self, count: int, now: float) -> None:
        """Take in a count."""
        while self._told and self._told[0][0] < now - _REMEMBERED:
            self._told.popleft()
        while self._told and self._told[-1][1] <= count:
            self._told.pop()
        self._told.append((now, count))

    def most(self) -> int:
        """Give the most of the last `_REMEMBERED` seconds, at least this worker."""
        return max(1, self._told[0][1]) if self._told else 1


@lru_cache(maxsize=1024)
def _pool(pool: str) -> tuple[bytes, bytes]:
    """Give a key of a pool, by which its node is found, and the count of its keys and all of them as on the wire."""
    holders = keys.pool_holders(pool)
    return holders, bulk(b"3") + bulk(holders) + bulk(keys.pool_owners(pool)) + bulk(keys.pool_life(pool))


def _rid(rid: str) -> bytes:
    return rid.encode("utf-8", "surrogatepass")


def _nobody() -> None:
    """Nobody has asked to be told."""
