"""Environment of envoyproxy/ratelimit."""

import pytest

from ratelimit.environment import flags, warnings
from seawall.serve.settings import SettingError, Settings, from_environment
from seawall.store.address import parse
from seawall.store.endpoint import Access, Login, Tls

ROOT = {"RUNTIME_ROOT": "/data"}
ADDRESSES: dict[str, object] = {
    "log_level": "warn",
    "json_endpoint": True,
    "listen": "0.0.0.0:8081",
    "socket_dir": "",
    "healthcheck": "0.0.0.0:8080",
    "http": "127.0.0.1:6070",
}


def test_nothing_set() -> None:
    """Without a variable of the Go service nothing is set."""
    assert flags({}) == {}
    assert flags({"PORT": "1", "HOST": "x", "SEAWALL_STORE": "memory", "RUNTIME_SUBDIRECTORY": "x"}) == {}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (ROOT, {"limit_files": "/data/config", "ignore_dot_files": False, **ADDRESSES}),
        (
            {**ROOT, "RUNTIME_SUBDIRECTORY": "ratelimit"},
            {"limit_files": "/data/ratelimit/config", "ignore_dot_files": False, **ADDRESSES},
        ),
        (
            {**ROOT, "RUNTIME_SUBDIRECTORY": "a/b", "RUNTIME_APPDIRECTORY": "rules", "RUNTIME_IGNOREDOTFILES": "true"},
            {"limit_files": "/data/a/b/rules", "ignore_dot_files": True, **ADDRESSES},
        ),
        ({"GRPC_PORT": "9000"}, {**ADDRESSES, "listen": "0.0.0.0:9000"}),
        ({"GRPC_PORT": "9000", "GRPC_HOST": "::1"}, {**ADDRESSES, "listen": "[::1]:9000"}),
        ({"GRPC_UDS": "/run/rl.sock", "GRPC_PORT": "9000"}, {**ADDRESSES, "listen": "unix:/run/rl.sock"}),
        (
            {"GRPC_PORT": "1", "HOST": "10.0.0.1", "PORT": "2", "DEBUG_HOST": "0.0.0.0", "DEBUG_PORT": "65535"},
            {**ADDRESSES, "listen": "0.0.0.0:1", "healthcheck": "10.0.0.1:2", "http": "0.0.0.0:65535"},
        ),
        ({"GRPC_PORT": "", "PORT": "", "HOST": "", "DEBUG_PORT": ""}, ADDRESSES),
    ],
)
def test_flags(environ: dict[str, str], found: dict[str, object]) -> None:
    """Variables are settings, with the Go service's defaults; one address means one worker."""
    given = flags(environ)
    limit = given.pop("limit")
    assert given == found
    # Only rules from files count under the Go service's keys.
    assert (limit.key_prefix, limit.store_loss) == (("", "deny") if "limit_files" in found else (None, None))
    assert limit.jitter == 300
    settings = from_environment({}, **flags(environ))
    assert (settings.listen, settings.workers) == (found["listen"], 1)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true(text: str) -> None:
    """What Go reads as true is true."""
    assert flags({**ROOT, "RUNTIME_IGNOREDOTFILES": text})["ignore_dot_files"] is True


@pytest.mark.parametrize("text", ["", "0", "f", "F", "FALSE", "false", "False"])
def test_false(text: str) -> None:
    """What Go reads as false is false."""
    assert flags({**ROOT, "RUNTIME_IGNOREDOTFILES": text})["ignore_dot_files"] is False


@pytest.mark.parametrize(
    ("environ", "store"),
    [
        ({"REDIS_URL": "/run/redis.sock"}, "unix:///run/redis.sock"),
        ({"REDIS_URL": "/run/my redis#1.sock"}, "unix:///run/my redis#1.sock"),
        ({"REDIS_URL": "/run/r.sock", "REDIS_AUTH": "pw"}, "unix:///run/r.sock"),
        ({"REDIS_URL": "h:6379", "REDIS_SOCKET_TYPE": "tcp"}, "redis://h:6379/0"),
        ({"REDIS_URL": "redis://h:6379/2"}, "redis://h:6379/2"),
        ({"REDIS_URL": "h:6379", "REDIS_SOCKET_TYPE": "tcp", "REDIS_AUTH": "pw"}, "redis://h:6379/0"),
        ({"REDIS_URL": "h:1", "REDIS_SOCKET_TYPE": "tcp", "REDIS_TLS": "true"}, "rediss://h:1/0"),
        ({"REDIS_URL": "redis://h:1", "REDIS_TLS": "1"}, "rediss://h:1/0"),
        ({"REDIS_URL": "a:1,b:2", "REDIS_TYPE": "CLUSTER", "REDIS_AUTH": "pw"}, "redis+cluster://a:1,b:2"),
        ({"REDIS_URL": "a:1,b:2", "REDIS_TYPE": "cluster", "REDIS_TLS": "t"}, "rediss+cluster://a:1,b:2"),
        ({"REDIS_URL": "main,a:1,b:2", "REDIS_TYPE": "SENTINEL"}, "redis+sentinel://a:1,b:2/main/0"),
    ],
)
def test_store(environ: dict[str, str], store: str) -> None:
    """REDIS_URL is the store, a socket's path unless the type is tcp."""
    address = parse(flags(environ)["store"])
    assert str(address) == store


def test_store_with_everything() -> None:
    """TLS, verification without the host's name, and the sentinels' own password reach the address."""
    environ = {
        "REDIS_TYPE": "SENTINEL",
        "REDIS_URL": "main,a:1",
        "REDIS_AUTH": "ann:p&w",
        "REDIS_SENTINEL_AUTH": "s:p=w",
        "REDIS_TLS": "true",
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "true",
    }
    address = parse(flags(environ)["store"])
    assert address.access == Access(Login("ann", "p&w"), Tls(verify="chain"))
    assert address.sentinel == Access(Login("s", "p=w"), Tls(verify="chain"))
    for file in ("CACERT", "CLIENT_CERT"):
        with pytest.raises(ValueError, match=r"/no/such"):
            parse(flags({**environ, f"REDIS_TLS_{file}": "/no/such"})["store"])


@pytest.mark.parametrize(
    ("auth", "user", "password"),
    [
        ("", "", ""),
        ("pw", "", "pw"),
        ("user:pw", "user", "pw"),
        ("user:p:w", "user", "p:w"),
        (":pw", "", "pw"),
        ("u/s@r:p@s/s?#%w", "u/s@r", "p@s/s?#%w"),
        ("pässwörd", "", "pässwörd"),
    ],
)
@pytest.mark.parametrize("where", [{"REDIS_URL": "h:1", "REDIS_SOCKET_TYPE": "tcp"}, {"REDIS_URL": "/s"}])
def test_auth(auth: str, user: str, password: str, where: dict[str, str]) -> None:
    """REDIS_AUTH is a password or `user:password`, cut at the first colon, whatever it holds."""
    address = parse(flags({**where, "REDIS_AUTH": auth})["store"])
    login = address.access.login
    assert (login.username, login.password) == (user, password)


def test_our_own_store_wins() -> None:
    """SEAWALL_STORE wins over REDIS_URL, unless it is empty."""
    assert "store" not in flags({"SEAWALL_STORE": "memory", "REDIS_URL": "/x"})
    assert "store" not in flags({"REDIS_URL": ""})
    assert flags({"SEAWALL_STORE": "", "REDIS_URL": "/x"})["store"] == "unix:///x"


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({**ROOT, "RUNTIME_IGNOREDOTFILES": "yes"}, "RUNTIME_IGNOREDOTFILES"),
        ({**ROOT, "RUNTIME_WATCH_ROOT": "2"}, "RUNTIME_WATCH_ROOT"),
        ({"GRPC_PORT": "x"}, "GRPC_PORT"),
        ({"GRPC_PORT": "0"}, "GRPC_PORT"),
        ({"GRPC_PORT": "65536"}, "GRPC_PORT"),
        ({"GRPC_PORT": "-1"}, "GRPC_PORT"),
        ({"GRPC_PORT": "٣"}, "GRPC_PORT"),
        ({"GRPC_PORT": "9" * 5000}, "GRPC_PORT"),
        ({"GRPC_PORT": "1", "PORT": "http"}, "PORT"),
        ({"GRPC_PORT": "1", "DEBUG_PORT": "http"}, "DEBUG_PORT"),
        ({"REDIS_URL": "h:1", "REDIS_SOCKET_TYPE": "udp", "REDIS_AUTH": "hunter2"}, "REDIS_SOCKET_TYPE"),
        ({"REDIS_URL": "hunter2@h:1"}, "REDIS_URL"),
        ({"REDIS_URL": "h:1", "REDIS_TYPE": "SHARDED"}, "REDIS_TYPE"),
        ({"REDIS_URL": "h:1", "REDIS_TYPE": "CLUSTER", "REDIS_SOCKET_TYPE": "unix"}, "REDIS_SOCKET_TYPE"),
        ({"REDIS_URL": "hunter2@h:1", "REDIS_TYPE": "CLUSTER"}, "REDIS_URL"),
        ({"REDIS_URL": "main", "REDIS_TYPE": "SENTINEL"}, "REDIS_URL"),
        ({"REDIS_URL": "main,hunter2@h:1", "REDIS_TYPE": "SENTINEL"}, "REDIS_URL"),
        ({"REDIS_URL": "h:1", "REDIS_TLS": "yes"}, "REDIS_TLS"),
    ],
)
def test_bad_value(environ: dict[str, str], variable: str) -> None:
    """A value that can't be used is an error that names the variable and repeats no password."""
    with pytest.raises(SettingError, match=f"^{variable}: ") as refused:
        flags(environ)
    assert "hunter2" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("environ", "name", "value"),
    [
        ({"SHADOW_MODE": "t"}, "shadow", True),
        ({"QUOTA_MODE": "TRUE"}, "quota", True),
        ({"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "1"}, "stop", True),
        ({"RESPONSE_DYNAMIC_METADATA": "true"}, "metadata", True),
        ({"MERGE_DOMAIN_CONFIG": "true"}, "merge", True),
        ({"NEAR_LIMIT_RATIO": "0.5"}, "near_ratio", 0.5),
        ({"CACHE_KEY_PREFIX": "pre_"}, "key_prefix", "pre_"),
        ({"EXPIRATION_JITTER_MAX_SECONDS": "0"}, "jitter", 0),
        ({"LOCAL_CACHE_SIZE_IN_BYTES": "1048576"}, "cache", 4096),
        ({"LIMIT_LIMIT_HEADER": "x"}, "headers", None),
        (
            {"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_LIMIT_HEADER": "x"},
            "headers",
            ("x", "RateLimit-Remaining", "RateLimit-Reset"),
        ),
        (
            {"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_REMAINING_HEADER": "r", "LIMIT_RESET_HEADER": "s"},
            "headers",
            ("RateLimit-Limit", "r", "s"),
        ),
        ({"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true"}, "needs_rules", True),
        ({"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": "true"}, "needs_store", True),
        ({"SEAWALL_STORE_LOSS": "share"}, "store_loss", "share"),
    ],
)
def test_limit(environ: dict[str, str], name: str, value: object) -> None:
    """Variables that change answers reach a worker, through the JSON that its supervisor gives it."""
    settings = from_environment({}, **flags({**ROOT, **environ}))
    assert getattr(settings.limit, name) == value
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("environ", "name", "value"),
    [
        ({"LOG_LEVEL": "WARNING"}, "log_level", "warn"),
        ({"LOG_LEVEL": "trace"}, "log_level", "debug"),
        ({"GRPC_MAX_CONNECTION_AGE": "1h30m"}, "max_connection_age", 5400.0),
        ({"GRPC_MAX_CONNECTION_AGE": "1500ms"}, "max_connection_age", 1.5),
        ({"USE_PROMETHEUS": "true"}, "prometheus", ("0.0.0.0:9090", "/metrics")),
        (
            {"USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": "127.0.0.1:1", "PROMETHEUS_PATH": "/m"},
            "prometheus",
            ("127.0.0.1:1", "/m"),
        ),
        (
            {"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "/c", "GRPC_SERVER_TLS_KEY": "/k"},
            "tls_cert",
            "/c",
        ),
    ],
)
def test_around(environ: dict[str, str], name: str, value: object) -> None:
    """Variables of the process around the answers."""
    settings = from_environment({}, **flags({**ROOT, **environ}))
    assert getattr(settings, name) == value
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("environ", "allowed"),
    [
        ({"LOG_LEVEL": "loud"}, "warn"),
        ({"CONFIG_TYPE": "CONSUL"}, "FILE"),
        ({"BACKEND_TYPE": "memcache"}, "redis"),
        ({"BACKEND_TYPE": "mongo"}, "redis"),
        ({"REDIS_PERSECOND": "true"}, "false"),
        ({"GRPC_CLIENT_TLS_SAN": "x"}, "leave it out"),
        ({"GRPC_SERVER_USE_TLS": "true"}, "PEM"),
        ({"GRPC_MAX_CONNECTION_AGE": "5"}, "10s"),
        ({"GRPC_MAX_CONNECTION_AGE": "5 s"}, "10s"),
        ({"GRPC_MAX_CONNECTION_AGE": "0s"}, "1s"),
        ({"NEAR_LIMIT_RATIO": "2"}, "0 to 1"),
        ({"NEAR_LIMIT_RATIO": "much"}, "number from 0"),
        ({"EXPIRATION_JITTER_MAX_SECONDS": "-1"}, "whole number"),
        ({"LOCAL_CACHE_SIZE_IN_BYTES": "1MB"}, "whole number"),
        ({"SHADOW_MODE": "yes"}, "true, false"),
        ({"USE_PROMETHEUS": "true", "PROMETHEUS_PATH": "m"}, "/"),
        ({"SEAWALL_STORE_LOSS": "pass"}, "deny, allow, share"),
    ],
)
def test_refused(environ: dict[str, str], allowed: str) -> None:
    """A value that ends the Go service ends ours, with variable, value and what is allowed."""
    with pytest.raises(SettingError, match=allowed) as refused:
        flags({**ROOT, **environ})
    assert any(name in str(refused.value) for name in environ) or "GRPC_SERVER_TLS" in str(refused.value)


def test_warnings() -> None:
    """What does nothing here is said, once for each variable that is set to something."""
    assert warnings({"USE_STATSD": "false", "LOG_FORMAT": "text", "REDIS_POOL_SIZE": "", "PORT": "1"}) == []
    told = warnings({"USE_STATSD": "true", "REDIS_TIMEOUT": "1s", "MEMCACHE_SRV": "x"})
    assert [line.split()[0] for line in told] == ["MEMCACHE_SRV", "REDIS_TIMEOUT", "USE_STATSD"]
    assert all(len(line.split(": ", 1)[1]) > 10 for line in told)
