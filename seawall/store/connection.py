"""One pipelined connection to Redis: commands of a loop tick leave in one write, replies come back in order.

A command that waits too long ends the connection: with its reply outstanding, those behind it could not be told apart.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from seawall.store.contract import StoreUnavailable
from seawall.store.resp import command as resp
from seawall.store.scripts import Script

Parse = Callable[[Any], Any]
Reply = asyncio.Future[Any]

NODE_KINDS = frozenset({
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM",
    "READONLY", "TRYAGAIN",
})  # fmt: skip
"""Error replies that tell of the node, not of one command: they count against it."""
STRAYED = frozenset({"ASK", "CLUSTERDOWN", "MOVED", "READONLY", "TRYAGAIN"})
"""Those that may mean "ask another node"."""
_ASKING = resp(b"ASKING")

_GRACE = 0.02
"""Seconds between finding a command overdue and giving it up: after a stall of our own loop the reply may lie in the
socket already, and uvloop runs the timer first."""

# reply future (None: nobody waits), parse, script, command, deadline in loop time, whether its script was loaded again,
# how often it was sent elsewhere, whether ASKING goes before it
Call = tuple[Reply | None, Parse | None, Script | None, bytes, float, bool, int, bool]


class Connection(asyncio.Protocol):
    """Lives from connect to loss; `Pipe` makes the next one.

    `answered(ok)` is called once a read, ok False when a reply told of a node in trouble; `lost(self, kind, pending)`
    is called once, with how many commands it failed. `strayed(self, call, text)` is asked about an error reply that may
    mean "ask another node", True when the call was sent elsewhere.
    """

    def __init__(
        self,
        *,
        timeout: float,
        most_pending: int,
        answered: Callable[[bool], None],
        lost: Callable[["Connection", str, int], None],
        strayed: Callable[["Connection", Call, str], bool] | None = None,
    ):
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._most = most_pending
        self._answered = answered
        self._lost = lost
        self._strayed = strayed
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._pending: deque[Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._suspect: Call | None = None
        self._loading: set[Script] = set()
        self.closed = False

    def call(self, command: bytes, parse: Parse | None = None, script: Script | None = None) -> Reply:
        """Send a command; the future holds its reply, through `parse` if given, or StoreUnavailable.

        `script` is what the command calls, to load it and try once more where the node does not know it.
        """
        future: Reply = self._loop.create_future()
        if self.closed or len(self._pending) >= self._most:
            _fail(future, "connection lost" if self.closed else "too many commands pending")
        else:
            self._send((future, parse, script, command, self._loop.time() + self._timeout, False, 0, False))
        return future

    def tell(self, command: bytes, script: Script | None = None) -> None:
        """Send a command whose reply nobody waits for; dropped when the connection is lost or full."""
        if not self.closed and len(self._pending) < self._most:
            self._send((None, None, script, command, self._loop.time() + self._timeout, False, 0, False))

    def take(self, call: Call) -> None:
        """Send a call that another connection, or this one, could not serve; its deadline stays."""
        if self.closed or len(self._pending) >= self._most:
            refuse(call, "connection lost" if self.closed else "too many commands pending")
        else:
            self._send(call)

    def abort(self, kind: str) -> None:
        """End the connection at once; what is pending fails with `kind`."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending, self._out = self._pending, deque(), []
        for call in pending:
            refuse(call, kind)
        self._lost(self, kind, len(pending))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.abort(f"connection lost ({type(exc).__name__})" if exc else "connection lost")

    def data_received(self, data: bytes) -> None:
        """Called by the loop: give each reply to its command, in order."""
        reader, pending = self._reader, self._pending
        reader.feed(data)
        ok = True
        while True:
            try:
                reply = reader.gets()
            except hiredis.HiredisError:
                self.abort("not Redis' protocol")
                return
            if reply is False:
                break
            if not pending:
                self.abort("reply without a command")
                return
            call = pending.popleft()
            future, parse = call[0], call[1]
            if isinstance(reply, hiredis.ReplyError):
                ok = self._refused(call, str(reply)) and ok
            elif future is not None and not future.done():
                try:
                    future.set_result(reply if parse is None else parse(reply))
                except (TypeError, ValueError, IndexError):
                    _fail(future, "unexpected reply")
        self._answered(ok)

    def _refused(self, call: Call, text: str) -> bool:
        """Handle an error reply; False when it tells of a node in trouble. Only its first word goes further."""
        future, parse, script, command, _, again, hops, asking = call
        kind = text.split(" ", 1)[0]
        if kind == "NOSCRIPT" and script is not None and not again:
            # Nothing ran. Load and calls go out in reply order, so calls that followed each other still do.
            deadline = self._loop.time() + self._timeout
            if script not in self._loading:
                self._loading.add(script)
                loaded: Reply = self._loop.create_future()
                loaded.add_done_callback(lambda _: self._loading.discard(script))
                self._send((loaded, None, None, script.load, deadline, True, 0, False))
            self._send((future, parse, script, command, deadline, True, hops, asking))
            return True
        if kind in STRAYED and self._strayed is not None and self._strayed(self, call, text):
            return True
        refuse(call, f"replied {kind}")
        return kind not in NODE_KINDS

    def _send(self, call: Call) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        if call[7]:
            self._out.append(_ASKING)
            self._pending.append((None, None, None, _ASKING, call[4], True, 0, False))
        self._out.append(call[3])
        self._pending.append(call)
        if self._timer is None:
            self._timer = self._loop.call_at(call[4], self._check)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(b"".join(out))

    def _check(self) -> None:
        """Timer: one for all commands, set to the deadline of the oldest."""
        self._timer = None
        if not self._pending:
            return
        oldest = self._pending[0]
        if oldest[4] > self._loop.time():
            self._timer = self._loop.call_at(oldest[4], self._check)
        elif oldest is not self._suspect:
            self._suspect = oldest
            self._timer = self._loop.call_later(_GRACE, self._check)
        else:
            self.abort("timed out")


def refuse(call: Call, kind: str) -> None:
    """End a call that is sent nowhere."""
    future = call[0]
    if future is not None and not future.done():
        _fail(future, kind)


def _fail(future: Reply, kind: str) -> None:
    future.set_exception(StoreUnavailable(kind))
    future.exception()  # a caller that has gone is no reason for "exception was never retrieved"
