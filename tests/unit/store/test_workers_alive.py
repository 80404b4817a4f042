"""How many workers must say what they hold after a loss."""

from seawall.store.redis_data import Workers


def told(*counts: tuple[float, int]) -> Workers:
    workers = Workers()
    for now, count in counts:
        workers.tell(count, now)
    return workers


def test_nobody_told_is_this_worker_alone() -> None:
    assert told().most() == 1
    assert told((0, 0)).most() == 1


def test_a_store_that_forgot_them_is_not_believed_at_once() -> None:
    assert told((0, 4), (1, 1)).most() == 4
    assert told((0, 4), (1, 1), (30, 2)).most() == 4
    assert told((0, 4), (1, 1), (30, 2), (31, 2)).most() == 2
    assert told((0, 4), (1, 1), (30, 2), (31, 3)).most() == 3
    assert told((0, 2), (1, 4)).most() == 4


def test_what_is_remembered_stays_small() -> None:
    assert len(told(*[(n / 1000, n % 7) for n in range(10_000)])._told) < 10
