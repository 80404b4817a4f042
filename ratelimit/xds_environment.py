"""The variables of envoyproxy/ratelimit that say which control plane sends the limits (CONFIG_TYPE=GRPC_XDS_SOTW)."""

import re
from collections.abc import Mapping
from typing import Any

from ratelimit.go_values import boolean, duration, fraction, mapping, refused, whole
from seawall.rpc.tls import ClientTls
from seawall.serve.settings import SettingError
from seawall.serve.xds_source import Pairs, XdsSource

XDS = "GRPC_XDS_SOTW"
LONGEST = 24 * 3600.0
"""Seconds of any wait."""


def xds_flags(environ: Mapping[str, str]) -> dict[str, Any]:
    """Give settings by name; empty where limits come from files. Raises SettingError."""
    kind = environ.get("CONFIG_TYPE") or "FILE"
    if kind not in {"FILE", XDS}:
        raise refused("CONFIG_TYPE", kind, f"FILE, {XDS}")
    found: dict[str, Any] = {}
    if boolean(environ, "FORCE_START_WITHOUT_INITIAL_CONFIG", False):
        found["serve_without_limits"] = True
    if kind == XDS:
        # As with the Go service, files are then not looked at.
        found |= {"limits_xds": _source(environ), "limit_files": None}
    return found


def _source(environ: Mapping[str, str]) -> XdsSource:
    default = XdsSource()
    server = environ.get("CONFIG_GRPC_XDS_SERVER_URL") or default.server
    if not re.fullmatch(r"[!-~]{1,300}", server):
        raise refused("CONFIG_GRPC_XDS_SERVER_URL", server, "host:port, or another name that gRPC can dial")
    return XdsSource(
        server=server,
        node_id=environ.get("CONFIG_GRPC_XDS_NODE_ID") or default.node_id,
        node_metadata=_metadata(environ.get("CONFIG_GRPC_XDS_NODE_METADATA", "")),
        headers=_headers(environ),
        tls=_tls(environ),
        max_message=whole(environ, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", 0, 2**31 - 1) or None,
        connect_interval=duration(
            environ, "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", default.connect_interval, 0.001, LONGEST
        ),
        initial=duration(environ, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", default.initial, 0.001, LONGEST),
        longest=duration(environ, "XDS_CLIENT_BACKOFF_MAX_INTERVAL", default.longest, 0.001, LONGEST),
        # The Go service takes it for a factor of growth, so files exist that say 2; as a spread nothing is above 1.
        random_factor=min(1.0, fraction(environ, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", default.random_factor)),
        jitter=boolean(environ, "XDS_CLIENT_BACKOFF_JITTER", default.jitter),
        merge=boolean(environ, "MERGE_DOMAIN_CONFIG", default.merge),
    )


def _metadata(text: str) -> Pairs:
    """`a=b,c=d`; an item without `=` is passed over, as the Go service does."""
    items = (item.partition("=") for item in text.split(","))
    return tuple((key, value) for key, equals, value in items if equals)


def _headers(environ: Mapping[str, str]) -> Pairs:
    name = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"
    found = tuple((key.strip().lower(), value.strip()) for key, value in mapping(environ, name))
    for key, value in found:
        if not re.fullmatch(r"[0-9a-z_.-]{1,100}", key) or key.endswith("-bin") or key.startswith("grpc-"):
            raise refused(name, key, "names of a-z, 0-9, '-', '_', '.', without grpc-… and …-bin")
        if not re.fullmatch(r"[ -~]*", value):
            raise SettingError(f"{name}: the value of '{key}' is not printable ASCII")
    return found


def _tls(environ: Mapping[str, str]) -> ClientTls | None:
    if not boolean(environ, "CONFIG_GRPC_XDS_SERVER_USE_TLS", False):
        return None
    cert = environ.get("CONFIG_GRPC_XDS_CLIENT_TLS_CERT") or None
    key = environ.get("CONFIG_GRPC_XDS_CLIENT_TLS_KEY") or None
    if (cert is None) != (key is None):
        raise SettingError(
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY go together: one of them is missing"
        )
    ca = environ.get("CONFIG_GRPC_XDS_SERVER_TLS_CACERT") or None
    return ClientTls(ca, cert, key, environ.get("CONFIG_GRPC_XDS_SERVER_TLS_SAN") or None)
