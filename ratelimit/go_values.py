"""Values of environment variables as Go's libraries read them.

What those refuse ends the Go service, and ours with a reason. A variable that is set to nothing counts as unset.
"""

import re
from collections.abc import Mapping

from seawall.serve.settings import SettingError

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
"""What strconv.ParseBool reads."""
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|μs|ms|s|m|h)")

Environ = Mapping[str, str]


def refused(name: str, text: str, allowed: str) -> SettingError:
    """Say what is wrong with a variable."""
    return SettingError(f"{name}: '{text[:40]}' is not allowed: {allowed}")


def boolean(environ: Environ, name: str, default: bool = False) -> bool:
    """1, t, T, TRUE, true, True and their opposites. Raises SettingError."""
    text = environ.get(name, "")
    if not text:
        return default
    if text not in _TRUE | _FALSE:
        raise refused(name, text, "true, false, 1, 0, t, f")
    return text in _TRUE


def duration(environ: Environ, name: str, default: float, least: float, most: float) -> float:
    """Seconds of time.ParseDuration's notation, such as `1m30s`; a number needs a unit. Raises SettingError."""
    text = environ.get(name, "")
    if not text:
        return default
    parts = _PART.findall(text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not least <= seconds <= most:
        raise refused(name, text, f"a duration with a unit, {least:g}s to {most:g}s: 500ms, 10s, 1m30s")
    return seconds


def whole(environ: Environ, name: str, default: int, most: int) -> int:
    """Whole number from 0. Raises SettingError."""
    text = environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"\+?[0-9]{1,18}", text, re.ASCII) or int(text) > most:
        raise refused(name, text, f"a whole number, 0 to {most}")
    return int(text)


def fraction(environ: Environ, name: str, default: float) -> float:
    """Number from 0. Raises SettingError."""
    text = environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"\+?([0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})", text, re.ASCII):
        raise refused(name, text, "a number from 0, such as 0.5")
    return float(text)


def mapping(environ: Environ, name: str) -> list[tuple[str, str]]:
    """Read pairs of `a:b,c:d`; raises SettingError, which names no value: one may be a credential."""
    text = environ.get(name, "")
    pairs = []
    for index, item in enumerate(text.split(",") if text else []):
        key, colon, value = item.partition(":")
        if not colon:
            raise SettingError(f"{name}: item {index + 1} has no colon; allowed: name:value,name:value")
        pairs.append((key, value))
    return pairs


def choice(environ: Environ, name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of the words, in any case of letters. Raises SettingError."""
    text = environ.get(name) or default
    for word in allowed:
        if text.lower() == word.lower():
            return word
    raise refused(name, text, ", ".join(allowed))


def address(environ: Environ, host: str, host_default: str, port: str, port_default: str) -> str:
    """`host:port` of two variables. Raises SettingError."""
    text = environ.get(port) or port_default
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536):
        raise refused(port, text, "1 to 65535")
    name = environ.get(host) or host_default
    return f"[{name}]:{text}" if ":" in name else f"{name}:{text}"
