"""Where a store is, from a URL; no secret is in any text made of it.

The schemes are those of redis-py and of the `limits` library, which users of Python meet first (`redis://`, `rediss://`,
`unix://`, `redis+sentinel://`, `redis+cluster://`), with an `s` for TLS. The Sentinel form takes the master's name as the
path's first part, as `limits` does; Lettuce puts it behind a `#`, which is also where an unescaped
password ends up, so that is refused with the right spelling. envoyproxy/ratelimit's comma lists are turned into these by
`ratelimit.environment`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args
from urllib.parse import parse_qsl, quote, unquote

from seawall.store.endpoint import Access, Endpoint, Login, Tls, Verify

Form = Literal["single", "sentinel", "cluster"]

ALLOWED = (
    "memory, redis://[user:password@]host[:port][/db], unix:///socket[?db=N], "
    "redis+sentinel://host,host/master[/db], redis+cluster://host,host; rediss… for TLS"
)
_SCHEMES: dict[str, tuple[Form, bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "unix": ("single", False),
}
_TLS = ("ca", "cert", "key", "server_name", "verify")
_SENTINEL = ("sentinel_username", "sentinel_password", "sentinel_password_file", "sentinel_tls")
_LOGIN = ("username", "password", "password_file")
_PORT = "the port is not a number from 1 to 65535"


@dataclass(frozen=True, slots=True)
class Address:
    """A store on Redis. `nodes` are its one node, its sentinels, or some nodes of its cluster."""

    form: Form = "single"
    nodes: tuple[Endpoint, ...] = (Endpoint(),)
    access: Access = field(default_factory=Access)
    master: str = ""
    """Name by which sentinels know the master."""
    sentinel: Access = field(default_factory=Access)
    """How to get into the sentinels."""

    def __str__(self) -> str:
        """Show without user, password and files."""
        if self.nodes[0].path:
            return f"unix://{self.nodes[0].path}" + (f"?db={self.access.db}" if self.access.db else "")
        scheme = next(s for s, kind in _SCHEMES.items() if kind == (self.form, self.access.tls is not None))
        nodes = ",".join(str(node) for node in self.nodes)
        master = f"/{self.master}" if self.master else ""
        return f"{scheme}://{nodes}{master}" + ("" if self.form == "cluster" else f"/{self.access.db}")


class _PartError(ValueError):
    """A part of the URL that can be named without showing a secret."""


def parse(url: str) -> Address:
    """Read the URL of a store. Raises ValueError; its text never repeats the URL, which may hold a password.

    Files of TLS are read once, to say at start which can't be used.
    """
    scheme, colon, rest = url.partition("://")
    scheme = scheme.lower()
    if not colon or scheme not in _SCHEMES:
        meant = f"redis+{scheme}"
        hint = f"; write {meant}://" if colon and meant in _SCHEMES else ""
        raise ValueError(f"not a store{hint}; allowed: {ALLOWED}")
    try:
        return _unix(rest) if scheme == "unix" else _tcp(rest, *_SCHEMES[scheme])
    except _PartError as wrong:
        raise ValueError(f"store {scheme}://: {wrong}; allowed: {ALLOWED}") from None
    except ValueError:
        raise ValueError(f"store {scheme}://: malformed; allowed: {ALLOWED}") from None


def _tcp(rest: str, form: Form, secure: bool) -> Address:
    if "#" in rest:
        raise _PartError("a # in a password is written %23, and the master's name is the path")
    body, _, text = rest.partition("?")
    where, _, path = body.partition("/")
    user, names = _credentials(where)
    query = _query(text, _LOGIN + ("db",) + (_TLS if secure else ()) + (_SENTINEL if form == "sentinel" else ()))
    parts = [unquote(part) for part in path.strip("/").split("/")] if path.strip("/") else []
    master = ""
    if form == "sentinel":
        if not parts:
            raise _PartError("the path is the name of the master that the sentinels watch, as in /mymaster")
        master = parts.pop(0)
    if len(parts) > 1:
        raise _PartError("the path has too many parts")
    if form == "cluster" and (parts or "db" in query):
        raise _PartError("a cluster has no databases")
    if parts and "db" in query:
        raise _PartError("the database stands twice")
    nodes = _nodes(names, form)
    tls = _tls(query) if secure else None
    return Address(
        form,
        nodes,
        Access(_login(user, query), tls, _db(parts[0] if parts else query.get("db", "0"))),
        master,
        _sentinel(query, tls) if form == "sentinel" else Access(),
    )


def _unix(rest: str) -> Address:
    if "#" in rest:
        raise _PartError("a # is written %23")
    body, _, text = rest.partition("?")
    where, slash, path = body.partition("/")
    query = _query(text, (*_LOGIN, "db"))
    user, host = _credentials(where)
    if not slash or not path or host:
        raise _PartError("the path of the socket is absolute, with three slashes: unix:///run/redis.sock")
    login = _login(user, query)
    return Address("single", (Endpoint(path="/" + unquote(path)),), Access(login, None, _db(query.get("db", "0"))))


def _credentials(where: str) -> tuple[tuple[str, str], str]:
    """Cut `user:password@hosts`; a password may hold an @ that was not escaped."""
    before, _, hosts = where.rpartition("@")
    user, _, password = before.partition(":")
    return (unquote(user), unquote(password)), hosts


def _nodes(text: str, form: Form) -> tuple[Endpoint, ...]:
    names = text.split(",")
    if form == "single" and len(names) > 1:
        raise _PartError("one host; several are a redis+sentinel:// or redis+cluster://")
    default = 26379 if form == "sentinel" else 6379
    if form != "single" and "" in names:
        raise _PartError(f"host {names.index('') + 1} of the list is empty")
    return tuple(_node(name, default) for name in names)


def _node(name: str, default: int) -> Endpoint:
    if name.startswith("["):
        host, bracket, rest = name[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _PartError("an IPv6 host is written [::1]:port")
        port = rest[1:] if rest else None
    else:
        host, colon, rest = name.partition(":")
        port = rest if colon else None
    if port is not None and not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise _PartError(_PORT)
    if any(c.isspace() or not c.isprintable() or c in "[]@\\" for c in host):
        raise _PartError("a host has a character that no host has")
    return Endpoint(host.lower() or "localhost", default if port is None else int(port))


def _query(text: str, allowed: tuple[str, ...]) -> dict[str, str]:
    if "@" in text:  # then a name may be the rest of a password
        raise _PartError("a ? in a password is written %3F, an @ in a parameter %40")
    query: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in allowed:
            secure = " (it needs rediss…)" if name in _TLS else ""
            raise _PartError(f"unknown parameter {name[:40]!r}{secure}; there are {', '.join(allowed)}")
        if name in query:
            raise _PartError(f"{name} stands twice")
        query[name] = value
    return query


def _login(user: tuple[str, str], query: dict[str, str]) -> Login:
    for value, name in zip(user, ("username", "password"), strict=True):
        if value and query.get(name):
            raise _PartError(f"{name} stands twice")
    return _one_password(
        Login(
            user[0] or query.get("username", ""), user[1] or query.get("password", ""), query.get("password_file", "")
        )
    )


def _one_password(login: Login) -> Login:
    if login.password and login.password_file:
        raise _PartError("password and password_file: only one of them")
    return login


def _sentinel(query: dict[str, str], tls: Tls | None) -> Access:
    spoken = query.get("sentinel_tls", "on" if tls else "off")
    if spoken not in {"on", "off"}:
        raise _PartError("sentinel_tls is on or off")
    if spoken == "on" and tls is None:
        raise _PartError("sentinel_tls=on needs rediss+sentinel://")
    login = Login(*(query.get(f"sentinel_{name}", "") for name in _LOGIN))
    return Access(_one_password(login), tls if spoken == "on" else None)


def _tls(query: dict[str, str]) -> Tls:
    verify = query.get("verify") or "full"
    if verify not in get_args(Verify):
        raise _PartError(f"verify is {', '.join(get_args(Verify))}")
    ca, cert, key, name = (query.get(part, "") for part in _TLS[:4])
    if key and not cert:
        raise _PartError("key needs cert")
    tls = Tls(ca, cert, key, name, cast("Verify", verify))
    try:
        tls.context()
    except ValueError as error:
        raise _PartError(str(error)) from None
    return tls


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise _PartError("the database is not a number")
    return int(text)


PARTS = {
    "SEAWALL_STORE_USER": "username",
    "SEAWALL_STORE_PASSWORD": "password",
    "SEAWALL_STORE_PASSWORD_FILE": "password_file",
    "SEAWALL_STORE_CA": "ca",
    "SEAWALL_STORE_CERT": "cert",
    "SEAWALL_STORE_KEY": "key",
    "SEAWALL_STORE_SERVER_NAME": "server_name",
    "SEAWALL_STORE_VERIFY": "verify",
    "SEAWALL_STORE_SENTINEL_USER": "sentinel_username",
    "SEAWALL_STORE_SENTINEL_PASSWORD": "sentinel_password",
    "SEAWALL_STORE_SENTINEL_PASSWORD_FILE": "sentinel_password_file",
    "SEAWALL_STORE_SENTINEL_TLS": "sentinel_tls",
}
"""Environment variables that say what a URL's query can say too, for secrets and files that no command line shows."""


def joined(url: str, environ: Mapping[str, str]) -> str:
    """Write what PARTS of the environment say into the URL's query; `memory` has no parts."""
    said = [f"{part}={quote(environ[name], '')}" for name, part in PARTS.items() if environ.get(name)]
    if url == "memory" or not said:
        return url
    return url + ("&" if "?" in url else "?") + "&".join(said)
