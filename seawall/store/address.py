"""Where a Redis is, from a URL; the password is in no text made of it."""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

ALLOWED = "memory, redis://[user:password@]host[:port][/db] or unix:///path/to/socket[?db=N]"
_LATER = {"rediss": "TLS", "valkeys": "TLS", "redis+sentinel": "Sentinel", "redis+cluster": "Cluster"}


@dataclass(frozen=True, slots=True)
class Address:
    """A node of Redis: a Unix socket when `path` is set, else host and port."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    db: int = 0
    username: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Show without user and password."""
        if self.path:
            return f"unix://{self.path}" + (f"?db={self.db}" if self.db else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis://{host}:{self.port}/{self.db}"


def parse(url: str) -> Address:
    """Read `redis://…` or `unix://…`. Raises ValueError; its text never repeats the URL, which may hold a password."""
    scheme, colon, _ = url.partition("://")
    scheme = scheme.lower()
    if colon and scheme in _LATER:
        raise ValueError(f"store {scheme}:// ({_LATER[scheme]}) is not supported yet; allowed: {ALLOWED}")
    if not colon or scheme not in {"redis", "unix"}:
        raise ValueError(f"not a store; allowed: {ALLOWED}")
    try:
        return _redis(url) if scheme == "redis" else _unix(url)
    except _PartError as wrong:
        raise ValueError(f"store {scheme}://: {wrong}; allowed: {ALLOWED}") from None
    except ValueError:  # urllib's texts repeat parts of the URL
        raise ValueError(f"store {scheme}://: malformed; allowed: {ALLOWED}") from None


class _PartError(ValueError):
    """A part of the URL that can be named without showing a secret."""


def _redis(url: str) -> Address:
    parts = urlsplit(url)
    query = _query(parts.query)
    if parts.fragment:
        raise _PartError("a # in the password is written %23")
    try:
        port = 6379 if parts.port is None else parts.port
    except ValueError:
        raise _PartError("the port is not a number from 1 to 65535") from None
    if port == 0:
        raise _PartError("the port is not a number from 1 to 65535")
    path = parts.path.strip("/")
    return Address(
        host=parts.hostname or "localhost",
        port=port,
        db=_db(path or query.get("db", "0")),
        username=unquote(parts.username or query.get("username", "")),
        password=unquote(parts.password or "") or query.get("password", ""),
    )


def _unix(url: str) -> Address:
    parts = urlsplit(url)
    query = _query(parts.query)
    if not parts.path or parts.hostname:
        raise _PartError("the path of the socket is absolute, with three slashes: unix:///run/redis.sock")
    return Address(
        path=unquote(parts.path),
        db=_db(query.get("db", "0")),
        username=unquote(parts.username or query.get("username", "")),
        password=unquote(parts.password or "") or query.get("password", ""),
    )


def _query(text: str) -> dict[str, str]:
    query = dict(parse_qsl(text, keep_blank_values=True))
    if unknown := query.keys() - {"db", "username", "password"}:
        raise _PartError(f"unknown parameter {min(unknown)[:40]!r}")
    return query


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise _PartError("the database is not a number")
    return int(text)
