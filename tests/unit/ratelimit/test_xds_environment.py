"""Variables of envoyproxy/ratelimit that name a control plane, read as Go reads them."""

from typing import Any

import pytest

from ratelimit.environment import flags
from ratelimit.xds_environment import xds_flags
from seawall.rpc.tls import ClientTls
from seawall.serve.settings import SettingError, from_environment
from seawall.serve.xds_source import XdsSource

XDS = {"CONFIG_TYPE": "GRPC_XDS_SOTW"}
TLS = {"CONFIG_GRPC_XDS_SERVER_USE_TLS": "true"}


def source(environ: dict[str, str]) -> XdsSource:
    found = xds_flags({**XDS, **environ})["limits_xds"]
    assert isinstance(found, XdsSource)
    return found


def test_files_or_a_control_plane() -> None:
    """Files are the default; with xDS they are not looked at, and it is a drop-in whatever else is set."""
    assert xds_flags({}) == xds_flags({"CONFIG_TYPE": "FILE"}) == xds_flags({"CONFIG_TYPE": ""}) == {}
    assert source({}) == XdsSource()
    settings = from_environment({}, **flags({**XDS, "RUNTIME_ROOT": "/x"}))
    assert (settings.limit_files, settings.limits_xds, settings.listen) == (None, XdsSource(), "0.0.0.0:8081")
    assert flags(XDS)["socket_dir"] == ""
    assert not settings.serve_without_limits
    assert xds_flags({"FORCE_START_WITHOUT_INITIAL_CONFIG": "1"}) == {"serve_without_limits": True}


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001"}, "server", "envoy-gateway:18001"),
        ({"CONFIG_GRPC_XDS_NODE_ID": "n"}, "node_id", "n"),
        ({"CONFIG_GRPC_XDS_NODE_METADATA": "a=b,c=d=e,f"}, "node_metadata", (("a", "b"), ("c", "d=e"))),
        ({"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "X-A:b,c:d:e"}, "headers", (("x-a", "b"), ("c", "d:e"))),
        ({"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "500ms"}, "connect_interval", 0.5),
        ({"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "1m30s"}, "initial", 90.0),
        ({"XDS_CLIENT_BACKOFF_MAX_INTERVAL": "1.5h"}, "longest", 5400.0),
        ({"XDS_CLIENT_BACKOFF_RANDOM_FACTOR": "0.25"}, "random_factor", 0.25),
        ({"XDS_CLIENT_BACKOFF_RANDOM_FACTOR": "2"}, "random_factor", 1.0),
        ({"XDS_CLIENT_BACKOFF_JITTER": "false"}, "jitter", False),
        ({"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "10485760"}, "max_message", 10485760),
        ({"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "0"}, "max_message", None),
        ({"MERGE_DOMAIN_CONFIG": "true"}, "merge", True),
        (TLS, "tls", ClientTls()),
        ({"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/ca", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/c"}, "tls", None),
        (
            {
                **TLS,
                "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/ca",
                "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/c",
                "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/k",
                "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "name",
            },
            "tls",
            ClientTls("/ca", "/c", "/k", "name"),
        ),
    ],
)
def test_each_variable(environ: dict[str, str], field: str, value: Any) -> None:
    """Each is a field, and the others keep the Go service's defaults."""
    found = source(environ)
    assert getattr(found, field) == value
    assert [n for n in XdsSource.__slots__ if getattr(found, n) != getattr(XdsSource(), n)] in ([field], [])


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"CONFIG_TYPE": "FILES"}, "CONFIG_TYPE: 'FILES' is not allowed: FILE, GRPC_XDS_SOTW"),
        ({"FORCE_START_WITHOUT_INITIAL_CONFIG": "yes"}, "FORCE_START_WITHOUT_INITIAL_CONFIG: 'yes' is not allowed"),
        ({"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "10"}, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: '10' is not allowed"),
        ({"XDS_CLIENT_BACKOFF_MAX_INTERVAL": "0s"}, "XDS_CLIENT_BACKOFF_MAX_INTERVAL: '0s' is not allowed"),
        ({"XDS_CLIENT_BACKOFF_MAX_INTERVAL": "1s 2s"}, "XDS_CLIENT_BACKOFF_MAX_INTERVAL: '1s 2s' is not allowed"),
        ({"XDS_CLIENT_BACKOFF_RANDOM_FACTOR": "-1"}, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR: '-1' is not allowed"),
        ({"XDS_CLIENT_BACKOFF_JITTER": "on"}, "XDS_CLIENT_BACKOFF_JITTER: 'on' is not allowed"),
        ({"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "4MiB"}, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: '4MiB' is not allowed"),
        ({"CONFIG_GRPC_XDS_SERVER_URL": "a b"}, "CONFIG_GRPC_XDS_SERVER_URL: 'a b' is not allowed"),
        (
            {"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "a:b,sk-secret"},
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: item 2 has no colon",
        ),
        (
            {"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "a b:sk-secret"},
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: 'a b' is not allowed",
        ),
        (
            {"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "a:sk-secret\x01"},
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: the value of 'a' is not printable ASCII",
        ),
        (
            {**TLS, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/c"},
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY go together",
        ),
    ],
)
def test_refused(environ: dict[str, str], line: str) -> None:
    """One line names variable, value and what is allowed, and no credential."""
    with pytest.raises(SettingError) as refused:
        xds_flags({**XDS, **environ})
    assert str(refused.value).startswith(line)
    assert "sk-secret" not in str(refused.value)
