"""What a route says, held against the policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Profile
from seawall.policy.route import KEYS, OWN, UNKNOWN, route_of

POLICY = compile_policy("profiles: {wide: {class: batch, body_max: 1MiB, unknown_paths: pass}, named: {class: vip}}")
MIB = 2**20


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, OWN),
        ({"class": "vip"}, Profile(class_="vip")),
        ({"body_max": "64KiB"}, Profile(body_max=65536)),
        ({"unknown_paths": "pass"}, Profile(unknown_paths="pass")),
        ({"unknown_paths": "deny"}, Profile(unknown_paths="deny")),
        ({"profile": "wide"}, Profile("batch", MIB, "pass")),
        ({"profile": "wide", "class": "vip", "unknown_paths": "deny"}, Profile("vip", MIB, "deny")),
        ({"profile": "named", "body_max": "1KiB"}, Profile("vip", 1024)),
    ],
)
def test_settings(said: dict[str, str], expected: Profile) -> None:
    """Each key is what it says; a key wins over the profile beside it."""
    items = tuple((f"seawall.{key}", value) for key, value in said.items())
    assert route_of(POLICY, items, MIB) == (expected, [])


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("profile", "none", "the policy has no profile 'none'"),
        ("profile", "", "the policy has no profile ''"),
        ("class", "gold", "the policy has no class 'gold'"),
        ("body_max", "lots", "'lots' is not a size"),
        ("body_max", "0", "'0' is not a size"),
        ("body_max", "2MiB", "more than Envoy lets through (SEAWALL_MAX_BODY)"),
        ("unknown_paths", "allow", "'allow' is neither deny nor pass"),
        ("bodymax", "1KiB", "'seawall.bodymax' is no setting of a route"),
    ],
)
def test_what_is_wrong_is_passed_over(key: str, value: str, why: str) -> None:
    """A wrong value leaves the policy's own in force, and all else that the route says."""
    other = (("seawall.profile", "named"),) if key != "profile" else (("seawall.class", "vip"),)
    profile, wrong = route_of(POLICY, ((f"seawall.{key}", value), *other), MIB)
    assert profile == Profile(class_="vip")
    assert [name for name, _ in wrong] == [key if key in KEYS else UNKNOWN]
    assert why in wrong[0][1]


def test_a_wrong_value_beside_a_profile_leaves_the_profiles() -> None:
    """The profile is what counts where a key beside it is wrong."""
    profile, wrong = route_of(POLICY, (("seawall.profile", "wide"), ("seawall.class", "gold")), MIB)
    assert profile == Profile("batch", MIB, "pass")
    assert len(wrong) == 1


@given(st.lists(st.tuples(st.sampled_from([*KEYS, "x", ""]), st.text(max_size=80)), max_size=6))
def test_nothing_said_is_a_fault(said: list[tuple[str, str]]) -> None:
    """Whatever is said, the result is something that the policy allows."""
    profile, wrong = route_of(POLICY, tuple((f"seawall.{key}", value) for key, value in said), MIB)
    assert profile.class_ is None or profile.class_ in POLICY.classes
    assert profile.body_max is None or 0 < profile.body_max <= MIB
    assert {key for key, _ in wrong} <= {*KEYS, UNKNOWN}
