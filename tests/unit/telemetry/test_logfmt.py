"""Lines of the log."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.telemetry import logfmt
from seawall.telemetry.logfmt import Log, line

TS = 1_800_000_000.1239
START = "ts=2027-01-15T08:00:00.123Z level=info msg=request"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("acme", "acme"),
        ("a-b_c.d:e/f+g@h%i,j", "a-b_c.d:e/f+g@h%i,j"),
        ("a b", '"a b"'),
        ("a=b", '"a=b"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\nlevel=error", '"a\\nlevel=error"'),
        ("a\r\tb", '"a\\r\\tb"'),
        ("\x1b[31m\x00", '"\\u001b[31m\\u0000"'),
        ("a\u2028b\x85", '"a\\u2028b\\u0085"'),
        ("\u202e\ufeff", '"\\u202e\\ufeff"'),
        ("ü漢😀", '"ü漢😀"'),
        ("\ud83d", '"\\ud83d"'),
        (0, "0"),
        (-5, "-5"),
        (0.0, "0.000"),
        (1.23456, "1.235"),
        (True, "True"),
        (10**30, "1" + "0" * 30),
    ],
)
def test_value(value: object, shown: str) -> None:
    """A plain value stands bare, any other in quotes with what could end it escaped."""
    assert line(TS, "info", "request", x=value) == f"{START} x={shown}"


def test_absent_fields() -> None:
    """What is None or empty is left out, what is 0 is not; fields keep their order."""
    told = line(TS, "info", "request", tenant="", model=None, latency=0.0, input_tokens=0, reason="ok")
    assert told == f"{START} latency=0.000 input_tokens=0 reason=ok"


@pytest.mark.parametrize(
    ("ts", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_000, "2027-01-15T08:00:00.000Z"),
        (0.9996, "1970-01-01T00:00:00.999Z"),
    ],
)
def test_time(ts: float, shown: str) -> None:
    """Times are UTC, to the millisecond."""
    assert line(ts, "warn", "a b") == f'ts={shown} level=warn msg="a b"'


@given(st.text(max_size=30))
@settings(max_examples=200)
def test_no_injection(text: str) -> None:
    """Whatever a client sends stays inside its value and on its line, and can be read back."""
    told = line(TS, "info", text, model=text, reason="ok")
    assert told.isprintable()
    assert told.encode()
    quoted = r'(?:"(?:[^"\\]|\\.)*"|[^ "=]+)'
    assert re.fullmatch(rf"ts=\S+ level=info msg={quoted}(?: model={quoted})? reason=ok", told)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Reading and writing end of a pipe."""
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with suppress(OSError):
            os.close(fd)


def read_all(fd: int) -> list[str]:
    """Lines of a pipe whose writing end is closed."""
    with open(fd, closefd=False, encoding="utf-8") as file:
        return file.read().splitlines()


def test_log(pipe: tuple[int, int]) -> None:
    """Lines come in order, those below the level don't; what was logged before the end is written."""
    reader, writer = pipe
    log = Log(writer, level="warn", clock=lambda: TS)
    log("debug", "no")
    log("info", "no")
    log("warn", "one", x="ü\ud83d")
    log("error", "two")
    log.close()
    os.close(writer)
    at = START.partition(" ")[0]
    assert read_all(reader) == [f'{at} level=warn msg=one x="ü\\ud83d"', f"{at} level=error msg=two"]
    assert log.dropped == 0


def fill(writer: int) -> int:
    """Fill a pipe to the last byte; the bytes that it holds."""
    os.set_blocking(writer, False)
    size = 0
    for chunk in (b"x" * 4096, b"x"):
        while True:
            try:
                size += os.write(writer, chunk)
            except BlockingIOError:
                break
    return size


@pytest.mark.parametrize("blocking", [True, False])
def test_slow_reader(pipe: tuple[int, int], blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that doesn't read costs lines, counted, never a caller's time; every line that is kept comes whole."""
    monkeypatch.setattr(logfmt, "QUEUE", 5)
    reader, writer = pipe
    size = fill(writer)
    os.set_blocking(writer, blocking)
    log = Log(writer, clock=lambda: TS)
    for i in range(100):
        log("info", "request", i=i, padding="y" * 200)
    # At most one full queue is with the writer, and one waits.
    assert 90 <= log.dropped <= 95
    assert len(os.read(reader, size)) == size
    read: list[str] = []
    with open(reader, closefd=False, encoding="utf-8") as file:
        while len(read) < 100 - log.dropped:
            read.append(file.readline())
    log.close()
    numbers = [int(re.fullmatch(rf"{START} i=(\d+) padding=y{{200}}\n", told)[1]) for told in read]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0


def test_close_gives_up(pipe: tuple[int, int]) -> None:
    """With a reader that never reads the end is not waited for."""
    _, writer = pipe
    fill(writer)
    os.set_blocking(writer, True)
    log = Log(writer)
    log("info", "x")
    log.close()
    assert log._thread.is_alive()


def test_no_reader(pipe: tuple[int, int]) -> None:
    """A reader that is gone costs lines, not the process."""
    reader, writer = pipe
    os.close(reader)
    log = Log(writer)
    log("info", "x")
    log.close()
    assert not log._thread.is_alive()
    assert log.dropped == 1
