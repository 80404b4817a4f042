"""Tasks that can't die unseen: each is held, named, and its failure told."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

CANCELS = 6
CANCEL_AGAIN = 0.5
"""Seconds after which a task that has not ended is cancelled again."""
ErrorSink = Callable[[str, BaseException], None]


class Tasks:
    """Starts tasks and keeps them until they end; a failure goes to `on_error(name, exception)`."""

    def __init__(self, on_error: ErrorSink):
        self._on_error = on_error
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` beside the caller."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(task.get_name(), error)

    async def cancel_all(self) -> None:
        """Cancel what still runs and wait for it, a few seconds at most.

        A library may swallow a cancellation that meets the end of its own time-out, so it is said again.
        """
        for _ in range(CANCELS):
            running = list(self._running)
            if not running:
                return
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=CANCEL_AGAIN)
        for task in list(self._running):
            self._on_error(f"{task.get_name()} can't be cancelled", TimeoutError())
