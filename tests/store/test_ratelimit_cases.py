"""The cases of the rate limit service with its counters in a real Valkey: what the scripts do is what the core says."""

from collections.abc import Iterator
from typing import Any

import pytest

from seawall.limits.window import Unit
from seawall.store.resp import command
from tests.ratelimit.cases import CALLS, filled, fixtures, read, run_case, starts
from tests.ratelimit.core import Core
from tests.ratelimit.test_cases import LEFT_OUT, NOW
from tests.store.line import Line
from tests.store.node import Valkey

pytestmark = pytest.mark.store
ONE_KEY = frozenset({"RL-121"})
"""Counters that envoyproxy/ratelimit's key text makes one; only in memory a window's length is beside it."""


@pytest.fixture
def line(shared_node: Valkey) -> Iterator[Line]:
    line = Line(shared_node)
    yield line
    line.close()


@pytest.mark.parametrize("topic", CALLS)
def test_cases(line: Line, topic: str) -> None:
    """Every case of a topic, each with counters of its own."""
    files, ran = fixtures(), 0
    for turn, case in enumerate(read(topic)):
        if case["id"] in LEFT_OUT:
            continue
        if case["id"] in ONE_KEY:
            case["calls"] = [{**call, "expect": call.get("reference", call["expect"])} for call in case["calls"]]
        line.ask(b"*1\r\n$8\r\nFLUSHALL\r\n")
        named: dict[str, Any] = filled(case, {"$r": f"r{turn}", "$R": f"s{turn}"})
        server = Core(
            files,
            named.get("settings", {}),
            named.get("clock", NOW),
            lambda demands, now, stop: line.charge_all(demands, now, stop=stop),
        )
        run_case(server, named)
        for key in named.get("redis_keys", []):
            text = starts(key["key"], server.now).encode()
            value = line.ask(command(b"GET", text))
            assert value is not None, text
            assert int(value) == key.get("value", int(value))
            lengths = [unit.seconds for unit in Unit if f"<{unit.name.lower()}>" in key["key"]]
            assert not lengths or lengths[0] - 2 <= line.ask(command(b"TTL", text)) <= lengths[0]
        ran += 1
    assert ran >= 4
