"""The line between supervisor and worker: lines over a socket pair that the worker inherits.

The supervisor sends a number, the worker answers [number, snapshot] in JSON; it sends `leave` when a successor has the
worker's place, and `limits NUMBER LENGTH` with as many bytes behind it when a control plane has sent new limits. The
last that a worker says is [0, snapshot], so that nothing is lost of what it counted. The end of the line tells a worker
that its supervisor is gone.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

LINE_LIMIT = 16 * 1024 * 1024
LAST_WORDS = 1.0
"""Seconds in which the line of a worker that has ended must have come to its end too."""
_LEAVE = b"leave\n"
_LIMITS = b"limits "


async def answer(
    fd: int,
    snapshot: Callable[[], dict[str, Any]],
    leave: Callable[[], None],
    limits: Callable[[int, bytes], None] = lambda _number, _data: None,
) -> None:
    """Worker's half: answer numbers with a snapshot, obey `leave`, take `limits`; returns when the supervisor is gone."""
    reader, writer = await asyncio.open_connection(sock=_inherited(fd), limit=LINE_LIMIT)
    try:
        while question := await reader.readline():
            if question == _LEAVE:
                leave()
                continue
            if question.startswith(_LIMITS):
                number, length = map(int, question.split()[1:])
                limits(number, await reader.readexactly(length))
                continue
            writer.write(json.dumps([int(question), snapshot()]).encode() + b"\n")
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        return
    finally:
        with contextlib.suppress(OSError):
            writer.write(json.dumps([0, snapshot()]).encode() + b"\n")
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
        self._last: dict[str, Any] | None = None

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
                    if number == 0:
                        self._last = snapshot
            # The worker has closed its end: it is about to go.
            self._writer.close()
            return None
        except (OSError, ValueError, TimeoutError):
            return None

    async def last_words(self) -> dict[str, Any] | None:
        """What a worker that has ended said last, unasked; None when it was killed."""
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                while text := await self._reader.readline():
                    number, snapshot = json.loads(text)
                    if number == 0:
                        self._last = snapshot
        return self._last

    def leave(self) -> None:
        """Tell the worker that its successor serves: it ends its answers and goes."""
        if not self._writer.is_closing():
            self._writer.write(_LEAVE)

    def limits(self, number: int, data: bytes) -> None:
        """Hand over limits that a control plane has sent."""
        if not self._writer.is_closing():
            self._writer.write(b"%b%d %d\n%b" % (_LIMITS, number, len(data), data))

    def close(self) -> None:
        """Close our end: the worker takes us for dead."""
        self._writer.close()
