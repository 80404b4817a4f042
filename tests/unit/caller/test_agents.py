"""User-Agent rules."""

import pytest

from seawall.caller.agents import compile_agents
from seawall.caller.prefilter import Prefilter

DENY = ["*sqlmap*", "curl/7.?", "~^$", "~bot[0-9]+", "a.b", "~x|y$"]


@pytest.mark.parametrize(
    "agent", [None, "", "sqlmap/1.7", "Mozilla SQLMAP\n", "curl/7.1", "my-Bot42-x", "a.b", "x", "day"]
)
def test_denied(agent: str | None) -> None:
    """Globs match the whole value, expressions anywhere; case does not count, an absent header is an empty one."""
    assert compile_agents(DENY, []).denied(agent)


@pytest.mark.parametrize("agent", ["curl/7.12", "curl/8", "bot", "aXb", "openai-python/1", "yes"])
def test_not_denied(agent: str) -> None:
    """What no pattern matches is let through."""
    assert not compile_agents(DENY[:-1], []).denied(agent)


def test_allow_wins() -> None:
    """An allowed agent is let through although it is denied."""
    rules = compile_agents(["*bot*"], ["good-bot*"])
    assert rules.denied("bot")
    assert not rules.denied("Good-Bot/2")


def test_verdicts_are_kept_within_a_bound() -> None:
    """However many agents come, their verdicts stay right, and few are kept; long ones never."""
    rules = compile_agents(["*bot*"], [])
    for n in range(3_000):
        assert rules.denied(f"bot{n}")
        assert not rules.denied(f"agent{n}")
        assert rules.denied("bot" + "x" * 300 + str(n))
    assert 0 < len(rules._known) <= 1024
    assert all(len(agent) <= 256 for agent in rules._known)


def test_no_rules() -> None:
    """Without rules nobody is denied."""
    assert not compile_agents([], []).denied(None)


def test_not_an_expression() -> None:
    """An expression that RE2 can't read is named."""
    with pytest.raises(ValueError, match=r"'~a\('"):
        compile_agents(["~a("], [])


def test_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 itself writes nothing about an expression that it can't read."""
    with pytest.raises(ValueError, match="RE2"):
        compile_agents(["~(?P<x"], [])
    assert capfd.readouterr() == ("", "")


def test_hostile_agent() -> None:
    """A pattern that would take exponential time elsewhere is linear here."""
    assert not compile_agents(["~^(a+)+$"], []).denied("a" * 50_000 + "b")


def test_body_cap() -> None:
    """A class has its own body cap, or the general one."""
    prefilter = Prefilter(compile_agents([], []), 1, 10, {"vip": 20}, "deny")
    assert (prefilter.body_cap("vip"), prefilter.body_cap("batch")) == (20, 10)
