"""Lives of a pool's state: when grants pause, and what ends the pause. What it does within one life: tests/store."""

import pytest

from seawall.admission.holders import ASSERT, FULL, GRANTED, PAUSED, Asker, Holders

NOW, LEASE = 1_000_000, 10_000


def acquire(holders: Holders, asker: Asker, rid: str, now: int = NOW, limit: int = 2) -> tuple[int, str]:
    outcome, _, life = holders.acquire(rid, asker, limit, now, now + LEASE)
    return outcome, life


def test_a_pool_that_nobody_knew_begins_without_a_pause() -> None:
    holders = Holders()
    assert acquire(holders, Asker("a", "n"), "r1") == (GRANTED, "n:1000000")
    assert acquire(holders, Asker("b", "n"), "r2", NOW + 1) == (GRANTED, "n:1000000")
    assert acquire(holders, Asker("b", "n", "n:1000000"), "r3", NOW + 2) == (FULL, "n:1000000")


def test_a_pool_that_was_known_and_is_gone_pauses_until_all_have_said_what_they_hold() -> None:
    holders, old = Holders(), "n:7"
    first, second = Asker("a", "n", old, 2), Asker("b", "n", old, 2)
    assert acquire(holders, first, "r1") == (ASSERT, "n:1000000")
    assert holders.renew(["held"], first, NOW, NOW + LEASE) == (1, 1, True, "n:1000000")
    assert acquire(holders, first, "r1")[0] == PAUSED
    assert acquire(holders, second, "r2")[0] == ASSERT
    assert holders.renew([], second, NOW, NOW + LEASE) == (1, 0, False, "n:1000000")
    assert acquire(holders, second, "r2")[0] == GRANTED
    assert acquire(holders, first, "r1")[0] == FULL


def test_the_pause_ends_with_a_lease() -> None:
    holders = Holders()
    asker = Asker("a", "n", "n:7", 9)
    assert acquire(holders, asker, "r1")[0] == ASSERT
    assert acquire(holders, asker, "r1", NOW + LEASE - 1)[0] == ASSERT
    assert acquire(holders, asker, "r1", NOW + LEASE)[0] == GRANTED


def test_another_node_with_the_same_state_pauses_too() -> None:
    """A replica that took over, or a restart: what it knows may be old."""
    holders = Holders()
    _, life = acquire(holders, Asker("a", "n1"), "r1")
    asker = Asker("a", "n2", life)
    assert acquire(holders, asker, "r2", NOW + 5) == (ASSERT, "n2:1000005")
    assert acquire(holders, asker, "r1", NOW + 5)[0] == GRANTED, "a live rid is taken over, pause or not"
    assert holders.renew(["r1"], asker, NOW + 6, NOW + LEASE) == (1, 0, False, "n2:1000005")
    assert acquire(holders, asker, "r2", NOW + 6)[0] == GRANTED


def test_a_newcomer_that_met_the_empty_pool_first_hides_no_loss() -> None:
    holders = Holders()
    assert acquire(holders, Asker("new", "n"), "r1")[0] == GRANTED
    assert acquire(holders, Asker("old", "n", "n:7", 2), "r2", NOW + 1) == (ASSERT, "n:1000001")
    # Whoever knew the life before that one begins no further pause.
    assert acquire(holders, Asker("third", "n", "n:7", 2), "r3", NOW + 2) == (ASSERT, "n:1000001")


@pytest.mark.parametrize("told", [1, 3])
def test_as_many_must_say_it_as_the_best_informed_knows(told: int) -> None:
    holders = Holders()
    asker = Asker("a", "n", "n:7", told)
    acquire(holders, asker, "r1")
    assert holders.renew([], asker, NOW, NOW + LEASE)[2] == (told > 1)
    assert holders.renew([], Asker("b", "n", "n:7", 1), NOW, NOW + LEASE)[2] == (told > 2)


def test_what_was_given_back_unheard_is_dropped_in_a_pause_and_only_then() -> None:
    holders = Holders()
    _, life = acquire(holders, Asker("a", "n1"), "kept")
    acquire(holders, Asker("a", "n1"), "gone")
    acquire(holders, Asker("b", "n1"), "theirs", limit=9)
    acquire(holders, Asker("a", "n1"), "asked", limit=9)
    assert holders.renew(["kept"], Asker("a", "n1", life), NOW, NOW + LEASE, ["asked"])[0] == 4
    assert holders.renew(["kept", "new"], Asker("a", "n2", life), NOW, NOW + LEASE, ["asked", "other"])[:2] == (4, 1)
    assert [holders.release(rid, "a") for rid in ("gone", "other", "asked", "new", "kept")] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert holders.release("theirs", "b")


def test_leases_that_nobody_could_renew_are_a_loss_and_those_of_one_worker_are_not() -> None:
    holders = Holders()
    asker, other = Asker("a", "n", workers=2), Asker("b", "n", workers=2)
    _, life = acquire(holders, asker, "r1")
    holders.renew([], other, NOW + LEASE, NOW + 2 * LEASE)
    assert acquire(holders, other, "r2", NOW + LEASE + 1)[0] == GRANTED, "the worker is gone, the store was there"
    # Nobody renewed for more than a lease.
    outcome, second = acquire(holders, other, "r3", NOW + 3 * LEASE)
    assert (outcome, second != life) == (ASSERT, True)


def test_a_pool_that_nobody_used_for_long_lost_nothing() -> None:
    holders = Holders()
    acquire(holders, Asker("a", "n"), "r1")
    holders.release("r1", "a")
    assert acquire(holders, Asker("a", "n"), "r2", NOW + 100 * LEASE)[0] == GRANTED
