"""What a call costs the server's process in system calls: wait, read, write, and no more."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from seawall.rpc.framing import framed
from tests.rpc.frames import ACK, ECHO, END_STREAM, PREFACE, SETTINGS, data, frame, opening, settings

ROOT = Path(__file__).resolve().parents[2]
CALLS = 300
SERVER = """
import asyncio, os, sys
import uvloop
from seawall.rpc.contract import RpcService
from seawall.rpc.server import CodecServer

class Echo:
    def __init__(self, call, sender):
        self.sender = sender
    def message(self, data):
        self.sender.send(data)
    def closed(self, reason):
        pass

async def later(data, call):
    return data

async def main():
    service = RpcService("test.Tiny", {"Echo": lambda data, call: data, "Later": later}, {"Talk": Echo})
    await CodecServer([service], ["unix:" + sys.argv[1]], max_message=1 << 20, on_error=print).start()
    print("ready", flush=True)
    await asyncio.Event().wait()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""
COUNTED = {
    "wait": ("epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter"),
    "read": ("read", "recvfrom", "recvmsg", "readv"),
    "write": ("write", "sendto", "sendmsg", "writev"),
}

pytestmark = [
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (Debian package strace)"),
]


class Server(NamedTuple):
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    socket: Path

    def traced(self) -> subprocess.Popen[str]:
        """Count its system calls from now on."""
        made = subprocess.Popen(
            ["strace", "-c", "-f", "-U", "name,calls", "-p", str(self.process.pid), "-o", str(self.report)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert made.stderr is not None
        said = made.stderr.readline()
        if "attached" not in said:
            made.wait(10)
            pytest.skip(f"strace may not attach here: {said.strip()}")
        return made

    @property
    def report(self) -> Path:
        return self.socket.with_suffix(".strace")

    def counts(self, strace: subprocess.Popen[str]) -> dict[str, int]:
        """Calls by name until now."""
        strace.terminate()
        strace.communicate(timeout=10)
        lines = re.findall(r"^\s*(\w+)\s+(\d+)\s*$", self.report.read_text("utf-8"), re.MULTILINE)
        return {name: int(calls) for name, calls in lines if name != "total"}


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="sw-sys-"))
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(folder / "s")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Server(process, folder / "s")
    finally:
        process.kill()
        process.communicate(timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


def check(counts: dict[str, int], most: float) -> None:
    """At most so many for each call, and none of another kind."""
    each = {kind: sum(counts.get(name, 0) for name in names) / CALLS for kind, names in COUNTED.items()}
    assert sum(each.values()) <= most, (each, counts)
    assert 0.9 <= each["read"] <= 1.1, (each, counts)
    assert 0.9 <= each["write"] <= 1.1, (each, counts)
    others = set(counts) - {name for names in COUNTED.values() for name in names}
    assert sum(counts[name] for name in others) <= CALLS * 0.05, counts


# A task that does not begin at once costs two turns of the loop, each with a look at its sockets.
LATER = 3.2 if sys.version_info >= (3, 12) else 5.2


@pytest.mark.parametrize(("method", "most"), [("Echo", 3.2), ("Later", LATER)])
def test_a_unary_call(server: Server, method: str, most: float) -> None:
    """Three from a handler that answers at once, and from a coroutine where Python begins it at once."""
    with grpc.insecure_channel(f"unix:{server.socket}") as channel:
        ask = channel.unary_unary(f"/test.Tiny/{method}")
        for _ in range(50):
            assert ask(b"ping") == b"ping"
        strace = server.traced()
        for _ in range(CALLS):
            assert ask(b"ping") == b"ping"
        check(server.counts(strace), most)


def test_a_message_of_a_stream(server: Server) -> None:
    """Three for each."""

    async def talk() -> None:
        reader, writer = await asyncio.open_unix_connection(str(server.socket))
        writer.write(PREFACE + settings() + frame(SETTINGS, ACK) + opening(1, "/test.Tiny/Talk"))

        async def ask(times: int) -> None:
            for _ in range(times):
                writer.write(data(1, framed(b"ping")))
                await reader.readuntil(framed(b"ping"))

        await ask(50)
        strace = server.traced()
        await ask(CALLS)
        check(server.counts(strace), 3.2)
        writer.close()

    asyncio.run(talk())


def test_calls_that_come_together(server: Server) -> None:
    """Ten that arrive in one read cost what one costs."""

    async def talk() -> None:
        reader, writer = await asyncio.open_unix_connection(str(server.socket))
        writer.write(PREFACE + settings((4, 1 << 20)) + frame(SETTINGS, ACK))
        sid = 1

        async def ask(times: int) -> None:
            nonlocal sid
            for _ in range(times):
                said = b""
                for _ in range(10):
                    said += opening(sid, ECHO) + data(sid, framed(b"ping"), END_STREAM)
                    sid += 2
                writer.write(said)
                for _ in range(10):
                    await reader.readuntil(framed(b"ping"))

        await ask(50)
        strace = server.traced()
        await ask(CALLS)
        check(server.counts(strace), 3.2)
        writer.close()

    asyncio.run(talk())
