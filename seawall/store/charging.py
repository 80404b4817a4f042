"""Demands as arguments of the scripts that charge, and their replies as outcomes.

What knows time and fractions stays in Python. Calls of fixed windows alone take the short script.
"""

from collections.abc import Sequence
from itertools import islice

from seawall.limits import window_fixed, window_gcra, window_sliding
from seawall.limits.charge import Demand, Outcome, asked
from seawall.limits.window import US, Algorithm, Reading, Window
from seawall.store import keys
from seawall.store.resp import bulk

_GIVE_BACK, _CHARGE_REFUSED, _EXHAUSTED = 1, 2, 4


def name(demand: Demand) -> bytes:
    """Key of a demand's counter in Redis."""
    return demand.key if demand.text else keys.counter(demand.key)


def arguments(demand: Demand, now: int, jitter: int = 0) -> list[bytes]:
    """What a demand adds to ARGV; `now` is unix microseconds, `jitter` seconds that a plain number lives longer."""
    flags = _GIVE_BACK * demand.give_back + _CHARGE_REFUSED * demand.charge_refused + _EXHAUSTED * demand.exhausted
    parts = [b"%d" % demand.hits, b"%d" % flags, b"%d" % len(demand.windows)]
    if demand.text:
        (window,) = demand.windows
        return [*parts, b"p", *_numbers(window.requests, window.length + jitter)]
    for window in demand.windows:
        parts += _WINDOWS[window.algorithm](window, demand, now)
    return parts


def short(demands: Sequence[Demand]) -> bool:
    """Whether charge_fixed.lua can do it: one fixed window each, charged in full, nothing given back."""
    return all(
        not demand.text
        and len(demand.windows) == 1
        and demand.windows[0].algorithm is Algorithm.FIXED
        and demand.charge_refused
        and not demand.give_back
        and not demand.exhausted
        for demand in demands
    )


def plain(demands: Sequence[Demand]) -> bool:
    """Whether charge_text.lua can do it: plain numbers alone, charged in full, nothing given back."""
    return all(
        demand.text and demand.charge_refused and not demand.give_back and not demand.exhausted for demand in demands
    )


def plain_payload(head: bytes, demands: Sequence[Demand], names: Sequence[bytes], jitter: int) -> bytes:
    """A whole EVALSHA of charge_text.lua; `jitter` as in `arguments`. `short_outcomes` reads its reply."""
    parts = [b"%d" % len(names), *names]
    for demand in demands:
        parts += _numbers(demand.hits, demand.windows[0].length + jitter)
    return b"*%d\r\n%b%b" % (len(parts) + 2, head, b"".join([bulk(part) for part in parts]))


def short_payload(head: bytes, demands: Sequence[Demand], names: Sequence[bytes], now: int) -> bytes:
    """A whole EVALSHA of charge_fixed.lua; `names` are the demands' keys, `head` the script's `call_head`."""
    parts = [b"%d" % len(names), *names, b"%d" % (now // US)]
    for demand in demands:
        window = demand.windows[0]
        parts += (window_fixed.field(window, now).encode(), b"%d" % window.length, b"%d" % demand.hits)
    return b"*%d\r\n%b%b" % (len(parts) + 2, head, b"".join([bulk(part) for part in parts]))


def short_outcomes(reply: Sequence[int], demands: Sequence[Demand], now: int) -> list[Outcome]:
    """Read the reply of charge_fixed.lua, or of charge_text.lua, to the same demands and time."""
    told = []
    for count, demand in zip(reply, demands, strict=True):
        window = demand.windows[0]
        over = count > window.requests
        told.append(Outcome(over, demand.hits, (window_fixed.read(count, over, window, now),)))
    return told


def payload(
    head: bytes, demands: Sequence[Demand], names: Sequence[bytes], now: int, *, stop: bool, jitter: int = 0
) -> bytes:
    """A whole EVALSHA of charge_all.lua, as `short_payload` and `plain_payload`."""
    parts = [b"%d" % len(names), *names, b"%d" % now, b"1" if stop else b"0"]
    for demand in demands:
        parts += arguments(demand, now, jitter)
    return b"*%d\r\n%b%b" % (len(parts) + 2, head, b"".join([bulk(part) for part in parts]))


def outcomes(reply: Sequence[int], demands: Sequence[Demand], now: int) -> list[Outcome]:
    """Read the reply of charge_all.lua to the same demands and time."""
    numbers = iter(reply)
    told = []
    for demand in demands:
        over, charged = islice(numbers, 2)
        readings = []
        for window in demand.windows:
            refused = next(numbers) == 1
            state = tuple(islice(numbers, 1 if window.algorithm is Algorithm.FIXED else 2))
            readings.append(_reading(window, state, refused, demand.hits, now))
        hits = demand.hits if charged else 0
        told.append(Outcome(over == 1, -hits if demand.give_back else hits, tuple(readings)))
    return told


def _reading(window: Window, state: tuple[int, ...], over: bool, hits: int, now: int) -> Reading:
    match window.algorithm:
        case Algorithm.FIXED:
            return window_fixed.read(state[0], over, window, now)
        case Algorithm.SLIDING:
            return window_sliding.read(state[0], state[1], over, hits, window, now)
        case Algorithm.GCRA:
            return window_gcra.read(window_gcra.Tat(state[0], state[1], window.requests), over, hits, window, now)


def _fixed(window: Window, _: Demand, now: int) -> list[bytes]:
    return [b"f", window_fixed.field(window, now).encode(), b"%d" % window.requests, b"%d" % window.length]


def _sliding(window: Window, _: Demand, now: int) -> list[bytes]:
    current, previous = window_sliding.field_names(window, now)
    part, of = window_sliding.share(window, now), window_sliding.parts(window)
    return [b"s", current.encode(), previous.encode(), *_numbers(part, of, window.requests, window.length)]


def _gcra(window: Window, demand: Demand, _: int) -> list[bytes]:
    spans = (
        window_gcra.tolerance(window),
        window_gcra.span(asked(demand), window),
        window_gcra.span(demand.hits, window),
    )
    numbers = [number for span in spans for number in span]
    return [b"g", window_gcra.field(window).encode(), *_numbers(window.requests, window.length, *numbers)]


def _numbers(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


_WINDOWS = {Algorithm.FIXED: _fixed, Algorithm.SLIDING: _sliding, Algorithm.GCRA: _gcra}
