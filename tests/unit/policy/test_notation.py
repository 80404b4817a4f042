"""Durations, sizes, ratios and rates."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.policy import notation


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("10m", 600),
        ("1h30m", 5400),
        ("800ms", 0.8),
        ("1.5s", 1.5),
        ("7d", 604800),
        ("0s", 0),
        ("1m5ms", 60.005),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    """A duration is its seconds."""
    assert notation.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "30m1h", "1h1h", "-5s", "5S", "1e3s", "٥s", "5s\n", "9999999999s"]
)
def test_no_duration(text: str) -> None:
    """What is no duration is refused, saying what is allowed."""
    with pytest.raises(ValueError, match="a duration"):
        notation.duration(text)


@pytest.mark.parametrize(("text", "span"), [("100ms..2s", (0.1, 2.0)), ("1s..1s", (1.0, 1.0)), ("0s..1m30s", (0, 90))])
def test_span(text: str, span: tuple[float, float]) -> None:
    """A span is the seconds of both."""
    assert notation.span(text) == pytest.approx(span)


@pytest.mark.parametrize("text", ["", "..", "1s", "1s..", "..1s", "2s..1s", "1s...2s", "1s..2s..3s", "1..2", "1s - 2s"])
def test_no_span(text: str) -> None:
    """What is no span is refused, saying what is allowed."""
    with pytest.raises(ValueError, match="two durations"):
        notation.span(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("16KiB", 16384),
        ("16 kib", 16384),
        ("1MiB", 2**20),
        ("64KB", 64000),
        ("1.5KiB", 1536),
        ("0", 0),
        ("2GB", 2 * 10**9),
        ("7B", 7),
    ],
)
def test_size(text: str, size: int) -> None:
    """A size is its bytes, KiB of 1024 and KB of 1000."""
    assert notation.size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "16K", "16 M", "-1", "1.5", "0.3KiB", "1e3", "16KiB ", "1" * 16, "١"])
def test_no_size(text: str) -> None:
    """What is no size is refused: no single letters, no part of a byte."""
    with pytest.raises(ValueError, match="a size"):
        notation.size(text)


@pytest.mark.parametrize(
    ("text", "share"), [("10%", 0.1), ("0.1", 0.1), ("1", 1), ("100%", 1), ("0", 0), ("0.5%", 0.005)]
)
def test_ratio(text: str, share: float) -> None:
    """A ratio is a share of one."""
    assert notation.ratio(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "101%", "1.1", "-1%", "nan", "10 %", "%"])
def test_no_ratio(text: str) -> None:
    """What is no share of one is refused."""
    with pytest.raises(ValueError, match="a share"):
        notation.ratio(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("600/minute", (600, 60)),
        ("50/second", (50, 1)),
        ("10/2 hours", (10, 7200)),
        ("5 per day", (5, 86400)),
        ("0/hour", (0, 3600)),
    ],
)
def test_rate(text: str, rate: tuple[int, int]) -> None:
    """A rate is a count and seconds, in the notation of the package `limits`."""
    assert notation.rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "600", "600/fortnight", "1/second;2/minute", "-1/second", "1/0 minutes", "1.5/second"]
)
def test_no_rate(text: str) -> None:
    """What is no single rate is refused."""
    with pytest.raises(ValueError, match="a rate"):
        notation.rate(text)


@given(hours=st.integers(0, 999), minutes=st.integers(0, 999), seconds=st.integers(0, 999), ms=st.integers(0, 999))
@settings(max_examples=60)
def test_durations_add_up(hours: int, minutes: int, seconds: int, ms: int) -> None:
    """The parts of a duration add up."""
    expected = hours * 3600 + minutes * 60 + seconds + ms / 1000
    assert notation.duration(f"{hours}h{minutes}m{seconds}s{ms}ms") == pytest.approx(expected)


@given(st.integers(0, 10**12), st.sampled_from(["KiB", "MiB", "KB", "MB", "B"]))
@settings(max_examples=60)
def test_sizes_scale(number: int, unit: str) -> None:
    """A size is its number times its unit."""
    assert notation.size(f"{number}{unit}") == number * notation.size(f"1{unit}")


@given(st.text(max_size=30) | st.from_regex(r"[0-9.]{0,5}(%|s|ms|KiB|/minute| per )[a-z0-9]{0,5}"))
@settings(max_examples=150)
def test_any_text(text: str) -> None:
    """Any text is read or refused with a ValueError, nothing else."""
    for parse in (notation.duration, notation.size, notation.ratio, notation.rate):
        try:
            parse(text)
        except ValueError as e:
            assert str(e).startswith("a ")
