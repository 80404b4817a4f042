"""One call's charges, decided together: any mix of counters, algorithms and several windows on one counter.

The executable definition of what the store's script does in one step. State is one hash for each counter, so that all
windows of a counter lie in one key (one hash tag) and one script can decide them:

    key    the counter's: 16 bytes in memory, `sw:{c:<hex>}` in Redis (`counter_key.identity`)
    field  f<length>:<start>   fixed window: hits, a decimal number
           s<length>:<start>   sliding window: hits of one window; current and previous are two fields
           g<length>           GCRA: `<whole> <rest> <requests>`, the arrival time in unix µs (`window_gcra.Tat`)
    times  <length> and <start> are whole seconds

Neither the number of a limit nor its burst is in a name: a changed number goes on counting, a changed algorithm or length
begins anew. A counter with envoyproxy/ratelimit's key text is no hash but a plain number, its window is in the key.

A field whose window ended a whole length ago is dropped by the first hit of a newer window; the key expires when its
last window can matter no more: fixed after `length`, sliding after twice that, GCRA when its bucket is full, and some
seconds. In Redis the expiry is written with a window's first hit, not with each. A look writes nothing.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from seawall.limits import window_fixed, window_gcra, window_sliding
from seawall.limits.window import US, Algorithm, Reading, Window

SLACK = 5
"""Seconds that a counter outlives its windows: workers' clocks differ by less."""


class Demand(NamedTuple):
    """What one descriptor asks of one counter. `hits` 0 is a look; with `give_back` they are taken off, down to 0.

    `windows` are decided all or nothing: over in one, over in all. `charge_refused`: the hits count although they were
    over (as envoyproxy/ratelimit counts). `exhausted`: a look is over when nothing remains. `text`: the key is
    envoyproxy/ratelimit's, the whole name of a plain number that one fixed window is counted in.
    """

    key: bytes
    windows: tuple[Window, ...]
    hits: int
    give_back: bool = False
    charge_refused: bool = True
    exhausted: bool = False
    text: bool = False


class Outcome(NamedTuple):
    """Answer to one demand: refused or not, hits that were charged, and each of its windows after that."""

    over: bool
    charged: int
    readings: tuple[Reading, ...]


@dataclass(slots=True)
class Counter:
    """State of one counter; `expires` is unix seconds."""

    fields: dict[str, str] = field(default_factory=dict)
    expires: float = 0.0


Counters = MutableMapping[bytes, Counter]


class Step(Protocol):
    """One step on the state of one window, made of the counter's fields; `over`: these hits are more than fit."""

    window: Window
    over: bool

    def charge(self, hits: int) -> dict[str, str]:
        """Count the hits (negative: give back); the fields that change, empty where none does."""

    def life(self) -> int:
        """Microseconds from now after which nothing of the state can matter."""

    def read(self, over: bool, hits: int) -> Reading:
        """Tell the window after the step; `hits` are those asked for."""


_ALGORITHMS: Mapping[Algorithm, Callable[[Mapping[str, str], Window, int, int], Step]] = {
    Algorithm.FIXED: window_fixed.Step,
    Algorithm.SLIDING: window_sliding.Step,
    Algorithm.GCRA: window_gcra.Step,
}


def charge_all(counters: Counters, demands: Sequence[Demand], now: int, *, stop: bool = False) -> list[Outcome]:
    """Decide the demands of one call in order, each seeing what those before it charged. `now` is unix microseconds.

    `stop` (STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT): when one of them would be over, only those that would are charged
    (as their `charge_refused` has it), the others are looked at.
    """
    spared = [False] * len(demands)
    if stop:
        over = [not d.give_back and any(step.over for step in _steps(counters, d, now, asked(d))) for d in demands]
        if any(over):
            spared = [not (mine or d.give_back or d.hits == 0) for d, mine in zip(demands, over, strict=True)]
    return [_charge(counters, demand, now, spare) for demand, spare in zip(demands, spared, strict=True)]


def asked(demand: Demand) -> int:
    """Hits that have to fit: where a look is over when nothing remains, it has to find room for one."""
    return 1 if demand.exhausted and demand.hits == 0 else demand.hits


def _charge(counters: Counters, demand: Demand, now: int, spare: bool) -> Outcome:
    if len(demand.windows) == 1 and demand.windows[0].algorithm is Algorithm.FIXED:
        return _charge_fixed(counters, demand, now, spare)
    return charge_steps(counters, demand, now, spare)


def _charge_fixed(counters: Counters, demand: Demand, now: int, spare: bool) -> Outcome:
    """The short way of `charge_steps` for the commonest demand: one fixed window."""
    key, (window,), hits, give_back, charge_refused, _, _ = demand
    name, left = window_fixed.place(window, now)
    counter = counters.get(key)
    if counter is not None and counter.expires * US <= now:
        counter = None
    count = int(counter.fields.get(name, "0")) if counter is not None else 0
    over = not give_back and window_fixed.is_over(count, 0 if spare else asked(demand), window)
    charged = 0
    if not spare and (give_back or charge_refused or not over):
        charged = -hits if give_back else hits
        after = window_fixed.add(count, charged)
        if after != count:
            if counter is None:
                counter = counters[key] = Counter()
            if count == 0:
                _drop_ended(counter.fields, now)
            counter.expires = max(counter.expires, now / US + window.length + SLACK)
            counter.fields[name] = str(after)
            count = after
    return Outcome(over, charged, (Reading(over, count, max(0, window.requests - count), left),))


def charge_steps(counters: Counters, demand: Demand, now: int, spare: bool) -> Outcome:
    """Decide one demand on any mix of windows; `spare`: look only."""
    steps = _steps(counters, demand, now, 0 if spare else asked(demand))
    over = not demand.give_back and any(step.over for step in steps)
    hits = demand.hits if not spare and (demand.give_back or demand.charge_refused or not over) else 0
    charged = -hits if demand.give_back else hits
    if hits:
        for step in steps:
            _write(counters, demand.key, step, charged, now)
    readings = [step.read(step.over and not demand.give_back, demand.hits) for step in steps]
    return Outcome(over, charged, tuple(readings))


def _steps(counters: Counters, demand: Demand, now: int, hits: int) -> list[Step]:
    counter = counters.get(demand.key)
    fields = counter.fields if counter is not None and counter.expires * US > now else {}
    return [_ALGORITHMS[window.algorithm](fields, window, hits, now) for window in demand.windows]


def _write(counters: Counters, key: bytes, step: Step, hits: int, now: int) -> None:
    changes = step.charge(hits)
    if not changes:
        return
    counter = counters.get(key)
    if counter is None or counter.expires * US <= now:
        counter = counters[key] = Counter()
    fields = counter.fields
    if any(fields.get(name, "0") == "0" for name in changes):
        _drop_ended(fields, now)
    counter.expires = max(counter.expires, (now + step.life()) / US + SLACK)
    fields.update(changes)


def _drop_ended(fields: dict[str, str], now: int) -> None:
    for other in [other for other in fields if ended(other, now)]:
        del fields[other]


def ended(name: str, now: int) -> bool:
    """Whether the window of a field ended a whole length ago. A GCRA field has no end, it is one of few."""
    length, _, start = name[1:].partition(":")
    return bool(start) and (int(start) + 2 * int(length)) * US <= now
