"""Each service as a program of its own: `python -m ext_authz`, `ext_proc`, `ratelimit`; the last as a drop-in."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from seawall.proto.gen import ratelimit_pb2
from tests.store.node import Valkey
from tests.wire.as_envoy import (
    AUTHZ,
    EXT_PROC,
    HEALTH,
    LIMIT,
    RATELIMIT,
    Process,
    check,
    connect,
    health,
    should_rate_limit,
    status,
)
from tests.wire.carried import refusal, until
from tests.wire.processes import DEMO, Folder, free_port
from tests.wire.processes import Process as Started

RULES = """
domain: {domain}
descriptors:
  - key: who
    rate_limit: {{unit: day, requests_per_unit: {count}}}
"""


async def up(process: Started, channel: grpc.aio.Channel, service: str) -> None:
    """Wait until a service says that it serves."""
    async with asyncio.timeout(10):
        while True:
            assert process.lives(), process.log
            try:
                if await health(channel, service) == HEALTH.SERVING:
                    return
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            await asyncio.sleep(0.02)


async def ended(process: Started) -> int:
    await until(lambda: not process.lives(), f"it ends; {process.log}")
    return int(process.process.returncode)


@pytest.mark.parametrize(
    ("module", "service"), [("ext_authz", AUTHZ), ("ext_proc", EXT_PROC), ("ratelimit", RATELIMIT)]
)
async def test_alone(here: Folder, module: str, service: str) -> None:
    """It answers by the policy, knows no other service, and goes when it is told to."""
    environ = {
        "SEAWALL_POLICY": str(DEMO),
        "SEAWALL_SOCKET_DIR": str(here.sockets),
        "SEAWALL_HTTP": "off",
        "SEAWALL_UPSTREAMS": "http://127.0.0.1:1",
    }
    process = here.run("-m", module, **environ)
    async with connect(here.sockets / "w0.sock") as channel:
        await up(process, channel, service)
        answered: dict[str, Any] = {
            AUTHZ: await status(check(channel)),
            RATELIMIT: await status(should_rate_limit(channel, {"tenant": "demo-vip"})),
            EXT_PROC: await process_status(channel),
        }
        for name, code in answered.items():
            assert code is (grpc.StatusCode.OK if name == service else grpc.StatusCode.UNIMPLEMENTED)
            if name != service:
                assert (await refusal(health(channel, name)))[0] is grpc.StatusCode.NOT_FOUND
        process.signal(signal.SIGTERM)
        assert await ended(process) == 0
    assert list(here.sockets.iterdir()) == []
    assert "level=error" not in process.log


async def process_status(channel: grpc.aio.Channel) -> grpc.StatusCode:
    # Nothing is written: a write that met the end would give the call a status of the client's own.
    return await Process(channel).done()


class Rules:
    """A folder of rule files as envoyproxy/ratelimit finds it: root, subdirectory, `config`."""

    def __init__(self, here: Folder):
        self.root = here.path / "runtime"
        self.config = self.root / "sub" / "config"
        self.config.mkdir(parents=True)

    def environ(self, **more: str) -> dict[str, str]:
        return {
            "RUNTIME_ROOT": str(self.root),
            "RUNTIME_SUBDIRECTORY": "sub",
            "RUNTIME_WATCH_ROOT": "false",
            "RUNTIME_IGNOREDOTFILES": "true",
            "HOST": "127.0.0.1",
            "PORT": str(free_port()),
            "DEBUG_PORT": str(free_port()),
            "GRPC_HOST": "127.0.0.1",
            "GRPC_PORT": str(free_port()),
            **more,
        }

    def write(self, count: int, domain: str = "shop", name: str = "shop.yaml") -> None:
        """Put a file into place by a rename."""
        self.put(RULES.format(domain=domain, count=count), name)

    def put(self, text: str, name: str = "shop.yaml") -> None:
        new = self.root / "new"
        new.write_text(text, "utf-8")
        new.replace(self.config / name)


@pytest.fixture
def rules(here: Folder) -> Rules:
    return Rules(here)


async def limit(channel: grpc.aio.Channel, domain: str = "shop", who: str = "x") -> int | None:
    """The limit in force, by a look; None when there is none."""
    request = ratelimit_pb2.RateLimitRequest(domain=domain)
    descriptor = request.descriptors.add()
    descriptor.entries.add(key="who", value=who)
    descriptor.hits_addend.value = 0
    ask = channel.unary_unary(f"/{RATELIMIT}/ShouldRateLimit", None, ratelimit_pb2.RateLimitResponse.FromString)
    (told,) = (await ask(request.SerializeToString(), timeout=10)).statuses
    return told.current_limit.requests_per_unit if told.HasField("current_limit") else None


async def comes_to(channel: grpc.aio.Channel, expected: int | None, domain: str = "shop") -> None:
    """Wait until a limit is in force."""
    try:
        async with asyncio.timeout(10):
            while await limit(channel, domain) != expected:
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"limit of {domain} is not {expected}") from None


async def fetch(port: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_drop_in(here: Folder, rules: Rules) -> None:
    """It serves the folder's rules on the Go service's ports, and drains on SIGTERM."""
    rules.write(3)
    rules.write(7, domain="bar", name="bar.yaml")
    rules.put("domain: shop\n", ".shop.yaml.swp")  # would be a second `shop`
    environ = rules.environ()
    process = here.run("-m", "ratelimit", **environ)
    async with connect(f"127.0.0.1:{environ['GRPC_PORT']}") as channel:
        await up(process, channel, RATELIMIT)
        for left in (2, 1, 0):
            response = await should_rate_limit(channel, {"who": "x"}, domain="shop")
            assert response.overall_code == LIMIT.OK
            assert response.statuses[0].limit_remaining == left
        assert (await should_rate_limit(channel, {"who": "x"}, domain="shop")).overall_code == LIMIT.OVER_LIMIT
        assert (await should_rate_limit(channel, {"who": "x"}, domain="bar")).statuses[0].limit_remaining == 6
        assert (await should_rate_limit(channel, {"who": "x"}, domain="llm")).overall_code == LIMIT.OK
        # /healthcheck is its supervisor's, which asks its worker once in a while.
        async with asyncio.timeout(10):
            while await fetch(environ["PORT"], "/healthcheck") != (200, "OK"):
                await asyncio.sleep(0.02)
        assert (await fetch(environ["DEBUG_PORT"], "/readyz"))[0] == 200
        assert "seawall_limit_hits_total" in (await fetch(environ["DEBUG_PORT"], "/metrics"))[1]
        process.signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while (await fetch(environ["PORT"], "/healthcheck"))[0] != 500:
                await asyncio.sleep(0.02)
        assert await status(should_rate_limit(channel, {"who": "y"}, domain="shop")) is grpc.StatusCode.OK
        assert await ended(process) == 0


async def test_reload(here: Folder, rules: Rules) -> None:
    """A file that is replaced, added or removed counts at once and keeps the counts; a bad one changes nothing."""
    rules.write(5)
    socket = here.path / "grpc.sock"
    environ = rules.environ(GRPC_UDS=str(socket))
    process = here.run("-m", "ratelimit", **environ)
    async with connect(socket) as channel:
        await up(process, channel, RATELIMIT)
        assert (await should_rate_limit(channel, {"who": "x"}, domain="shop", hits=2)).statuses[0].limit_remaining == 3
        rules.write(10)
        await comes_to(channel, 10)
        assert (await should_rate_limit(channel, {"who": "x"}, domain="shop")).statuses[0].limit_remaining == 7
        rules.write(4, domain="bar", name="bar.yaml")
        await comes_to(channel, 4, "bar")
        # Bad in three ways; a good change beside a bad file waits for it to be mended.
        for n, bad in enumerate(("domain: shop\ndescriptors: [{key: who, rate: 1}]\n", "domain: [", "domain: bar\n")):
            rules.put(bad)
            refused = n + 1
            await until(lambda r=refused: process.log.count("policy refused") == r, f"refused; {process.log}")
            assert await limit(channel) == 10
        rules.write(6, domain="bar", name="bar.yaml")
        rules.put("domain: ''\n")
        await until(lambda: process.log.count("policy refused") == 4, f"refused; {process.log}")
        assert await limit(channel, "bar") == 4
        rules.write(11)
        await comes_to(channel, 11)
        assert await limit(channel, "bar") == 6
        (rules.config / "bar.yaml").unlink()
        await comes_to(channel, None, "bar")
        assert await limit(channel) == 11
        assert await health(channel, RATELIMIT) == HEALTH.SERVING
        process.signal(signal.SIGINT)
        assert await ended(process) == 0
    assert not socket.exists()


def config_map(mount: Path, version: str, text: str) -> None:
    config_map_of(mount, version, {"shop.yaml": text})


def config_map_of(mount: Path, version: str, files: Mapping[str, str]) -> None:
    """Do what a kubelet does with a changed ConfigMap: a new folder, and `..data` swapped to it in one step."""
    (mount / f"..{version}").mkdir()
    for name, text in files.items():
        (mount / f"..{version}" / name).write_text(text, "utf-8")
        if not (mount / name).is_symlink():
            (mount / name).symlink_to(f"..data/{name}")
    (mount / "..new").symlink_to(f"..{version}")
    (mount / "..new").rename(mount / "..data")


async def test_a_config_map(here: Folder, rules: Rules) -> None:
    """The swap of `..data` is a reload."""
    config_map(rules.config, "one", RULES.format(domain="shop", count=5))
    socket = here.path / "grpc.sock"
    process = here.run("-m", "ratelimit", **rules.environ(GRPC_UDS=str(socket)))
    async with connect(socket) as channel:
        await up(process, channel, RATELIMIT)
        assert await limit(channel) == 5
        config_map(rules.config, "two", RULES.format(domain="shop", count=8))
        await comes_to(channel, 8)
        config_map(rules.config, "three", "domain: [")
        await until(lambda: "policy refused" in process.log, "refused")
        assert await limit(channel) == 8


async def test_a_folder_that_comes_later(here: Folder, rules: Rules) -> None:
    """No folder is no rules: every call passes, until there is one."""
    rules.config.rmdir()
    socket = here.path / "grpc.sock"
    process = here.run("-m", "ratelimit", **rules.environ(GRPC_UDS=str(socket)))
    async with connect(socket) as channel:
        await up(process, channel, RATELIMIT)
        assert await limit(channel) is None
        rules.config.mkdir()
        rules.write(5)
        await comes_to(channel, 5)


@pytest.mark.parametrize("kind", ["tcp", "unix", "SEAWALL_STORE"])
async def test_two_on_one_redis(here: Folder, rules: Rules, kind: str) -> None:
    """Two instances share their counters in the Redis that REDIS_URL names, or SEAWALL_STORE before it."""
    node = Valkey(tcp=kind == "tcp")
    rules.write(10)
    try:
        await node.start()
        stores = {
            "tcp": {"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": f"127.0.0.1:{node.port}"},
            "unix": {"REDIS_SOCKET_TYPE": "unix", "REDIS_URL": str(node.socket)},
            "SEAWALL_STORE": {
                "SEAWALL_STORE": node.url,
                "REDIS_SOCKET_TYPE": "tcp",
                "REDIS_URL": f"127.0.0.1:{free_port()}",
            },
        }
        sockets = [here.path / "one.sock", here.path / "two.sock"]
        started = [here.run("-m", "ratelimit", **rules.environ(GRPC_UDS=str(s), **stores[kind])) for s in sockets]
        async with connect(sockets[0]) as one, connect(sockets[1]) as two:
            for process, channel in zip(started, (one, two), strict=True):
                await up(process, channel, RATELIMIT)
            asked = [should_rate_limit(channel, {"who": "x"}, domain="shop") for channel in (one, two) * 10]
            answers = await asyncio.gather(*asked)
            assert sorted(a.statuses[0].limit_remaining for a in answers if a.overall_code == LIMIT.OK) == [*range(10)]
            assert [a.overall_code for a in answers].count(LIMIT.OVER_LIMIT) == 10
        assert not any("level=error" in process.log for process in started)
    finally:
        node.remove()


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"GRPC_PORT": "http"}, "GRPC_PORT: 'http' is not allowed: 1 to 65535"),
        ({"RUNTIME_IGNOREDOTFILES": "yes"}, "RUNTIME_IGNOREDOTFILES: 'yes' is not allowed"),
        ({"REDIS_URL": "127.0.0.1:6379"}, "REDIS_SOCKET_TYPE=unix"),
        ({"SEAWALL_STORE": "redis+sentinel://:sk-secret@x"}, "SEAWALL_STORE: store redis+sentinel://"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
async def test_what_can_not_run(here: Folder, rules: Rules, environ: dict[str, str], line: str) -> None:
    """One line names the variable; the exit status is 1."""
    process = here.run("-m", "ratelimit", **rules.environ(**environ))
    assert await ended(process) == 1
    assert line in process.log
    assert "Traceback" not in process.log
    assert "sk-secret" not in process.log
