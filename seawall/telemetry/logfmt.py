"""One logfmt line an event, written by a thread of its own so that a slow reader of the log never stalls a request.

No secret reaches a line: callers pass ids and numbers, never a header, a body or a key.
"""

import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

LEVELS = ("debug", "info", "warn", "error")
QUEUE = 20_000
"""Lines kept for a slow reader; more are dropped and counted."""
GATHER = 0.02
"""Seconds in which lines gather before they are written: to wake the writer for each of them costs as much as the line."""

_PLAIN = re.compile(r"[A-Za-z0-9_.:/+@%,\-]+")
_ALL_PLAIN = re.compile(r"[A-Za-z0-9_.:/+@%,\-\n]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def line(ts: float, level: str, msg: str, **fields: object) -> str:
    """Format one line; `ts` is unix seconds. Fields that are None or "" are left out."""
    names = [name for name, value in fields.items() if value is not None and value != ""]
    values = [f"{value:.3f}" if isinstance(value := fields[name], float) else str(value) for name in names]
    # One look for all of them: nearly every line is plain.
    joined = "\n".join(values)
    if not _ALL_PLAIN.fullmatch(joined) or joined.count("\n") != len(values) - 1:
        values = [_text(value) for value in values]
    told = " ".join(map("=".join, zip(names, values, strict=True)))
    head = f"ts={_second(int(ts // 1))}{int(ts % 1 * 1000):03d}Z level={level} msg={_text(msg)}"
    return f"{head} {told}" if told else head


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.")


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    escaped = "".join(_ESCAPES.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)
    return f'"{escaped}"'


class Log:
    """Writes lines to a file descriptor. `dropped` counts those that a slow reader cost."""

    def __init__(self, fd: int = 1, *, level: str = "info", clock: Callable[[], float] = time.time):
        self._fd = fd
        self._threshold = LEVELS.index(level)
        self._clock = clock
        self._lines: deque[str] = deque()
        self._wake = threading.Event()
        self._awake = False
        """The writer will look at the lines again."""
        self._closing = threading.Event()
        self.dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def __call__(self, level: str, msg: str, **fields: object) -> None:
        """Log an event; see `line`."""
        if LEVELS.index(level) < self._threshold:
            return
        if len(self._lines) >= QUEUE:
            self.dropped += 1
            return
        self._lines.append(line(self._clock(), level, msg, **fields))
        if not self._awake:
            self._awake = True
            self._wake.set()

    def close(self) -> None:
        """Write what is queued; gives up after a second with a reader that doesn't read."""
        self._closing.set()
        self._wake.set()
        self._thread.join(1.0)

    def _write(self) -> None:
        while True:
            self._wake.wait()
            self._closing.wait(GATHER)
            self._wake.clear()
            self._awake = False
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if lines:
                data = memoryview(("\n".join(lines) + "\n").encode("utf-8", "replace"))
                try:
                    while data:
                        data = data[self._write_some(data) :]
                except OSError:
                    self.dropped += len(lines)
            elif self._closing.is_set():
                return
            if self._closing.is_set():
                self._wake.set()

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            # Another process that holds this pipe has made it non-blocking; a line must not be cut.
            writable = select.poll()
            writable.register(self._fd, select.POLLOUT)
            writable.poll()
            return 0
