"""Breaker before a store, as steps from state to state: after failures in a row it lets nothing through for a while.

closed → (failures in a row) → open → (its time is over: one call passes as a probe) → half-open → closed, or open for
twice as long. Time and jitter are arguments.
"""

from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """What the breaker does with a call."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class State(NamedTuple):
    """Where a breaker stands.

    `failures` counts those in a row while closed, `opened` how often it opened since it was last closed. `until` is
    when it lets a (further) probe pass, in seconds of the clock that is passed in.
    """

    phase: Phase = Phase.CLOSED
    failures: int = 0
    opened: int = 0
    until: float = 0.0


CLOSED = State()


class Rule(NamedTuple):
    """When to open and for how long. Times in seconds; `jitter` is the share by which a time varies to either side."""

    failures: int = 2
    first: float = 0.5
    longest: float = 10.0
    jitter: float = 0.2
    probe: float = 2.0
    """A probe that has had no outcome for this long is given up, and another passes."""


def allow(state: State, now: float, rule: Rule) -> tuple[State, bool]:
    """Decide on one call: the state after it, and whether it passes."""
    if state.phase is Phase.CLOSED:
        return state, True
    if now < state.until:
        return state, False
    return state._replace(phase=Phase.HALF_OPEN, until=now + rule.probe), True


def succeeded(state: State) -> State:
    """Take in that a call was answered. An answer while open is to an old call and proves nothing."""
    return state if state.phase is Phase.OPEN else CLOSED


def failed(state: State, now: float, rule: Rule, chance: float) -> State:
    """Take in that a call failed; `chance` is random in [0, 1)."""
    if state.phase is Phase.OPEN:
        return state
    if state.phase is Phase.CLOSED and state.failures + 1 < rule.failures:
        return state._replace(failures=state.failures + 1)
    wait = min(rule.longest, rule.first * 2.0 ** min(state.opened, 30)) * (1 - rule.jitter + 2 * rule.jitter * chance)
    return State(Phase.OPEN, 0, state.opened + 1, now + wait)


def would_allow(state: State, now: float) -> bool:
    """Look whether a call would pass, without making it the probe."""
    return state.phase is Phase.CLOSED or now >= state.until
