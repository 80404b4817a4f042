"""What the parts of the control path on Redis have in common: a client, and one way to ask it."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis.asyncio

RACES = 50
"""Looks at a state that others change all the while, before an author gives up."""


class Asking(ABC):
    """A node to ask. Each part (`redis_versions`, `redis_keys`) adds what it asks."""

    _client: redis.asyncio.Redis

    @abstractmethod
    async def _ask(self, ask: Callable[[], Awaitable[Any]], within: float | None = None) -> Any:
        """Ask redis-py under a time-out, seconds. Raises StoreUnavailable."""

    @abstractmethod
    async def _run(self, script: str, named: Sequence[bytes], values: Sequence[Any]) -> Any:
        """Run a script by its name."""

    @abstractmethod
    async def _time(self) -> float:
        """Read the node's clock, unix seconds."""
