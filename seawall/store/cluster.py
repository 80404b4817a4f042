"""The nodes of a Redis Cluster: a pipe to each master, and a map that says who has which slot.

The map is asked for at start, when something says that it is old (MOVED, CLUSTERDOWN, a node that is lost), and once in
`POLL`. A call that meets an old map is not lost: MOVED and ASK are followed on the spot, TRYAGAIN (the keys of one
script lie on two nodes for a moment) is tried again until the call's time is over.
"""

import asyncio
import random
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from redis.crc import key_slot
from redis.exceptions import RedisError

from seawall.store import client
from seawall.store.address import Address
from seawall.store.connection import Call, Connection, refuse
from seawall.store.contract import StoreUnavailable
from seawall.store.endpoint import Endpoint
from seawall.store.nodes import MakePipe
from seawall.store.pipe import Pipe

POLL = 5.0
SLOTS = 16384
_GAP = 0.2
"""Seconds between two looks at the map, however many hints there are."""
_AGAIN = 0.02
"""Seconds until a call whose keys are on their way is tried again."""
_HOPS = 8
_ASK = 1.0
_LINGER = 2.0
"""Seconds that the pipe to a node which has no slot any more stays, for what is under way."""

Map = list[tuple[int, int, Endpoint]]
"""First slot, last slot, and the master of both and what is between."""


class ClusterNodes:
    """See nodes.Nodes."""

    one = False

    def __init__(self, address: Address, make: MakePipe):
        self._address = address
        self._make = make
        self._pipes: dict[Endpoint, Pipe] = {}
        self._nowhere = make(_no_node, address.access, None, False)
        """Never started: what is sent there fails at once."""
        self._nowhere.unused("the slot has no node")
        self._owners = [self._nowhere] * SLOTS
        self._old = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._why = "not started"
        self._closed = False

    async def start(self) -> None:
        """See Nodes."""
        await self._look()
        await asyncio.gather(*(pipe.start() for pipe in self._pipes.values()))
        self._run(self._keep(), "store cluster")

    async def close(self) -> None:
        """See Nodes."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for pipe in self._pipes.values():
            await pipe.close()

    def pipe(self, key: bytes) -> Pipe:
        """See Nodes."""
        return self._owners[key_slot(key)]

    @property
    def trouble(self) -> str:
        """See Nodes."""
        if self._why:
            return self._why
        for endpoint, pipe in self._pipes.items():
            if trouble := pipe.trouble:
                return f"{endpoint}: {trouble}"
        return ""

    async def _keep(self) -> None:
        while True:
            down = any(not pipe.connected for pipe in self._pipes.values()) or bool(self._why)
            with suppress(TimeoutError):
                async with asyncio.timeout(_GAP if down else POLL):
                    await self._old.wait()
            self._old.clear()
            await self._look()
            await asyncio.sleep(_GAP)

    async def _look(self) -> None:
        """Ask nodes in turn for the map until one tells it: those known, then those that the address names."""
        known = random.sample(list(self._pipes), len(self._pipes))  # one that is cut off must not be asked each time
        known.sort(key=lambda endpoint: not self._pipes[endpoint].connected)
        for endpoint in dict.fromkeys([*known, *self._address.nodes]):
            try:
                found = await self._ask(endpoint)
            except Exception as error:  # whatever a node says must not end looking; the reason shows it
                if self._why:
                    self._why = f"no node tells the slots ({type(error).__name__})"
                continue
            if found:
                self._use(found)
                return
            self._why = "no slot has a node"

    async def _ask(self, endpoint: Endpoint) -> Map:
        asked = client.node(endpoint, self._address.access, _ASK)
        try:
            async with asyncio.timeout(2 * _ASK):
                slots = await asked.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]
        finally:
            with suppress(RedisError, OSError):
                await asked.aclose()
        found = []
        for first, last, (host, port, *_), *_ in slots:
            name = (host or b"").decode()
            if name != "?":
                # An empty host is the one that was asked.
                found.append((int(first), int(last), Endpoint(name or endpoint.host, int(port))))
        return found

    def _use(self, found: Map) -> None:
        owners = [self._nowhere] * SLOTS
        for first, last, endpoint in found:
            owners[first : last + 1] = [self._pipe_to(endpoint)] * (last + 1 - first)
        self._owners = owners
        gone = self._pipes.keys() - {endpoint for _, _, endpoint in found}
        for endpoint in gone:
            self._run(self._end(self._pipes.pop(endpoint)), "store node gone")
        bare = owners.count(self._nowhere)
        self._why = f"{bare} slots have no node" if bare else ""

    def _pipe_to(self, endpoint: Endpoint) -> Pipe:
        pipe = self._pipes.get(endpoint)
        if pipe is None:

            async def where() -> Endpoint:
                return endpoint

            pipe = self._pipes[endpoint] = self._make(where, self._address.access, self._strayed, False)
            self._run(pipe.start(), "store node")
        return pipe

    async def _end(self, pipe: Pipe) -> None:
        await asyncio.sleep(_LINGER)
        await pipe.close()

    def _strayed(self, pipe: Pipe, connection: Connection, call: Call, text: str) -> bool:
        """Send a call on; True when it is on its way."""
        future, parse, script, payload, deadline, again, hops, _ = call
        words = text.split()
        loop = asyncio.get_running_loop()
        if words[0] in {"CLUSTERDOWN", "READONLY"}:
            self._old.set()
            return False
        if hops >= _HOPS or loop.time() >= deadline or self._closed:
            return False
        if words[0] == "TRYAGAIN":
            if loop.time() + _AGAIN >= deadline:
                # It tells of keys on their way, not of a node in trouble.
                refuse(call, "replied TRYAGAIN")
            else:
                loop.call_later(_AGAIN, connection.take, call)
            return True
        try:
            slot, target = int(words[1]), redirected(words[2], pipe.endpoint)
        except (IndexError, ValueError):
            return False
        to = self._pipe_to(target)
        if words[0] == "MOVED" and 0 <= slot < SLOTS:
            self._owners[slot] = to
            self._old.set()
        onward: Call = (future, parse, script, payload, deadline, again, hops + 1, words[0] == "ASK")
        if to.connected:
            to.take(onward)
        else:
            self._run(self._take_later(to, onward), "store call")
        return True

    async def _take_later(self, pipe: Pipe, call: Call) -> None:
        """Wait for the first connection to a node that a reply named: it is there, only we were not."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(call[4]):
                await pipe.start()
        pipe.take(call)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _no_node() -> Endpoint:
    raise StoreUnavailable("the slot has no node")


def redirected(text: str, said_by: Endpoint | None) -> Endpoint:
    """Read `host:port` of a redirection; an empty host is that of the node which said it. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host and said_by is not None:
        host = said_by.host
    if host in {"", "?"} or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("a node without an address")
    return Endpoint(host.strip("[]"), int(port))


def grouped(names: Iterable[bytes]) -> dict[int, list[int]]:
    """Positions of keys by their slot: what one script may touch on a cluster."""
    groups: dict[int, list[int]] = {}
    for position, name in enumerate(names):
        groups.setdefault(key_slot(name), []).append(position)
    return groups
