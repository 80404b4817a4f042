"""What an operator sets from outside."""

import re
from dataclasses import fields
from typing import Any

import pytest

from seawall.serve.settings import (
    ENGINE_KINDS,
    MAX_SOCKET_PATH,
    VARIABLES,
    SettingError,
    Settings,
    from_environment,
    host_port,
)
from seawall.store.address import PARTS, parse
from seawall.store.endpoint import Access, Login, Tls

REDIS = {"SEAWALL_STORE": "redis://h:6379/0"}
KEY = "ab" * 32


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("SEAWALL_STORE", "redis://u:p@h:6379/1", "store", "redis://u:p@h:6379/1"),
        ("SEAWALL_STORE", "unix:///run/redis.sock", "store", "unix:///run/redis.sock"),
        ("SEAWALL_STORE_TIMEOUT", "800ms", "store_timeout", 0.8),
        ("SEAWALL_STORE_TIMEOUT", "0.5", "store_timeout", 0.5),
        ("SEAWALL_POLICY", "/etc/policy.yaml", "policy_file", "/etc/policy.yaml"),
        ("SEAWALL_WORKERS", "256", "workers", 256),
        ("SEAWALL_SOCKET_DIR", "/run/other", "socket_dir", "/run/other"),
        ("SEAWALL_LISTEN", "0.0.0.0:8081", "listen", "0.0.0.0:8081"),
        ("SEAWALL_LISTEN", "unix:/run/gate.sock", "listen", "unix:/run/gate.sock"),
        ("SEAWALL_HTTP", "[::1]:9902", "http", "[::1]:9902"),
        ("SEAWALL_HTTP", "off", "http", None),
        ("SEAWALL_HTTP", "none", "http", None),
        ("SEAWALL_UPSTREAMS", "http://a:1", "upstreams", (("http://a:1", "vllm"),)),
        (
            "SEAWALL_UPSTREAMS",
            "http://a:1, sglang=https://b",
            "upstreams",
            (("http://a:1", "vllm"), ("https://b", "sglang")),
        ),
        ("SEAWALL_MAX_HOLD", "2m", "max_hold", 120.0),
        ("SEAWALL_MAX_BODY", "1MiB", "max_body", 2**20),
        ("SEAWALL_GRACE", "0", "grace", 0.0),
        ("SEAWALL_CHECK_INTERVAL", "200ms", "check_interval", 0.2),
        ("SEAWALL_SLOT_LEASE", "10", "slot_lease", 10.0),
        ("SEAWALL_READY_TIME", "2m", "ready_time", 120.0),
        ("SEAWALL_HANG_TIME", "5s", "hang_time", 5.0),
        ("SEAWALL_ORPHAN_TIME", "0", "orphan_time", 0.0),
        ("SEAWALL_LOG_LEVEL", "debug", "log_level", "debug"),
        ("SEAWALL_ENVOY_DIR", "/etc/envoy", "envoy_dir", "/etc/envoy"),
        ("SEAWALL_ENVOY_ADMIN", "127.0.0.1:9901", "envoy_admin", "127.0.0.1:9901"),
        ("SEAWALL_ENGINE_CA", "/etc/ours.pem", "engine_ca", "/etc/ours.pem"),
        ("SEAWALL_PROBE_KEY", KEY, "probe_key", KEY),
        ("SEAWALL_TRANSPORT", "grpcio", "transport", "grpcio"),
        ("SEAWALL_LISTEN_RESETS", "1000,33", "listen_resets", (1000, 33)),
        ("SEAWALL_LISTEN_RESETS", "off", "listen_resets", None),
        ("SEAWALL_MAX_CONNECTION_AGE", "1h", "max_connection_age", 3600.0),
    ],
)
def test_variable(variable: str, text: str, name: str, value: object) -> None:
    """Each variable is its setting."""
    assert VARIABLES[variable] == name
    assert getattr(from_environment({**REDIS, variable: text}), name) == value


def test_every_variable_is_tried() -> None:
    """No variable is without a case above, or without a setting."""
    tried = {mark.args[1][i][0] for mark in test_variable.pytestmark for i in range(len(mark.args[1]))}
    together = {"SEAWALL_TLS_CERT", "SEAWALL_TLS_KEY", "SEAWALL_TLS_CLIENT_CA"}
    assert tried | together | set(PARTS) == set(VARIABLES)
    assert set(VARIABLES.values()) <= {field.name for field in fields(Settings)}


def test_defaults() -> None:
    """Nothing set, or set to nothing, is the default; the memory store means one worker."""
    assert from_environment({}) == from_environment(dict.fromkeys(VARIABLES, "")) == Settings(workers=1)


def test_flags_win() -> None:
    """A flag wins over its variable, one that was not given doesn't."""
    settings = from_environment({**REDIS, "SEAWALL_WORKERS": "3"}, workers=5, store=None)
    assert (settings.workers, settings.store) == (5, REDIS["SEAWALL_STORE"])


@pytest.mark.parametrize(
    ("variable", "texts"),
    [
        (
            "SEAWALL_STORE",
            [
                "redis",
                "rediss://u:hunter2@h?ca=/no/such/file",
                "redis+sentinel://u:hunter2@h",
                "redis+cluster://u:hunter2@h/1",
                "memcached://h",
                "h:6379",
                "redis://u:hunter2@h:x",
                "redis://u:hunter2@h:0",
                "redis://u:hunter2@h/x",
                "redis://u:hunter2@a:1,b:2",
                "redis://u:hunt#er2@h",
                "unix://h/x",
                "unix:/x",
                "Memory",
            ],
        ),
        ("SEAWALL_STORE_TIMEOUT", ["0", "-1", "nan", "inf", "61", "x", "1 s", "1e3", "٣"]),
        ("SEAWALL_WORKERS", ["0", "-1", "257", "1.5", "two", "1_0", "٣", "9" * 5000]),
        (
            "SEAWALL_LISTEN",
            ["8081", "h", ":8081", "h:x", "h:99999", "http://h:1", "h:1/x", "unix:", "unix:rel", "u:hunter2@h:1x"],
        ),
        ("SEAWALL_HTTP", ["9902", "unix:/x", "h:1?x", "h 1:1", "[::1", "h:"]),
        (
            "SEAWALL_UPSTREAMS",
            [
                "h:1",
                "http://u:hunter2@h",
                "http://h/v1?key=hunter2",
                "http://a,,http://b",
                "vllm=",
                "=http://h",
                "VLLM=http://h",
                "other=http://h",
            ],
        ),
        ("SEAWALL_MAX_HOLD", ["0", "999ms", "2h", "x"]),
        ("SEAWALL_MAX_BODY", ["0", "1023", "2GiB", "-1", "1 PiB", "lots"]),
        ("SEAWALL_GRACE", ["-1", "2d", "soon"]),
        ("SEAWALL_CHECK_INTERVAL", ["0", "199ms", "61", "x"]),
        ("SEAWALL_SLOT_LEASE", ["0", "0.9", "2h", "x"]),
        ("SEAWALL_LOG_LEVEL", ["DEBUG", "warning", "x"]),
        ("SEAWALL_PROBE_KEY", ["hunter2", KEY[:-1], KEY + "a", KEY[:-1] + "g"]),
        ("SEAWALL_SOCKET_DIR", ["/" + "x" * MAX_SOCKET_PATH, "/" + "ü" * (MAX_SOCKET_PATH // 2)]),
    ],
)
def test_bad_value(variable: str, texts: list[str]) -> None:
    """A value that can't be used is an error that names the variable in one line, and repeats no secret."""
    for text in texts:
        with pytest.raises(SettingError) as refused:
            from_environment({**REDIS, variable: text})
        told = str(refused.value)
        assert re.match(rf"{variable}: .", told), text
        assert "hunter2" not in told
        assert "\n" not in told
        assert len(told) < 300


@pytest.mark.parametrize(
    ("flags", "variable"),
    [
        ({"workers": 0}, "SEAWALL_WORKERS"),
        ({"grace": -1.0}, "SEAWALL_GRACE"),
        ({"grace": float("nan")}, "SEAWALL_GRACE"),
        ({"http": "x"}, "SEAWALL_HTTP"),
        ({"healthcheck": "x"}, "SEAWALL_HEALTHCHECK"),
        ({"store": "x"}, "SEAWALL_STORE"),
    ],
)
def test_bad_flag(flags: dict[str, Any], variable: str) -> None:
    """A flag is checked like its variable."""
    with pytest.raises(SettingError, match=variable):
        from_environment({}, **flags)


def test_one_worker() -> None:
    """A store in memory, or one address on grpcio, means one worker, whatever was asked for."""
    assert from_environment({"SEAWALL_WORKERS": "8"}).workers == 1
    listen = {**REDIS, "SEAWALL_WORKERS": "8", "SEAWALL_LISTEN": "h:1"}
    assert from_environment({**listen, "SEAWALL_TRANSPORT": "grpcio"}).workers == 1
    assert from_environment(listen).workers == 8
    assert from_environment({**REDIS, "SEAWALL_WORKERS": "8"}).workers == 8


def test_longest_socket_dir() -> None:
    """A folder whose sockets just fit is taken; without sockets its length doesn't matter."""
    longest = "/" + "x" * (MAX_SOCKET_PATH - len("//w0.sock.0000000"))
    assert from_environment({"SEAWALL_SOCKET_DIR": longest}).socket(0) == f"{longest}/w0.sock"
    with pytest.raises(SettingError):
        from_environment({"SEAWALL_SOCKET_DIR": longest + "x"})
    assert from_environment({}, socket_dir="").socket_dir == ""


def test_json() -> None:
    """Settings reach a worker as they are."""
    settings = from_environment(
        {**REDIS, "SEAWALL_UPSTREAMS": "http://a,tgi=http://b", "SEAWALL_HTTP": "off"},
        services=("ext_proc",),
        limit_files="/x",
        ignore_dot_files=True,
    )
    assert Settings.from_json(settings.to_json()) == settings
    assert Settings.from_json(Settings().to_json()) == Settings()


def test_engine_kinds() -> None:
    """The kinds of engines are those of the policy."""
    assert set(ENGINE_KINDS) == {"vllm", "sglang", "trtllm", "tgi", "llamacpp"}


@pytest.mark.parametrize(
    ("text", "pair"), [("h:80", ("h", 80)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:5", ("::1", 5))]
)
def test_host_port(text: str, pair: tuple[str, int]) -> None:
    """An address is a host and a port."""
    assert host_port("X", text) == pair


def test_parts_of_the_store() -> None:
    """What the variables beside SEAWALL_STORE say becomes part of its URL; `memory` ignores them."""
    environ = {variable: "x" for variable in PARTS if "TLS" not in variable and "VERIFY" not in variable}
    del environ["SEAWALL_STORE_PASSWORD_FILE"], environ["SEAWALL_STORE_SENTINEL_PASSWORD_FILE"]
    files = {"SEAWALL_STORE_CA", "SEAWALL_STORE_CERT", "SEAWALL_STORE_KEY"}
    environ = {k: v for k, v in environ.items() if k not in files}
    told = from_environment({"SEAWALL_STORE": "rediss+sentinel://h/main", **environ, "SEAWALL_STORE_VERIFY": "chain"})
    access, sentinel = parse(told.store).access, parse(told.store).sentinel
    assert access == Access(Login("x", "x"), Tls(server_name="x", verify="chain"))
    assert sentinel == Access(Login("x", "x"), Tls(server_name="x", verify="chain"))
    assert from_environment({**REDIS, "SEAWALL_STORE_PASSWORD_FILE": "/x"}).store.endswith("?password_file=%2Fx")
    assert from_environment({**environ}).store == "memory"
    for variable in files | {"SEAWALL_STORE_SENTINEL_USER"}:
        with pytest.raises(SettingError, match=r"SEAWALL_STORE: store redis://: unknown parameter"):
            from_environment({**REDIS, variable: "x"})


TLS = {"SEAWALL_LISTEN": "h:1", "SEAWALL_TLS_CERT": "c.pem", "SEAWALL_TLS_KEY": "k.pem"}


def test_tls() -> None:
    """Certificate and key go together, with an address and our own transport; a client CA comes on top."""
    settings = from_environment({**TLS, "SEAWALL_TLS_CLIENT_CA": "ca.pem"})
    assert (settings.tls_cert, settings.tls_key, settings.tls_client_ca) == ("c.pem", "k.pem", "ca.pem")
    assert Settings.from_json(settings.to_json()) == settings
    for missing in TLS:
        with pytest.raises(SettingError, match="SEAWALL_TLS_"):
            from_environment({k: v for k, v in TLS.items() if k != missing})
    for more in ({"SEAWALL_TRANSPORT": "grpcio"},):
        with pytest.raises(SettingError, match="SEAWALL_TLS_CERT"):
            from_environment({**TLS, **more})
    with pytest.raises(SettingError, match="SEAWALL_TLS_CLIENT_CA"):
        from_environment({"SEAWALL_TLS_CLIENT_CA": "ca.pem"})


@pytest.mark.parametrize("text", ["many", "1", "1,2,3", "-1,2", "1,x"])
def test_bad_resets(text: str) -> None:
    """Anything but `off` and two numbers is refused by name."""
    with pytest.raises(SettingError, match="SEAWALL_LISTEN_RESETS"):
        from_environment({"SEAWALL_LISTEN_RESETS": text})
