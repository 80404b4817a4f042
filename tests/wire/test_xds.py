"""Limits from a control plane by xDS, real processes: an update, a bad one, a good one, a server that goes and comes."""

import asyncio
import json
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from tests.certificates import authority, signed
from tests.store.node import Valkey
from tests.wire.as_envoy import HEALTH, LIMIT, RATELIMIT, connect, health, should_rate_limit
from tests.wire.carried import refusal, until
from tests.wire.processes import Folder, alive, children, free_port
from tests.wire.test_alone import comes_to, ended, fetch, limit, up
from tests.wire.xds_server import XdsServer, control_plane, resource, who

NONE_YET = (grpc.StatusCode.UNAVAILABLE, "no rate limit configuration loaded")


def environ(here: Folder, server: XdsServer, **more: str) -> dict[str, str]:
    return {
        "CONFIG_TYPE": "GRPC_XDS_SOTW",
        "CONFIG_GRPC_XDS_SERVER_URL": f"127.0.0.1:{server.port}",
        "CONFIG_GRPC_XDS_NODE_ID": "gate",
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "200ms",
        "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "100ms",
        "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "400ms",
        "GRPC_UDS": str(here.path / "grpc.sock"),
        "HOST": "127.0.0.1",
        "PORT": str(free_port()),
        "DEBUG_PORT": str(free_port()),
        # As the Go service it says little by itself.
        "LOG_LEVEL": "info",
        **more,
    }


async def told(settings: dict[str, str]) -> dict[str, Any]:
    """What /readyz says of the control plane."""
    url = f"http://127.0.0.1:{settings['DEBUG_PORT']}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return dict((await answer.json())["xds"])


async def metric(settings: dict[str, str], line: str) -> float:
    text = (await fetch(settings["DEBUG_PORT"], "/metrics"))[1]
    found = [each.rpartition(" ")[2] for each in text.splitlines() if each.rpartition(" ")[0] == line]
    return float(found[0]) if found else 0.0


@asynccontextmanager
async def calls(here: Folder) -> AsyncIterator[Counter[str]]:
    """Calls one after the other, each on a connection of its own, so that all workers answer; by what they got."""
    seen: Counter[str] = Counter()

    async def run() -> None:
        while True:
            async with connect(here.path / "grpc.sock") as channel:
                for _ in range(5):
                    try:
                        answer = await should_rate_limit(channel, {"who": "x"}, domain="shop")
                        assert answer.overall_code == LIMIT.OK
                        seen[str(answer.statuses[0].current_limit.requests_per_unit)] += 1
                    except grpc.aio.AioRpcError as error:
                        seen[error.code().name] += 1

    running = asyncio.ensure_future(run())
    try:
        yield seen
        before = seen.total()
        await until(lambda: seen.total() > before, "calls go on")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_updated_broken_and_healed_under_calls(here: Folder) -> None:
    """Rules change, a bad update changes none, the next good one heals; no call fails, two workers say the same."""
    node = Valkey()
    try:
        await node.start()
        async with control_plane() as server:
            server.set("1", resource("shop", who(1000)), resource("bar", who(7)))
            settings = environ(here, server, SEAWALL_STORE=node.url, SEAWALL_WORKERS="2")
            process = here.run("-m", "ratelimit", **settings)
            async with connect(here.path / "grpc.sock") as channel:
                await up(process, channel, RATELIMIT)
                await server.acked("1")
                assert server.streams == 1
                assert await limit(channel, "bar") == 7
                async with calls(here) as seen:
                    await until(lambda: seen["1000"] > 20, "calls")
                    server.set("2", resource("shop", who(2000)))
                    await server.acked("2")
                    # What is acknowledged is in force, in all workers.
                    begun = Counter(seen)
                    await until(lambda: seen["2000"] > 20, "calls")
                    assert seen["1000"] - begun["1000"] <= 1
                    assert await limit(channel, "bar") is None

                    server.set("3", resource("shop", who(5, "UNKNOWN")), resource("bar", who(9)))
                    refused = await server.nacked()
                    assert refused.version_info == "2"
                    assert refused.error_detail.code == 3
                    assert refused.error_detail.message == (
                        "resource 'shop': descriptors[0].rate_limit.unit: 'UNKNOWN' is no unit; "
                        "allowed: second, minute, hour, day, week, month, year"
                    )
                    assert await limit(channel) == 2000
                    assert await limit(channel, "bar") is None
                    state = await told(settings)
                    assert (state["version"], state["refused_version"], state["connected"]) == ("2", "3", True)
                    assert state["error"] == refused.error_detail.message
                    assert await metric(settings, "seawall_xds_refused") == 1

                    server.set("4", resource("shop", who(3000)), resource("bar", who(9)))
                    await server.acked("4")
                    assert await limit(channel) == 3000
                    assert await limit(channel, "bar") == 9
                    server.set("5", resource("bar", who(9)))
                    await server.acked("5")
                    # A resource that is not in the state of the world any more is gone.
                    assert await limit(channel) is None
                    server.set("6", resource("shop", who(3000)))
                    await server.acked("6")
                assert set(seen) <= {"1000", "2000", "3000", "0"}
                assert await metric(settings, 'seawall_xds_updates_total{outcome="accepted"}') == 5
                assert await metric(settings, 'seawall_xds_updates_total{outcome="refused"}') == 1
                assert await metric(settings, "seawall_xds_refused") == 0
                assert await metric(settings, "seawall_xds_resources") == 1
                assert await metric(settings, "seawall_xds_connected") == 1
                assert await metric(settings, "seawall_xds_disconnected_seconds") == 0
                assert 0 < await metric(settings, "seawall_xds_config_age_seconds") < 60
                # A worker that takes a dead one's place gets the rules from the supervisor.
                here.kill(children(process.pid)[0])
                await until(lambda: process.log.count("worker serving") == 3, "another serves")
                async with calls(here) as seen:
                    await until(lambda: seen["3000"] > 20, "calls")
                assert set(seen) == {"3000"}
                assert server.streams == 1
                process.signal(signal.SIGHUP)
                await until(lambda: "rolling restart done" in process.log, f"restart; {process.log}", 30)
                assert await limit(channel) == 3000
            process.signal(signal.SIGTERM)
            assert await ended(process) == 0
            await until(lambda: server.streams == 0, "the stream has ended")
    finally:
        node.remove()


async def test_the_server_goes_and_comes_back(here: Folder) -> None:
    """Its last good rules stay, told with their age; another server on the address is found, whatever its versions."""
    async with control_plane() as first:
        first.set("8", resource("shop", who(10)))
        settings = environ(here, first)
        process = here.run("-m", "ratelimit", **settings)
        async with connect(here.path / "grpc.sock") as channel:
            await up(process, channel, RATELIMIT)
            await first.acked("8")
            assert (await should_rate_limit(channel, {"who": "x"}, domain="shop", hits=4)).statuses[
                0
            ].limit_remaining == 6
            await first.stop()
            await until(lambda: "xds server is away" in process.log, "noticed")
            await asyncio.sleep(0.1)
            state = await told(settings)
            assert (state["connected"], state["version"]) == (False, "8")
            assert state["since"] > 0 and state["trouble"].startswith("UNAVAILABLE: ")
            assert await metric(settings, "seawall_xds_connected") == 0
            assert await metric(settings, "seawall_xds_disconnected_seconds") > 0
            assert await metric(settings, 'seawall_xds_stream_ends_total{status="UNAVAILABLE"}') > 0
            assert await limit(channel) == 10
            assert await health(channel, RATELIMIT) == HEALTH.SERVING
            assert (await fetch(settings["PORT"], "/healthcheck"))[0] == 200
            # The next one counts its versions anew: what it calls 8 is something else.
            async with control_plane(first.port) as second:
                second.set("8", resource("shop", who(12)))
                await comes_to(channel, 12)
                await second.acked("8")
                assert second.requests[0].version_info == ""
                assert second.requests[0].response_nonce == ""
                # Counts of unchanged keys go on.
                status = (await should_rate_limit(channel, {"who": "x"}, domain="shop")).statuses[0]
                assert status.limit_remaining == 7
                assert (await told(settings))["connected"]
                # What is in force already is acknowledged, and not loaded again.
                second.set("9", resource("shop", who(12)))
                await second.acked("9")
                await until(lambda: "version=9 resources=1 same=True" in process.log, "told")
        process.signal(signal.SIGINT)
        assert await ended(process) == 0


async def test_before_the_first_configuration(here: Folder) -> None:
    """Calls are UNAVAILABLE at once and it is not ready; a bad first update changes nothing; a good one does."""
    async with control_plane() as server:
        settings = environ(here, server)
        process = here.run("-m", "ratelimit", **settings)
        await until(lambda: server.streams == 1, f"a stream; {process.log}")
        async with connect(here.path / "grpc.sock") as channel:
            assert await refusal(should_rate_limit(channel, {"who": "x"}, domain="shop")) == NONE_YET
            assert await health(channel, RATELIMIT) == HEALTH.NOT_SERVING
            assert (await fetch(settings["PORT"], "/healthcheck")) == (500, "")
            status, text = await fetch(settings["DEBUG_PORT"], "/readyz")
            assert status == 503
            waiting = f"a rate limit configuration from the xDS server 127.0.0.1:{server.port}"
            assert json.loads(text)["workers"]["w0"]["waiting_for"] == waiting
            assert (await told(settings))["accepted_age"] is None
            server.set("1", resource("", who(1)))
            message = (await server.nacked()).error_detail.message
            assert message == "resource '': domain: '' is empty; allowed: text"
            assert (await server.nacked()).version_info == ""
            assert await refusal(should_rate_limit(channel, {"who": "x"}, domain="shop")) == NONE_YET
            server.set("2", resource("shop", who(3)))
            await comes_to_serve(channel)
            assert await limit(channel) == 3
            async with asyncio.timeout(10):
                while (await fetch(settings["PORT"], "/healthcheck"))[0] != 200:
                    await asyncio.sleep(0.02)


async def comes_to_serve(channel: grpc.aio.Channel) -> None:
    async with asyncio.timeout(10):
        while await health(channel, RATELIMIT) != HEALTH.SERVING:
            await asyncio.sleep(0.02)


async def test_forced_to_start(here: Folder) -> None:
    """FORCE_START_WITHOUT_INITIAL_CONFIG: it serves without a server in sight, and has nothing to say."""
    server = XdsServer(free_port())
    settings = environ(here, server, FORCE_START_WITHOUT_INITIAL_CONFIG="true")
    process = here.run("-m", "ratelimit", **settings)
    async with connect(here.path / "grpc.sock") as channel:
        await up(process, channel, RATELIMIT)
        assert await refusal(should_rate_limit(channel, {"who": "x"}, domain="shop")) == NONE_YET
        await until(lambda: "there are no rules yet" in process.log, "told")
        server.set("1", resource("shop", who(3)))
        await server.start()
        try:
            await server.acked("1")
            assert await limit(channel) == 3
        finally:
            await server.stop()


async def test_node_and_headers(here: Folder) -> None:
    """The control plane sees who asks; no credential is in the log."""
    async with control_plane() as server:
        server.set("1", resource("shop", who(3)))
        settings = environ(
            here,
            server,
            CONFIG_GRPC_XDS_NODE_METADATA="zone=a,plain,team=x=y",
            CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS="Authorization:Bearer sk-secret,x-env:prod",
        )
        process = here.run("-m", "ratelimit", **settings)
        await server.acked("1")
        subscribed = server.requests[0].node
        assert subscribed.id == "gate"
        assert dict(subscribed.metadata) == {"zone": "a", "team": "x=y"}
        assert subscribed.user_agent_name == "seawall"
        assert (server.headers[0]["authorization"], server.headers[0]["x-env"]) == ("Bearer sk-secret", "prod")
        assert "sk-secret" not in process.log


async def test_the_supervisor_is_killed(here: Folder) -> None:
    """Workers go on by the rules that they have; the next supervisor subscribes anew."""
    async with control_plane() as server:
        server.set("1", resource("shop", who(3)))
        settings = environ(here, server, SEAWALL_ORPHAN_TIME="2")
        process = here.run("-m", "ratelimit", **settings)
        async with connect(here.path / "grpc.sock") as channel:
            await up(process, channel, RATELIMIT)
            await server.acked("1")
            [orphan] = children(process.pid)
            process.signal(signal.SIGKILL)
            await until(lambda: server.streams == 0, "the stream has ended")
            assert await limit(channel) == 3
            server.set("2", resource("shop", who(4)))
            following = here.run("-m", "ratelimit", **settings)
            async with connect(here.path / "grpc.sock") as other:
                await up(following, other, RATELIMIT)
                assert await limit(other) == 4
            await until(lambda: not alive(orphan), "the orphan goes", 30)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command to make certificates with")
async def test_mutual_tls(here: Folder) -> None:
    """As Envoy Gateway has it: both show certificates, ours by file, and the server's name is one that we are told."""
    (cert, key), (our_cert, our_key) = signed("one", "server"), signed("clients", "us")
    credentials = grpc.ssl_server_credentials([(key, cert)], authority("clients")[0], require_client_auth=True)
    for name, content in {"ca": authority("two")[0], "cert": our_cert, "key": our_key}.items():
        (here.path / name).write_bytes(content)
    async with control_plane(credentials=credentials) as server:
        server.set("1", resource("shop", who(3)))
        process = here.run(
            "-m",
            "ratelimit",
            **environ(
                here,
                server,
                CONFIG_GRPC_XDS_SERVER_USE_TLS="true",
                CONFIG_GRPC_XDS_CLIENT_TLS_CERT=str(here.path / "cert"),
                CONFIG_GRPC_XDS_CLIENT_TLS_KEY=str(here.path / "key"),
                CONFIG_GRPC_XDS_SERVER_TLS_CACERT=str(here.path / "ca"),
                CONFIG_GRPC_XDS_SERVER_TLS_SAN="localhost",
            ),
        )
        await until(lambda: "xds server is away" in process.log, "not trusted")
        # The right authority is found at the next try.
        (here.path / "ca").write_bytes(authority("one")[0])
        await server.acked("1")
        async with connect(here.path / "grpc.sock") as channel:
            await up(process, channel, RATELIMIT)
            assert await limit(channel) == 3


async def test_a_message_that_is_too_large(here: Folder) -> None:
    """The stream ends and the old rules stay, again and again, until the server has a smaller one."""
    async with control_plane() as server:
        server.set("1", resource("shop", who(3)))
        settings = environ(here, server, XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES="2000")
        process = here.run("-m", "ratelimit", **settings)
        await server.acked("1")
        server.set("2", resource("shop", who(4), {"key": "x" * 4000}))
        await until(lambda: server.streams_ever >= 3, "it comes again")
        assert await metric(settings, 'seawall_xds_stream_ends_total{status="RESOURCE_EXHAUSTED"}') >= 2
        async with connect(here.path / "grpc.sock") as channel:
            assert await limit(channel) == 3
            server.set("3", resource("shop", who(5)))
            await comes_to(channel, 5)
        assert process.lives()
