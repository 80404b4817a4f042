"""`seawall serve` while its processes are replaced: rolling restarts, a supervisor that dies, workers that hang."""

import asyncio
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from tests.store.node import Valkey
from tests.wire.as_envoy import HEALTH, Process, check, connect, watch
from tests.wire.carried import until
from tests.wire.processes import DEMO, Folder, alive, children, free_port
from tests.wire.processes import Process as Started

PATIENCE = 60
GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


class Two:
    """`seawall serve` with two workers on one Valkey."""

    def __init__(self, here: Folder, node: Valkey, **environ: str):
        self.here = here
        self.address = f"127.0.0.1:{free_port()}"
        self.process: Started = here.run(
            *("-m", "seawall", "serve", "--workers", "2", "--store", node.url, "--policy", str(DEMO)),
            *("--socket-dir", str(here.sockets), "--http", self.address),
            **environ,
        )

    def name(self, index: int) -> Path:
        return self.here.sockets / f"w{index}.sock"

    async def get(self, path: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.address}{path}") as response:
            return await (response.json() if "json" in response.content_type else response.text())

    async def says(self, holds: Callable[[Any], Any]) -> Any:
        """Ask /readyz until the answer is such; the answer."""
        body = None
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        body = await self.get("/readyz")
                    except aiohttp.ClientError:
                        assert self.process.lives(), self.process.log
                    else:
                        if holds(body):
                            return body
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"last said {body}; {self.process.log}") from None

    async def serving(self) -> list[int]:
        """Wait until both workers serve; their process ids."""
        body = await self.says(lambda b: [w["state"] for w in b["workers"].values()] == ["serving"] * 2)
        return [w["pid"] for w in body["workers"].values()]

    async def metric(self, line: str) -> float:
        found = [x.split()[-1] for x in (await self.get("/metrics")).splitlines() if x.startswith(line)]
        return float(found[0]) if found else 0.0


def restart(body: Any) -> tuple[Any, ...]:
    told = body["restart"]
    return (told["phase"], told["done"], told["of"])


async def calls(stop: asyncio.Event, *names: Path) -> int:
    """Call without pause as Envoy does, by name, until told to stop; none may fail."""
    made = 0
    channels = [connect(name) for name in names]
    try:
        while not stop.is_set():
            for channel in channels:
                assert (await check(channel)).status.code == 0
                made += 1
            await asyncio.sleep(0.005)
    finally:
        for channel in channels:
            await channel.close()
    return made


async def test_a_rolling_restart(here: Folder, node: Valkey) -> None:
    """Both workers are replaced, one by one; two always serve, no call fails, an answer goes on to its end."""
    served = Two(here, node)
    before = await served.serving()
    stop = asyncio.Event()
    calling = asyncio.ensure_future(calls(stop, served.name(0), served.name(1)))
    async with connect(served.name(0)) as channel:
        stream = Process(channel)
        await stream.request_headers()
        watching = watch(channel)
        assert await watching.read() == HEALTH.SERVING
        served.process.signal(signal.SIGHUP)

        def done(body: Any) -> bool:
            assert [w["state"] for w in body["workers"].values()] == ["serving"] * 2, body
            return body["restart"] is not None and restart(body) == ("done", 2, 2)

        body = await served.says(done)
        assert not {w["pid"] for w in body["workers"].values()} & set(before)
        assert [w["generation"] for w in body["workers"].values()] == [2, 2]
        # The answer holds its worker, nobody else; health was never NOT_SERVING.
        assert body["workers"]["w0"]["leaving"]["pid"] == before[0]
        assert await watching.read() is grpc.aio.EOF
        await served.says(lambda b: b["workers"]["w0"]["leaving"]["state"] == "draining")
        assert await served.metric('seawall_policy_version{role="current",worker="w0"}') == 1
        async with asyncio.timeout(PATIENCE):
            while await served.metric('seawall_workers{state="draining"}') != 1:
                await asyncio.sleep(0.02)
        assert alive(before[0])
        assert await stream.done() is grpc.StatusCode.OK
    await served.says(lambda b: not any(w["leaving"] for w in b["workers"].values()))
    stop.set()
    made = await calling
    assert not any(alive(pid) for pid in before)
    # Those that left took nothing of what they had counted with them.
    assert made > 0
    assert await served.metric('seawall_decisions_total{reason="ok",service="ext_authz"}') == made
    assert await served.metric('seawall_worker_restarts_total{why="roll"}') == 2
    assert 'why="died"' not in await served.get("/metrics")
    # The names, the sockets and the supervisor's own file, and nothing else.
    assert len(list(here.sockets.iterdir())) == 5
    served.process.signal(signal.SIGTERM)
    await until(lambda: not served.process.lives(), "the end", 30)
    assert list(here.sockets.iterdir()) == []
    assert served.process.process.returncode == 0


async def test_a_successor_that_is_not_ready_stops_it(here: Folder, node: Valkey) -> None:
    """The rest is left as it was, and log and /readyz say why; when the cause is gone, the next one goes through."""
    served = Two(here, node, SEAWALL_READY_TIME="3s")
    before = await served.serving()
    stop = asyncio.Event()
    calling = asyncio.ensure_future(calls(stop, served.name(0), served.name(1)))
    node.kill()
    served.process.signal(signal.SIGHUP)
    body = await served.says(lambda b: b["restart"] and b["restart"]["phase"] == "stopped")
    assert restart(body) == ("stopped", 0, 2)
    assert body["restart"]["why"].startswith("the successor of w0 was not ready in 3 s: it waits for the store")
    await served.says(lambda b: b["workers"]["w0"]["successor"] is None)
    assert await served.serving() == before
    await until(lambda: "restart stopped, the rest stay as they were" in served.process.log, "the log says so too")
    await node.start()
    served.process.signal(signal.SIGHUP)
    await served.says(lambda b: restart(b) == ("done", 2, 2))
    stop.set()
    assert await calling > 0


NEW_CODE = """
import pathlib
if b"seawall.serve.worker" in pathlib.Path("/proc/self/cmdline").read_bytes():
    {code}
"""


async def test_new_code_is_taken_up_and_broken_code_stops_it(here: Folder, node: Valkey) -> None:
    """What a worker imports is what is there when it starts; a release that can't start costs nobody a worker."""
    site = here.path / "sitecustomize.py"
    served = Two(here, node, PYTHONPATH=str(here.path), SEAWALL_READY_TIME="30s")
    before = await served.serving()
    site.write_text(NEW_CODE.format(code="import os; os._exit(3)"), "utf-8")
    served.process.signal(signal.SIGHUP)
    body = await served.says(lambda b: b["restart"] and b["restart"]["phase"] == "stopped")
    assert body["restart"]["why"] == "the successor of w0 ended with status 3"
    assert await served.serving() == before
    site.write_text(NEW_CODE.format(code="import seawall; seawall.__version__ = '9.8.7'"), "utf-8")
    served.process.signal(signal.SIGHUP)
    await served.says(lambda b: restart(b) == ("done", 2, 2))
    site.unlink()
    status = here.run("-m", "seawall", "status", "--json", SEAWALL_STORE=node.url)
    await until(lambda: not status.lives(), "status", 30)
    releases = {w["pid"]: w["release"] for w in json.loads(status.log)["workers"]}
    assert [releases[pid] for pid in await served.serving()] == ["9.8.7", "9.8.7"]


async def test_asked_again_meanwhile(here: Folder, node: Valkey) -> None:
    """A SIGHUP during a restart is not lost, and three are one."""
    served = Two(here, node)
    await served.serving()
    served.process.signal(signal.SIGHUP)
    await served.says(lambda b: b["restart"] and b["restart"]["phase"] == "running")
    served.process.signal(signal.SIGHUP)
    served.process.signal(signal.SIGHUP)
    body = await served.says(lambda b: [w["generation"] for w in b["workers"].values()] == [3, 3])
    assert restart(await served.says(lambda b: b["restart"]["phase"] == "done"))[1] == 2
    await until(lambda: served.process.log.count("rolling restart done") == 2, "it says so twice")
    assert body["orphans"] == 0


async def test_a_worker_that_dies_meanwhile(here: Folder, node: Valkey) -> None:
    """Killed while its successor starts: the successor has its place, and the restart goes on."""
    served = Two(here, node)
    before = await served.serving()
    served.process.signal(signal.SIGHUP)
    await served.says(lambda b: b["workers"]["w0"]["successor"] or b["workers"]["w0"]["pid"] != before[0])
    if alive(before[0]):
        here.kill(before[0])
    await served.says(lambda b: restart(b) == ("done", 2, 2))
    after = await served.serving()
    assert not set(after) & set(before)


async def test_a_worker_that_hangs_is_killed(here: Folder, node: Valkey) -> None:
    """No answers for SEAWALL_HANG_TIME: SIGKILL, and another one; counted apart from those that died."""
    served = Two(here, node, SEAWALL_HANG_TIME="2s")
    first, second = await served.serving()
    os.kill(first, signal.SIGSTOP)
    await served.says(lambda b: b["workers"]["w0"]["pid"] not in {first, None})
    assert (await served.serving())[1] == second
    assert not alive(first)
    await until(lambda: "worker hangs, it is killed" in served.process.log, "the log says so")
    assert await served.metric('seawall_worker_restarts_total{why="hung"}') == 1


async def test_a_worker_that_comes_back_is_not_killed(here: Folder, node: Valkey) -> None:
    """It was silent, /readyz told, and it serves again; neither is it when the supervisor was the one that slept."""
    served = Two(here, node, SEAWALL_HANG_TIME="4s")
    before = await served.serving()
    os.kill(before[0], signal.SIGSTOP)
    await served.says(lambda b: b["workers"]["w0"]["state"] == "unknown")
    os.kill(before[0], signal.SIGCONT)
    assert await served.serving() == before
    served.process.signal(signal.SIGSTOP)
    await asyncio.sleep(5.0)  # longer than the limit, by every clock
    served.process.signal(signal.SIGCONT)
    assert await served.serving() == before
    assert "seawall_worker_restarts_total{" not in await served.get("/metrics")


async def test_the_next_supervisor_takes_over(here: Folder, node: Valkey) -> None:
    """SIGKILL of the supervisor and a new one: no call fails, answers end, and the old workers are gone by themselves."""
    first = Two(here, node)
    before = await first.serving()
    stop = asyncio.Event()
    calling = asyncio.ensure_future(calls(stop, first.name(0), first.name(1)))
    async with connect(first.name(0)) as channel:
        stream = Process(channel)
        await stream.request_headers()
        watching = watch(channel)
        assert await watching.read() == HEALTH.SERVING
        first.process.process.kill()
        first.process.process.wait()
        second = Two(here, node)
        after = await second.serving()
        assert not set(after) & set(before)
        assert await watching.read() is grpc.aio.EOF
        assert alive(before[0])
        assert (await second.get("/readyz"))["orphans"] >= 1
        assert await stream.done() is grpc.StatusCode.OK
    await second.says(lambda b: b["orphans"] == 0)
    stop.set()
    assert await calling > 0
    assert not any(alive(pid) for pid in before)
    await until(lambda: "the workers of the supervisor that died have gone" in second.process.log, "it says so")
    assert len(list(here.sockets.iterdir())) == 5


async def test_an_orphan_that_hangs_is_killed(here: Folder, node: Valkey) -> None:
    """It can't go by itself: the next supervisor ends it when all others would have gone."""
    bounds = {"SEAWALL_ORPHAN_TIME": "0", "SEAWALL_GRACE": "0"}
    first = Two(here, node, **bounds)
    before = await first.serving()
    os.kill(before[1], signal.SIGSTOP)
    first.process.process.kill()
    first.process.process.wait()
    second = Two(here, node, **bounds)
    await second.serving()
    await second.says(lambda b: b["orphans"] == 0)
    assert not any(alive(pid) for pid in before)
    await until(lambda: "that died hang, they are killed" in second.process.log, "the log says so")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
async def test_who_stops_the_next_one_stops_the_orphans(here: Folder, node: Valkey, sig: signal.Signals) -> None:
    """Also those whose names nobody has taken yet: the next supervisor's workers have no policy to serve by."""
    first = Two(here, node)
    before = await first.serving()
    first.process.process.kill()
    first.process.process.wait()
    node.kill()
    second = Two(here, node)
    await second.says(lambda b: b["orphans"] == 2)
    second.process.signal(sig)
    await until(lambda: not second.process.lives(), f"the end; {second.process.log}", 30)
    assert second.process.process.returncode == 0
    assert not any(alive(pid) for pid in before)
    assert list(here.sockets.iterdir()) == []


async def test_a_second_supervisor_is_refused(here: Folder, node: Valkey) -> None:
    """Two on one directory would take each other's names: the second says who is there, and goes."""
    first = Two(here, node)
    before = await first.serving()
    second = Two(here, node)
    await until(lambda: not second.process.lives(), "it goes", 30)
    assert second.process.process.returncode == 1
    assert f"another supervisor, process {first.process.pid}, serves {here.sockets}" in second.process.log
    assert await first.serving() == before


async def test_a_name_that_someone_removed_comes_back(here: Folder, node: Valkey) -> None:
    """A worker that serves looks after its name."""
    served = Two(here, node)
    await served.serving()
    served.name(1).unlink()
    await until(served.name(1).exists, "it is there again", 30)
    async with connect(served.name(1)) as channel:
        assert (await check(channel)).status.code == 0


async def test_one_address(here: Folder, node: Valkey) -> None:
    """A rolling restart behind SEAWALL_LISTEN: clients are told to connect again, and no call fails."""
    listen = f"127.0.0.1:{free_port()}"
    served = Two(here, node, SEAWALL_LISTEN=listen)
    before = await served.serving()
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(listen, options=options) for _ in range(4)]

    async def all_call() -> None:
        for channel in channels:
            assert (await check(channel)).status.code == 0

    await all_call()
    served.process.signal(signal.SIGHUP)
    async with asyncio.timeout(PATIENCE):
        while any(alive(pid) for pid in before):
            await all_call()
            await asyncio.sleep(0.005)
    assert restart(await served.get("/readyz")) == ("done", 2, 2)
    await all_call()
    counts = [await served.metric(f'seawall_connections{{worker="w{i}"}}') for i in range(2)]
    assert sum(counts) == 4
    for channel in channels:
        await channel.close()


async def test_two_of_the_reference_can_not_share_an_address(here: Folder, node: Valkey) -> None:
    """The reference listens itself: SIGHUP changes nothing, and says so."""
    address = f"127.0.0.1:{free_port()}"
    served = here.serve(
        *("--store", node.url, "--policy", str(DEMO), "--http", address, "--listen", f"127.0.0.1:{free_port()}"),
        SEAWALL_TRANSPORT="grpcio",
    )
    two = Two.__new__(Two)
    two.here, two.address, two.process = here, address, served
    await two.says(lambda b: b["ready"])
    pids = children(served.pid)
    served.signal(signal.SIGHUP)
    body = await two.says(lambda b: b["restart"])
    assert body["restart"]["phase"] == "stopped"
    assert "SEAWALL_LISTEN" in body["restart"]["why"]
    assert children(served.pid) == pids


async def test_what_systemd_is_told(here: Folder, node: Valkey) -> None:
    """Ready when a worker serves, signs of life, reloading and ready again on SIGHUP, stopping on SIGTERM."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(here.path / "notify"))
        manager.setblocking(False)
        served = Two(here, node, NOTIFY_SOCKET=str(here.path / "notify"), WATCHDOG_USEC="200000")

        async def told(word: str) -> str:
            async with asyncio.timeout(PATIENCE):
                while True:
                    said = (await asyncio.get_running_loop().sock_recv(manager, 4096)).decode()
                    if word in said.splitlines():
                        return said

        await told("WATCHDOG=1")
        assert "of 2 workers serve" in await told("READY=1")
        await served.serving()
        served.process.signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in await told("RELOADING=1")
        assert "2 of 2 workers serve" in await told("READY=1")
        await told("WATCHDOG=1")
        served.process.signal(signal.SIGTERM)
        await told("STOPPING=1")


@pytest.mark.parametrize("nohup", [False, True], ids=["plain", "nohup"])
async def test_a_terminal_that_goes(here: Folder, node: Valkey, nohup: bool) -> None:
    """SIGHUP by hand restarts also what runs in a terminal; the one that its end brings stops it, but for nohup(1)."""
    ours, theirs = pty.openpty()
    address = f"127.0.0.1:{free_port()}"
    # The shell that a terminal belongs to; its child is `seawall serve`.
    shell = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        + ("signal.signal(signal.SIGHUP, signal.SIG_IGN); " if nohup else "")
        + "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", shell, "-m", "seawall", "serve", "--store", node.url, "--policy", str(DEMO)]
    command += ["--workers", "1", "--http", address, "--socket-dir", str(here.sockets)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("SEAWALL_")} | {"SEAWALL_CHECK_INTERVAL": "0.2"}
    with (here.path / "tty-log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdin=theirs, stdout=log, stderr=log, start_new_session=True)
    os.close(theirs)
    two = Two.__new__(Two)
    started = Started.__new__(Started)
    started.process, started._log = process, here.path / "tty-log"
    here.started.append(started)
    two.here, two.address, two.process = here, address, started
    await two.says(lambda b: b["ready"])
    process.send_signal(signal.SIGHUP)
    await two.says(lambda b: b["restart"] and b["restart"]["phase"] == "done")
    os.close(ours)
    if nohup:
        await two.says(lambda b: b["workers"]["w0"]["generation"] == 3)
    else:
        await until(lambda: process.poll() is not None, "it drains and ends", 30)
        assert process.returncode == 0
