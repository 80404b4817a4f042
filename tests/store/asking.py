"""How tests of faults ask a store: until it answers, or for why it does not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from seawall.store.contract import Charge, DataPath, StoreUnavailable

T = TypeVar("T")
HIT = [Charge(b"fault", 600, 60, 1)]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


async def works(store: DataPath, charges: list[Charge] = HIT) -> list[int]:
    """Ask until the store answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                return list(await store.charge(charges))
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask anything until it is answered."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def failure(answer: Awaitable[object]) -> str:
    with pytest.raises(StoreUnavailable) as failed:
        await answer
    return str(failed.value)
