"""The store that a command talks to: --store, SEAWALL_STORE, or that of the running `seawall up`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from seawall.cli.failure import Failure
from seawall.cli.running import find
from seawall.store import open_control as open_store_control
from seawall.store.address import joined
from seawall.store.contract import Control, StoreUnavailable


def store_url(given: str | None) -> str:
    """URL of the store; Failure when nothing names one."""
    url = given or os.environ.get("SEAWALL_STORE")
    if url:
        if url == "memory":
            raise Failure("the store 'memory' lives inside one worker: commands can't reach it")
        return joined(url, os.environ)
    running = find()
    if running is None:
        raise Failure("no store: start a gate with 'seawall up', or set SEAWALL_STORE=redis://host:port")
    return str(running.told["redis"])


@asynccontextmanager
async def open_control(given: str | None) -> AsyncIterator[Control]:
    """Connect to the store's control path; Failure, in one line, when it can't be reached."""
    try:
        control = open_store_control(store_url(given))
    except ValueError as e:
        raise Failure(str(e)) from None
    await control.start()
    try:
        yield control
    except StoreUnavailable as e:
        raise Failure(f"the store can't be reached: {e}") from None
    finally:
        await control.close()
