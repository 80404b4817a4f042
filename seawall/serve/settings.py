"""What an operator sets from outside: environment variables and the flags that override them, read once at start.

Everything that may change while traffic flows is in the policy instead.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from seawall.policy.document import Engine
from seawall.policy.fields import parse_url
from seawall.policy.notation import duration, size
from seawall.serve.limit_settings import LimitSettings
from seawall.serve.xds_source import XdsSource
from seawall.store.address import PARTS, joined, parse

SERVICES = ("ext_authz", "ratelimit", "ext_proc")
MAX_SOCKET_PATH = 100
"""Bytes of a Unix socket's path that every kernel takes (sun_path holds 108)."""
MIB = 1024 * 1024
ENGINE_KINDS: tuple[str, ...] = get_args(Engine.model_fields["kind"].annotation)


class SettingError(Exception):
    """A setting that can't be used; the text names the variable, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Times are in seconds, sizes in bytes. `upstreams` is (url, kind) for a policy without engines."""

    store: str = "memory"
    """URL; what SEAWALL_STORE_CA and its like say stands in its query."""
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
    transport: Literal["own", "grpcio"] = "own"
    """`grpcio` is the reference: one worker for each address, and several times the CPU."""
    listen_resets: tuple[int, int] | None = (20_000, 5_000)
    """(burst, per second) of streams that a client of `listen` may reset before its connection is closed; None: any."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    """PEM files for `listen`, read again when they change; a client CA makes client certificates a must."""
    max_connection_age: float = 24 * 3600.0
    """Seconds after which a connection of `listen` is told to go elsewhere, give or take a tenth."""
    services: tuple[str, ...] = SERVICES
    upstreams: tuple[tuple[str, str], ...] = ()
    max_hold: float = 120.0
    max_body: int = 8 * MIB
    grace: float = 130.0
    check_interval: float = 1.0
    slot_lease: float = 10.0
    ready_time: float = 60.0
    """Within which the successor of a worker must serve, or the rolling restart stops."""
    hang_time: float = 15.0
    """Without an answer to its supervisor, after which a worker is killed: by then Envoy has cut all that it carried."""
    orphan_time: float = 30.0
    """That workers of a dead supervisor go on, for the next one's to take their names."""
    log_level: str = "info"
    envoy_dir: str | None = None
    envoy_admin: str | None = None
    """`host:port` of the admin address of the Envoy that watches `envoy_dir`."""
    engine_ca: str = "/etc/ssl/certs/ca-certificates.crt"
    """PEM file on Envoy's machine: who may sign the certificates of https engines."""
    probe_key: str | None = None
    """SHA-256 (hex) of a key of `seawall up`'s own, with a tenant of its own, for its readiness request."""
    limit_files: str | None = None
    """Folder of rule files of envoyproxy/ratelimit that `python -m ratelimit` serves instead of the policy's limits."""
    ignore_dot_files: bool = False
    limits_xds: XdsSource | None = None
    """Control plane that sends the limits, in place of files and policy."""
    serve_without_limits: bool = False
    """Serve, and answer UNAVAILABLE, before there are any (FORCE_START_WITHOUT_INITIAL_CONFIG)."""
    limit: LimitSettings = field(default_factory=LimitSettings)
    prometheus: tuple[str, str] | None = None
    """(`host:port`, path) of one more place for /metrics: PROMETHEUS_ADDR and PROMETHEUS_PATH of envoyproxy/ratelimit."""
    json_endpoint: bool = False
    """/json beside /healthcheck, and the pages of envoyproxy/ratelimit's debug port on `http`."""

    @property
    def without_policy(self) -> bool:
        """Whether limits come from somewhere else and there is no policy to follow."""
        return self.limit_files is not None or self.limits_xds is not None

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
        data["limit"] = LimitSettings.from_plain(data["limit"])
        data["prometheus"] = tuple(data["prometheus"]) if data["prometheus"] is not None else None
        if data["listen_resets"] is not None:
            data["listen_resets"] = tuple(data["listen_resets"])
        if data["limits_xds"] is not None:
            data["limits_xds"] = XdsSource.from_data(data["limits_xds"])
        return cls(**data)


VARIABLES = {
    "SEAWALL_STORE": "store",
    **dict.fromkeys(PARTS, "store"),
    "SEAWALL_STORE_TIMEOUT": "store_timeout",
    "SEAWALL_POLICY": "policy_file",
    "SEAWALL_WORKERS": "workers",
    "SEAWALL_SOCKET_DIR": "socket_dir",
    "SEAWALL_LISTEN": "listen",
    "SEAWALL_HTTP": "http",
    "SEAWALL_TRANSPORT": "transport",
    "SEAWALL_LISTEN_RESETS": "listen_resets",
    "SEAWALL_TLS_CERT": "tls_cert",
    "SEAWALL_TLS_KEY": "tls_key",
    "SEAWALL_TLS_CLIENT_CA": "tls_client_ca",
    "SEAWALL_MAX_CONNECTION_AGE": "max_connection_age",
    "SEAWALL_UPSTREAMS": "upstreams",
    "SEAWALL_MAX_HOLD": "max_hold",
    "SEAWALL_MAX_BODY": "max_body",
    "SEAWALL_GRACE": "grace",
    "SEAWALL_CHECK_INTERVAL": "check_interval",
    "SEAWALL_SLOT_LEASE": "slot_lease",
    "SEAWALL_READY_TIME": "ready_time",
    "SEAWALL_HANG_TIME": "hang_time",
    "SEAWALL_ORPHAN_TIME": "orphan_time",
    "SEAWALL_LOG_LEVEL": "log_level",
    "SEAWALL_ENVOY_DIR": "envoy_dir",
    "SEAWALL_ENVOY_ADMIN": "envoy_admin",
    "SEAWALL_ENGINE_CA": "engine_ca",
    "SEAWALL_PROBE_KEY": "probe_key",
}
"""Environment variable of each setting; docs/settings.md is checked against it."""

STORE_LOSS = "SEAWALL_STORE_LOSS"
"""Of `python -m ratelimit` alone, whose rule files can't say it: `store_loss.limits`."""

_BOUNDS = {
    "workers": (1, 256, ""),
    "store_timeout": (0.001, 60, " seconds"),
    "max_hold": (1, 3600, " seconds"),
    "max_body": (1024, 1024 * MIB, " bytes"),
    "grace": (0, 86400, " seconds"),
    "check_interval": (0.2, 60, " seconds"),
    "slot_lease": (1, 3600, " seconds"),
    "ready_time": (1, 3600, " seconds"),
    "hang_time": (1, 3600, " seconds"),
    "orphan_time": (0, 3600, " seconds"),
    "max_connection_age": (1, 365 * 86400, " seconds"),
}
"""Least and most of each number, both allowed; with its unit."""
_VARIABLE_OF = {name: variable for variable, name in VARIABLES.items()}


def from_environment(environ: Mapping[str, str], **flags: Any) -> Settings:
    """Read settings; a flag that is not None wins over its variable. Raises SettingError."""
    settings = Settings()
    changes: dict[str, Any] = {}
    for variable, name in VARIABLES.items():
        text = environ.get(variable, "")
        if text and variable not in PARTS:
            changes[name] = _parsed(variable, name, text, type(getattr(settings, name)))
    changes.update({name: value for name, value in flags.items() if value is not None})
    settings = replace(settings, **changes)
    return _checked(replace(settings, store=joined(settings.store, environ)))


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Name variables of ours that nobody reads: most likely misspelt."""
    return sorted(name for name in environ if name.startswith("SEAWALL_") and name not in {*VARIABLES, STORE_LOSS})


def _parsed(variable: str, name: str, text: str, kind: type) -> Any:
    if name == "upstreams":
        return tuple(_upstream(variable, part) for part in text.split(","))
    try:
        if name == "max_body":
            return size(text)
        if name in {"http", "listen_resets"} and text in {"off", "none"}:
            return None
        if name == "listen_resets":
            return _resets(text)
        if kind is int:
            return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else _no_number()
        if kind is float:
            return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else duration(text)
    except ValueError as e:
        raise SettingError(f"{variable}: '{text[:100]}' can't be read; allowed: {e}") from None
    return text


def _resets(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9}),([0-9]{1,9})", text)
    if found is None:
        raise ValueError("off, or burst,per-second such as 20000,5000")
    return int(found[1]), int(found[2])


def _no_number() -> int:
    raise ValueError("a whole number")


def _upstream(variable: str, text: str) -> tuple[str, str]:
    """`url` or `kind=url`."""
    kind, mark, url = text.strip().partition("=")
    if not mark or "/" in kind:
        kind, url = "vllm", text.strip()
    try:
        # A URL may hold a password, so it is not repeated.
        parse_url(url)
    except ValueError as e:
        raise SettingError(f"{variable}: an engine's address can't be read; allowed: {e}") from None
    if kind not in ENGINE_KINDS:
        raise SettingError(f"{variable}: '{kind[:40]}' is no kind of engine: {', '.join(ENGINE_KINDS)}")
    return url, kind


def _checked(settings: Settings) -> Settings:
    for name, (least, most, unit) in _BOUNDS.items():
        value = getattr(settings, name)
        if not least <= value <= most:
            raise SettingError(f"{_VARIABLE_OF[name]}: {value} is not allowed: {least} to {most}{unit}")
    if settings.store != "memory":
        try:
            parse(settings.store)
        except ValueError as e:
            raise SettingError(f"SEAWALL_STORE: {e}") from None
    elif settings.workers != 1:
        # Counters in the memory of several processes would let each admit the whole limit.
        settings = replace(settings, workers=1)
    if settings.log_level not in {"debug", "info", "warn", "error"}:
        raise SettingError(f"SEAWALL_LOG_LEVEL: '{settings.log_level}' is not allowed: debug, info, warn, error")
    if settings.transport not in {"own", "grpcio"}:
        raise SettingError(f"SEAWALL_TRANSPORT: '{settings.transport[:40]}' is not allowed: own, grpcio")
    if settings.listen is not None and settings.workers != 1 and settings.transport == "grpcio":
        # Only our own transport can be handed a connection that another process has accepted.
        settings = replace(settings, workers=1)
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise SettingError("SEAWALL_TLS_CERT and SEAWALL_TLS_KEY go together: one of them is missing")
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        raise SettingError("SEAWALL_TLS_CLIENT_CA needs SEAWALL_TLS_CERT and SEAWALL_TLS_KEY")
    if settings.tls_cert is not None and (settings.transport == "grpcio" or settings.listen is None):
        raise SettingError("SEAWALL_TLS_CERT needs SEAWALL_LISTEN and the transport 'own'")
    if settings.listen is not None and not re.fullmatch("unix:/.+", settings.listen):
        host_port("SEAWALL_LISTEN", settings.listen)
    for name in ("http", "healthcheck", "envoy_admin"):
        value = getattr(settings, name)
        if value is not None:
            host_port(f"SEAWALL_{name.upper()}", value)
    if settings.prometheus is not None:
        host_port("PROMETHEUS_ADDR", settings.prometheus[0])
    if settings.probe_key is not None and not re.fullmatch("[0-9A-Fa-f]{64}", settings.probe_key):
        raise SettingError("SEAWALL_PROBE_KEY: allowed are 64 hex digits, the SHA-256 of a key")
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
    if not host or port is None or re.search(r"[/?#@\s]", text):
        # What stands before an @ would be a password.
        raise SettingError(f"{name}: '{text.rpartition('@')[2][:60]}' is not allowed: host:port")
    return host, port
