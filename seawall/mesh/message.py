"""From the types of envoy-data-plane to the JSON that Envoy reads (ProtoJSON with the names of the .proto files)."""

from collections.abc import Mapping
from datetime import timedelta

from betterproto2 import Message

from seawall.mesh.envoy_types import core_v3, protobuf

Json = dict[str, object]


def plain(message: Message) -> Json:
    """Give a message as Envoy's documentation writes it: names of the .proto file, enum names, durations like `0.250s`.

    Names are left as they are: Casing.SNAKE makes `consecutive_5_xx` of `consecutive_5xx`, which Envoy doesn't know.
    """
    return dict(message.to_dict(casing=_as_it_is))  # type: ignore[arg-type]


def packed(message: Message) -> protobuf.Any:
    """Wrap a message for a `typed_config` field."""
    return protobuf.Any.pack(message)


def extension(name: str, message: Message) -> core_v3.TypedExtensionConfig:
    """Name an extension and its configuration."""
    return core_v3.TypedExtensionConfig(name=name, typed_config=packed(message))


def struct(value: Mapping[str, object]) -> protobuf.Struct:
    """Make a google.protobuf.Struct of plain data."""
    made: protobuf.Struct = protobuf.Struct.from_dict(dict(value))
    return made


def seconds(value: float) -> timedelta:
    """Make a duration of a number of seconds."""
    return timedelta(seconds=value)


def _as_it_is(name: str) -> str:
    return name
