"""Demands of any kind, the same over every store: in memory, on one node, on a Cluster where counters lie apart."""

from seawall.limits.charge import Demand
from seawall.limits.window import Algorithm, Window
from seawall.store.contract import Store

YEAR = 31536000
"""Long enough that no window ends meanwhile."""
FIXED, SLIDING = Window(Algorithm.FIXED, 5, YEAR), Window(Algorithm.SLIDING, 7, YEAR)
GCRA = Window(Algorithm.GCRA, 9, YEAR, 9)


async def over(store: Store, *demands: Demand, stop: bool = False) -> list[bool]:
    return [outcome.over for outcome in await store.charge_all(demands, stop=stop)]


async def used(store: Store, key: bytes, *windows: Window) -> list[int]:
    [outcome] = await store.charge_all([Demand(key, windows, 0)])
    return [reading.used for reading in outcome.readings]


async def test_answers_are_in_the_order_of_the_call(store: Store) -> None:
    keys = [bytes([n]) for n in range(40)]
    outcomes = await store.charge_all([Demand(key, (FIXED,), n) for n, key in enumerate(keys)])
    assert [outcome.readings[0].used for outcome in outcomes] == list(range(40))
    assert [outcome.over for outcome in outcomes] == [n > 5 for n in range(40)]
    mixed = [Demand(key, (SLIDING,) if n % 2 else (GCRA,), 8, charge_refused=False) for n, key in enumerate(keys)]
    assert await over(store, *mixed) == [n % 2 == 1 for n in range(40)]


async def test_nothing_asked(store: Store) -> None:
    assert list(await store.charge_all([])) == []


async def test_all_windows_or_none(store: Store) -> None:
    demand = Demand(b"a", (FIXED, SLIDING, GCRA), 4, charge_refused=False)
    assert await over(store, demand, demand, demand._replace(hits=1), demand._replace(hits=1)) == [
        False,
        True,
        False,
        True,
    ]
    assert await used(store, b"a", FIXED, SLIDING, GCRA) == [5, 5, 5]


async def test_given_back(store: Store) -> None:
    both = (FIXED, SLIDING)
    await store.charge_all([Demand(b"a", both, 9)])
    await store.charge_all([Demand(b"a", both, 6, give_back=True), Demand(b"b", both, 6, give_back=True)])
    assert await used(store, b"a", *both) == [3, 3]
    assert await used(store, b"b", *both) == [0, 0]


async def test_a_plain_limit_and_one_of_ours_share_a_counter(store: Store) -> None:
    """The short script and the long one write the same field."""
    await store.charge_all([Demand(b"a", (FIXED,), 3)])
    assert await over(store, Demand(b"a", (FIXED,), 3, charge_refused=False)) == [True]
    assert await over(store, Demand(b"a", (FIXED, SLIDING), 2, charge_refused=False)) == [False]
    assert await used(store, b"a", FIXED) == [5]


async def test_stop_mode(store: Store) -> None:
    """One that would be over spares the others of its slot."""
    assert await over(store, Demand(b"a", (SLIDING,), 3), Demand(b"a", (FIXED,), 6), stop=True) == [False, True]
    assert await used(store, b"a", SLIDING, FIXED) == [0, 6]
