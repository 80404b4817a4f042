"""What a handler waits for, run without a task.

A task costs two turns of the loop more than what it waits for: one to begin, one to tell that it has ended. So a handler's
coroutine is driven here: it begins at once, goes on in the turn in which what it waits for is there, and its end is told
in that same turn. It is a task of its own kind as asyncio allows (docs.python.org, "Extending"): `current_task` finds it,
so `asyncio.timeout` and the like work within it.
"""

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Coroutine
from types import CoroutineType
from typing import Any, Protocol, cast

Ended = Callable[[Any, BaseException | None], None]
"""Told once of the end of a wait: its result, or what it raised (CancelledError when it was cancelled)."""


class Wait(Protocol):
    """Something that a handler waits for."""

    def cancel(self) -> object:
        """Ask it to end; `ended` is still told."""


def begin(loop: asyncio.AbstractEventLoop, work: Awaitable[Any], ended: Ended) -> Wait | None:
    """Begin what a handler returned: a coroutine runs up to its first wait. None when it has ended, and that was told.

    A future is waited for as it is. Without a wait, `ended` is called before this returns.
    """
    if isinstance(work, asyncio.Future):
        if work.done():
            _tell(work, ended)
            return None
        work.add_done_callback(lambda work: _tell(work, ended))
        return cast("Wait", work)
    # A coroutine as it is: wrapped, one that is dropped before it began would never be awaited.
    driven = Driven(loop, work if isinstance(work, CoroutineType) else _awaited(work), ended)
    outer = asyncio.current_task(loop)
    if outer is None:
        driven.step()
    else:
        # Begun from within a task, as when a drain lets a held message go.
        _leave_task(loop, outer)
        try:
            driven.step()
        finally:
            _enter_task(loop, outer)
    return None if driven.over else driven


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def drop(work: Awaitable[Any]) -> None:
    """Give up what nobody waits for any more, before it has begun."""
    if isinstance(work, CoroutineType):
        work.close()
    elif isinstance(work, asyncio.Future):
        work.cancel()


def _tell(work: "asyncio.Future[Any]", ended: Ended) -> None:
    if work.cancelled():
        ended(None, asyncio.CancelledError())
    elif (error := work.exception()) is not None:
        ended(None, error)
    else:
        ended(work.result(), None)


class Driven:
    """A coroutine that is run up to its end, turn by turn.

    It has of `asyncio.Task` what the library asks of the current task: `cancel`, `cancelling`, `uncancel`.
    """

    __slots__ = ("__weakref__", "_cancels", "_coroutine", "_ended", "_loop", "_must_cancel", "_waits", "over")

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], ended: Ended):
        self._loop = loop
        self._coroutine = coroutine
        self._ended = ended
        self._waits: asyncio.Future[Any] | None = None
        self._cancels = 0
        self._must_cancel = False
        self.over = False

    def step(self, _: object = None) -> None:
        """Run up to the next wait, or to the end."""
        loop = self._loop
        self._waits = None
        _enter_task(loop, self)  # type: ignore[arg-type]
        try:
            if self._must_cancel:
                self._must_cancel = False
                waits = self._coroutine.throw(asyncio.CancelledError())
            else:
                waits = self._coroutine.send(None)
        except StopIteration as e:
            self.over = True
            result, error = e.value, None
        except (KeyboardInterrupt, SystemExit):
            self.over = True
            raise
        except BaseException as e:
            self.over = True
            result, error = None, e
        else:
            if waits is None:
                # A bare yield, as `asyncio.sleep(0)` has: go on in the next turn.
                loop.call_soon(self.step)
                return
            # The protocol between a coroutine and who drives it (asyncio/futures.py, `Future.__await__`).
            waits._asyncio_future_blocking = False
            waits.add_done_callback(self.step)
            self._waits = waits
            if self._must_cancel and waits.cancel():
                self._must_cancel = False
            return
        finally:
            _leave_task(loop, self)  # type: ignore[arg-type]
        self._ended(result, error)

    def cancel(self, msg: object = None) -> bool:
        """Raise CancelledError where the coroutine waits; see `asyncio.Task.cancel`."""
        del msg
        if self.over:
            return False
        self._cancels += 1
        if self._waits is None or not self._waits.cancel():
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        """See `asyncio.Task.cancelling`."""
        return self._cancels

    def uncancel(self) -> int:
        """See `asyncio.Task.uncancel`."""
        self._cancels = max(0, self._cancels - 1)
        return self._cancels

    def done(self) -> bool:
        """See `asyncio.Task.done`."""
        return self.over

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See `asyncio.Task.get_loop`."""
        return self._loop
