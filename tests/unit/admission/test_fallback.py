"""A worker's share of a pool while the store is away."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.admission.fallback import LocalCap, cap_at_loss


@pytest.mark.parametrize(
    ("limit", "own", "seen_total", "workers", "cap"),
    [
        # Own holders and the part of what was free.
        (10, 2, 4, 2, LocalCap(5, 5)),
        (10, 4, 4, 2, LocalCap(7, 5)),
        (10, 0, 4, 2, LocalCap(3, 5)),
        (10, 3, 5, 3, LocalCap(4, 3)),
        (10, 3, 10, 3, LocalCap(3, 3)),
        # What was seen can't be less than what is held here.
        (10, 6, 2, 2, LocalCap(8, 5)),
        # More than the limit: it was made smaller.
        (2, 5, 9, 2, LocalCap(5, 1)),
        # Never seen: the even share.
        (10, 0, None, 3, LocalCap(3, 3)),
        (2, 0, None, 3, LocalCap(0, 0)),
        # Alone.
        (10, 3, 3, 1, LocalCap(10, 10)),
        (10, 3, 3, 0, LocalCap(10, 10)),
        (0, 0, 0, 2, LocalCap(0, 0)),
    ],
)
def test_cap_at_loss(limit: int, own: int, seen_total: int | None, workers: int, cap: LocalCap) -> None:
    """A worker keeps what it holds and takes its part of what was free."""
    assert cap_at_loss(limit=limit, own=own, seen_total=seen_total, workers=workers) == cap


def test_admits() -> None:
    """One more may start below the cap."""
    assert LocalCap(3, 1).admits(2)
    assert not LocalCap(3, 1).admits(3)
    assert not LocalCap(0, 0).admits(0)


def test_shrinks_to_the_share() -> None:
    """Each answer that ends takes one off the cap until it is the even share, and never adds one."""
    cap, caps = LocalCap(5, 3), []
    for _ in range(4):
        cap = cap.after_release()
        caps.append(cap.cap)
    assert caps == [4, 3, 3, 3]
    assert LocalCap(1, 3).after_release() == LocalCap(1, 3)


@given(
    st.integers(0, 20),
    st.lists(st.integers(0, 8), min_size=1, max_size=5),
    st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=60),
)
@settings(max_examples=200)
def test_never_above_the_limit(limit: int, held: list[int], steps: list[tuple[bool, int]]) -> None:
    """Workers that all knew the total never have more in flight together than the limit, or than they had at the loss."""
    own, total = list(held), sum(held)
    caps = [cap_at_loss(limit=limit, own=n, seen_total=total, workers=len(held)) for n in held]
    for starts, worker in steps:
        i = worker % len(own)
        if starts and caps[i].admits(own[i]):
            own[i] += 1
        elif not starts and own[i]:
            own[i] -= 1
            caps[i] = caps[i].after_release()
        assert sum(own) <= max(limit, total)
        assert sum(max(n, cap.cap) for n, cap in zip(own, caps, strict=True)) <= max(limit, total)


@given(st.integers(0, 30), st.integers(1, 8))
@settings(max_examples=50)
def test_never_seen(limit: int, workers: int) -> None:
    """Workers that never saw the pool admit at most its limit together."""
    cap = cap_at_loss(limit=limit, own=0, seen_total=None, workers=workers)
    assert workers * cap.cap <= limit
