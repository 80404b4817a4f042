"""One address, many workers: the supervisor accepts, and hands each connection to the worker with the fewest.

A mesh that knows one address opens one connection for each of its threads and keeps it, so connections are what is
shared out, and one connection is one core. The descriptor travels by SCM_RIGHTS (unix(7)); the worker says when a
connection is over, so that the supervisor always knows the counts. When one worker has twice the mean, it is told to let
some go by GOAWAY: their clients connect again, and are handed to others.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from seawall.rpc.address import bound, socket_inode, unlink_socket

_CONNECTION, _SHED = b"c", b"s"
_NUMBER = struct.Struct(">I")
BACKLOG = 1024
Key = tuple[int, int]
"""A worker: its place, and which process of that place it is."""


def to_shed(counts: list[int]) -> list[int]:
    """How many connections each worker should let go: those above the mean, where one has twice the mean or more.

    A difference that no move could mend (one connection more than the others) sheds nothing.
    """
    if len(counts) < 2 or not sum(counts):
        return [0] * len(counts)
    mean = sum(counts) / len(counts)
    fair = -(-sum(counts) // len(counts))
    return [count - fair if count >= 2 * mean and count - fair >= 1 else 0 for count in counts]


@dataclass(slots=True)
class Taker:
    """One worker as the distributor sees it. `open` counts the connections that it holds of ours."""

    line: socket.socket
    open: int = 0
    taking: bool = False
    """It serves: it may be handed connections."""


class Distributor:
    """The supervisor's half: listens on one address and hands connections out."""

    def __init__(self, address: str):
        self._address = address
        self._takers: dict[Key, Taker] = {}
        self._listener: socket.socket | None = None
        self._inode: int | None = None

    def listen(self) -> None:
        """Bind and listen; raises OSError that names the address."""
        self._listener = bound(self._address)
        self._inode = socket_inode(self._address.removeprefix("unix:"))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)

    def join(self, key: Key) -> socket.socket:
        """Make the line of a worker that is about to start; returns the end that it inherits."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.leave(key)
        self._takers[key] = Taker(ours)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._heard, key, ours)
        return theirs

    def leave(self, key: Key) -> None:
        """A worker has ended; its connections ended with it."""
        taker = self._takers.pop(key, None)
        if taker is not None:
            asyncio.get_running_loop().remove_reader(taker.line.fileno())
            taker.line.close()

    def taking(self, key: Key, serves: bool) -> None:
        """A worker serves, or does not any more. The first one that serves opens the door."""
        taker = self._takers.get(key)
        if taker is None or taker.taking == serves:
            return
        taker.taking = serves
        loop = asyncio.get_running_loop()
        if self._listener is None:
            return
        if any(t.taking for t in self._takers.values()):
            loop.add_reader(self._listener.fileno(), self._accept)
        else:
            # Connections wait in the backlog: a worker will be back before a client gives up.
            loop.remove_reader(self._listener.fileno())

    def counts(self) -> dict[int, int]:
        """Connections of ours by place."""
        found: dict[int, int] = {}
        for (index, _), taker in sorted(self._takers.items()):
            found[index] = found.get(index, 0) + taker.open
        return found

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(BACKLOG):
            takers = [t for t in self._takers.values() if t.taking]
            if not takers:
                return
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                taker = min(takers, key=lambda t: t.open)
                try:
                    socket.send_fds(taker.line, [_CONNECTION], [connection.fileno()])
                except OSError:
                    # Its line is full or gone: it gets no more until its supervisor hears of it again.
                    taker.taking = False
                    continue
                taker.open += 1

    def _heard(self, key: Key, line: socket.socket) -> None:
        """A worker tells of connections that are over, or is gone."""
        try:
            data = line.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        taker = self._takers.get(key)
        if taker is None or taker.line is not line:
            return
        if not data:
            self.leave(key)
            return
        taker.open = max(0, taker.open - _NUMBER.unpack(data)[0])

    def rebalance(self) -> None:
        """Ask workers with far more than their share to let connections go."""
        takers = [t for _, t in sorted(self._takers.items()) if t.taking]
        for taker, count in zip(takers, to_shed([t.open for t in takers]), strict=True):
            if count:
                with contextlib.suppress(OSError):
                    taker.line.send(_SHED + _NUMBER.pack(count))

    def close(self) -> None:
        """Close the door and the lines."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
            if self._address.startswith("unix:"):
                unlink_socket(self._address.removeprefix("unix:"), self._inode)
        for key in list(self._takers):
            self.leave(key)


class Receiver:
    """A worker's half: gives each connection to `take`, and connections to let go to `shed`."""

    def __init__(self, fd: int, take: Callable[[socket.socket], None], shed: Callable[[int], None]):
        self._line = socket.socket(fileno=fd)
        self._line.setblocking(False)
        self._take = take
        self._shed = shed

    def start(self) -> None:
        """Listen to the supervisor."""
        asyncio.get_running_loop().add_reader(self._line.fileno(), self._heard)

    def over(self, count: int = 1) -> None:
        """Tell that connections are over."""
        with contextlib.suppress(OSError):
            self._line.send(_NUMBER.pack(count))

    def _heard(self) -> None:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._line, 64, 1)
            except OSError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._line.fileno())
                return
            for fd in fds:
                self._take(socket.socket(fileno=fd))
            if data.startswith(_SHED):
                self._shed(_NUMBER.unpack(data[1:5])[0])
