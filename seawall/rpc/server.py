"""Our gRPC server: connections on `codec`, listeners, drain.

A handler that decides at once is called inside `data_received` and answered in the same write: no task, no future. One
that has to wait is driven without a task (`waiting`): it begins at once. All that one read leads to leaves in one write,
and so does all that is sent within one tick of the loop.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence

from seawall.rpc.address import bound, socket_inode, unlink_socket
from seawall.rpc.codec import Limits
from seawall.rpc.connection import Connection, Method
from seawall.rpc.contract import RpcService
from seawall.rpc.tasks import ErrorSink

BACKLOG = 1024
HANDSHAKE_TIME = 10.0
"""Seconds that a client has for its TLS handshake: until it is done no other limit counts it."""


class CodecServer:
    """Carries services on one or more addresses (`unix:/path`, `host:port`)."""

    def __init__(
        self,
        services: Sequence[RpcService],
        addresses: Sequence[str],
        *,
        max_message: int,
        on_error: ErrorSink,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ):
        self.methods: Mapping[str, Method] = {
            **{f"/{s.name}/{m}": (unary, None) for s in services for m, unary in s.unary.items()},
            **{f"/{s.name}/{m}": (None, opener) for s in services for m, opener in s.streams.items()},
        }
        self.limits = limits or Limits(max_message)
        self.on_error = on_error
        self.connections: set[Connection] = set()
        self.ports: list[int] = []
        self._addresses = addresses
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._inodes: dict[str, int | None] = {}
        self._adopted: set[Connection] = set()
        self._draining = False

    async def start(self) -> None:
        """Listen on all addresses; raises OSError that names the one that can't be had."""
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            sock = bound(address)
            self._inodes[address] = socket_inode(address.removeprefix("unix:"))
            if address.startswith("unix:"):
                server = await loop.create_unix_server(self._connection, sock=sock, backlog=BACKLOG)
            else:
                server = await loop.create_server(
                    self._connection,
                    sock=sock,
                    ssl=self._tls,
                    backlog=BACKLOG,
                    ssl_handshake_timeout=HANDSHAKE_TIME if self._tls else None,
                )
                self.ports.append(sock.getsockname()[1])
            self._servers.append(server)

    def _connection(self) -> Connection:
        return Connection(self.methods, self.limits, self.connections, self.on_error)

    async def adopt(
        self, sock: socket.socket, *, limits: Limits, tls: ssl.SSLContext | None, age: float, over: Callable[[], None]
    ) -> None:
        """Serve a connection that another process has accepted.

        It has `limits` of its own and is told to go elsewhere after `age` seconds; `over` is called once when it ends.
        """
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        connection = Connection(self.methods, limits, self.connections, self.on_error)
        timer = loop.call_later(age, connection.drain)

        def lost() -> None:
            timer.cancel()
            self._adopted.discard(connection)
            over()

        connection.on_lost = lost
        self._adopted.add(connection)
        try:
            await loop.connect_accepted_socket(
                lambda: connection, sock, ssl=tls, ssl_handshake_timeout=HANDSHAKE_TIME if tls else None
            )
        except (OSError, ssl.SSLError):
            # The client went, or could not agree with our TLS.
            sock.close()
            connection.forget()
        if self._draining:
            connection.drain()

    def shed(self, count: int) -> None:
        """Tell some adopted connections to go elsewhere: those with the fewest calls, which are over soonest."""
        staying = [c for c in self._adopted if not c.draining]
        for connection in sorted(staying, key=lambda c: c.calls)[:count]:
            connection.drain()

    async def drain(self, grace: float) -> None:
        """Send GOAWAY, wait up to `grace` seconds for running calls, cut the rest."""
        self._draining = True
        for server in self._servers:
            server.close()
        for address in self._addresses:
            if address.startswith("unix:"):
                unlink_socket(address.removeprefix("unix:"), self._inodes.get(address))
        ends = time.monotonic() + grace
        while True:
            # One that was being accepted may come late.
            for connection in list(self.connections):
                connection.drain()
            if not self.connections or time.monotonic() >= ends:
                break
            await asyncio.sleep(min(0.02, max(0.0, ends - time.monotonic())))
        for connection in list(self.connections):
            connection.cut()
        # Handlers whose awaitables were cancelled are told in the next turns of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
