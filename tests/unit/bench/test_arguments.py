"""Which scenarios a command line asks for, and what a kept run is called."""

import pytest

from bench.__main__ import PARTS, file_name, wanted


def test_all_of_it() -> None:
    """Every part, but for what runs only where it is named."""
    assert wanted(list(PARTS)) == {
        part: [one for one in scenarios if one != "small"] for part, scenarios in PARTS.items()
    }


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (["rpc"], {"rpc": list(PARTS["rpc"])}),
        (["whole", "unary-c32"], {"rpc": ["unary-c32"], "envoy": ["whole"]}),
        (["envoy", "small"], {"envoy": ["whole", "small", "events", "latency"]}),
        (["small"], {"envoy": ["small"]}),
        (["push"], {"push": ["push"]}),
        (["chunk", "check"], {"code": ["check", "chunk"]}),
    ],
)
def test_some_of_it(only: list[str], found: dict[str, list[str]]) -> None:
    assert wanted(only) == found


@pytest.mark.parametrize(
    ("part", "scenarios", "setting", "name"),
    [
        ("envoy", ["whole", "events", "latency"], {"store": "memory"}, "envoy"),
        ("envoy", ["whole"], {"store": "valkey"}, "envoy-whole-valkey"),
        ("rpc", ["stream"], {"load": "python"}, "rpc-stream-python"),
        ("push", ["push"], {}, "push"),
    ],
)
def test_the_name_of_a_run(part: str, scenarios: list[str], setting: dict[str, str], name: str) -> None:
    assert file_name(part, scenarios, setting) == name


def test_names_are_clear() -> None:
    """No scenario is called what another one or a part is called, but for the one of a part with one."""
    names = [name for part, scenarios in PARTS.items() for name in (part, *scenarios) if name != part]
    assert len(names) == len(set(names))
