import pytest

from seawall.store.breaker import CLOSED, Phase, Rule, State, allow, failed, succeeded, would_allow

RULE = Rule(failures=2, first=1.0, longest=4.0, jitter=0.2, probe=3.0)
MIDDLE = 0.5  # the chance at which the jitter is nothing


def test_a_closed_breaker_lets_everything_pass() -> None:
    assert allow(CLOSED, 100.0, RULE) == (CLOSED, True)


def test_one_failure_is_remembered_and_an_answer_forgets_it() -> None:
    once = failed(CLOSED, 100.0, RULE, MIDDLE)
    assert once == State(Phase.CLOSED, 1, 0, 0.0)
    assert succeeded(once) == CLOSED
    assert succeeded(once) is CLOSED  # `is`: the hot path asks for nothing else


def test_failures_in_a_row_open_it() -> None:
    opened = failed(failed(CLOSED, 100.0, RULE, MIDDLE), 100.0, RULE, MIDDLE)
    assert opened == State(Phase.OPEN, 0, 1, 101.0)
    assert allow(opened, 100.9, RULE) == (opened, False)
    assert not would_allow(opened, 100.9)
    assert would_allow(opened, 101.0)


def test_one_probe_passes_when_its_time_is_over() -> None:
    opened = State(Phase.OPEN, 0, 1, 101.0)
    half, passes = allow(opened, 101.0, RULE)
    assert (half, passes) == (State(Phase.HALF_OPEN, 0, 1, 104.0), True)
    assert allow(half, 103.9, RULE) == (half, False)


def test_a_probe_without_an_outcome_is_given_up() -> None:
    half = State(Phase.HALF_OPEN, 0, 1, 104.0)
    assert allow(half, 104.0, RULE) == (State(Phase.HALF_OPEN, 0, 1, 107.0), True)


def test_a_good_probe_closes_it() -> None:
    assert succeeded(State(Phase.HALF_OPEN, 0, 3, 104.0)) == CLOSED


def test_a_failed_probe_opens_it_for_twice_as_long_up_to_the_longest() -> None:
    waits = []
    state = State(Phase.OPEN, 0, 1, 100.0)
    for _ in range(4):
        half, _ = allow(state, 100.0, RULE)
        state = failed(half, 100.0, RULE, MIDDLE)
        waits.append(state.until - 100.0)
        state = state._replace(until=100.0)
    assert waits == [2.0, 4.0, 4.0, 4.0]


def test_jitter_goes_to_both_sides() -> None:
    half = State(Phase.HALF_OPEN, 0, 0, 104.0)
    assert failed(half, 0.0, RULE, 0.0).until == 0.8
    assert failed(half, 0.0, RULE, 1.0).until == pytest.approx(1.2)


def test_late_outcomes_of_old_calls_change_nothing_while_open() -> None:
    opened = State(Phase.OPEN, 0, 1, 101.0)
    assert succeeded(opened) is opened
    assert failed(opened, 100.5, RULE, MIDDLE) is opened
