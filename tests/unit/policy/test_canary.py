"""Who is in a canary, what follows the tenant, and what does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seawall.policy.canary import SHARED_SECTIONS, TENANT_SECTIONS, Canary, chosen, misfits, scoped, share_of
from seawall.policy.compile import compile_policy
from seawall.policy.document import Document

TENANTS = [f"tenant-{n}" for n in range(5000)]


def canary(percent: float, salt: int = 7, *tenants: str) -> Canary:
    return Canary(9, "d", percent, tenants, salt, 8, "ann", "", 0.0)


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (10, 400, 600), (50, 2300, 2700), (100, 5000, 5000)])
def test_a_percentage_of_the_tenants(percent: float, least: int, most: int) -> None:
    """The share is that of the names, near enough; 0 is nobody and 100 is everybody."""
    assert least <= len(chosen(canary(percent), TENANTS)) <= most


@given(st.lists(st.text(max_size=20), max_size=30), st.floats(0, 100), st.floats(0, 100), st.integers(1, 10**6))
def test_more_only_adds(tenants: list[str], one: float, two: float, salt: int) -> None:
    """Whoever is in at a percentage is in at every higher one, whichever version the canary has by then."""
    low, high = sorted((one, two))
    assert chosen(canary(low, salt), tenants) <= chosen(canary(high, salt), tenants)
    assert all(0 <= share_of(tenant, salt) < 1 for tenant in tenants)


def test_known_places() -> None:
    """The places are part of the contract: a worker of another release must choose the same tenants."""
    assert [round(share_of(tenant, 7), 6) for tenant in ("acme", "globex", "限流")] == [0.961727, 0.923155, 0.843223]


def test_another_canary_has_other_tenants() -> None:
    """Not the same ones bear every risk."""
    first, second = chosen(canary(10, 7), TENANTS), chosen(canary(10, 8), TENANTS)
    assert len(first & second) < len(first) / 2


def test_named_tenants_are_in() -> None:
    """By name whatever the percentage."""
    assert chosen(canary(0, 7, "tenant-3"), TENANTS) == {"tenant-3"}


def test_every_section_is_told() -> None:
    """Each section of a document follows the tenant or waits for promotion."""
    assert {*TENANT_SECTIONS, *SHARED_SECTIONS} == set(Document.model_fields) - {"seawall", "needs"}
    assert not set(TENANT_SECTIONS) & set(SHARED_SECTIONS)


CURRENT = compile_policy("output: {max_tokens: 10}\npools: {a: {}}\ncallers: {tenants: {t: {}}}\n")
CANARY = compile_policy(
    "output: {max_tokens: 20}\npools: {b: {}}\nstore_loss: {limits: deny}\nprefilter: {headers: {max: 2KiB}}"
)


def test_what_follows_the_tenant() -> None:
    """Callers, prefilter, limits and output are the canary's, all else is current."""
    joined = scoped(CURRENT, CANARY)
    for section in TENANT_SECTIONS:
        assert getattr(joined, section) is getattr(CANARY, section)
    for section in SHARED_SECTIONS:
        assert getattr(joined, section) is getattr(CURRENT, section)
    assert joined.default_pool == "a"
    assert scoped(CURRENT, CURRENT) is CURRENT


def test_misfits() -> None:
    """Classes that only the canary has are named, each with its place; what fits is nothing."""
    other = compile_policy(
        "classes: {gold: , batch: }\n"
        "callers: {tenants: {a: {class: gold}, b: {class: batch}}}\n"
        "output: {per_class: {gold: 5}}\n"
        "prefilter: {body: {per_class: {gold: 5}}}\n"
    )
    lines = misfits(CURRENT, other)
    assert [line.partition(": ")[0] for line in lines] == [
        "callers.tenants.a.class",
        "prefilter.body.per_class.gold",
        "output.per_class.gold",
    ]
    assert all("'gold'" in line and "allowed: vip, standard, batch" in line for line in lines)
    assert misfits(CURRENT, CURRENT) == []
