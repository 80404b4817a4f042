"""`seawall serve`: supervisor and workers together, over their sockets and HTTP endpoints."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from tests.store.node import Valkey
from tests.wire.as_envoy import HEALTH, Process, check, connect, health, should_rate_limit, status, watch
from tests.wire.carried import until
from tests.wire.processes import DEMO, Folder, alive, children, free_port
from tests.wire.processes import Process as Started

GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


class Served:
    """A running `seawall serve` with one worker."""

    def __init__(self, here: Folder, *options: str, **environ: str):
        self.address = f"127.0.0.1:{free_port()}"
        self.process: Started = here.serve("--policy", str(DEMO), "--http", self.address, *options, **environ)
        self.name = here.sockets / "w0.sock"

    async def get(self, path: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.address}{path}") as response:
            text = await response.text()
            return response.status, json.loads(text) if "json" in response.content_type else text

    async def says(self, path: str, holds: Callable[[int, Any], bool]) -> Any:
        """Ask until the answer is such."""
        async with asyncio.timeout(10):
            while True:
                try:
                    code, body = await self.get(path)
                except aiohttp.ClientError:
                    assert self.process.lives(), self.process.log
                else:
                    if holds(code, body):
                        return body
                await asyncio.sleep(0.02)

    async def ready(self) -> dict[str, Any]:
        """Wait until it is ready; its worker's detail."""
        body = await self.says("/readyz", lambda code, _: code == 200)
        return dict(body["workers"]["w0"])

    def worker(self) -> int:
        (pid,) = children(self.process.pid)
        return pid


async def test_endpoints(here: Folder) -> None:
    """Each says what it is for; an unknown one is not found."""
    served = Served(here, "--store", "memory")
    worker = await served.ready()
    assert worker["state"] == "serving"
    assert (worker["pid"], worker["policy"], worker["policy_error"]) == (served.worker(), 1, "")
    assert worker["store"] == "up"
    assert await served.get("/healthz") == (200, {"status": "ok"})
    assert (await served.get("/version"))[1]["version"].count(".") == 2
    assert (await served.get("/nothing"))[0] == 404
    async with connect(served.name) as channel:
        assert (await check(channel)).status.code == 0
        assert (await check(channel, key="sk-nobody")).status.code != 0
    _, metrics = await served.get("/metrics")
    assert 'seawall_decisions_total{reason="ok",service="ext_authz"} 1.0' in metrics
    assert "sk-nobody" not in metrics + served.process.log


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
async def test_stopping(here: Folder, sig: signal.Signals) -> None:
    """SIGTERM drains: not ready, a running stream ends as it likes. SIGINT stops at once. Either way nothing stays."""
    served = Served(here, "--store", "memory", "--grace", "1000")
    await served.ready()
    pid = served.worker()
    async with connect(served.name) as channel:
        stream = Process(channel)
        await stream.request_headers()
        served.process.signal(sig)
        if sig is signal.SIGTERM:
            await served.says("/readyz", lambda code, _: code == 503)
            async with asyncio.timeout(10):
                while await health(channel) != HEALTH.NOT_SERVING:
                    await asyncio.sleep(0.01)
            assert (await check(channel)).status.code == 0
            assert await stream.done() is grpc.StatusCode.OK
        else:
            assert await stream.end() in GONE
    await until(lambda: not served.process.lives(), f"the end; {served.process.log}")
    assert served.process.process.returncode == 0
    assert not alive(pid)
    assert list(here.sockets.iterdir()) == []


async def test_a_second_sigterm_is_enough(here: Folder) -> None:
    """Whoever asks twice doesn't wait for running streams."""
    served = Served(here, "--store", "memory", "--grace", "1000")
    await served.ready()
    async with connect(served.name) as channel:
        stream = Process(channel)
        await stream.request_headers()
        served.process.signal(signal.SIGTERM)
        await served.says("/readyz", lambda code, _: code == 503)
        served.process.signal(signal.SIGTERM)
        assert await stream.end() in GONE
    await until(lambda: not served.process.lives(), "the end")
    assert served.process.process.returncode == 0


async def test_a_supervisor_killed(here: Folder) -> None:
    """Its worker notices, waits for a successor, drains and goes: no process and no socket is left."""
    served = Served(here, "--store", "memory", SEAWALL_ORPHAN_TIME="1")
    await served.ready()
    pid = served.worker()
    async with connect(served.name) as channel:
        stream = Process(channel)
        await stream.request_headers()
        served.process.process.kill()
        served.process.process.wait()
        # Nobody is told that it has gone before it has to be.
        assert await health(channel) == HEALTH.SERVING
        assert (await check(channel)).status.code == 0
        assert await stream.done() is grpc.StatusCode.OK
    await until(lambda: not alive(pid), f"the worker goes; {served.process.log}", 20)
    assert "supervisor is gone" in served.process.log
    assert "worker stopped" in served.process.log, served.process.log
    # Where the dead one was to be found; the next one takes it over.
    assert [p.name for p in here.sockets.iterdir()] == ["supervisor.json"]


async def test_a_worker_killed(here: Folder) -> None:
    """Another takes its place and its name; what it counted stays counted."""
    served = Served(here, "--store", "memory")
    await served.ready()
    pid = served.worker()
    async with connect(served.name) as channel:
        assert (await check(channel)).status.code == 0
        await served.says("/metrics", lambda _, text: 'service="ext_authz"} 1.0' in text)
        here.kill(pid)
        body = await served.says("/readyz", lambda code, body: code == 200 and body["workers"]["w0"]["pid"] != pid)
        assert body["workers"]["w0"]["state"] == "serving"
        assert (await check(channel)).status.code == 0
    counted = await served.says("/metrics", lambda _, text: 'seawall_worker_restarts_total{why="died"} 1.0' in text)
    assert 'seawall_decisions_total{reason="ok",service="ext_authz"} 2.0' in counted
    assert [p.name for p in here.sockets.iterdir() if p.name.endswith(f".{pid}")] == []


async def test_a_store_that_is_lost(here: Folder, node: Valkey) -> None:
    """It changes the detail of /readyz and how limits are counted; never health, which would cost Envoy every worker."""
    served = Served(here, "--store", node.url)
    worker = await served.ready()
    assert worker["store"] == "up"
    async with connect(served.name) as channel:
        watching = watch(channel)
        assert await watching.read() == HEALTH.SERVING
        assert (await should_rate_limit(channel, {"tenant": "demo-vip"})).statuses[0].limit_remaining == 599
        node.kill()
        body = await served.says("/readyz", lambda _, body: body["workers"]["w0"]["store"] == "down")
        assert body["ready"] is True
        assert (await served.get("/readyz"))[0] == 200
        assert await health(channel) == HEALTH.SERVING
        assert (await check(channel)).status.code == 0
        # Its own share, counted from nothing.
        assert (await should_rate_limit(channel, {"tenant": "demo-vip"})).statuses[0].limit_remaining == 599
        await served.says("/metrics", lambda _, text: 'seawall_store_up{worker="w0"} 0.0' in text)
        await node.start()
        await served.says("/readyz", lambda _, body: body["workers"]["w0"]["store"] == "up")
        assert await health(channel) == HEALTH.SERVING
        # The next word to whoever watches is about the end.
        served.process.signal(signal.SIGTERM)
        assert await watching.read() == HEALTH.NOT_SERVING


@pytest.mark.parametrize(("more", "tries"), [({}, 1), ({"SEAWALL_TRANSPORT": "grpcio"}, 3)], ids=["own", "grpcio"])
async def test_workers_that_can_not_start(here: Folder, more: dict[str, str], tries: int) -> None:
    """After three tries the supervisor says so and ends with 1; its own address it tries once."""
    served = Served(here, "--store", "memory", "--service", "ext_authz", SEAWALL_LISTEN="unix:/nowhere/at/all", **more)
    await until(lambda: not served.process.lives(), f"it gives up; {served.process.log}")
    assert served.process.process.returncode == 1
    assert served.process.log.count("can't listen on unix:/nowhere/at/all") == tries
    assert ("giving up" in served.process.log) == (tries == 3)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--store", "memory"), "with the store 'memory' a policy file is needed"),
        (("--store", "http://x"), "SEAWALL_STORE: not a store"),
        (("--policy", "/nowhere.yaml"), "/nowhere.yaml: No such file or directory"),
        (("--policy", "FOLDER/bad.yaml"), "bad.yaml:1:1: "),
        (("--policy", str(DEMO), "--workers", "0"), "SEAWALL_WORKERS: 0 is not allowed"),
        (("--policy", str(DEMO), "--http", "nowhere"), "SEAWALL_HTTP: 'nowhere' is not allowed: host:port"),
    ],
)
async def test_what_can_not_run(here: Folder, options: tuple[str, ...], line: str) -> None:
    """One line says what is wrong, and the exit status is 1."""
    (here.path / "bad.yaml").write_text("clases: {}\n", "utf-8")
    process = here.run("-m", "seawall", "serve", *(o.replace("FOLDER", str(here.path)) for o in options))
    await until(lambda: not process.lives(), "it refuses")
    assert process.process.returncode == 1
    assert line in process.log
    assert "Traceback" not in process.log


async def test_an_http_port_in_use(here: Folder) -> None:
    """One line, exit status 1, and no worker is left."""
    first = Served(here, "--store", "memory")
    await first.ready()
    second = here.serve("--policy", str(DEMO), "--store", "memory", "--http", first.address)
    await until(lambda: not second.lives(), "it refuses")
    assert second.process.returncode == 1
    assert "can't listen" in second.log
    assert (await first.get("/readyz"))[0] == 200
    async with connect(first.name) as channel:
        assert await status(check(channel)) is grpc.StatusCode.OK
    assert Path(first.name).exists()
