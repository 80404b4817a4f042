"""Which connections are asked to go elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seawall.serve.handoff import to_shed


@pytest.mark.parametrize(
    ("counts", "shed"),
    [
        ([], []),
        ([7], [0]),
        ([0, 0], [0, 0]),
        ([2, 2], [0, 0]),
        ([3, 1], [0, 0]),
        ([4, 0], [2, 0]),
        ([1, 0], [0, 0]),
        ([2, 0], [1, 0]),
        ([9, 1, 1, 1], [6, 0, 0, 0]),
        ([10, 10, 0, 0], [5, 5, 0, 0]),
        ([5, 4, 4, 4], [0, 0, 0, 0]),
    ],
)
def test_to_shed(counts: list[int], shed: list[int]) -> None:
    """A worker with twice the mean or more lets go what is above its share; a difference of one stays."""
    assert to_shed(counts) == shed


@given(st.lists(st.integers(0, 1000), max_size=16))
def test_shedding_ends(counts: list[int]) -> None:
    """Handing what is shed to the emptiest workers leaves nothing more to shed."""
    for _ in range(20):
        shed = to_shed(counts)
        if not any(shed):
            return
        assert all(0 <= s <= c for s, c in zip(shed, counts, strict=True))
        counts = [c - s for c, s in zip(counts, shed, strict=True)]
        for _ in range(sum(shed)):
            counts[counts.index(min(counts))] += 1
    raise AssertionError(counts)
