"""Questions that come by HTTP and that only a worker can answer: the supervisor passes them on, the worker's pages answer.

Lines of JSON over a socket pair that the worker inherits: [number, path, query, body] there, [number, status, content
type, text] back, in any order. Few come this way (people, dashboards, /json): Envoy calls the workers themselves.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import NamedTuple

from seawall.rpc.tasks import Tasks

LINE_LIMIT = 16 * 1024 * 1024
MOST_WAITING = 256
"""Questions that one worker may have before it; more are turned away."""


class Question(NamedTuple):
    """A request. `query` has the pairs in their order."""

    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: str = ""


class Page(NamedTuple):
    """An answer."""

    status: int
    kind: str
    text: str


Pages = Mapping[str, Callable[[Question], Awaitable[Page]]]
"""By path."""


async def answer(fd: int, pages: Pages, tasks: Tasks) -> None:
    """Worker's half; returns when the supervisor is gone."""
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=sock, limit=LINE_LIMIT)
    try:
        while line := await reader.readline():
            number, path, query, body = json.loads(line)
            question = Question(path, tuple((name, value) for name, value in query), body)
            tasks.start(_one(number, question, pages, writer), "errand")
    except (OSError, ValueError):
        pass
    finally:
        writer.close()


async def _one(number: int, question: Question, pages: Pages, writer: asyncio.StreamWriter) -> None:
    page = pages.get(question.path)
    told = Page(500, "text/plain", "")
    try:
        told = await page(question) if page is not None else Page(404, "text/plain", "")
    finally:
        writer.write(json.dumps([number, *told]).encode() + b"\n")


class Errands(asyncio.Protocol):
    """Supervisor's half of one worker's line."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Page | None]] = {}
        self._numbers = count(1)
        self._rest = bytearray()

    @classmethod
    async def open(cls, sock: socket.socket) -> "Errands":
        """Wrap our end of the pair."""
        sock.setblocking(False)
        _, made = await asyncio.get_running_loop().create_connection(cls, sock=sock)
        return made

    async def ask(self, question: Question, timeout: float) -> Page | None:
        """Get the worker's answer; None when it gives none in time."""
        transport = self._transport
        if transport is None or transport.is_closing() or len(self._waiting) >= MOST_WAITING:
            return None
        number = next(self._numbers)
        told: asyncio.Future[Page | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = told
        transport.write(json.dumps([number, *question]).encode() + b"\n")
        try:
            async with asyncio.timeout(timeout):
                return await told
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def close(self) -> None:
        """Close our end."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                number, status, kind, text = json.loads(line)
                self._tell(number, Page(status, kind, text))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        del exc
        for number in self._waiting:
            self._tell(number, None)

    def _tell(self, number: int, page: Page | None) -> None:
        told = self._waiting.get(number)
        if told is not None and not told.done():
            told.set_result(page)
