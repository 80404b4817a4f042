"""The data path's way to one Redis node: one connection, made again when it is lost, behind a breaker.

Nothing waits for a connection: without one a call fails at once. Coming back is the pipe's own work, so a node that is
gone or hangs costs no request anything after the first, and one that answers but too slowly costs a time-out only as
often as the breaker lets a probe pass.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from seawall.store import breaker
from seawall.store.address import Address
from seawall.store.connection import Connection, Parse, Reply
from seawall.store.contract import StoreUnavailable
from seawall.store.resp import command
from seawall.store.scripts import Script

MOST_PENDING = 20_000
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0
_CONNECT = 1.0


class Pipe:
    """Sends commands to one node. Times in seconds.

    `timeout` is for each command, `greet` is run on each new connection before it is used (a failure there is a failed
    attempt). `trouble` says why the node can't be asked, "" while it can; it holds no secret.
    """

    def __init__(
        self,
        address: Address,
        scripts: Sequence[Script],
        *,
        timeout: float = 0.25,
        most_pending: int = MOST_PENDING,
        rule: breaker.Rule | None = None,
        greet: Callable[[Connection], Awaitable[None]] | None = None,
    ):
        self._address = address
        self._scripts = scripts
        self._timeout = timeout
        self._most = most_pending
        self._rule = rule or breaker.Rule()
        self._greet = greet
        self._state = breaker.CLOSED
        self._up: Connection | None = None
        self._down = asyncio.Event()
        self._tried = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._reason = "not started"

    async def start(self) -> None:
        """Start connecting; returns after the first attempt, however it ended."""
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="store pipe")
        await self._tried.wait()

    async def close(self) -> None:
        """End the connection; what is pending fails."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        if self._up is not None:
            self._up.abort("closed")
        self._reason = "closed"
        self._tried.set()

    @property
    def connected(self) -> bool:
        """Whether there is a connection that has been answered."""
        return self._up is not None

    @property
    def trouble(self) -> str:
        """Why a call would fail now; "" when one would be sent."""
        if self._up is None:
            return f"not connected ({self._reason})"
        if breaker.would_allow(self._state, asyncio.get_running_loop().time()):
            return ""
        return f"breaker open ({self._reason})"

    def call(self, payload: bytes, parse: Parse | None = None, script: Script | None = None) -> Reply:
        """Send a command made by `resp`; see Connection.call."""
        up = self._up
        if up is None:
            return _unavailable(f"not connected ({self._reason})")
        if self._state is not breaker.CLOSED:
            self._state, passes = breaker.allow(self._state, asyncio.get_running_loop().time(), self._rule)
            if not passes:
                return _unavailable(f"breaker open ({self._reason})")
        return up.call(payload, parse, script)

    def tell(self, payload: bytes, script: Script | None = None) -> None:
        """Send a command without an answer; past the breaker, since nobody waits for it."""
        if self._up is not None:
            self._up.tell(payload, script)

    def _answered(self, ok: bool) -> None:
        if not ok:
            self._failed("node in trouble")
        elif self._state is not breaker.CLOSED:
            self._state = breaker.succeeded(self._state)

    def _failed(self, reason: str) -> None:
        self._reason = reason
        self._state = breaker.failed(self._state, asyncio.get_running_loop().time(), self._rule, random.random())

    def _lost(self, connection: Connection, kind: str, pending: int) -> None:
        if connection is not self._up:  # still greeting: `_keep` hears of it
            return
        self._up = None
        self._down.set()
        self._reason = kind
        if pending:
            self._failed(kind)

    async def _keep(self) -> None:
        """Keep a connection until cancelled; the one task of a pipe, and nothing ends it but close()."""
        failures = 0
        while True:
            self._down.clear()
            try:
                self._up = await self._connect()
            except (StoreUnavailable, OSError) as error:
                self._reason = str(error) if isinstance(error, StoreUnavailable) else type(error).__name__
                failures += 1
            except Exception as error:  # a fault of ours must not end reconnecting; the reason shows it
                self._reason = type(error).__name__
                failures += 1
            else:
                failures = 0
            self._tried.set()
            if self._up is not None:
                await self._down.wait()
            wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures, 10))
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    async def _connect(self) -> Connection:
        """Connect and greet. Raises StoreUnavailable, OSError, TimeoutError (an OSError)."""
        loop = asyncio.get_running_loop()
        address = self._address
        make = partial(
            Connection, timeout=self._timeout, most_pending=self._most, answered=self._greeted, lost=self._lost
        )
        async with asyncio.timeout(_CONNECT):
            if address.path:
                _, connection = await loop.create_unix_connection(make, address.path)
            else:
                _, connection = await loop.create_connection(make, address.host, address.port)
        try:
            hello = []
            if address.password:
                names = [address.username.encode()] if address.username else []
                hello.append(connection.call(command(b"AUTH", *names, address.password.encode())))
            if address.db:
                hello.append(connection.call(command(b"SELECT", b"%d" % address.db)))
            hello += [connection.call(script.load) for script in self._scripts]
            hello.append(connection.call(command(b"PING")))
            for reply in hello:
                await reply
            if self._greet is not None:
                await self._greet(connection)
        except BaseException:
            connection.abort("greeting failed")
            raise
        if connection.closed:
            raise StoreUnavailable("connection lost")
        return connection

    def _greeted(self, ok: bool) -> None:
        """Replies of a connection: those to the greeting say nothing about calls."""
        if self._up is not None:
            self._answered(ok)


def _unavailable(kind: str) -> Reply:
    future: Reply = asyncio.get_running_loop().create_future()
    future.set_exception(StoreUnavailable(kind))
    future.exception()  # a caller that has gone is no reason for "exception was never retrieved"
    return future
