"""RateLimitRequest to plain values and back: the only file of this service that names Envoy's messages."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from seawall.limits.call import Descriptor, Override
from seawall.limits.decide import Status
from seawall.limits.window import Unit
from seawall.mesh.names import VERSION_KEY
from seawall.proto.gen import ratelimit_pb2

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
METHOD = "ShouldRateLimit"

_RESPONSE = ratelimit_pb2.RateLimitResponse
_OK, _OVER = _RESPONSE.OK, _RESPONSE.OVER_LIMIT
_MOST = 2**32 - 1
_UNITS = {unit.seconds: unit.value for unit in Unit}


class RateLimitCall(NamedTuple):
    """One call. `hits` is the request's own hits_addend, 0 where it was not set.

    `version` is the policy version that the request has, "" where nobody said. The descriptor that tells it is among
    the others, for it wants a status like each of them; no limit is found by it.
    """

    domain: str
    descriptors: Sequence[Descriptor]
    hits: int
    version: str = ""


def decode(data: bytes) -> RateLimitCall:
    """Read a RateLimitRequest; raises ValueError for bytes that are none.

    An absent hits_addend of a descriptor is None, a written 0 is 0: a look.
    """
    try:
        request = ratelimit_pb2.RateLimitRequest.FromString(data)
    except DecodeError:
        raise ValueError("not a RateLimitRequest") from None
    descriptors = [
        Descriptor(
            tuple((entry.key, entry.value) for entry in d.entries),
            d.hits_addend.value if d.HasField("hits_addend") else None,
            Override(d.limit.requests_per_unit, d.limit.unit) if d.HasField("limit") else None,
            d.is_negative_hits,
        )
        for d in request.descriptors
    ]
    version = _version(descriptors)
    if version:
        # It keeps its place and says nothing: no rule of any key, `*` included, is meant for it.
        descriptors[-1] = Descriptor(())
    return RateLimitCall(request.domain, descriptors, request.hits_addend, version)


def _version(descriptors: Sequence[Descriptor]) -> str:
    """Read our own descriptor, which our configuration sends last."""
    entries = descriptors[-1].entries if descriptors else ()
    return entries[0][1] if len(entries) == 1 and entries[0][0] == VERSION_KEY else ""


def encode(
    over: bool,
    statuses: Sequence[Status],
    headers: Sequence[tuple[str, str]] = (),
    metadata: Mapping[str, Any] | None = None,
) -> bytes:
    """Write the answer. Envoy makes its x-ratelimit headers of current_limit, so it is there wherever one counts.

    `headers` are added to the response by Envoy, `metadata` becomes dynamic metadata.
    """
    response = _RESPONSE(overall_code=_OVER if over else _OK)
    for status in statuses:
        added = response.statuses.add(code=_OVER if status.over else _OK, limit_remaining=min(status.remaining, _MOST))
        if status.window is None:
            continue
        limit = added.current_limit
        limit.requests_per_unit = status.window.requests
        limit.unit = _UNITS.get(status.window.length, 0)  # type: ignore[assignment]
        if status.name:
            limit.name = status.name
        added.duration_until_reset.seconds = status.reset
    for name, value in headers:
        response.response_headers_to_add.add(key=name, value=value)
    if metadata is not None:
        response.dynamic_metadata.update(metadata)
    return response.SerializeToString()
