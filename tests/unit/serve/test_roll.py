"""The plan of a rolling restart, and that no order of events leaves a place without a worker or with three."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seawall.serve.roll import Act, Phase, Place, Roll, Step, Successor

READY = 60.0
OLD = Place(born=1.0, serving=True)


def place(successor: Successor = Successor.NONE, **changes: object) -> Place:
    return Place(**{"born": 1.0, "serving": True, "successor": successor, **changes})  # type: ignore[arg-type]


def test_one_after_the_other() -> None:
    """A successor is started, serves, and only then its predecessor leaves and the next place is in turn."""
    roll = Roll(10.0, 2, READY)
    assert roll.step(10.0, [OLD, OLD]) == Step(Act.START, 0)
    assert roll.step(10.1, [place(Successor.STARTING), OLD]) is None
    assert roll.step(12.0, [place(Successor.SERVING), OLD]) == Step(Act.REPLACE, 0)
    # The predecessor of the first still ends its answers: nobody waits for it.
    done = place(born=10.0, leaving=True)
    assert roll.step(12.1, [done, OLD]) == Step(Act.START, 1)
    assert (roll.phase, roll.done) == (Phase.RUNNING, 1)
    assert roll.step(14.0, [done, place(Successor.SERVING)]) == Step(Act.REPLACE, 1)
    assert (roll.phase, roll.done, roll.why) == (Phase.DONE, 2, "")
    assert roll.step(15.0, [done, done]) is None


def test_a_place_has_two_processes_at_most() -> None:
    """The predecessor of an earlier roll is waited for, and that is not counted against the successor."""
    roll = Roll(10.0, 1, READY)
    assert roll.step(10.0, [place(leaving=True)]) is None
    assert roll.step(500.0, [place(leaving=True)]) is None
    assert roll.step(501.0, [OLD]) == Step(Act.START, 0)
    assert roll.step(501.0 + READY, [place(Successor.STARTING)]) is None
    assert roll.step(502.0, [place(Successor.SERVING)]) == Step(Act.REPLACE, 0)


@pytest.mark.parametrize(
    ("now", "seen", "why"),
    [
        (11.0, place(trouble="ended with status 1"), "the successor of w0 ended with status 1"),
        (11.0, place(), "the successor of w0 has ended"),
        (70.1, place(Successor.STARTING), "the successor of w0 was not ready in 60 s"),
        (
            70.1,
            place(Successor.STARTING, trouble="it waits for a policy"),
            "the successor of w0 was not ready in 60 s: it waits for a policy",
        ),
        (70.1, place(born=None, serving=False), "the successor of w0 was not ready in 60 s"),
        (70.1, place(born=20.0, serving=False), "the successor of w0 was not ready in 60 s"),
    ],
)
def test_it_stops(now: float, seen: Place, why: str) -> None:
    """A successor that ends or is not ready in time stops the roll; the rest is left alone."""
    roll = Roll(10.0, 2, READY)
    assert roll.step(10.0, [OLD, OLD]) == Step(Act.START, 0)
    assert roll.step(now, [seen, OLD]) == Step(Act.GIVE_UP, 0)
    assert (roll.phase, roll.done, roll.why) == (Phase.STOPPED, 0, why)
    assert roll.step(now + 1, [OLD, OLD]) is None


@pytest.mark.parametrize("seen", [place(born=None, serving=False), place(born=10.5, serving=False)])
def test_one_that_died_meanwhile_is_new_already(seen: Place) -> None:
    """Its place is done when it serves again: nothing is started for it."""
    roll = Roll(10.0, 1, READY)
    assert roll.step(11.0, [seen]) is None
    assert roll.step(11.1, [seen]) is None
    assert roll.step(12.0, [place(born=10.5)]) is None
    assert (roll.phase, roll.done) == (Phase.DONE, 1)


def test_nothing_to_do() -> None:
    """No place is no work."""
    assert Roll(1.0, 0, READY).phase is Phase.DONE


@dataclass
class Seat:
    """A model of the supervisor: what it does with commands, and what happens to processes."""

    born: float | None = 0.0
    serving: bool = True
    coming: float | None = None
    coming_serves: bool = False
    leaving: bool = False

    def seen(self) -> Place:
        if self.coming is None:
            successor = Successor.NONE
        else:
            successor = Successor.SERVING if self.coming_serves else Successor.STARTING
        return Place(self.born, self.serving, successor, self.leaving)

    def obey(self, act: Act, now: float) -> None:
        if act is Act.START:
            assert self.coming is None
            assert not self.leaving, "three processes in one place"
            self.coming, self.coming_serves = now, False
        elif act is Act.REPLACE:
            assert self.coming is not None
            assert self.coming_serves, "a predecessor leaves before its successor serves"
            self.leaving = self.born is not None
            self.born, self.serving, self.coming = self.coming, True, None
        else:
            self.coming = None

    def happens(self, event: str, now: float) -> None:
        if event == "serves" and self.coming is not None:
            self.coming_serves = True
        elif event == "serves" and self.born is not None:
            self.serving = True
        elif event == "successor dies":
            self.coming = None
        elif event == "left":
            self.leaving = False
        elif event == "back" and self.born is None:
            self.born, self.serving = now, False
        elif event == "dies" and self.born is not None:
            if self.coming is not None:
                self.born, self.serving, self.coming = self.coming, self.coming_serves, None
            else:
                self.born, self.serving = None, False


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["serves", "successor dies", "left", "back", "dies", "time"])),
    max_size=60,
)


@given(EVENTS)
def test_any_order_of_events(events: list[tuple[int, str]]) -> None:
    """No place has three processes, none loses one that serves, and every roll ends within a bound."""
    seats, now = [Seat(), Seat(), Seat()], 1.0
    roll = Roll(now, 3, READY)
    for index, event in events:
        now += 20.0 if event == "time" else 0.1
        seats[index].happens(event, now)
        step = roll.step(now, [s.seen() for s in seats])
        if step is not None:
            assert step.place == roll.done - (step.act is Act.REPLACE)
            serving = seats[step.place].serving
            seats[step.place].obey(step.act, now)
            assert seats[step.place].serving or not serving
    for _ in range(3 * 4):
        now += READY + 0.1
        for seat in seats:
            seat.happens("left", now)
        step = roll.step(now, [s.seen() for s in seats])
        if step is not None:
            seats[step.place].obey(step.act, now)
    assert roll.phase is not Phase.RUNNING
    if roll.phase is Phase.DONE:
        assert all(s.born is None or s.born >= 1.0 for s in seats)
    else:
        assert roll.why
