"""Our subset of Envoy's messages says the same as Envoy's own protos, which envoy-data-plane carries whole.

A wrong number or type would not fail at run time: protobuf would take the field for an unknown one and read nothing.
"""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from grpclib.reflection.v1 import reflection_pb2 as grpclib_reflection

from seawall.proto.gen import (
    common_pb2,
    discovery_pb2,
    ext_authz_pb2,
    ext_proc_pb2,
    health_pb2,
    ratelimit_config_pb2,
    ratelimit_pb2,
    reflection_pb2,
)


def envoys(package: str) -> Any:
    """Import a package of envoy-data-plane, whose own use of pydantic is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"envoy_data_plane.{package}")


core = envoys("envoy.config.core.v3")
common_ratelimit = envoys("envoy.extensions.common.ratelimit.v3")
ext_proc_filter = envoys("envoy.extensions.filters.http.ext_proc.v3")
auth = envoys("envoy.service.auth.v3")
discovery = envoys("envoy.service.discovery.v3")
ext_proc = envoys("envoy.service.ext_proc.v3")
ratelimit = envoys("envoy.service.ratelimit.v3")
envoy_type = envoys("envoy.type.v3")
google = envoys("google.protobuf")
google_rpc = envoys("google.rpc")

ROOT = Path(__file__).resolve().parents[2]
FILES: list[FileDescriptor] = [
    m.DESCRIPTOR
    for m in (
        common_pb2,
        discovery_pb2,
        ext_authz_pb2,
        ext_proc_pb2,
        health_pb2,
        ratelimit_config_pb2,
        ratelimit_pb2,
        reflection_pb2,
    )
]

# Our full name (without `seawall.proto.`) to Envoy's class.
MESSAGES: dict[str, Any] = {
    "common.Status": google_rpc.Status,
    "common.SocketAddress": core.SocketAddress,
    "common.Address": core.Address,
    "common.Metadata": core.Metadata,
    "common.HeaderValue": core.HeaderValue,
    "common.HeaderMap": core.HeaderMap,
    "common.HeaderValueOption": core.HeaderValueOption,
    "common.HttpStatus": envoy_type.HttpStatus,
    "discovery.Node": core.Node,
    "discovery.DiscoveryRequest": discovery.DiscoveryRequest,
    "discovery.DiscoveryResponse": discovery.DiscoveryResponse,
    "ext_authz.AttributeContext": auth.AttributeContext,
    "ext_authz.AttributeContext.Peer": auth.AttributeContextPeer,
    "ext_authz.AttributeContext.HttpRequest": auth.AttributeContextHttpRequest,
    "ext_authz.AttributeContext.Request": auth.AttributeContextRequest,
    "ext_authz.CheckRequest": auth.CheckRequest,
    "ext_authz.DeniedHttpResponse": auth.DeniedHttpResponse,
    "ext_authz.OkHttpResponse": auth.OkHttpResponse,
    "ext_authz.CheckResponse": auth.CheckResponse,
    "ratelimit.RateLimitDescriptor": common_ratelimit.RateLimitDescriptor,
    "ratelimit.RateLimitDescriptor.Entry": common_ratelimit.RateLimitDescriptorEntry,
    "ratelimit.RateLimitDescriptor.RateLimitOverride": common_ratelimit.RateLimitDescriptorRateLimitOverride,
    "ratelimit.RateLimitRequest": ratelimit.RateLimitRequest,
    "ratelimit.RateLimitResponse": ratelimit.RateLimitResponse,
    "ratelimit.RateLimitResponse.RateLimit": ratelimit.RateLimitResponseRateLimit,
    "ratelimit.RateLimitResponse.DescriptorStatus": ratelimit.RateLimitResponseDescriptorStatus,
    "ext_proc.ProcessingMode": ext_proc_filter.ProcessingMode,
    "ext_proc.ProtocolConfiguration": ext_proc.ProtocolConfiguration,
    "ext_proc.HttpHeaders": ext_proc.HttpHeaders,
    "ext_proc.HttpBody": ext_proc.HttpBody,
    "ext_proc.HttpTrailers": ext_proc.HttpTrailers,
    "ext_proc.ProcessingRequest": ext_proc.ProcessingRequest,
    "ext_proc.HeaderMutation": ext_proc.HeaderMutation,
    "ext_proc.StreamedBodyResponse": ext_proc.StreamedBodyResponse,
    "ext_proc.BodyMutation": ext_proc.BodyMutation,
    "ext_proc.CommonResponse": ext_proc.CommonResponse,
    "ext_proc.HeadersResponse": ext_proc.HeadersResponse,
    "ext_proc.BodyResponse": ext_proc.BodyResponse,
    "ext_proc.TrailersResponse": ext_proc.TrailersResponse,
    "ext_proc.GrpcStatus": ext_proc.GrpcStatus,
    "ext_proc.ImmediateResponse": ext_proc.ImmediateResponse,
    "ext_proc.StreamedImmediateResponse": ext_proc.StreamedImmediateResponse,
    "ext_proc.ProcessingResponse": ext_proc.ProcessingResponse,
}
ENUMS: dict[str, Any] = {
    "common.StatusCode": envoy_type.StatusCode,
    "common.HeaderValueOption.HeaderAppendAction": core.HeaderValueOptionHeaderAppendAction,
    "ratelimit.RateLimitUnit": envoy_type.RateLimitUnit,
    "ratelimit.RateLimitResponse.Code": ratelimit.RateLimitResponseCode,
    "ratelimit.RateLimitResponse.RateLimit.Unit": ratelimit.RateLimitResponseRateLimitUnit,
    "ext_proc.ProcessingMode.HeaderSendMode": ext_proc_filter.ProcessingModeHeaderSendMode,
    "ext_proc.ProcessingMode.BodySendMode": ext_proc_filter.ProcessingModeBodySendMode,
    "ext_proc.CommonResponse.ResponseStatus": ext_proc.CommonResponseResponseStatus,
}
# envoy-data-plane has no grpc.health.v1; its specification is short and frozen (health/v1/health.proto in grpc-proto).
HEALTH = {
    "health.HealthCheckRequest": {"service": (1, "string")},
    "health.HealthCheckResponse": {"status": (1, "enum")},
    "health.HealthCheckResponse.ServingStatus": {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3},
}
# Nor has it the rules that control planes send: these are the numbers of go-control-plane's generated code.
RULES = {
    "ratelimit_config.RateLimitConfig": {
        "name": (1, "string", False),
        "domain": (2, "string", False),
        "descriptors": (3, "RateLimitDescriptor", True),
    },
    "ratelimit_config.RateLimitDescriptor": {
        "key": (1, "string", False),
        "value": (2, "string", False),
        "rate_limit": (3, "RateLimitPolicy", False),
        "descriptors": (4, "RateLimitDescriptor", True),
        "shadow_mode": (5, "bool", False),
        "detailed_metric": (6, "bool", False),
        "quota_mode": (7, "bool", False),
        "metadata": (8, "Struct", False),
    },
    "ratelimit_config.RateLimitPolicy": {
        "unit": (1, "RateLimitUnit", False),
        "requests_per_unit": (2, "uint32", False),
        "unlimited": (3, "bool", False),
        "name": (4, "string", False),
        "replaces": (5, "RateLimitReplace", True),
    },
    "ratelimit_config.RateLimitReplace": {"name": (1, "string", False)},
    "ratelimit_config.RateLimitUnit": {
        name: number
        for number, name in enumerate(["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"])
    },
}
# Nor has it grpc.reflection; grpclib, which it rests on, has all of v1, and v1alpha differs by its name only.
REFLECTION = {f"reflection.{m.name}": m for m in grpclib_reflection.DESCRIPTOR.message_types_by_name.values()}
WELL_KNOWN: dict[str, Any] = {
    "google.protobuf.Any": google.Any,
    "google.protobuf.Struct": google.Struct,
    "google.protobuf.Duration": google.Duration,
    "google.protobuf.BoolValue": google.BoolValue,
    "google.protobuf.UInt64Value": google.UInt64Value,
}
KINDS = {getattr(FieldDescriptor, n): n[len("TYPE_") :].lower() for n in dir(FieldDescriptor) if n.startswith("TYPE_")}


def ours(name: str) -> str:
    return name.removeprefix("seawall.proto.")


def messages(of: Descriptor) -> Iterator[Descriptor]:
    if not of.GetOptions().map_entry:
        yield of
        for nested in of.nested_types:
            yield from messages(nested)


ALL_MESSAGES = {ours(m.full_name): m for f in FILES for top in f.message_types_by_name.values() for m in messages(top)}
ALL_ENUMS: dict[str, EnumDescriptor] = {
    ours(e.full_name): e
    for e in [e for f in FILES for e in f.enum_types_by_name.values()]
    + [e for m in ALL_MESSAGES.values() for e in m.enum_types]
}


def kind(field: FieldDescriptor) -> str:
    """Its type, in the words of betterproto2."""
    if is_map(field):
        return "map"
    return KINDS[field.type]


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def oneof(field: FieldDescriptor) -> str | None:
    return None if field.containing_oneof is None else str(field.containing_oneof.name)


def their_class(parent: Any, name: str) -> Any:
    """Find the class of a message or enum field; for one that betterproto2 unwraps, the wrapping message."""
    unwrap = parent._betterproto.meta_by_field_name[name].unwrap
    return unwrap() if unwrap else parent._betterproto.cls_by_field[name]


def our_counterpart(field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return ENUMS[ours(field.enum_type.full_name)]
    assert field.message_type is not None
    name = field.message_type.full_name
    return WELL_KNOWN[name] if name in WELL_KNOWN else MESSAGES[ours(name)]


def test_nothing_of_ours_is_missing_from_the_tables() -> None:
    named = MESSAGES.keys() | ENUMS.keys() | HEALTH.keys() | RULES.keys() | REFLECTION.keys()
    assert ALL_MESSAGES.keys() | ALL_ENUMS.keys() == named


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_those_of_envoy(name: str) -> None:
    theirs = MESSAGES[name]
    parent = theirs()
    known = parent._betterproto.meta_by_field_name
    assert ALL_MESSAGES[name].fields, "a message without fields compares nothing"
    for field in ALL_MESSAGES[name].fields:
        where = f"{name}.{field.name}"
        assert field.name in known, where
        meta = known[field.name]
        repeated = field.is_repeated and not is_map(field)
        assert (field.number, kind(field), oneof(field), repeated) == (
            meta.number,
            meta.proto_type,
            meta.group,
            meta.repeated,
        ), where
        if is_map(field):
            assert field.message_type is not None
            entry = field.message_type.fields_by_name
            assert [kind(entry["key"]), kind(entry["value"])] == [m.proto_type for m in meta.map_meta], where
            if entry["value"].message_type is not None:
                assert our_counterpart(entry["value"]) is parent._betterproto.cls_by_field[f"{field.name}.value"], where
        elif kind(field) in {"message", "enum"}:
            assert our_counterpart(field) is their_class(parent, field.name), where


@pytest.mark.parametrize("name", ENUMS)
def test_enum_values_are_those_of_envoy(name: str) -> None:
    assert {v.name: v.number for v in ALL_ENUMS[name].values} == {v.name: v.value for v in ENUMS[name]}


@pytest.mark.parametrize("name", HEALTH)
def test_health_is_that_of_grpc(name: str) -> None:
    if name in ALL_ENUMS:
        assert {v.name: v.number for v in ALL_ENUMS[name].values} == HEALTH[name]
    else:
        assert {f.name: (f.number, kind(f)) for f in ALL_MESSAGES[name].fields} == HEALTH[name]


@pytest.mark.parametrize("name", RULES)
def test_rules_are_those_of_control_planes(name: str) -> None:
    """Every field, none left out."""
    if name in ALL_ENUMS:
        assert {v.name: v.number for v in ALL_ENUMS[name].values} == RULES[name]
        return

    def type_of(field: FieldDescriptor) -> str:
        named = field.message_type or field.enum_type
        return kind(field) if named is None else str(named.name)

    assert {f.name: (f.number, type_of(f), f.is_repeated) for f in ALL_MESSAGES[name].fields} == RULES[name]


@pytest.mark.parametrize("name", REFLECTION)
def test_reflection_is_that_of_grpc(name: str) -> None:
    """Every field, none left out."""

    def told(message: Any) -> dict[str, Any]:
        return {
            f.name: (f.number, kind(f), f.is_repeated, oneof(f), f.message_type and f.message_type.name)
            for f in message.fields
        }

    assert told(ALL_MESSAGES[name]) == told(REFLECTION[name])


def test_registered_names_are_ours() -> None:
    for file in FILES:
        assert file.name.startswith("seawall/proto/gen/")
        assert file.package.startswith("seawall.proto.")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_proto", ROOT / "tools" / "proto.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    generator().generate(tmp_path)
    checked_in = ROOT / "seawall" / "proto" / "gen"
    fresh = {f.name: f.read_text() for f in tmp_path.iterdir()}
    assert {f.name: f.read_text() for f in checked_in.glob("*_pb2.py*")} == fresh, "run `make proto`"
