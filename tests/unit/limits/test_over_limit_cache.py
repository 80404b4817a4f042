"""Counters that are known to be used up."""

from seawall.limits.charge import Counter, Demand, charge_all
from seawall.limits.over_limit_cache import OverLimitCache
from seawall.limits.window import US, Algorithm, Window

MINUTE = Window(Algorithm.FIXED, 5, 60)
NOW = 1_760_000_040 * US + 17 * US
DEMAND = Demand(b"a", (MINUTE,), 6)


def exhausted(cache: OverLimitCache, demand: Demand = DEMAND, now: int = NOW) -> None:
    """Let the cache learn from a counter that this demand uses up."""
    counters: dict[bytes, Counter] = {}
    for _ in range(2):
        [outcome] = charge_all(counters, [demand], now)
        cache.learn(demand, outcome, now)


def test_refuses_until_the_window_ends() -> None:
    """A refusal needs no store until the window ends; remaining is 0 and the reset counts down."""
    cache = OverLimitCache(10)
    assert cache.refuses(DEMAND, NOW) is None
    exhausted(cache)
    told = cache.refuses(DEMAND._replace(hits=1), NOW + 3 * US)
    assert told is not None
    assert (told.over, told.charged, told.readings[0].remaining, told.readings[0].reset) == (True, 0, 0, 40)
    assert cache.refuses(DEMAND, NOW + 43 * US - 1) is not None
    assert cache.refuses(DEMAND, NOW + 43 * US) is None
    assert len(cache) == 0


def test_another_number_asks_again() -> None:
    """A raised limit, another counter and another length ask the store."""
    cache = OverLimitCache(10)
    exhausted(cache)
    raised = Window(Algorithm.FIXED, 50, 60)
    for other in (DEMAND._replace(windows=(raised,)), DEMAND._replace(key=b"b")):
        assert cache.refuses(other, NOW) is None
    assert cache.refuses(DEMAND._replace(windows=(raised, MINUTE)), NOW) is not None


def test_looks() -> None:
    """A look is refused from here only where the counter would refuse it."""
    over, full, strict = OverLimitCache(10), OverLimitCache(10), OverLimitCache(10)
    exhausted(over)
    exhausted(full, DEMAND._replace(hits=5, charge_refused=False))
    exhausted(strict, DEMAND._replace(hits=5, charge_refused=False, exhausted=True))
    look = DEMAND._replace(hits=0)
    assert over.refuses(look, NOW) is not None
    assert full.refuses(look, NOW) is None
    assert full.refuses(look._replace(hits=1), NOW) is not None
    assert strict.refuses(look, NOW) is not None


def test_given_back() -> None:
    """Hits given back are asked of the store, and drop what was known."""
    cache, counters = OverLimitCache(10), dict[bytes, Counter]()
    exhausted(cache)
    back = DEMAND._replace(give_back=True)
    assert cache.refuses(back, NOW) is None
    [outcome] = charge_all(counters, [back], NOW)
    cache.learn(back, outcome, NOW)
    assert cache.refuses(DEMAND, NOW) is None


def test_windows_that_move() -> None:
    """GCRA is refused from here until one hit would pass; a call of many hits teaches nothing about one."""
    window = Window(Algorithm.GCRA, 6, 60, 2)
    one = Demand(b"g", (window,), 1, charge_refused=False)
    cache, counters = OverLimitCache(10), dict[bytes, Counter]()
    for _ in range(3):
        [outcome] = charge_all(counters, [one], NOW)
        cache.learn(one, outcome, NOW)
    assert outcome.over
    assert cache.refuses(one, NOW + 8 * US) is not None
    assert cache.refuses(one, NOW + 9 * US) is None
    many = one._replace(key=b"m", hits=5)
    exhausted(cache, many)
    assert cache.refuses(many, NOW) is None


def test_bounded() -> None:
    """The oldest is forgotten; a policy swap forgets all."""
    cache = OverLimitCache(2)
    for key in (b"1", b"2", b"3"):
        exhausted(cache, DEMAND._replace(key=key))
    assert len(cache) == 2
    assert cache.refuses(DEMAND._replace(key=b"1"), NOW) is None
    assert cache.refuses(DEMAND._replace(key=b"3"), NOW) is not None
    cache.clear()
    assert cache.refuses(DEMAND._replace(key=b"3"), NOW) is None
    none = OverLimitCache(0)
    exhausted(none)
    assert len(none) == 0
