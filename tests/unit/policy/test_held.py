"""Which versions a worker holds, and which one a request gets."""

import hashlib

import pytest

from seawall.caller.keys import IssuedKey
from seawall.policy import held as bounds
from seawall.policy.canary import Canary
from seawall.policy.compile import compile_policy
from seawall.policy.held import MOST, USED_WITHIN, Held, Version, who_has


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def version(number: int, tenants: dict[str, str], anonymous: str = "deny", more: str = "") -> Version:
    """A version with a key for each tenant."""
    told = "".join(
        f"    {name}: {{keys: [{{id: {name}-{key}, sha256: {sha256(key)}}}]}}\n" for name, key in tenants.items()
    )
    text = f"callers:\n  anonymous: {anonymous}\n  tenants:\n{told}output: {{max_tokens: {number}}}\n{more}"
    return Version(number, f"digest {number}", compile_policy(text), len(text))


def share(number: int = 2, percent: float = 0, *tenants: str) -> Canary:
    return Canary(number, f"digest {number}", percent, tenants, number, 1, "ann", "", 0.0)


def by(key: str) -> dict[str, str]:
    return {"x-api-key": key}


CURRENT = {"acme": "k-acme", "globex": "k-globex", "old": "k-old"}
CANARY = {"acme": "k-acme", "globex": "k-globex", "new": "k-new", "other": "k-old"}


@pytest.fixture
def holding() -> Held:
    held = Held()
    current, canary, whom = version(1, CURRENT, "acme"), version(2, CANARY), share(2, 0, "acme", "new", "old")
    held.swap(current, 0.0, canary, whom, who_has(whom, current, canary))
    return held


@pytest.mark.parametrize(
    ("headers", "number"),
    [
        (by("k-acme"), 2),
        (by("k-globex"), 1),
        (by("k-new"), 2),  # only the canary knows the key
        (by("k-old"), 2),  # the current version says whose key it is
        (by("k-unknown"), 1),
        ({}, 1),  # anonymous, although that is a tenant of the canary
        ({"x-api-key": "k-acme", "api-key": "k-globex"}, 1),
        (by("k-ring"), 2),
    ],
)
def test_choice(holding: Held, headers: dict[str, str], number: int) -> None:
    issued = {hashlib.sha256(b"k-ring").digest(): IssuedKey("ring", "new")}
    found = holding.choose(headers, issued)
    assert found is not None
    assert found.number == number


def test_without_a_canary_all_are_on_the_current_version() -> None:
    held = Held()
    assert held.choose(by("k-acme")) is None
    one = version(1, CURRENT)
    held.swap(one, 0.0)
    assert held.choose(by("k-acme")) is one


def test_requests_keep_their_version(holding: Held) -> None:
    """What a tenant has stays that of the request, what all share is that of now."""
    three = version(3, CURRENT, more="pools: {fresh: {}}\n")
    holding.swap(three, 10.0)
    one, two = holding.named("1", 11.0), holding.named("2", 11.0)
    assert one is not None and two is not None
    assert (one.policy.output.max_tokens, two.policy.output.max_tokens) == (1, 2)
    assert [list(v.policy.pools) for v in (one, two, three)] == [["fresh"]] * 3
    assert holding.named("4", 11.0) is None
    assert holding.named("garbage", 11.0) is None


def test_versions_go_ten_minutes_after_their_last_use(holding: Held) -> None:
    holding.swap(version(3, CURRENT), 100.0)
    assert holding.named("1", 500.0) is not None
    holding.forget(100.0 + USED_WITHIN)
    assert len(holding) == 3
    holding.forget(101.0 + USED_WITHIN)
    assert holding.named("2", 800.0) is None
    assert holding.named("1", 800.0) is not None
    holding.forget(1e9)
    assert len(holding) == 1
    assert holding.named("3", 1e9) is holding.current


def test_current_and_canary_stay_however_long(holding: Held) -> None:
    holding.forget(1e9)
    assert len(holding) == 2


def test_many_pushes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    for number in range(1, MOST + 10):
        held.swap(version(number, CURRENT), float(number))
    assert len(held) == MOST + 1
    assert held.named("1", 50.0) is None
    assert held.named(str(MOST + 8), 50.0) is not None
    current = held.current
    assert current is not None
    monkeypatch.setattr(bounds, "MOST_BYTES", 3 * current.size)
    held.forget(50.0)
    assert len(held) == 4


def test_going_back_compiles_nothing(holding: Held) -> None:
    """A version that is held is found by number and digest; the digest tells a number that was given anew."""
    canary = holding.canary
    assert canary is not None
    assert holding.get(2, "digest 2") is canary
    assert holding.get(2, "another") is None
    holding.swap(canary, 1.0)
    assert holding.choose(by("k-globex")) is canary
    assert canary.policy is canary.own


def test_a_number_given_anew_is_another_version(holding: Held) -> None:
    again = version(1, {"acme": "k-acme"})
    again.digest = "another"
    holding.swap(again, 1.0)
    assert holding.named("1", 2.0) is again
