"""CheckRequest to plain values, decisions to CheckResponse: the only file of this service that names Envoy's messages."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import DecodeError

from seawall.llm.errors import ErrorAnswer
from seawall.proto.gen import ext_authz_pb2

SERVICE = "envoy.service.auth.v3.Authorization"
METHOD = "Check"

_PERMISSION_DENIED = 7
"""Any code but 0 refuses; with 0 Envoy lets even a denied_response through."""


class Check(NamedTuple):
    """One request as ext_authz sees it.

    `headers` has lower-case names; repeated ones are joined by commas. `extensions` is what the route says.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    extensions: Mapping[str, str]


def decode(data: bytes) -> Check:
    """Read a CheckRequest; raises ValueError for bytes that are none."""
    try:
        attributes = ext_authz_pb2.CheckRequest.FromString(data).attributes
    except DecodeError:
        raise ValueError("not a CheckRequest") from None
    http = attributes.request.http
    return Check(http.method, http.path, http.headers, attributes.context_extensions)


def allow(metadata: Mapping[str, str], rid: str, remove: Sequence[str]) -> bytes:
    """Let a request on, with metadata for the later filters and headers taken away.

    All but `rid` is the same for every request of a caller, so its bytes are kept; a message's bytes after another's
    are merged into it (protobuf.dev, "Encoding": Last One Wins).
    """
    plain = sum(map(len, remove)) <= _KEPT_NAMES
    same = (_allowed if plain else _allowed.__wrapped__)(tuple(metadata.items()), tuple(remove))
    _RID.string_value = rid
    return same + _RID_ALONE.SerializeToString()


@lru_cache(maxsize=4096)
def _allowed(metadata: tuple[tuple[str, str], ...], remove: tuple[str, ...]) -> bytes:
    response = ext_authz_pb2.CheckResponse()
    response.status.code = 0
    response.ok_response.headers_to_remove.extend(remove)
    fields = response.dynamic_metadata.fields
    for name, value in metadata:
        # Strings only: the ratelimit filter can use no other kind.
        fields[name].string_value = value
    return response.SerializeToString()


_KEPT_NAMES = 128
"""Bytes of header names above which an answer is not kept: clients choose names, the policy chooses the rest."""
_RID_ALONE = ext_authz_pb2.CheckResponse()
_RID = _RID_ALONE.dynamic_metadata.fields["rid"]


def deny(answer: ErrorAnswer, metadata: Mapping[str, str]) -> bytes:
    """Refuse a request with our own status, headers and body."""
    response = ext_authz_pb2.CheckResponse()
    response.status.code = _PERMISSION_DENIED
    denied = response.denied_response
    denied.status.code = answer.status  # type: ignore[assignment]
    denied.body = answer.body.decode()
    for name, value in answer.headers:
        option = denied.headers.add()
        option.header.key, option.header.value = name, value
        option.append_action = option.OVERWRITE_IF_EXISTS_OR_ADD
    fields = response.dynamic_metadata.fields
    for name, value in metadata.items():
        fields[name].string_value = value
    return response.SerializeToString()
