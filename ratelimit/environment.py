"""Environment of envoyproxy/ratelimit, turned into our settings. What each variable is to us: ratelimit/variables.py."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from ratelimit import redis_variables
from ratelimit.go_values import address, boolean, choice, duration, fraction, refused, whole
from ratelimit.variables import IGNORED, VARIABLES
from ratelimit.xds_environment import xds_flags
from seawall.limits.statistics import NEAR_RATIO
from seawall.serve.limit_settings import BYTES_OF_ENTRY, LimitSettings
from seawall.serve.settings import SettingError

LEVELS = {
    **dict.fromkeys(("panic", "fatal", "error"), "error"),
    **dict.fromkeys(("warn", "warning"), "warn"),
    "info": "info",
    **dict.fromkeys(("debug", "trace"), "debug"),
}
"""Its words for LOG_LEVEL (logrus), and ours."""
LOSSES = ("deny", "allow", "share")


def flags(environ: Mapping[str, str]) -> dict[str, Any]:
    """Give settings by name; empty where no variable says that we stand in for the Go service. Raises SettingError.

    SEAWALL_STORE wins over REDIS_URL, SEAWALL_LOG_LEVEL over LOG_LEVEL.
    """
    found = _rules(environ)
    if found or environ.get("GRPC_PORT") or environ.get("GRPC_UDS") or "GRPC_PORT" in environ:
        _refused(environ)
        found |= _listening(environ)
        found["limit"] = _limit(environ, files=bool(found.get("limit_files") or found.get("limits_xds")))
        if not environ.get("SEAWALL_LOG_LEVEL"):
            found["log_level"] = LEVELS[choice(environ, "LOG_LEVEL", "warn", tuple(LEVELS))]
    if not environ.get("SEAWALL_STORE") and environ.get("REDIS_URL"):
        found["store"] = redis_variables.store(environ)
    return found


def warnings(environ: Mapping[str, str]) -> list[str]:
    """One line for each variable that is set and does nothing here."""
    return [
        f"{name} is set, and does nothing here: {VARIABLES[name].told}"
        for name in sorted(environ.keys() & VARIABLES.keys())
        if VARIABLES[name].kind == IGNORED and environ[name] not in {"", *VARIABLES[name].harmless}
    ]


def _rules(environ: Mapping[str, str]) -> dict[str, Any]:
    """Where the rules come from: a folder, or a control plane."""
    if "RUNTIME_ROOT" not in environ:
        return xds_flags(environ)
    root = PurePath(environ["RUNTIME_ROOT"]) / environ.get("RUNTIME_SUBDIRECTORY", "")
    # Whether the root or the folder is watched makes no difference here: what lies there now is what counts.
    boolean(environ, "RUNTIME_WATCH_ROOT", True)
    return {
        "limit_files": str(root / environ.get("RUNTIME_APPDIRECTORY", "config")),
        "ignore_dot_files": boolean(environ, "RUNTIME_IGNOREDOTFILES"),
        **xds_flags(environ),
    }


def _refused(environ: Mapping[str, str]) -> None:
    if choice(environ, "BACKEND_TYPE", "redis", ("redis", "memcache")) != "redis":
        raise SettingError("BACKEND_TYPE: 'memcache' is not allowed: redis. Memcached can't decide in one step")
    if boolean(environ, "REDIS_PERSECOND"):
        raise SettingError("REDIS_PERSECOND: 'true' is not allowed: false. All limits are counted in one store")
    if environ.get("GRPC_CLIENT_TLS_SAN"):
        raise SettingError("GRPC_CLIENT_TLS_SAN: names of client certificates are not checked here: leave it out")


def _listening(environ: Mapping[str, str]) -> dict[str, Any]:
    uds = environ.get("GRPC_UDS")
    found: dict[str, Any] = {
        "listen": f"unix:{uds}" if uds else address(environ, "GRPC_HOST", "0.0.0.0", "GRPC_PORT", "8081"),
        "socket_dir": "",
        "healthcheck": address(environ, "HOST", "0.0.0.0", "PORT", "8080"),
        "http": address(environ, "DEBUG_HOST", "127.0.0.1", "DEBUG_PORT", "6070"),
        "json_endpoint": True,
    }
    if environ.get("GRPC_MAX_CONNECTION_AGE"):
        found["max_connection_age"] = duration(environ, "GRPC_MAX_CONNECTION_AGE", 24 * 3600.0, 1, 365 * 86400)
    if boolean(environ, "GRPC_SERVER_USE_TLS"):
        for name, setting in (("GRPC_SERVER_TLS_CERT", "tls_cert"), ("GRPC_SERVER_TLS_KEY", "tls_key")):
            if not environ.get(name):
                raise SettingError(f"{name}: is missing; with GRPC_SERVER_USE_TLS it is a PEM file")
            found[setting] = environ[name]
        found["tls_client_ca"] = environ.get("GRPC_CLIENT_TLS_CACERT") or None
    if boolean(environ, "USE_PROMETHEUS"):
        listen, path = environ.get("PROMETHEUS_ADDR") or ":9090", environ.get("PROMETHEUS_PATH") or "/metrics"
        if not path.startswith("/"):
            raise SettingError(f"PROMETHEUS_PATH: '{path[:40]}' is not allowed: a path that begins with /")
        found["prometheus"] = (f"0.0.0.0{listen}" if listen.startswith(":") else listen, path)
    return found


def _ratio(environ: Mapping[str, str], name: str, default: float) -> float:
    number = fraction(environ, name, default)
    if number > 1:
        raise refused(name, environ[name], "a number from 0 to 1")
    return number


def _limit(environ: Mapping[str, str], *, files: bool) -> LimitSettings:
    """How calls are answered.

    Only limits of files and of a control plane (`files`) have the Go service's keys and its way when Redis is away.
    """
    headers = (
        environ.get("LIMIT_LIMIT_HEADER") or "RateLimit-Limit",
        environ.get("LIMIT_REMAINING_HEADER") or "RateLimit-Remaining",
        environ.get("LIMIT_RESET_HEADER") or "RateLimit-Reset",
    )
    limit = LimitSettings(
        quota=boolean(environ, "QUOTA_MODE"),
        shadow=boolean(environ, "SHADOW_MODE"),
        stop=boolean(environ, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
        near_ratio=_ratio(environ, "NEAR_LIMIT_RATIO", NEAR_RATIO),
        headers=headers if boolean(environ, "LIMIT_RESPONSE_HEADERS_ENABLED") else None,
        metadata=boolean(environ, "RESPONSE_DYNAMIC_METADATA"),
        jitter=whole(environ, "EXPIRATION_JITTER_MAX_SECONDS", 300, 365 * 86400),
        cache=whole(environ, "LOCAL_CACHE_SIZE_IN_BYTES", 0, 2**40) // BYTES_OF_ENTRY,
        merge=boolean(environ, "MERGE_DOMAIN_CONFIG"),
        needs_rules=boolean(environ, "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
        needs_store=boolean(environ, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"),
    )
    if not files:
        return limit
    loss = choice(environ, "SEAWALL_STORE_LOSS", "deny", LOSSES)
    return replace(limit, key_prefix=environ.get("CACHE_KEY_PREFIX", ""), store_loss=loss)  # type: ignore[arg-type]
