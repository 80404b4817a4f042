from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from seawall.store import keys
from seawall.store.scripts import load

FIXED = [value for name, value in vars(keys).items() if name.isupper()]


def tag(key: bytes) -> bytes:
    """The part that a Cluster hashes: between the first { and the first } after it."""
    return key.partition(b"{")[2].partition(b"}")[0]


def test_fixed_keys_are_apart_and_in_one_slot() -> None:
    assert len(set(FIXED)) == len(FIXED) == 18
    assert {tag(key) for key in FIXED} == {b"policy"} == {tag(keys.policy_version(3))}


texts = st.text(st.characters(), max_size=12) | st.sampled_from(["a}:holders", "a}:owners", "a", "", "}", "{"])


@given(one=texts, other=texts)
def test_different_pools_never_share_a_key(one: str, other: str) -> None:
    names = [keys.pool_holders(one), keys.pool_owners(one), keys.pool_holders(other), keys.pool_owners(other)]
    assert len(set(names)) == (2 if one == other else 4)
    assert not set(names) & set(FIXED)


@given(pool=texts)
def test_the_keys_of_a_pool_are_in_one_slot(pool: str) -> None:
    assert tag(keys.pool_holders(pool)) == tag(keys.pool_owners(pool)) != b""


@given(identities=st.lists(st.binary(max_size=20), unique=True, max_size=6))
def test_different_counters_never_share_a_key(identities: list[bytes]) -> None:
    for one, other in combinations(identities, 2):
        assert keys.counter(one) != keys.counter(other)


def test_no_key_is_built_in_a_script() -> None:
    for name in (
        "charge",
        "acquire",
        "release",
        "renew",
        "change",
        "claim_inbox",
        "refuse_inbox",
        "report",
        "write_keys",
    ):
        code = "\n".join(line.partition("--")[0] for line in load(name).text.splitlines())
        assert "sw:" not in code
        assert load(name).text.startswith("-- ")
        assert "KEYS  " in load(name).text
        assert "Returns " in load(name).text
