"""The prefilter's decision."""

import hashlib

import pytest

from ext_authz.decide import decide, headers_to_remove
from seawall.caller.keys import Caller
from seawall.decision import Reason, Refusal
from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Policy, Profile

NOW = 1_800_000_000.0
GOOD, OLD = "sk-good", "sk-old"


def policy(**changes: str) -> Policy:
    """Policy with two keys; `changes` set lines of it."""
    lines = {"anonymous": "deny", "unknown_paths": "deny", "headers": "1KiB", "deny": '["*sqlmap*", "~^$"]', **changes}
    return compile_policy(f"""
classes: {{vip: , batch: }}
callers:
  anonymous: {lines["anonymous"]}
  tenants:
    acme:
      class: vip
      keys:
        - {{id: good, sha256: {hashlib.sha256(GOOD.encode()).hexdigest()}}}
        - {{id: old, sha256: {hashlib.sha256(OLD.encode()).hexdigest()}, expires: 2020-01-01}}
    guest: {{class: batch}}
prefilter:
  user_agents: {{deny: {lines["deny"]}}}
  headers: {{max: {lines["headers"]}}}
  unknown_paths: {lines["unknown_paths"]}
""")


POLICY = policy()
AGENT = {"user-agent": "openai-python/1"}
KEY = {**AGENT, "authorization": f"Bearer {GOOD}"}


def decided(headers: dict[str, str], path: str = "/v1/chat/completions", size: int = 0, by: Policy = POLICY) -> object:
    """Caller, or the reason and the field of a refusal."""
    found = decide(by, path=path, headers=headers, size=size, now=NOW)
    return (found.reason, found.param) if isinstance(found, Refusal) else found


@pytest.mark.parametrize(
    ("headers", "path", "expected"),
    [
        (KEY, "/v1/chat/completions", Caller("acme", "vip", "good")),
        (KEY, "/v1/messages/?beta=true", Caller("acme", "vip", "good")),
        (KEY, "/v1/models", Caller("acme", "vip", "good")),
        (AGENT, "/v1/chat/completions", (Reason.MISSING_KEY, None)),
        ({**AGENT, "x-api-key": "sk-bad"}, "/v1/chat/completions", (Reason.INVALID_KEY, None)),
        ({**AGENT, "x-api-key": OLD}, "/v1/chat/completions", (Reason.EXPIRED_KEY, None)),
        (KEY, "/v1/nothing", (Reason.UNKNOWN_PATH, None)),
        (KEY, "/v1//chat/completions", (Reason.UNKNOWN_PATH, None)),
        (KEY, "", (Reason.UNKNOWN_PATH, None)),
        ({**KEY, "user-agent": "SQLMap/1"}, "/v1/chat/completions", (Reason.USER_AGENT, "user-agent")),
        ({"authorization": f"Bearer {GOOD}"}, "/v1/chat/completions", (Reason.USER_AGENT, "user-agent")),
        # What is told first: the agent, then the path, then the key.
        ({"user-agent": ""}, "/v1/nothing", (Reason.USER_AGENT, "user-agent")),
        (AGENT, "/v1/nothing", (Reason.UNKNOWN_PATH, None)),
    ],
)
def test_decide(headers: dict[str, str], path: str, expected: object) -> None:
    """A request is its caller's, or is refused for the first reason in the prefilter's order."""
    assert decided(headers, path) == expected


def test_unknown_paths_may_pass() -> None:
    """Where the policy lets unknown paths pass, their callers are still known."""
    by = policy(unknown_paths="pass")
    assert decided(KEY, "/healthz", by=by) == Caller("acme", "vip", "good")
    assert decided(AGENT, "/healthz", by=by) == (Reason.MISSING_KEY, None)


def test_a_route_has_its_own_class_and_paths() -> None:
    """What a route says counts in place of the policy's own; what it does not say is the policy's."""

    def on(route: Profile, headers: dict[str, str], path: str = "/healthz") -> object:
        found = decide(POLICY, path=path, headers=headers, size=0, now=NOW, route=route)
        return found.reason if isinstance(found, Refusal) else found

    assert on(Profile(unknown_paths="pass"), KEY) == Caller("acme", "vip", "good")
    assert on(Profile(class_="batch"), KEY) is Reason.UNKNOWN_PATH
    assert on(Profile(class_="batch"), KEY, "/v1/models") == Caller("acme", "batch", "good")
    assert on(Profile(class_="batch"), AGENT, "/v1/models") is Reason.MISSING_KEY, "it makes nobody a caller"
    passing = policy(unknown_paths="pass")
    found = decide(passing, path="/healthz", headers=KEY, size=0, now=NOW, route=Profile(unknown_paths="deny"))
    assert isinstance(found, Refusal)


def test_anonymous() -> None:
    """Without a key a request is the anonymous tenant's, where there is one."""
    assert decided(AGENT, by=policy(anonymous="guest")) == Caller("guest", "batch", "")


def test_headers_are_added_up_only_when_it_matters() -> None:
    """Headers are too large by their own bytes, not by those of the message around them."""
    small = {"user-agent": "x" * 20, "authorization": f"Bearer {GOOD}"}
    assert decided(small, size=10_000) == Caller("acme", "vip", "good")
    # 10 + 20, 13 + 14, 5 + 962: 1024 bytes exactly.
    assert decided({**small, "x-big": "y" * 962}, size=10_000) == Caller("acme", "vip", "good")
    assert decided({**small, "x-big": "y" * 963}, size=10_000) == (Reason.HEADERS, "x-big")
    assert decided({**small, "x-big": "ü" * 482}, size=10_000) == (Reason.HEADERS, "x-big")
    assert decided({**small, "x-big": "y" * 963}, size=1024) == Caller("acme", "vip", "good")


def test_too_large_comes_before_path_and_key() -> None:
    """Headers that are too large are refused before they are read, and a long name is shortened."""
    assert decided({**AGENT, "x-big": "y" * 1200}, "/v1/nothing", size=2000) == (Reason.HEADERS, "x-big")
    assert decided({**AGENT, "z" * 1200: ""}, size=2000) == (Reason.HEADERS, "z" * 100)
    assert decided({"user-agent": "sqlmap" + "y" * 1200}, size=2000) == (Reason.USER_AGENT, "user-agent")


def test_no_key_in_a_message() -> None:
    """No refusal repeats a key."""
    for headers in ({"x-api-key": "sk-secret"}, {"authorization": "sk-secret"}, {"x-api-key": "sk-secret, b"}):
        found = decide(POLICY, path="/v1/models", headers={**AGENT, **headers}, size=0, now=NOW)
        assert isinstance(found, Refusal)
        assert "secret" not in found.message


def test_headers_to_remove() -> None:
    """Headers that only the gate may set, and those that hold keys, are taken off; others are not."""
    sent = ["x-seawall-pool", "x-seawall-", "x-vllm-priority", "x-seawal", "x-vllm-priorit", "x-request-id", ":path"]
    control = ["x-seawall-pool", "x-seawall-", "x-vllm-priority"]
    assert headers_to_remove(compile_policy(""), dict.fromkeys(sent, "v")) == control
    keys = ["api-key", "authorization"]
    named = compile_policy("callers: {key_headers: [api-key, authorization]}")
    assert headers_to_remove(named, dict.fromkeys([*sent, "x-api-key", *keys], "v")) == [*keys, *control]
