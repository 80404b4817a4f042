"""Environment variables of envoyproxy/ratelimit, as far as this release honours them, turned into our settings."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from ratelimit.go_values import boolean
from ratelimit.xds_environment import xds_flags
from seawall.serve.settings import SettingError


def flags(environ: Mapping[str, str]) -> dict[str, Any]:
    """Give settings by name; empty where no variable of the Go service is set. Raises SettingError.

    SEAWALL_STORE wins over REDIS_URL.
    """
    found: dict[str, Any] = {}
    if "RUNTIME_ROOT" in environ:
        root = PurePath(environ["RUNTIME_ROOT"]) / environ.get("RUNTIME_SUBDIRECTORY", "")
        found["limit_files"] = str(root / environ.get("RUNTIME_APPDIRECTORY", "config"))
        found["ignore_dot_files"] = boolean(environ, "RUNTIME_IGNOREDOTFILES", False)
        # Whether the root or the folder is watched makes no difference here: what lies there now is what counts.
        boolean(environ, "RUNTIME_WATCH_ROOT", True)
    found |= xds_flags(environ)
    if found or "GRPC_PORT" in environ or "GRPC_UDS" in environ:
        uds = environ.get("GRPC_UDS")
        found["listen"] = f"unix:{uds}" if uds else _address(environ, "GRPC_HOST", "0.0.0.0", "GRPC_PORT", "8081")
        found["socket_dir"] = ""
        found["healthcheck"] = _address(environ, "HOST", "0.0.0.0", "PORT", "8080")
        found["http"] = _address(environ, "DEBUG_HOST", "127.0.0.1", "DEBUG_PORT", "6070")
    if not environ.get("SEAWALL_STORE") and environ.get("REDIS_URL"):
        found["store"] = _redis(environ)
    return found


def _address(environ: Mapping[str, str], host: str, host_default: str, port: str, port_default: str) -> str:
    text = environ.get(port) or port_default
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536):
        raise SettingError(f"{port}: '{text[:40]}' is not allowed: 1 to 65535")
    name = environ.get(host) or host_default
    return f"[{name}]:{text}" if ":" in name else f"{name}:{text}"


def _redis(environ: Mapping[str, str]) -> str:
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
