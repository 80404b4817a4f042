"""Types of the document's fields: each turns a scalar's source text into its value, or says what is allowed.

A scalar arrives as `Plain` (unquoted) or str (quoted). Text fields keep the source text of either; number fields read
an unquoted one only, so `"5"` and `true` are no numbers.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from seawall.limits.window import Unit
from seawall.policy import notation
from seawall.policy.tree import Plain

T = TypeVar("T")
K = TypeVar("K")

NAME = "letters, digits and . _ : / @ + -, at most 128"
LABEL = "a letter or digit, then letters, digits and . _ -, at most 63"
POOL = "a lower-case letter or digit, then lower-case letters, digits and . _ -, at most 63"
HEADER = "the name of a header, not x-seawall-*"
DIGEST = "64 hex digits: `seawall key hash` prints them"
EXPIRES = "a date (2027-06-30: good through that day, UTC) or an ISO date and time"
URL = "http://HOST[:PORT] or https://HOST[:PORT], without credentials, path or query"
RELEASE = "a release: 0.1, 0.3.2"
MODEL = "printable ASCII without spaces, at most 256"

UNITS = tuple(unit.name.lower() for unit in Unit)

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}")
RELEASE_PATTERN = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,2}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)? ?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_BASES = (
    (re.compile(r"([-+]?(?:0|[1-9][0-9_]{0,24}))"), 10),
    (re.compile(r"0x([0-9a-fA-F][0-9a-fA-F_]{0,24})"), 16),
    (re.compile(r"0b([01][01_]{0,64})"), 2),
    (re.compile(r"0o?([0-7][0-7_]{0,24})"), 8),
)


def refused(why: str, allowed: str, *, options: tuple[str, ...] = ()) -> PydanticCustomError:
    """Make the error of a value that is not allowed; `options` are names that the nearest is looked for in."""
    return PydanticCustomError("refused", "{why}", {"why": why, "allowed": allowed, "options": options})


def as_text(value: Any) -> str:
    """Source text of a scalar."""
    if isinstance(value, str):
        return str(value)
    raise refused("is not text" if value is not None else "has no value", "text")


def as_whole(value: Any) -> int:
    """Whole number in YAML 1.1's notation (also 0x10, 010, 1_000), unquoted."""
    if type(value) is int:
        return value
    text = str(value) if isinstance(value, Plain) else ""
    for pattern, base in _BASES:
        if found := pattern.fullmatch(text):
            return int(found[1].replace("_", ""), base)
    raise refused("is no whole number", "a whole number, without quotes")


def _named(pattern: str, allowed: str, *, lower: bool = False) -> Callable[[Any], str]:
    compiled = re.compile(pattern)

    def check(value: Any) -> str:
        text = as_text(value)
        if compiled.fullmatch(text.lower() if lower else text) is None:
            raise refused("is not allowed here", allowed)
        return text.lower() if lower else text

    return check


def one_of(*options: str) -> BeforeValidator:
    """Allow these words only."""

    def check(value: Any) -> str:
        text = as_text(value)
        if text not in options:
            raise refused("is not allowed here", ", ".join(options), options=options)
        return text

    return BeforeValidator(check)


def whole(least: int, most: int) -> BeforeValidator:
    """Allow whole numbers in a range, both ends included."""

    def check(value: Any) -> int:
        number = as_whole(value)
        if not least <= number <= most:
            raise refused("is out of range", f"{least} to {most}" if least < most else str(least))
        return number

    return BeforeValidator(check)


def sized(least: int, most: int, bounds: str) -> BeforeValidator:
    """Allow sizes in a range of bytes, both ends included; `bounds` says the range to people."""

    def check(value: Any) -> int:
        if type(value) is int:
            number = value
        else:
            try:
                number = notation.size(as_text(value))
            except ValueError as e:
                raise refused("is no size", str(e)) from None
        if not least <= number <= most:
            raise refused("is out of range", bounds)
        return number

    return BeforeValidator(check)


def _items(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)
    raise refused("is not a list", "a list")


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    raise refused("is not a mapping", "a mapping")


def _digest(value: Any) -> str:
    # No text of ours repeats the value: an author who pastes the key itself must not find it in a log.
    text = as_text(value)
    if re.fullmatch(r"[0-9a-fA-F]{64}", text) is None:
        raise refused("is no SHA-256 of a key", DIGEST)
    return text.lower()


def _expires(value: Any) -> float:
    if type(value) is float:
        return value
    text = as_text(value)
    try:
        return expiry(text)
    except ValueError:
        raise refused("is no date", EXPIRES) from None


def expiry(text: str) -> float:
    """First unix second at which something is over that is good until a date or moment; ValueError says what is allowed."""
    try:
        if _DATE.fullmatch(text):
            day = date.fromisoformat(text) + timedelta(days=1)
            return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        if _MOMENT.fullmatch(text):
            moment = datetime.fromisoformat(text.upper().replace(" ", "T", 1).replace(" ", ""))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError(EXPIRES)


def parse_url(text: str) -> tuple[str, str, int]:
    """Split an engine's address into scheme, host and port; ValueError, which never repeats the text."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(URL) from None
    whole_url = re.fullmatch(r"[!-~]{1,512}", text) and parts.scheme in {"http", "https"} and _HOST.fullmatch(host)
    extra = "@" in parts.netloc or "?" in text or "#" in text or parts.path not in {"", "/"} or port == 0
    if not whole_url or extra or parts.netloc.endswith(":"):
        raise ValueError(URL)
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80)


def _entry(*, empty: bool) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        text = as_text(value)
        if not text and not empty:
            raise refused("is empty", "text")
        if "*" in text:
            # Taken literally it would match nothing that the author meant.
            raise refused("has a wildcard, which this release does not know", "text without '*'")
        return text

    return check


def _domain(value: Any) -> str:
    if text := as_text(value):
        return text
    raise refused("is empty", "text")


def _unit(value: Any) -> str:
    text = as_text(value).lower()
    if text not in UNITS:
        raise refused("is no unit", ", ".join(UNITS), options=UNITS)
    return text


def _url(value: Any) -> str:
    text = as_text(value)
    try:
        parse_url(text)
    except ValueError as e:
        raise refused("is no address of an engine", str(e)) from None
    return text


Text = Annotated[str, BeforeValidator(as_text)]
EntryKey = Annotated[str, BeforeValidator(_entry(empty=False))]
EntryValue = Annotated[str, BeforeValidator(_entry(empty=True))]
Domain = Annotated[str, BeforeValidator(_domain)]
UnitName = Annotated[str, BeforeValidator(_unit)]
Name = Annotated[str, BeforeValidator(_named(r"[A-Za-z0-9._:/@+-]{1,128}", NAME))]
Label = Annotated[str, BeforeValidator(_named(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", LABEL))]
PoolName = Annotated[str, BeforeValidator(_named(r"[a-z0-9][a-z0-9._-]{0,62}", POOL))]
HeaderName = Annotated[
    str,
    BeforeValidator(
        _named(
            r"(?!x-seawall-|(?:host|connection|content-[a-z]+|transfer-encoding|te|x-request-id|user-agent|accept|x-forwarded-[a-z]+)$)[a-z0-9!#$%&'*+.^_`|~-]{1,64}",
            HEADER,
            lower=True,
        )
    ),
]
ModelName = Annotated[str, BeforeValidator(_named(r"[!-~]{1,256}", MODEL))]
Release = Annotated[str, BeforeValidator(_named(RELEASE_PATTERN.pattern, RELEASE))]
Digest = Annotated[str, BeforeValidator(_digest)]
Expires = Annotated[float, BeforeValidator(_expires)]
Url = Annotated[str, BeforeValidator(_url)]
Items = Annotated[tuple[T, ...], BeforeValidator(_items)]
Named = Annotated[dict[K, T], BeforeValidator(_pairs)]
