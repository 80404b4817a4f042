"""Every case that needs no process, on the pure core."""

import itertools
from typing import Any

import pytest

from tests.ratelimit.cases import CALLS, Refused, compare, filled, fixtures, once, read, run_calls, run_case, starts
from tests.ratelimit.core import Core

NOW = 1_760_000_000 + 17.25
"""When a case doesn't say: seventeen seconds into a minute."""
# Case, or the part of a case, that is about the process around the core, with the reason. All others pass.
LEFT_OUT = {
    "RL-162": "counts calls of the transport: statistics of gRPC methods",
}
ONLY_REDIS = ("ttl",)
"""Of `redis_keys`: the counters in memory have no expiry that a client could see."""
FILES = fixtures()
STEPS_OF_THE_CORE = frozenset({"call", "write", "remove", "stats", "stats_at_least", "sleep"})
_turns = itertools.count()


def fresh() -> dict[str, str]:
    turn = next(_turns)
    return {"$r": f"r{turn}", "$R": f"s{turn}"}


def cases(*names: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for name in names for case in read(name) if case["id"] not in LEFT_OUT]


def test_what_is_left_out_exists() -> None:
    assert LEFT_OUT.keys() <= {case["id"] for name in CALLS for case in read(name)}


@pytest.mark.parametrize("case", cases(*CALLS))
def test_case(case: dict[str, Any]) -> None:
    """Codes, statuses, headers, metadata, statistics and keys are those of the case."""
    case = filled(case, fresh())
    server = Core(FILES, case.get("settings", {}), case.get("clock", NOW))
    run_case(server, case)
    keys = server.keys()
    for key in case.get("redis_keys", []):
        name = starts(key["key"], server.now).encode()
        assert name in keys
        assert keys[name] == key.get("value", keys[name])
    if "redis_key_count" in case:
        assert len(keys) == case["redis_key_count"]


@pytest.mark.parametrize("case", cases("refused", "accepted"))
def test_files(case: dict[str, Any]) -> None:
    """A set of files is taken whole or refused whole; refused, the old rules stay."""
    case = filled(case, fresh())
    server = Core(FILES, case.get("settings", {}), NOW)
    assert server.load({**FILES, **case["files"]}) == (case["expect"] == "accepted")
    good = {"domain": "conf-tree", "descriptors": [{"entries": [["cap20", "x"]]}], "expect": {"code": "OK"}}
    for probe in [good, *case.get("probes", [])]:
        run_calls(server, [probe], probe["domain"])


@pytest.mark.parametrize("case", cases("refused"))
def test_refused_with_a_place(case: dict[str, Any]) -> None:
    """A refusal names file, line and column, and says what is allowed or what is wrong."""
    from seawall.policy.mistake import PolicyError
    from seawall.policy.rule_files import compile_rule_files

    with pytest.raises(PolicyError) as refused:
        compile_rule_files(case["files"].items())
    for mistake in refused.value.mistakes:
        assert mistake.file in case["files"]
        assert mistake.line >= 1 and mistake.column >= 1
        assert len(mistake.message) >= len("is empty")
    with pytest.raises(PolicyError):
        compile_rule_files(case["files"].items(), strict=True)


def of_the_core(case: dict[str, Any]) -> bool:
    return all(STEPS_OF_THE_CORE & step.keys() for step in case["steps"])


@pytest.mark.parametrize("case", [c for c in cases("reload") if of_the_core(c.values[0])])
def test_reload(case: dict[str, Any]) -> None:
    """Files change while calls come; each change takes effect whole, counters of unchanged limits go on."""
    case = filled(case, fresh())
    files = {name: FILES[text[1:]] if text.startswith("@") else text for name, text in case["files"].items()}
    server = Core(files, case.get("settings", {}), NOW)
    for step in case["steps"]:
        if "call" in step:
            compare(step["expect"], once(server, step["call"], ""), 0, server.now)
        elif "write" in step:
            files.update(step["write"])
            server.load(files)
        elif "remove" in step:
            for name in step["remove"]:
                del files[name]
            server.load(files)
        elif "stats_at_least" in step:
            stats = server.stats()
            assert all(stats[name] >= least for name, least in step["stats_at_least"].items())
        else:
            assert "sleep" in step


def test_a_refusal_is_no_answer() -> None:
    """The runner notices an answer where an error is expected, and the other way round."""
    refused = Refused("INVALID_ARGUMENT", "no")
    compare({"error": ["INVALID_ARGUMENT"]}, refused, 0, NOW)
    for expect in ({"code": "OK"}, {"error": "UNAVAILABLE"}, {"error": "INVALID_ARGUMENT", "message": "yes"}):
        with pytest.raises(AssertionError):
            compare(expect, refused, 0, NOW)
