"""What an operator sets from outside: environment variables and the flags that override them, read once at start.

Everything that may change while traffic flows is in the policy instead.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seawall.policy.notation import duration, size

SERVICES = ("ext_authz", "ratelimit", "ext_proc")
MAX_SOCKET_PATH = 100
"""Bytes of a Unix socket's path that every kernel takes (sun_path holds 108)."""


class SettingError(Exception):
    """A setting that can't be used; the text names the variable, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Times are in seconds, sizes in bytes. `upstreams` is (url, kind) for a policy without engines."""

    store: str = "memory"
    store_timeout: float = 0.25
    policy_file: str | None = None
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    socket_dir: str = "/run/seawall"
    """Where each worker has its socket; "" for none, with `listen` alone."""
    listen: str | None = None
    """`host:port` or `unix:/path`, for meshes that know one address: one worker."""
    http: str | None = "127.0.0.1:9902"
    healthcheck: str | None = None
    """`host:port` of /healthcheck, as envoyproxy/ratelimit has it."""
    services: tuple[str, ...] = SERVICES
    upstreams: tuple[tuple[str, str], ...] = ()
    max_hold: float = 120.0
    max_body: int = 8 * 1024 * 1024
    grace: float = 130.0
    check_interval: float = 1.0
    slot_lease: float = 10.0
    log_level: str = "info"
    envoy_dir: str | None = None
    probe_key: str | None = None
    """SHA-256 (hex) of a key of `seawall up`'s own, with a tenant of its own, for its readiness request."""
    limit_files: str | None = None
    """Folder of rule files of envoyproxy/ratelimit that `python -m ratelimit` serves instead of the policy's limits."""
    ignore_dot_files: bool = False

    def socket(self, index: int) -> str:
        """Path of a worker's socket: what Envoy's endpoint names."""
        return str(Path(self.socket_dir) / f"w{index}.sock")

    def to_json(self) -> str:
        """For a worker's command line environment; holds the store URL, so it is never logged."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Inverse of `to_json`."""
        data = json.loads(text)
        data["services"] = tuple(data["services"])
        data["upstreams"] = tuple((url, kind) for url, kind in data["upstreams"])
        return cls(**data)


VARIABLES = {
    "SEAWALL_STORE": "store",
    "SEAWALL_STORE_TIMEOUT": "store_timeout",
    "SEAWALL_POLICY": "policy_file",
    "SEAWALL_WORKERS": "workers",
    "SEAWALL_SOCKET_DIR": "socket_dir",
    "SEAWALL_LISTEN": "listen",
    "SEAWALL_HTTP": "http",
    "SEAWALL_UPSTREAMS": "upstreams",
    "SEAWALL_MAX_HOLD": "max_hold",
    "SEAWALL_MAX_BODY": "max_body",
    "SEAWALL_GRACE": "grace",
    "SEAWALL_CHECK_INTERVAL": "check_interval",
    "SEAWALL_SLOT_LEASE": "slot_lease",
    "SEAWALL_LOG_LEVEL": "log_level",
    "SEAWALL_ENVOY_DIR": "envoy_dir",
    "SEAWALL_PROBE_KEY": "probe_key",
}
"""Environment variable of each setting; docs/settings.md is checked against it."""


def from_environment(environ: Mapping[str, str], **flags: Any) -> Settings:
    """Read settings; a flag that is not None wins over its variable. Raises SettingError."""
    settings = Settings()
    changes: dict[str, Any] = {}
    for variable, name in VARIABLES.items():
        text = environ.get(variable, "")
        if text:
            changes[name] = _parsed(variable, name, text, type(getattr(settings, name)))
    changes.update({name: value for name, value in flags.items() if value is not None})
    settings = replace(settings, **changes)
    return _checked(settings)


def _parsed(variable: str, name: str, text: str, kind: type) -> Any:
    try:
        if name == "upstreams":
            return tuple(_upstream(part) for part in text.split(","))
        if name == "max_body":
            return size(text)
        if name == "http" and text in {"off", "none"}:
            return None
        if kind is int:
            return int(text)
        if kind is float:
            return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else duration(text)
    except ValueError as e:
        raise SettingError(f"{variable}: '{text}' can't be read: {e}") from None
    return text


def _upstream(text: str) -> tuple[str, str]:
    """`url` or `kind=url`."""
    kind, mark, url = text.strip().partition("=")
    return (url, kind) if mark and "/" not in kind else (text.strip(), "vllm")


def _checked(settings: Settings) -> Settings:
    if not 1 <= settings.workers <= 256:
        raise SettingError(f"SEAWALL_WORKERS: {settings.workers} is not allowed: 1 to 256")
    scheme = settings.store.partition("://")[0]
    if settings.store != "memory" and scheme not in {"redis", "unix"}:
        raise SettingError("SEAWALL_STORE: allowed are memory, redis://host:port/db and unix:///path")
    if settings.store == "memory" and settings.workers != 1:
        # Counters in the memory of several processes would let each admit the whole limit.
        settings = replace(settings, workers=1)
    if not 0.2 <= settings.check_interval <= 60:
        raise SettingError(f"SEAWALL_CHECK_INTERVAL: {settings.check_interval} is not allowed: 0.2 to 60 seconds")
    if settings.log_level not in {"debug", "info", "warn", "error"}:
        raise SettingError(f"SEAWALL_LOG_LEVEL: '{settings.log_level}' is not allowed: debug, info, warn, error")
    if settings.listen is not None and settings.workers != 1:
        # Until connections can be handed from one address to several workers.
        settings = replace(settings, workers=1)
    for name in ("listen", "http"):
        value = getattr(settings, name)
        if value is not None and not value.startswith("unix:"):
            host_port(f"SEAWALL_{name.upper()}", value)
    longest = f"{settings.socket(settings.workers - 1)}.0000000"
    if settings.socket_dir and len(longest.encode()) > MAX_SOCKET_PATH:
        raise SettingError(
            f"SEAWALL_SOCKET_DIR: '{settings.socket_dir}' is too long for Unix sockets: "
            f"its socket paths may have {MAX_SOCKET_PATH} bytes"
        )
    return settings


def host_port(name: str, text: str) -> tuple[str, int]:
    """Split `host:port`; raises SettingError that names the setting."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise SettingError(f"{name}: '{text}' is not allowed: host:port")
    return host, port
