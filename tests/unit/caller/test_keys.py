"""From headers to a caller."""

import hashlib

import pytest

from seawall.caller.keys import Caller, Callers, Key, Tenant
from seawall.decision import Reason, Refusal

ACME = Tenant("acme", "vip")
GUEST = Tenant("guest", "batch")
NOW = 1_000_000.0


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def callers(anonymous: Tenant | None = None) -> Callers:
    keys = [Key("prod", ACME, digest("sk-good")), Key("old", ACME, digest("sk-old"), expires=NOW)]
    return Callers(
        anonymous, ("authorization", "x-api-key", "api-key"), {"acme": ACME}, {key.sha256: key for key in keys}
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer sk-good"},
        {"authorization": "bearer   sk-good "},
        {"x-api-key": "sk-good"},
        {"api-key": "sk-good"},
        {"authorization": "Bearer sk-good", "x-api-key": "sk-good"},
        {"authorization": "", "x-api-key": "sk-good"},
    ],
)
def test_known_key(headers: dict[str, str]) -> None:
    """A known key is its tenant, wherever clients put it."""
    assert callers().identify(headers, NOW) == Caller("acme", "vip", "prod")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, Reason.MISSING_KEY),
        ({"x-other": "sk-good"}, Reason.MISSING_KEY),
        ({"authorization": "Bearer sk-bad"}, Reason.INVALID_KEY),
        ({"authorization": "sk-good"}, Reason.INVALID_KEY),
        ({"authorization": "Basic sk-good"}, Reason.INVALID_KEY),
        ({"authorization": "Bearer"}, Reason.INVALID_KEY),
        ({"authorization": "Bearer sk-good", "x-api-key": "sk-old"}, Reason.INVALID_KEY),
        ({"x-api-key": "sk-good,sk-good"}, Reason.INVALID_KEY),
        ({"x-api-key": "sk-old"}, Reason.EXPIRED_KEY),
        ({"x-api-key": "\udcff"}, Reason.INVALID_KEY),
    ],
)
def test_refused(headers: dict[str, str], reason: Reason) -> None:
    """No key, an unknown, ambiguous or expired one is refused, and the key is not in the message."""
    answer = callers().identify(headers, NOW)
    assert isinstance(answer, Refusal)
    assert answer.reason is reason
    assert "sk-" not in answer.message


def test_expiry_is_exact() -> None:
    """A key is good until the second before it expires."""
    assert callers().identify({"x-api-key": "sk-old"}, NOW - 0.001) == Caller("acme", "vip", "old")


def test_anonymous() -> None:
    """Without a key a caller is the anonymous tenant, if there is one; a wrong key never is."""
    assert callers(GUEST).identify({}, NOW) == Caller("guest", "batch", "")
    assert isinstance(callers(GUEST).identify({"x-api-key": "sk-bad"}, NOW), Refusal)
