"""Which node of a store is asked: the one there is, the master that sentinels name, or the owner of a key's slot.

Discovery is redis-py's; commands go through a `Pipe` for each node.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from seawall.store import client
from seawall.store.address import Address
from seawall.store.contract import StoreUnavailable
from seawall.store.endpoint import Access, Endpoint
from seawall.store.pipe import Pipe, Strayed, Where

MakePipe = Callable[[Where, Access, Strayed | None, bool], Pipe]
"""Makes the pipe to a node: where it is, how to get in, who is asked about strayed replies, whether it must be master."""
POLL = 1.0
"""Seconds between two looks at who is master; a failover breaks connections and is noticed at once."""
_ASK = 1.0


class Nodes(Protocol):
    """The nodes of a store."""

    one: bool
    """Whether all keys are on one node, so that one script may touch keys of several hash tags."""

    async def start(self) -> None:
        """Start connecting; returns after a first attempt at each node."""

    async def close(self) -> None:
        """End all connections."""

    def pipe(self, key: bytes) -> Pipe:
        """Way to the node that has a key."""

    @property
    def trouble(self) -> str:
        """Why a node can't be asked; "" when all can."""


class OneNode:
    """A node whose place is known."""

    one = True

    def __init__(self, address: Address, make: MakePipe):
        async def where() -> Endpoint:
            return address.nodes[0]

        self._pipe = make(where, address.access, None, False)

    async def start(self) -> None:
        """See Nodes."""
        await self._pipe.start()

    async def close(self) -> None:
        """See Nodes."""
        await self._pipe.close()

    def pipe(self, key: bytes) -> Pipe:
        """See Nodes."""
        del key
        return self._pipe

    @property
    def trouble(self) -> str:
        """See Nodes."""
        return self._pipe.trouble


class OfSentinels(OneNode):
    """The master that sentinels name.

    They are asked before each attempt to connect, and once in `POLL`: a master that was cut off from its sentinels goes
    on answering us until we hear that another was chosen.
    """

    def __init__(self, address: Address, make: MakePipe):
        self._name = address.master
        self._finder = client.sentinel(address, _ASK)
        self._pipe = make(self._master, address.access, None, True)
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See Nodes."""
        await super().start()
        self._watch = asyncio.get_running_loop().create_task(self._follow(), name="store sentinels")

    async def close(self) -> None:
        """See Nodes."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await super().close()
        await self._finder.aclose()

    async def _master(self) -> Endpoint:
        try:
            async with asyncio.timeout(_ASK * len(self._finder.sentinels)):
                host, port = await self._finder.discover_master(self._name)
        except Exception:  # whatever a sentinel says must not end looking
            raise StoreUnavailable("no sentinel names a master") from None
        return Endpoint(str(host), int(port))

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(POLL * random.uniform(0.8, 1.2))
            if not self._pipe.connected:
                continue  # it asks by itself
            try:
                master = await self._master()
            except StoreUnavailable:
                continue
            if master != self._pipe.endpoint:
                self._pipe.leave("another master")
