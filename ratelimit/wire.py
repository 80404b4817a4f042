"""RateLimitRequest to plain values and back: the only file of this service that names Envoy's messages."""

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from seawall.limits.decide import Descriptor, Status
from seawall.mesh.names import VERSION_KEY
from seawall.proto.gen import ratelimit_pb2

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
METHOD = "ShouldRateLimit"

_RESPONSE = ratelimit_pb2.RateLimitResponse
_OK, _OVER = _RESPONSE.OK, _RESPONSE.OVER_LIMIT


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
            [(entry.key, entry.value) for entry in d.entries],
            d.hits_addend.value if d.HasField("hits_addend") else None,
        )
        for d in request.descriptors
    ]
    return RateLimitCall(request.domain, descriptors, request.hits_addend, _version(descriptors))


def _version(descriptors: Sequence[Descriptor]) -> str:
    """Read our own descriptor, which our configuration sends last."""
    entries = descriptors[-1].entries if descriptors else ()
    return entries[0][1] if len(entries) == 1 and entries[0][0] == VERSION_KEY else ""


def encode(statuses: Sequence[Status]) -> bytes:
    """Write the answer: OVER_LIMIT when any status is over; Envoy makes its x-ratelimit headers of current_limit."""
    response = _RESPONSE(overall_code=_OVER if any(s.over for s in statuses) else _OK)
    for status in statuses:
        limit = status.limit
        if limit is None:
            response.statuses.add(code=_OK)
            continue
        added = response.statuses.add(code=_OVER if status.over else _OK, limit_remaining=status.remaining)
        added.current_limit.requests_per_unit = limit.requests_per_unit
        added.current_limit.unit = int(limit.unit)  # type: ignore[assignment]
        added.duration_until_reset.seconds = status.reset
    return response.SerializeToString()
