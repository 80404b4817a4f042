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

from seawall.limits.window import LONGEST
from seawall.policy import notation, yaml11
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
PLACEHOLDER = "1 to 64 printable characters"
MODEL = "printable ASCII without spaces, at most 256"
HEALTH_OFF = "off"
HEALTH_PATH = "a path that begins with /, printable ASCII without spaces, at most 256"
HOST = "a host name without port, in which the first part may be *: batch.example, *.batch.example"
AFFINITY = "none, tenant, or header: and the name of a header, not x-seawall-*"

WINDOW = "whole seconds from 1s to 365d: 30s, 5m, 1h30m"

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}")
_HEADER_NAME = re.compile(
    r"(?!x-seawall-|(?:host|connection|content-[a-z]+|transfer-encoding|te|x-request-id|user-agent|accept|x-forwarded-[a-z]+)$)"
    r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}"
)
RELEASE_PATTERN = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,2}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)? ?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
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
    number = yaml11.integer(value) if isinstance(value, Plain) else None
    if number is None:
        raise refused("is no whole number", "a whole number, without quotes")
    return number


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    known = yaml11.boolean(value) if isinstance(value, Plain) else None
    if known is None:
        raise refused("is neither yes nor no", "true, false (also yes, no, on, off, y, n), without quotes")
    return known


def _window(value: Any) -> int:
    if type(value) is int:
        return value
    try:
        seconds = notation.duration(as_text(value))
    except ValueError:
        raise refused("is no length of a window", WINDOW) from None
    if seconds != int(seconds) or not 1 <= seconds <= LONGEST:
        raise refused("is out of range", WINDOW)
    return int(seconds)


def metadata_value(value: Any) -> Any:
    """Value of a free tree: unquoted scalars as YAML 1.1 reads them, keys as they are written."""
    if isinstance(value, Plain):
        return yaml11.resolve(value)
    if isinstance(value, dict):
        return {str(key): metadata_value(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [metadata_value(below) for below in value]
    return value


def _metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refused("is not a mapping", "a mapping")
    return {str(key): metadata_value(below) for key, below in value.items()}


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


def lasting(least: float, most: float, bounds: str) -> BeforeValidator:
    """Allow durations in a range of seconds, both ends included; `bounds` says the range to people."""

    def check(value: Any) -> float:
        if type(value) is float:
            return value
        try:
            seconds = notation.duration(as_text(value))
        except ValueError as e:
            raise refused("is no duration", str(e)) from None
        if not least <= seconds <= most:
            raise refused("is out of range", bounds)
        return seconds

    return BeforeValidator(check)


def spanning(least: float, most: float, bounds: str) -> BeforeValidator:
    """Allow two durations, both in a range of seconds."""

    def check(value: Any) -> tuple[float, float]:
        if isinstance(value, tuple):
            return value
        try:
            low, high = notation.span(as_text(value))
        except ValueError as e:
            raise refused("is no span", str(e)) from None
        if not least <= low <= high <= most:
            raise refused("is out of range", bounds)
        return low, high

    return BeforeValidator(check)


def _share(value: Any) -> float:
    if type(value) is float:
        return value
    try:
        return notation.ratio(as_text(value))
    except ValueError as e:
        raise refused("is no share", str(e)) from None


def _affinity(value: Any) -> str:
    text = as_text(value)
    kind, mark, name = text.partition(":")
    if text in {"none", "tenant"}:
        return text
    if kind == "header" and mark and _HEADER_NAME.fullmatch(name.lower()):
        return f"header:{name.lower()}"
    raise refused("is no affinity", AFFINITY, options=("none", "tenant"))


RETRY_CONDITIONS = ("connect-failure", "refused-stream", "reset-before-request")
RETRY_STATUSES = ("429", "500", "502", "503", "504")
_AFTER_THE_START = "an engine may be generating already, and the next one would do it again"
_NEVER_RETRIED = {
    "timeout": _AFTER_THE_START,
    "per-try-timeout": _AFTER_THE_START,
    "reset": f"{_AFTER_THE_START}; a prompt that ends one engine would end them all",
    "5xx": f"it includes reset: {_AFTER_THE_START}; name statuses",
    "gateway-error": f"it includes reset: {_AFTER_THE_START}; name statuses",
    "retriable-4xx": "409 is an answer; name statuses",
    "http3-post-connect-failure": "engines are asked by HTTP/1.1",
    "reset-before-response": _AFTER_THE_START,
}


def _retry_on(value: Any) -> str:
    text = as_text(value)
    allowed = (*RETRY_CONDITIONS, *RETRY_STATUSES)
    if text in allowed:
        return text
    why = f"is never retried: {_NEVER_RETRIED[text]}" if text in _NEVER_RETRIED else "is not allowed here"
    raise refused(why, ", ".join(allowed), options=allowed)


def _items(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)
    raise refused("is not a list", "a list")


def _rule_list(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict) and "files" in value:
        raise refused("names files, which only a document that is read from a file can", "a list of domains")
    return _items(value)


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


def _placeholder(value: Any) -> str:
    text = as_text(value)
    if not 1 <= len(text) <= 64 or not text.isprintable():
        raise refused("is no placeholder", PLACEHOLDER)
    return text


def _switch(value: Any) -> bool:
    if type(value) is bool:
        return value
    if value not in {"true", "false"} or not isinstance(value, Plain):
        raise refused("is not allowed here", "true, false")
    return bool(value == "true")


def _entry(*, empty: bool) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        text = as_text(value)
        if not text and not empty:
            raise refused("is empty", "text")
        return text

    return check


def _domain(value: Any) -> str:
    if text := as_text(value):
        return text
    raise refused("is empty", "text")


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
Flag = Annotated[bool, BeforeValidator(_flag)]
WindowLength = Annotated[int, BeforeValidator(_window)]
Metadata = Annotated[dict[str, Any], BeforeValidator(_metadata)]
Name = Annotated[str, BeforeValidator(_named(r"[A-Za-z0-9._:/@+-]{1,128}", NAME))]
Label = Annotated[str, BeforeValidator(_named(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", LABEL))]
PoolName = Annotated[str, BeforeValidator(_named(r"[a-z0-9][a-z0-9._-]{0,62}", POOL))]
HeaderName = Annotated[str, BeforeValidator(_named(_HEADER_NAME.pattern, HEADER, lower=True))]
Host = Annotated[
    str,
    BeforeValidator(
        _named(r"(?=.{1,253}$)(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", HOST, lower=True)
    ),
]
HealthPath = Annotated[str, BeforeValidator(_named(r"/[!-~]{0,255}", HEALTH_PATH))]
Share = Annotated[float, BeforeValidator(_share)]
Affinity = Annotated[str, BeforeValidator(_affinity)]
RetryOn = Annotated[str, BeforeValidator(_retry_on)]
ModelName = Annotated[str, BeforeValidator(_named(r"[!-~]{1,256}", MODEL))]
Release = Annotated[str, BeforeValidator(_named(RELEASE_PATTERN.pattern, RELEASE))]
Placeholder = Annotated[str, BeforeValidator(_placeholder)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Digest = Annotated[str, BeforeValidator(_digest)]
Expires = Annotated[float, BeforeValidator(_expires)]
Url = Annotated[str, BeforeValidator(_url)]
Items = Annotated[tuple[T, ...], BeforeValidator(_items)]
RuleList = Annotated[tuple[T, ...], BeforeValidator(_rule_list)]
Named = Annotated[dict[K, T], BeforeValidator(_pairs)]
