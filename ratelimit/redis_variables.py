"""REDIS_… variables of envoyproxy/ratelimit as the URL of our store."""

from collections.abc import Mapping
from urllib.parse import quote

from ratelimit.go_values import boolean
from seawall.serve.settings import SettingError


def store(environ: Mapping[str, str]) -> str:
    """Read REDIS_URL, which is set, by what the others say. Raises SettingError."""
    url = environ["REDIS_URL"]
    form = (environ.get("REDIS_TYPE") or "SINGLE").upper()
    if form not in {"SINGLE", "SENTINEL", "CLUSTER"}:
        raise SettingError(f"REDIS_TYPE: '{form[:40]}' is not allowed: SINGLE, SENTINEL, CLUSTER")
    kind = environ.get("REDIS_SOCKET_TYPE") or ("unix" if form == "SINGLE" else "tcp")
    if kind not in ({"unix", "tcp"} if form == "SINGLE" else {"tcp"}):
        allowed = "unix, tcp" if form == "SINGLE" else f"tcp with REDIS_TYPE={form}"
        raise SettingError(f"REDIS_SOCKET_TYPE: '{kind[:40]}' is not allowed: {allowed}")
    user, password = _auth(environ.get("REDIS_AUTH", ""))
    sentinel_user, sentinel_password = _auth(environ.get("REDIS_SENTINEL_AUTH", ""))
    secure, query = _tls(environ)
    if form == "SENTINEL":
        query += [("sentinel_username", sentinel_user), ("sentinel_password", sentinel_password)]
    secret = f"{quote(user, '')}:{quote(password, '')}@" if password else ""
    scheme = "rediss" if secure else "redis"
    if form == "SENTINEL":
        master, comma, sentinels = url.partition(",")
        if not comma or not master or "@" in sentinels:
            raise SettingError("REDIS_URL: allowed with REDIS_TYPE=SENTINEL is master,host:port,host:port")
        found = f"{scheme}+sentinel://{secret}{sentinels}/{quote(master, '')}"
    elif form == "CLUSTER":
        if "@" in url or "/" in url:
            raise SettingError("REDIS_URL: allowed with REDIS_TYPE=CLUSTER is host:port,host:port")
        found = f"{scheme}+cluster://{secret}{url}"
    elif "://" in url:
        found = f"rediss://{url.removeprefix('redis://')}" if secure and url.startswith("redis://") else url
    elif kind == "unix":
        if not url.startswith("/"):
            raise SettingError("REDIS_URL: allowed with REDIS_SOCKET_TYPE=unix is the absolute path of a socket")
        return f"unix://{secret}{quote(url)}"
    else:
        found = f"{scheme}://{secret}{url}"
    said = "&".join(f"{name}={quote(value, '')}" for name, value in query if value)
    return found + (("&" if "?" in found else "?") + said if said else "")


def _auth(text: str) -> tuple[str, str]:
    """`password` or `user:password`, as the Go service cuts it: at the first colon."""
    user, colon, password = text.partition(":")
    return (user, password) if colon else ("", user)


def _tls(environ: Mapping[str, str]) -> tuple[bool, list[tuple[str, str]]]:
    """Say whether TLS is spoken, and the parameters of the store's URL for it."""
    secure = boolean(environ, "REDIS_TLS", False)
    query = [
        ("ca", environ.get("REDIS_TLS_CACERT", "")),
        ("cert", environ.get("REDIS_TLS_CLIENT_CERT", "")),
        ("key", environ.get("REDIS_TLS_CLIENT_KEY", "")),
        ("verify", "chain" if boolean(environ, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", False) else ""),
    ]
    return secure, query if secure else []
