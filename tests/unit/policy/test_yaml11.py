"""Unquoted scalars as Go's yaml.v2 reads them."""

import math

import pytest

from seawall.policy.yaml11 import boolean, fraction, integer, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0", 0), ("-5", -5), ("+5", 5), ("0x10", 16), ("-0x10", -16), ("010", 8), ("0o17", 15), ("0b101", 5)),
        *(("1_000", 1000), ("0x_1", 1), ("1_", 1), (str(2**64 - 1), 2**64 - 1), (str(-(2**63)), -(2**63))),
        *(("5.0", 5.0), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("08", 8.0), ("1_0.5", 10.5), ("-.inf", -math.inf)),
        *((str(2**64), float(2**64)), ("9" * 400, math.inf)),
        *((word, True) for word in ("y", "Y", "yes", "on", "True", "TRUE")),
        *((word, False) for word in ("n", "NO", "off", "false", "False")),
        *((word, None) for word in ("", "~", "null", "NULL")),
        *(
            (word, word)
            for word in ("12:30", "2026-01-02", "_1", "._5", "0x", "0b2", "1e", "yEs", "nul", "٣", "9" * 401)
        ),
        *((word, word) for word in ("1.2.3", "+", "-", ".", "0x1.8", "0x" + "f" * 17)),
    ],
)
def test_resolve(text: str, value: object) -> None:
    """Base-60 numbers and dates are text; octal has a leading zero; a digit string beyond 64 bits is a float."""
    got = resolve(text)
    assert (got, type(got)) == (value, type(value))


def test_kinds_exclude_each_other() -> None:
    """A scalar is of one kind."""
    for text in ("1", "1.0", "yes", "x", "~", "010", "08"):
        assert (integer(text) is not None) + (fraction(text) is not None) + (boolean(text) is not None) <= 1
