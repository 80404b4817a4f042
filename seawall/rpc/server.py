"""Our gRPC server: connections on `codec`, listeners, drain.

A handler that decides at once is called inside `data_received` and answered in the same write: no task, no future. One
that has to wait runs as a task (begun at once on Python 3.12 and later). All that one read leads to leaves in one write,
and so does all that is sent within one tick of the loop.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from seawall.rpc.codec import Limits
from seawall.rpc.connection import Connection, Method
from seawall.rpc.contract import RpcService
from seawall.rpc.tasks import ErrorSink


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

    async def start(self) -> None:
        """Listen on all addresses; raises OSError that names the one that can't be had."""
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            try:
                if address.startswith("unix:"):
                    server = await loop.create_unix_server(
                        self._connection, sock=_bound(address.removeprefix("unix:")), backlog=1024
                    )
                else:
                    host, _, port = address.rpartition(":")
                    server = await loop.create_server(
                        self._connection, host.strip("[]"), int(port), ssl=self._tls, backlog=1024
                    )
                    self.ports.append(server.sockets[0].getsockname()[1])
            except OSError as e:
                raise OSError(f"can't listen on {address}: {e.strerror or e}") from None
            self._servers.append(server)

    def _connection(self) -> Connection:
        return Connection(self.methods, self.limits, self.connections, self.on_error)

    async def drain(self, grace: float) -> None:
        """Send GOAWAY, wait up to `grace` seconds for running calls, cut the rest."""
        for server in self._servers:
            server.close()
        for address in self._addresses:
            if address.startswith("unix:"):
                _unlink_socket(address.removeprefix("unix:"))
        for connection in list(self.connections):
            connection.drain()
        ends = time.monotonic() + grace
        while self.connections and time.monotonic() < ends:
            await asyncio.sleep(min(0.02, max(0.0, ends - time.monotonic())))
        for connection in list(self.connections):
            connection.cut()
        # Handlers whose awaitables were cancelled are told in the next turn of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def _bound(path: str) -> socket.socket:
    """Bind a Unix socket, over one that a process left behind."""
    _unlink_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
    except OSError:
        sock.close()
        raise
    return sock


def _unlink_socket(path: str) -> None:
    with contextlib.suppress(OSError):
        if Path(path).is_socket():
            Path(path).unlink()
