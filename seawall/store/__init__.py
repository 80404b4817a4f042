"""Shared state of all workers behind one contract: counters, slots, policy versions, worker reports.

`open_store` and `open_control` are the only way in; what they return is told in `contract`.
"""

from seawall.store.address import parse
from seawall.store.contract import Control, Store


def open_store(url: str, *, owner: str, timeout: float = 0.25, jitter: int = 0) -> Store:
    """Open the store of one worker, not yet connected: `await store.start()`.

    `url` is `memory` or one of Redis (`address.parse` reads it; docs/redis.md tells all forms). `owner` names the
    worker: slots belong to it. `timeout` in seconds is for each command of the data path; `jitter` is
    told in `redis_data`. Raises ValueError for another URL, with what is allowed and without repeating it.
    """
    if url == "memory":
        from seawall.store.memory import MemoryStore

        return MemoryStore(owner=owner)
    address = parse(url)
    from seawall.store.redis import RedisStore

    return RedisStore(address, owner=owner, timeout=timeout, jitter=jitter)


def open_control(url: str) -> Control:
    """Open the control path alone, for commands, without a data path. URLs and errors as in `open_store`."""
    if url == "memory":
        from seawall.store.memory import MemoryStore

        return MemoryStore(owner="control")
    address = parse(url)
    from seawall.store.redis_control import RedisControl

    return RedisControl(address)
