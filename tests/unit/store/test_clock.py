import pytest

from seawall.store.clock import Clock, seconds


def test_the_offset_is_a_guess_until_measured() -> None:
    assert Clock(1000.0).offset == 1000.0


def test_a_measurement_is_taken_at_the_middle_of_its_round_trip() -> None:
    clock = Clock(0.0)
    clock.measured(sent=10.0, received=10.5, node=1010.25)
    assert clock.offset == 1000.0


def test_the_shortest_round_trip_is_believed() -> None:
    clock = Clock(0.0)
    clock.measured(10.0, 10.5, 1010.375)
    clock.measured(11.0, 11.25, 1011.0)
    clock.measured(12.0, 12.5, 1012.375)
    assert clock.offset == 1011.0 - 11.125


def test_a_stepped_clock_is_believed_at_once() -> None:
    clock = Clock(0.0)
    clock.measured(10.0, 10.001, 1010.0005)
    clock.measured(11.0, 11.5, 4611.25)
    assert clock.offset == 3600.0 + 1000.0


def test_old_measurements_are_forgotten() -> None:
    clock = Clock(0.0)
    clock.measured(0.0, 0.001, 1000.0005)
    for n in range(1, 9):
        clock.measured(n, n + 0.25, 1000.0 + n + 0.1875)
    assert clock.offset == pytest.approx(1000.0625)


def test_another_node_starts_afresh() -> None:
    clock = Clock(0.0)
    clock.measured(0.0, 0.001, 1000.0005)
    clock.reset()
    assert clock.offset == pytest.approx(1000.0)
    clock.measured(1.0, 1.5, 1001.5)
    assert clock.offset == pytest.approx(1000.25)


def test_the_reply_to_time() -> None:
    assert seconds([b"1700000000", b"250000"]) == 1700000000.25
