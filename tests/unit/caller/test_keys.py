"""From headers to a caller."""

import hashlib

import pytest

from seawall.caller.keys import Caller, Callers, IssuedKey, Key, Tenant
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


ISSUED = {
    digest("sk-issued"): IssuedKey("ring", "acme"),
    digest("sk-late"): IssuedKey("late", "acme", expires=NOW),
    digest("sk-soon"): IssuedKey("soon", "acme", expires=NOW + 1),
    digest("sk-gone"): IssuedKey("gone", "acme", revoked=1.0),
    digest("sk-orphan"): IssuedKey("orphan", "left"),
}


@pytest.mark.parametrize(("key", "id_"), [("sk-issued", "ring"), ("sk-soon", "soon"), ("sk-good", "prod")])
def test_issued_key(key: str, id_: str) -> None:
    """A key of the store is its tenant too, with the class that the policy gives that."""
    assert callers().identify({"x-api-key": key}, NOW, ISSUED) == Caller("acme", "vip", id_)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("sk-late", Reason.EXPIRED_KEY),
        ("sk-gone", Reason.REVOKED_KEY),
        ("sk-orphan", Reason.INVALID_KEY),
        ("sk-none", Reason.INVALID_KEY),
    ],
)
def test_issued_key_refused(key: str, reason: Reason) -> None:
    """Expired, revoked, or of a tenant that the policy has no more; the message names the id at most."""
    answer = callers(anonymous=GUEST).identify({"x-api-key": key}, NOW, ISSUED)
    assert isinstance(answer, Refusal)
    assert answer.reason is reason
    assert key not in answer.message


def test_a_policy_says_whose_key_it_is() -> None:
    """Of a key that stands in both, the policy's entry counts: id, tenant and expiry."""
    issued = {digest("sk-good"): IssuedKey("other", "left", expires=1.0), digest("sk-old"): IssuedKey("x", "acme")}
    assert callers().identify({"x-api-key": "sk-good"}, NOW, issued) == Caller("acme", "vip", "prod")
    assert isinstance(callers().identify({"x-api-key": "sk-old"}, NOW, issued), Refusal)


def test_a_revocation_wins_over_the_policy() -> None:
    """A key that a policy lists is refused once it is revoked."""
    answer = callers().identify({"x-api-key": "sk-good"}, NOW, {digest("sk-good"): IssuedKey("prod", "", revoked=1.0)})
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.REVOKED_KEY


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ({"x-api-key": "sk-good"}, "acme"),
        ({"x-api-key": "sk-old"}, "acme"),
        ({"x-api-key": "sk-issued"}, "acme"),
        ({"x-api-key": "sk-orphan"}, None),
        ({"x-api-key": "sk-none"}, None),
        ({}, None),
        ({"x-api-key": "sk-good", "api-key": "sk-old"}, None),
    ],
)
def test_tenant_of(headers: dict[str, str], tenant: str | None) -> None:
    """Whose key is presented, be it good or not."""
    assert callers(anonymous=GUEST).tenant_of(headers, ISSUED) == tenant
