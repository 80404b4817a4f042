"""Values of single fields."""

import pytest
from pydantic_core import PydanticCustomError

from seawall.policy.fields import as_whole, parse_url
from seawall.policy.tree import Plain


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("600", 600),
        ("-1", -1),
        ("1_000", 1000),
        ("0x10", 16),
        ("0xb1", 0xB1),
        ("010", 8),
        ("0o17", 15),
        ("0b101", 5),
    ],
)
def test_whole(text: str, number: int) -> None:
    """Whole numbers are read in YAML 1.1's notation."""
    assert as_whole(Plain(text)) == number


@pytest.mark.parametrize("text", ["", "true", "5.0", "1e3", "08", "0x", "12:30", "_1", "٣", "9" * 5000, "1_" * 50])
def test_no_whole(text: str) -> None:
    """What is no whole number is refused, however long."""
    with pytest.raises(PydanticCustomError):
        as_whole(Plain(text))


def test_quoted_number() -> None:
    """A quoted number is text."""
    with pytest.raises(PydanticCustomError):
        as_whole("5")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("http://10.0.0.1:8000", ("http", "10.0.0.1", 8000)),
        ("https://engines.example/", ("https", "engines.example", 443)),
        ("http://[::1]:80", ("http", "::1", 80)),
        ("http://h", ("http", "h", 80)),
    ],
)
def test_url(text: str, parts: tuple[str, str, int]) -> None:
    """An engine's address is scheme, host and port."""
    assert parse_url(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h:80",
        "ftp://h",
        "http://",
        "http://u@h",
        "http://u:p@h",
        "http://h/v1",
        "http://h?q",
        "http://h#f",
        "http://h:0",
        "http://h:65536",
        "http://h:",
        "http://h:x",
        "http://[::1",
        "http://a b",
        "http://h\n",
        "http://ü",
        "http://-h",
        "http://" + "h" * 600,
    ],
)
def test_no_url(text: str) -> None:
    """Anything else is refused without repeating it."""
    with pytest.raises(ValueError, match="HOST"):
        parse_url(text)
