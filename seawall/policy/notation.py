"""How quantities are written in a policy: one parser each for durations, sizes, ratios and rates.

Each takes the text and raises ValueError whose message is what is allowed, fit to stand after "allowed:".
"""

import re

DURATION = "a duration: 800ms, 5s, 10m, 1h30m, 7d"
SIZE = "a size: 512, 16KiB, 1MiB, 64KB (1000 bytes a KB)"
RATIO = "a share from 0 to 1: 10%, 0.1"
RATE = "a rate: 600/minute, 50/second, 10/2 hours"
SPAN = "two durations, the shorter first: 100ms..2s"

_PART = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
# Units from large to small, each at most once: `1m1h` is more likely a slip than a wish.
_DURATION = re.compile(rf"(?:({_PART})d)?(?:({_PART})h)?(?:({_PART})m)?(?:({_PART})s)?(?:({_PART})ms)?")
_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))? ?(b|kb|kib|mb|mib|gb|gib)?", re.IGNORECASE)
_BYTES = {"b": 1, "kb": 1000, "kib": 1024, "mb": 1000**2, "mib": 1024**2, "gb": 1000**3, "gib": 1024**3}
_RATIO = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)(%?)")
_RATE = re.compile(r"([0-9]{1,12}) ?(?:/|per) ?(?:[1-9][0-9]{0,5} ?)?[a-z]{1,12}", re.IGNORECASE)


def duration(text: str) -> float:
    """Seconds of a duration such as `1h30m` or `800ms`."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ValueError(DURATION)
    return sum(float(part) * seconds for part, seconds in zip(found.groups(), _SECONDS, strict=True) if part)


def span(text: str) -> tuple[float, float]:
    """Seconds of two durations such as `100ms..2s`, the first not longer than the second."""
    low, mark, high = text.partition("..")
    try:
        found = duration(low), duration(high)
    except ValueError:
        raise ValueError(SPAN) from None
    if not mark or found[0] > found[1]:
        raise ValueError(SPAN)
    return found


def size(text: str) -> int:
    """Bytes of a size such as `16KiB`; a number alone is bytes. A fraction must come to whole bytes."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(SIZE)
    whole, fraction, unit = found.groups()
    factor = _BYTES[(unit or "b").lower()]
    part, rest = divmod(int(fraction or "0") * factor, int("1" + "0" * len(fraction or "")))
    if rest:
        raise ValueError(SIZE)
    return int(whole) * factor + part


def ratio(text: str) -> float:
    """Share of one, from `10%` or `0.1`."""
    found = _RATIO.fullmatch(text)
    if found is None:
        raise ValueError(RATIO)
    value = float(found[1]) / (100 if found[2] else 1)
    if value > 1:
        raise ValueError(RATIO)
    return value


def rate(text: str) -> tuple[int, int]:
    """Count and seconds of a rate in the notation of the package `limits`: `600/minute` is (600, 60)."""
    from limits import parse

    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(RATE)
    try:
        item = parse(text)
    except ValueError:
        raise ValueError(RATE) from None
    return int(item.amount), int(item.get_expiry())
