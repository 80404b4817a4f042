"""Messages of xDS, and the plain values that they say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct, Value

from seawall import __version__
from seawall.proto.gen.discovery_pb2 import DiscoveryRequest, DiscoveryResponse, Node
from seawall.proto.gen.ratelimit_config_pb2 import RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit
from seawall.serve.xds_source import XdsSource

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
TYPE = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
REFUSED = 3
"""Code of `error_detail`: INVALID_ARGUMENT."""
MAX_LEVELS = 30
"""Of descriptors, as many as a file may have."""
MAX_ERROR = 8192
"""Characters of `error_detail.message`: control planes put it into logs and the status of resources."""


class BadResource(Exception):
    """One resource of a response that can't be read; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Response:
    """A DiscoveryResponse; `resources` is (type, bytes)."""

    version: str
    nonce: str
    type: str
    resources: tuple[tuple[str, bytes], ...]


def request(
    source: XdsSource, *, version: str = "", nonce: str = "", refusal: str | None = None, type_url: str = TYPE
) -> bytes:
    """Subscribe (without a nonce), accept, or refuse. The node goes with each, as with the Go service."""
    message = DiscoveryRequest(version_info=version, response_nonce=nonce, type_url=type_url)
    metadata = Struct()
    metadata.update(dict(source.node_metadata))
    message.node.CopyFrom(
        Node(id=source.node_id, metadata=metadata, user_agent_name="seawall", user_agent_version=__version__)
    )
    if refusal is not None:
        text = refusal if len(refusal) <= MAX_ERROR else refusal[:MAX_ERROR] + "…"
        message.error_detail.code, message.error_detail.message = REFUSED, text
    return message.SerializeToString()


def response(data: bytes) -> Response:
    """Read a DiscoveryResponse; raises ValueError where there is none in the bytes."""
    try:
        message = DiscoveryResponse.FromString(data)
    except DecodeError:
        raise ValueError("what the server sent is no DiscoveryResponse") from None
    resources = tuple((each.type_url, each.value) for each in message.resources)
    return Response(message.version_info, message.nonce, message.type_url, resources)


def resources(found: Response) -> list[tuple[str, dict[str, Any]]]:
    """(name, rules as a rule file has them) of each resource. Raises BadResource."""
    read = []
    for index, (kind, value) in enumerate(found.resources):
        if kind != TYPE:
            raise BadResource(f"resources[{index}]: type '{kind[:200]}' is not allowed; allowed: {TYPE}")
        try:
            config = RateLimitConfig.FromString(value)
        except DecodeError:
            raise BadResource(f"resources[{index}]: can't be read as a RateLimitConfig") from None
        rules = {"domain": config.domain, "descriptors": [_descriptor(d, config, 1) for d in config.descriptors]}
        read.append((config.name, rules))
    return read


def _descriptor(message: RateLimitDescriptor, config: RateLimitConfig, level: int) -> dict[str, Any]:
    if level > MAX_LEVELS:
        raise BadResource(
            f"resource {config.name[:80]!r}: descriptors are nested too deep; allowed: {MAX_LEVELS} levels"
        )
    found: dict[str, Any] = {"key": message.key}
    # What is not set is left out, as in a file: nine of ten fields, and each costs in all that looks at the tree.
    if message.value:
        found["value"] = message.value
    if message.descriptors:
        found["descriptors"] = [_descriptor(below, config, level + 1) for below in message.descriptors]
    for flag in ("shadow_mode", "quota_mode", "detailed_metric"):
        if getattr(message, flag):
            found[flag] = True
    if message.HasField("rate_limit"):
        found["rate_limit"] = _policy(message.rate_limit)
    if message.HasField("metadata"):
        found["metadata"] = _struct(message.metadata)
    return found


def _policy(message: RateLimitPolicy) -> dict[str, Any]:
    known = RateLimitUnit.DESCRIPTOR.values_by_number.get(message.unit)
    found: dict[str, Any] = {
        "unit": known.name if known is not None else str(message.unit),
        "requests_per_unit": message.requests_per_unit,
    }
    if message.unlimited:
        found["unlimited"] = True
    if message.name:
        found["name"] = message.name
    if message.replaces:
        found["replaces"] = [{"name": replaced.name} for replaced in message.replaces]
    return found


def _struct(message: Struct) -> dict[str, Any]:
    fields: Mapping[str, Value] = message.fields
    return {name: _value(value) for name, value in fields.items()}


def _value(message: Value) -> Any:
    kind = message.WhichOneof("kind")
    if kind == "struct_value":
        return _struct(message.struct_value)
    if kind == "list_value":
        return [_value(each) for each in message.list_value.values]
    return None if kind is None or kind == "null_value" else getattr(message, kind)
