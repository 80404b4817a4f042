"""What YAML 1.1 takes an unquoted scalar for, as Go's yaml.v2 reads it: the decoder of envoyproxy/ratelimit.

Text fields never ask: they keep the source text. Numbers, booleans and free metadata do.
"""

import re

_TRUE = frozenset({"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
BOOLEANS = _TRUE | _FALSE
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_SPECIAL = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_BASES = (
    (re.compile(r"([-+]?)(0|[1-9][0-9]*)"), 10),
    (re.compile(r"([-+]?)0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"([-+]?)0[bB]([01]+)"), 2),
    (re.compile(r"([-+]?)0[oO]?([0-7]+)"), 8),
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
LARGEST = 2**63 - 1
_LONGEST = 400
"""Digits of the longest scalar that is looked at: none that is longer is a number that anyone can mean."""


def boolean(text: str) -> bool | None:
    """True, False, or None for what is neither."""
    return True if text in _TRUE else False if text in _FALSE else None


def integer(text: str) -> int | None:
    """Whole number of 64 bits: also 0x10, 010 (8), 0b1, 1_000; None for what is none."""
    if not text or len(text) > _LONGEST or not (text[0].isdigit() or text[0] in "+-"):
        return None
    plain = text.replace("_", "")
    for pattern, base in _BASES:
        if found := pattern.fullmatch(plain):
            number = -int(found[2], base) if found[1] == "-" else int(found[2], base)
            return number if -LARGEST - 1 <= number <= 2 * LARGEST + 1 else None
    return None


def fraction(text: str) -> float | None:
    """Number that YAML 1.1 takes for one with a fraction, also `5.0`, `1e3` and `.inf`; None for what is none.

    Whole numbers beyond 64 bits are read as such too.
    """
    if text in _SPECIAL:
        return _SPECIAL[text]
    if not text or len(text) > _LONGEST or text[0] not in "+-.0123456789":
        return None
    if integer(text) is not None:
        return None
    plain = text if text[0] == "." else text.replace("_", "")
    return float(plain) if _FLOAT.fullmatch(plain) else None


def resolve(text: str) -> bool | int | float | str | None:
    """Value of an unquoted scalar."""
    if text in NULLS:
        return None
    known = boolean(text)
    if known is not None:
        return known
    number = fraction(text)
    if number is not None:
        return number
    whole = integer(text)
    return text if whole is None else whole
