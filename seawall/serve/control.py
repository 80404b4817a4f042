"""The line between supervisor and worker: lines over a socket pair that the worker inherits.

The supervisor sends a number, the worker answers [number, snapshot] in JSON; it sends `leave` when a successor has the
worker's place. The end of the line tells a worker that its supervisor is gone.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

LINE_LIMIT = 16 * 1024 * 1024
_LEAVE = b"leave\n"


async def answer(fd: int, snapshot: Callable[[], dict[str, Any]], leave: Callable[[], None]) -> None:
    """Worker's half: answer each number with a snapshot, obey `leave`; returns when the supervisor is gone."""
    reader, writer = await asyncio.open_connection(sock=_inherited(fd), limit=LINE_LIMIT)
    try:
        while question := await reader.readline():
            if question == _LEAVE:
                leave()
                continue
            writer.write(json.dumps([int(question), snapshot()]).encode() + b"\n")
            await writer.drain()
    except OSError:
        return
    finally:
        writer.close()


def _inherited(fd: int) -> socket.socket:
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    return sock


class Line:
    """Supervisor's half of one worker's line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader = reader
        self._writer = writer
        self._asked = 0

    @classmethod
    async def open(cls, sock: socket.socket) -> "Line":
        """Wrap our end of the pair."""
        sock.setblocking(False)
        return cls(*await asyncio.open_connection(sock=sock, limit=LINE_LIMIT))

    async def ask(self, timeout: float) -> dict[str, Any] | None:
        """Get a snapshot; None when the worker gives none in time. An answer that comes too late is passed over."""
        if self._writer.is_closing():
            return None
        self._asked += 1
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(b"%d\n" % self._asked)
                while text := await self._reader.readline():
                    number, snapshot = json.loads(text)
                    if number == self._asked:
                        return dict(snapshot)
            # The worker has closed its end: it is about to go.
            self._writer.close()
            return None
        except (OSError, ValueError, TimeoutError):
            return None

    def leave(self) -> None:
        """Tell the worker that its successor serves: it ends its answers and goes."""
        if not self._writer.is_closing():
            self._writer.write(_LEAVE)

    def close(self) -> None:
        """Close our end: the worker takes us for dead."""
        self._writer.close()
