from seawall.limits.charge import Demand
from seawall.limits.window import Algorithm, Window
from seawall.store.contract import Charge
from seawall.store.counters import Counters, Ledger


def hit(n: int, start: int = 0, length: int = 60, hits: int = 1) -> list[Charge]:
    return [Charge(n.to_bytes(4, "big"), start, length, hits)]


def test_a_counter_ends_a_little_after_its_window() -> None:
    counters = Counters()
    counters.charge(hit(1, hits=7), now=0.0)
    assert counters.charge(hit(1), now=64.9) == [8]
    assert counters.charge(hit(1, hits=0), now=65.0) == [0]
    assert len(counters) == 0


def test_what_has_ended_makes_room() -> None:
    counters = Counters(most=2000)
    for n in range(1024):
        counters.charge(hit(n), now=0.0)
    counters.charge(hit(5000), now=100.0)
    assert len(counters) == 1


def test_there_are_never_more_than_allowed_and_those_that_end_first_go_first() -> None:
    counters = Counters(most=100)
    for n in range(50):
        counters.charge(hit(n, length=86400), now=0.0)
    for n in range(50, 2000):
        counters.charge(hit(n, length=60), now=0.0)
        assert len(counters) <= 100
    assert [counters.charge(hit(n, length=86400), now=1.0) for n in range(50)] == [[2]] * 50


def test_looks_make_no_counters() -> None:
    counters = Counters()
    for n in range(100):
        assert counters.charge(hit(n, hits=0), now=0.0) == [0]
    assert len(counters) == 0


def ask(n: int, length: int = 60, hits: int = 1) -> list[Demand]:
    return [Demand(n.to_bytes(4, "big"), (Window(Algorithm.FIXED, 10, length),), hits)]


def test_a_ledger_forgets_what_has_ended() -> None:
    ledger = Ledger(most=2000)
    for n in range(1024):
        ledger.charge_all(ask(n), now=0.0)
    ledger.charge_all(ask(5000), now=100.0)
    assert len(ledger) == 1
    [outcome] = ledger.charge_all(ask(5000, hits=0), now=165.0)
    assert outcome.readings[0].used == 0


def test_a_ledger_is_bounded_and_those_that_end_first_go_first() -> None:
    ledger = Ledger(most=100)
    for n in range(50):
        ledger.charge_all(ask(n, length=86400), now=0.0)
    for n in range(50, 2000):
        ledger.charge_all(ask(n), now=0.0)
        assert len(ledger) <= 101
    used = [ledger.charge_all(ask(n, length=86400), now=1.0)[0].readings[0].used for n in range(50)]
    assert used == [2] * 50


def test_looks_make_no_counters_in_a_ledger() -> None:
    ledger = Ledger()
    for n in range(100):
        ledger.charge_all(ask(n, hits=0), now=0.0)
    assert len(ledger) == 0
