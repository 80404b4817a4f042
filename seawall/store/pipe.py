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
from seawall.store.connection import Call, Connection, Parse, Reply, refuse
from seawall.store.contract import StoreUnavailable
from seawall.store.endpoint import Access, Endpoint
from seawall.store.resp import command
from seawall.store.scripts import Script

MOST_PENDING = 20_000
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0
_CONNECT = 1.0

Where = Callable[[], Awaitable[Endpoint]]
Strayed = Callable[["Pipe", Connection, Call, str], bool]


class Pipe:
    """Sends commands to one node. Times in seconds.

    `where` is asked for the node before each attempt to connect, and may raise StoreUnavailable. `timeout` is for each
    command, `greet` is run on each new connection before it is used (a failure there is a failed attempt). `strayed` is
    asked about replies that may mean "ask another node"; True when it sent the call elsewhere. With `master`, a node
    that says it is none is left. `trouble` says why the node can't be asked, "" while it can; it holds no secret.
    """

    def __init__(
        self,
        where: Where,
        access: Access,
        scripts: Sequence[Script],
        *,
        timeout: float = 0.25,
        most_pending: int = MOST_PENDING,
        rule: breaker.Rule | None = None,
        greet: Callable[["Pipe", Connection], Awaitable[None]] | None = None,
        strayed: Strayed | None = None,
        master: bool = False,
    ):
        self._where = where
        self._access = access
        self._scripts = scripts
        self._timeout = timeout
        self._most = most_pending
        self._rule = rule or breaker.Rule()
        self._greet = greet
        self._on_stray = strayed
        self._master = master
        self._state = breaker.CLOSED
        self._up: Connection | None = None
        self._down = asyncio.Event()
        self._tried = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._reason = "not started"
        self.endpoint: Endpoint | None = None
        """Where the connection leads, or was last tried."""
        self.run = b""
        """Identity of the node's process (`run_id`), of the last connection."""

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

    def unused(self, reason: str) -> None:
        """Say why this one is never started: it stands for a node that there is not."""
        self._reason = reason

    def leave(self, reason: str) -> None:
        """Give the connection up and make another: the node may be another one by now. What is pending fails."""
        if self._up is not None:
            self._up.abort(reason)

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

    def take(self, call: Call) -> None:
        """Send a call that another node sent here; past the breaker, since that node knows better."""
        if self._up is None:
            refuse(call, f"not connected ({self._reason})")
        else:
            self._up.take(call)

    def _answered(self, ok: bool) -> None:
        if not ok:
            self._failed("node in trouble")
        elif self._state is not breaker.CLOSED:
            self._state = breaker.succeeded(self._state)

    def _failed(self, reason: str) -> None:
        self._reason = reason
        self._state = breaker.failed(self._state, asyncio.get_running_loop().time(), self._rule, random.random())

    def _strayed(self, connection: Connection, call: Call, text: str) -> bool:
        if connection is self._up and text.startswith("READONLY"):
            # A master that became a replica. Its name may lead to the new one by now, and a connection that stays
            # would never find out.
            asyncio.get_running_loop().call_soon(connection.abort, "replied READONLY")
        return self._on_stray is not None and self._on_stray(self, connection, call, text)

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
        """Connect and greet. Raises StoreUnavailable, OSError (SSLError and TimeoutError are such)."""
        endpoint = self.endpoint = await self._where()
        words = self._access.login.words()
        async with asyncio.timeout(_CONNECT):
            connection = await self._open(endpoint)
        try:
            hello = []
            if words:
                hello.append(connection.call(command(b"AUTH", *(word.encode() for word in words))))
            if self._access.db:
                hello.append(connection.call(command(b"SELECT", b"%d" % self._access.db)))
            hello += [connection.call(script.load) for script in self._scripts]
            told = connection.call(command(b"INFO"), _told)
            for reply in hello:
                await reply
            told = await told
            if self._master and told.get("role") != "master":
                raise StoreUnavailable("not the master")
            self.run = told.get("run_id", "").encode()
            if self._greet is not None:
                await self._greet(self, connection)
        except BaseException:
            connection.abort("greeting failed")
            raise
        if connection.closed:
            raise StoreUnavailable("connection lost")
        return connection

    async def _open(self, endpoint: Endpoint) -> Connection:
        loop = asyncio.get_running_loop()
        make = partial(
            Connection,
            timeout=self._timeout,
            most_pending=self._most,
            answered=self._greeted,
            lost=self._lost,
            strayed=self._strayed,
        )
        if endpoint.path:
            return (await loop.create_unix_connection(make, endpoint.path))[1]
        tls = self._access.tls
        if tls is None:
            return (await loop.create_connection(make, endpoint.host, endpoint.port))[1]
        try:
            context = tls.context()
        except ValueError as error:
            raise StoreUnavailable(str(error)) from None
        name = tls.server_name or endpoint.host
        return (await loop.create_connection(make, endpoint.host, endpoint.port, ssl=context, server_hostname=name))[1]

    def _greeted(self, ok: bool) -> None:
        """Replies of a connection: those to the greeting say nothing about calls."""
        if self._up is not None:
            self._answered(ok)


def _told(info: bytes) -> dict[str, str]:
    """Read a reply to INFO."""
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _unavailable(kind: str) -> Reply:
    future: Reply = asyncio.get_running_loop().create_future()
    future.set_exception(StoreUnavailable(kind))
    future.exception()  # a caller that has gone is no reason for "exception was never retrieved"
    return future
