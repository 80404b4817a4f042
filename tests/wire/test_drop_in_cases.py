"""Cases of envoyproxy/ratelimit against `python -m ratelimit` with its environment, and a real Valkey."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import aiohttp
import grpc.aio
import pytest

from seawall.proto.gen import ratelimit_pb2 as pb
from tests.ratelimit.cases import CALLS, compare, filled, fixtures, read, starts, statistics
from tests.store.node import Valkey
from tests.wire.as_envoy import HEALTH, RATELIMIT, connect, health
from tests.wire.processes import Folder, Process
from tests.wire.test_alone import Rules, config_map_of, ended, fetch, up
from tests.wire.test_ratelimit_cases import METHOD, message, told

FILES = fixtures()
ONE_KEY = frozenset({"RL-121"})
"""Told as the reference: its key text makes two counters one."""
COUNT = (
    "local n = 0 for _, k in ipairs(redis.call('KEYS', '*')) do if k:sub(1, 3) ~= 'sw:' then n = n + 1 end end return n"
)
_turns = count()


def fresh() -> dict[str, str]:
    turn = next(_turns)
    return {"$r": f"d{turn}", "$R": f"e{turn}"}


class DropIn:
    """A running service, by the ways to it."""

    def __init__(self, process: Process, channel: grpc.aio.Channel, environ: Mapping[str, str], node: Valkey):
        self.process = process
        self.channel = channel
        self.environ = environ
        self.node = node

    async def stats(self) -> dict[str, int]:
        status, text = await fetch(self.environ["DEBUG_PORT"], "/stats")
        assert status == 200
        return {name: int(number) for name, _, number in (line.rpartition(": ") for line in text.splitlines())}


@asynccontextmanager
async def drop_in(here: Folder, rules: Rules, node: Valkey, **more: str) -> AsyncIterator[DropIn]:
    stores = {"REDIS_SOCKET_TYPE": "unix", "REDIS_URL": str(node.socket), "SEAWALL_WORKERS": "1"}
    socket = here.path / f"g{next(_turns)}.sock"
    environ = rules.environ(GRPC_UDS=str(socket), **stores, **more)
    process = here.run("-m", "ratelimit", **environ)
    async with connect(socket) as channel:
        await up(process, channel, RATELIMIT)
        yield DropIn(process, channel, environ, node)
    process.signal(signal.SIGINT)
    assert await ended(process) == 0


@pytest.fixture
def rules(here: Folder) -> Rules:
    return Rules(here)


def settings_of(case: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in case.get("settings", {}).items() if value != "false"))


def by_settings() -> dict[tuple[tuple[str, str], ...], list[dict[str, Any]]]:
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for topic in CALLS:
        for case in read(topic):
            if "clock" not in case:
                groups.setdefault(settings_of(case), []).append(case)
    return groups


@pytest.mark.parametrize("settings", list(by_settings()), ids=lambda s: ",".join(n for n, _ in s) or "none")
async def test_calls(here: Folder, rules: Rules, node: Valkey, settings: tuple[tuple[str, str], ...]) -> None:
    """Every case that needs no clock of its own: answers, statistics, and keys in Valkey."""
    for name, text in FILES.items():
        rules.put(text, f"{name}.yaml")
    async with drop_in(here, rules, node, **dict(settings)) as server:
        for case in by_settings()[settings]:
            await run(server, filled(case, fresh()))


async def run(server: DropIn, case: dict[str, Any]) -> None:
    if case["id"] in ONE_KEY:
        return
    while (now := time.time()) % 60 > 50:
        # Windows of a minute and longer stand still for as long as a case takes.
        await asyncio.sleep(0.2)
    await server.node.ask("FLUSHALL")
    for call in case.get("prepare", []):
        await told(server, call, case["domain"])  # type: ignore[arg-type]
    before = await server.stats() if "stats" in case else {}
    for call in case["calls"]:
        await ask(server, call, case["domain"])
    if "stats" in case:
        after, wanted = await server.stats(), dict(statistics(case["stats"]))
        assert {name: after.get(name, 0) - before.get(name, 0) for name in wanted} == wanted, case["id"]
    for key in case.get("redis_keys", []):
        value = await server.node.text("GET", starts(key["key"], now))
        assert value.isdecimal(), (case["id"], key["key"])
        assert int(value) == key.get("value", int(value))
    if "redis_key_count" in case:
        assert await server.node.ask("EVAL", COUNT, "0") == b":%d" % case["redis_key_count"]


async def ask(server: Any, call: dict[str, Any], domain: str) -> None:
    if "parallel" in call:
        answers = await asyncio.gather(*[told(server, call, domain) for _ in range(call["parallel"])])
        assert sum(getattr(a, "code", "") == "OK" for a in answers) == call["expect"]["ok_count"]
        return
    for turn in range(call.get("repeat", 1)):
        before = time.time()
        answer = await told(server, call, domain)
        for now in (before, time.time()):
            try:
                compare(call.get("expect", {}), answer, turn, now)
                break
            except AssertionError:
                if now != before:
                    raise


# Step of a life-cycle case, by its first word.


async def step_http(server: DropIn, rules: Rules, step: dict[str, Any]) -> None:
    given, expect = step["http"], step["expect"]
    port = server.environ["PORT" if given["port"] == "http" else "DEBUG_PORT"]
    body = given.get("body")
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    method = given.get("method", "GET" if body is None else "POST")
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port}{given['path']}", data=data) as response,
    ):
        text = await response.text()
        allowed = expect["status"] if isinstance(expect["status"], list) else [expect["status"]]
        assert response.status in allowed, text
        assert response.content_type == expect.get("content_type", response.content_type)
        assert expect.get("body", text) == text
        for part in expect.get("contains", []):
            assert part in text
        if "json" in expect:
            within(expect["json"], json.loads(text))


def within(expected: Any, got: Any) -> None:
    if isinstance(expected, dict):
        for key, value in expected.items():
            within(value, got[key])
    elif isinstance(expected, list):
        assert len(expected) == len(got)
        for want, have in zip(expected, got, strict=True):
            within(want, have)
    else:
        assert str(expected) == str(got)


async def step_call(server: Any, rules: Rules, step: dict[str, Any]) -> None:
    call = step["call"]
    if "deadline" in call:
        ask = server.channel.unary_unary(METHOD, None, pb.RateLimitResponse.FromString)
        try:
            answer = await ask(message(call, "").SerializeToString(), timeout=call["deadline"])
        except grpc.aio.AioRpcError as error:
            assert error.code().name in step["expect"].get("error", [])
        else:
            assert pb.RateLimitResponse.Code.Name(answer.overall_code) == step["expect"].get("code")
        return
    before = time.time()
    compare(step["expect"], await told(server, call, ""), 0, before)


async def step(server: Any, rules: Rules, step: dict[str, Any]) -> None:
    if "http" in step:
        await step_http(server, rules, step)
    elif "call" in step:
        await step_call(server, rules, step)
    elif "grpc_health" in step:
        try:
            got = HEALTH.ServingStatus.Name(await health(server.channel, step["grpc_health"]))
        except grpc.aio.AioRpcError as error:
            got = error.code().name
        assert got == step["expect"]
    elif "stats_at_least" in step or "stats" in step:
        stats = await server.stats()
        for name, least in step.get("stats_at_least", {}).items():
            assert stats.get(name, 0) >= least, name
        for name, exact in step.get("stats", {}).items():
            assert stats.get(name, 0) == exact, name


async def act(server: Any, rules: Rules, step: dict[str, Any]) -> bool:
    """Do what a step does to the server's surroundings; False for one that asks."""
    if "write" in step:
        for name, text in step["write"].items():
            rules.put(text, name)
    elif "remove" in step:
        for name in step["remove"]:
            (rules.config / name).unlink()
    elif "configmap" in step:
        config_map_of(rules.config, f"v{next(_turns)}", step["configmap"])
    elif "sleep" in step:
        await asyncio.sleep(min(step["sleep"], 0.6))
    elif "redis" in step:
        server.node_up = step["redis"] in {"start", "resume"}
        if step["redis"] == "stop":
            server.node.kill()
        elif step["redis"] == "start":
            await server.node.start()
        else:
            server.node.signal(signal.SIGSTOP if step["redis"] == "pause" else signal.SIGCONT)
    elif "signal" in step:
        server.process.signal(getattr(signal, f"SIG{step['signal']}"))
    elif "exited" in step:
        assert await ended(server.process) == 0
    else:
        return False
    return True


LIVES = [pytest.param(case, id=case["id"]) for name in ("http", "reload") for case in read(name)]


@pytest.mark.parametrize("case", LIVES)
async def test_life(here: Folder, rules: Rules, node: Valkey, case: dict[str, Any]) -> None:
    """HTTP, health, reload and a Redis that goes and comes."""
    case = filled(case, fresh())
    for name, text in case["files"].items():
        rules.put(FILES[text[1:]] if text.startswith("@") else text, name)
    socket = here.path / f"g{next(_turns)}.sock"
    environ = rules.environ(
        GRPC_UDS=str(socket), REDIS_URL=str(node.socket), SEAWALL_WORKERS="1", **case.get("settings", {})
    )
    process = here.run("-m", "ratelimit", **environ)
    async with connect(socket) as channel:
        server: Any = DropIn(process, channel, environ, node)
        server.node_up = True
        if case["id"] != "RL-R07":
            await up(process, channel, RATELIMIT)
        try:
            for each in case["steps"]:
                if await act(server, rules, each):
                    continue
                ends = asyncio.get_running_loop().time() + max(
                    each.get("within", 0), 5 if case["id"] == "RL-R07" else 1
                )
                while True:
                    try:
                        await step(server, rules, each)
                        break
                    except (AssertionError, aiohttp.ClientError):
                        if ("within" not in each and "http" not in each) or asyncio.get_running_loop().time() > ends:
                            raise
                        await asyncio.sleep(0.1)
        finally:
            if not server.node_up and node.process is not None:
                node.signal(signal.SIGCONT)


async def test_explain(here: Folder, rules: Rules, node: Valkey) -> None:
    """Rules, counters and numbers of a call, by a look: nothing is charged."""
    rules.put(FILES["F1"])
    async with drop_in(here, rules, node) as server:
        call = {"descriptors": [{"entries": [["cap20", "x"]], "hits_addend": 18}]}
        await told(server, call, "conf-tree")  # type: ignore[arg-type]
        query = "/explain?domain=conf-tree&descriptor=cap20=x&descriptor=nothing=x&descriptor=free_pass=x"
        for _ in range(2):
            status, text = await fetch(server.environ["DEBUG_PORT"], query)
            assert status == 200, text
            found, nothing, free = json.loads(text)["descriptors"]
            assert (found["rule"], found["code"], found["counter"][:18]) == ("cap20", "OK", "conf-tree_cap20_x_")
            assert (found["windows"][0]["used"], found["windows"][0]["remaining"]) == (18, 2)
            assert found["reason"] == "18 of 20 used in 60 s, 1 hit would fit"
            assert nothing["reason"] == "no rule for entry 1, 'nothing=x'"
            assert free["reason"] == "rule 'free_pass' is unlimited"
        asked = {"domain": "conf-tree", "descriptors": [{"entries": [{"key": "cap20", "value": "x"}], "hitsAddend": 3}]}
        url = f"http://127.0.0.1:{server.environ['DEBUG_PORT']}/explain"
        async with aiohttp.ClientSession() as session, session.post(url, json=asked) as response:
            over = await response.json()
        assert over["code"] == "OVER_LIMIT"
        assert over["descriptors"][0]["reason"].startswith("18 of 20 used in 60 s, 3 hits would not fit for ")
        assert (await fetch(server.environ["DEBUG_PORT"], "/explain"))[0] == 400
        unknown = await fetch(server.environ["DEBUG_PORT"], "/explain?domain=nobody&descriptor=a=b")
        assert json.loads(unknown[1])["descriptors"][0]["reason"] == "domain 'nobody' has no rules"
        metrics = (await fetch(server.environ["DEBUG_PORT"], "/metrics"))[1]
        assert 'seawall_limit_configured{domain="conf-tree",limit="cap20",window="60",worker="w0"} 20.0' in metrics
        assert 'ratelimit_service_rate_limit_total_hits{domain="conf-tree",key1="cap20",key2=""} 18.0' in metrics


@pytest.mark.parametrize("loss", ["deny", "allow", "share"])
async def test_the_store_away(here: Folder, rules: Rules, node: Valkey, loss: str) -> None:
    """A counter that is known to be used up is refused all the same; others as SEAWALL_STORE_LOSS has it."""
    rules.put(FILES["F1"])
    settings = {"LOCAL_CACHE_SIZE_IN_BYTES": "65536", "SEAWALL_STORE_LOSS": loss}
    async with drop_in(here, rules, node, **settings) as server:
        used = {"descriptors": [{"entries": [["cap10h", "u"]], "hits_addend": 11}, {"entries": [["cap10h", "v"]]}]}
        fresh_call = {"descriptors": [{"entries": [["cap10h", "w"]]}]}
        assert getattr(await told(server, used, "conf-tree"), "code", "") == "OVER_LIMIT"  # type: ignore[arg-type]
        node.kill()
        assert getattr(await told(server, used, "conf-tree"), "code", "") == "OVER_LIMIT"  # type: ignore[arg-type]
        other = await told(server, fresh_call, "conf-tree")  # type: ignore[arg-type]
        assert getattr(other, "code", "") == ("UNAVAILABLE" if loss == "deny" else "OK")
