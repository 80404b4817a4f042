"""One address, many workers: who gets which connection, and what a drained or killed worker's clients see."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import grpc.aio
import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.running_gate import alive, children
from tests.e2e.tiny_envoy import free_port
from tests.store.node import Valkey
from tests.wire.as_envoy import check
from tests.wire.processes import DEMO, Folder, Process


def channel_to(address: str) -> grpc.aio.Channel:
    """A connection of its own."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


def connections(http: str) -> dict[str, int]:
    """What the supervisor says of each worker."""
    text = httpx.get(f"http://{http}/metrics", timeout=10).text
    return {
        sample.labels["worker"]: int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "seawall_connections"
    }


async def until_counts(http: str, counts: list[int], *channels: grpc.aio.Channel) -> None:
    """Wait for a share-out; meanwhile the clients call, since one that was told to go connects again for a call only."""
    async with asyncio.timeout(30):
        while sorted(connections(http).values()) != sorted(counts):
            await all_call(*channels)
            await asyncio.sleep(0.05)


async def all_call(*channels: grpc.aio.Channel) -> None:
    """One call on each connection; none may fail."""
    for channel in channels:
        async with asyncio.timeout(20):
            assert (await check(channel)).status.code == 0


async def new_child(served: Process, known: list[int], channels: list[grpc.aio.Channel]) -> int:
    """Wait for a worker that was not there before; meanwhile calls go on.

    It has to be a worker already: stopped between fork and exec it would keep its parent waiting.
    """
    for _ in range(3000):
        await all_call(*channels)
        for child in set(children(served.pid)) - set(known):
            if b"seawall.serve.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        await asyncio.sleep(0.01)
    raise AssertionError(f"no successor; {[(p, alive(p)) for p in known]}; {served.log}")


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
async def test_connections_are_shared_out(here: Folder, node: Valkey, unix: bool) -> None:
    """4 connections, 2 workers: 2 each; one drained: all 4 on the other; it comes back: 2 each again. No call fails."""
    port, http = free_port(), f"127.0.0.1:{free_port()}"
    listen = f"unix:{here.path}/one.sock" if unix else f"127.0.0.1:{port}"
    served = here.run(
        *("-m", "seawall", "serve", "--workers", "2"),
        SEAWALL_STORE=node.url,
        SEAWALL_POLICY=str(DEMO),
        SEAWALL_SOCKET_DIR=str(here.sockets),
        SEAWALL_UPSTREAMS="http://127.0.0.1:1",
        SEAWALL_LISTEN=listen,
        SEAWALL_HTTP=http,
    )
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(channel_to(listen)) for _ in range(4)]
        for channel in channels:
            await asyncio.wait_for(channel.channel_ready(), 30)
        await until_counts(http, [2, 2], *channels)
        workers = children(served.process.pid)
        os.kill(workers[0], signal.SIGTERM)
        successor = await new_child(served, workers, channels)
        # Held back, so that there is time to see who has what meanwhile.
        os.kill(successor, signal.SIGSTOP)
        await until_counts(http, [0, 4], *channels)
        os.kill(successor, signal.SIGCONT)
        # It is handed half of them, since twice the mean is on one.
        await until_counts(http, [2, 2], *channels)
        assert not alive(workers[0])
        assert len(set(children(served.process.pid)) & set(workers)) == 1
    await until_counts(http, [0, 0])
    served.signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        while served.lives():
            await asyncio.sleep(0.05)
    assert not Path(here.path / "one.sock").exists()
