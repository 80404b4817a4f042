"""gRPC server reflection (grpc.reflection.v1, v1alpha): what `grpcurl list` and `describe` ask.

Our messages are a subset of Envoy's under names of our own, so the services' files are made up here: each has the
service's own package and full name, and imports the files that its messages are in.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from seawall.proto.gen import ext_authz_pb2, ext_proc_pb2, health_pb2, ratelimit_pb2, reflection_pb2
from seawall.rpc.contract import CloseReason, RpcError, RpcService, Sender, Status

NAMES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
METHOD = "ServerReflectionInfo"
_SHOWN = 100
"""Characters of a client's name that an error quotes."""


class Method(NamedTuple):
    """One method as a .proto file has it."""

    asked: type[Message]
    answered: type[Message]
    asks_many: bool = False
    answers_many: bool = False


_REFLECTION = Method(
    reflection_pb2.ServerReflectionRequest,
    reflection_pb2.ServerReflectionResponse,
    asks_many=True,
    answers_many=True,
)
METHODS: Mapping[str, Mapping[str, Method]] = {
    "envoy.service.auth.v3.Authorization": {
        "Check": Method(ext_authz_pb2.CheckRequest, ext_authz_pb2.CheckResponse),
    },
    "envoy.service.ratelimit.v3.RateLimitService": {
        "ShouldRateLimit": Method(ratelimit_pb2.RateLimitRequest, ratelimit_pb2.RateLimitResponse),
    },
    "envoy.service.ext_proc.v3.ExternalProcessor": {
        "Process": Method(
            ext_proc_pb2.ProcessingRequest, ext_proc_pb2.ProcessingResponse, asks_many=True, answers_many=True
        ),
    },
    "grpc.health.v1.Health": {
        "Check": Method(health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse),
        "Watch": Method(health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse, answers_many=True),
    },
    **{name: {METHOD: _REFLECTION} for name in NAMES},
}
"""Methods by full name of their service. One that is carried and not named here is listed, but not described."""


def reflection(services: Iterable[RpcService]) -> list[RpcService]:
    """Offer reflection, in both versions, on these services and on itself."""
    names = sorted({service.name for service in services} | set(NAMES))
    described = Described(names)
    return [RpcService(name, {}, {METHOD: lambda _, sender: _Reflection(described, sender)}) for name in NAMES]


class Described:
    """Services by name, and the files that describe them."""

    def __init__(self, names: Sequence[str]):
        self.names = names
        self._files: dict[str, FileDescriptorProto] = {}
        # Found by it: symbols; refused by it: files that don't fit together.
        self._pool = DescriptorPool()
        for name in names:
            if name in METHODS:
                self._describe(name, METHODS[name])

    def _describe(self, name: str, methods: Mapping[str, Method]) -> None:
        package, _, short = name.rpartition(".")
        file = FileDescriptorProto(name=f"seawall/{name}.proto", package=package, syntax="proto3")
        service = file.service.add(name=short)
        for method_name, method in methods.items():
            asked, answered = method.asked.DESCRIPTOR, method.answered.DESCRIPTOR
            service.method.add(
                name=method_name,
                input_type=f".{asked.full_name}",
                output_type=f".{answered.full_name}",
                client_streaming=method.asks_many,
                server_streaming=method.answers_many,
            )
            for message in (asked, answered):
                self._import(message.file)
                if message.file.name not in file.dependency:
                    file.dependency.append(message.file.name)
        self._add(file)

    def _import(self, file: Any) -> None:
        # Any: the stubs know two kinds of FileDescriptor, and messages have both.
        if file.name in self._files:
            return
        for dependency in file.dependencies:
            self._import(dependency)
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        self._add(copy)

    def _add(self, file: FileDescriptorProto) -> None:
        self._files[file.name] = file
        self._pool.Add(file)

    def file(self, name: str) -> list[bytes]:
        """Find a file by name, with all that it imports; raises KeyError."""
        wanted = {name: self._files[name]}
        # The file asked for comes first: clients take it for the answer.
        following = [name]
        for known in following:
            for dependency in self._files[known].dependency:
                if dependency not in wanted:
                    wanted[dependency] = self._files[dependency]
                    following.append(dependency)
        return [file.SerializeToString() for file in wanted.values()]

    def symbol(self, name: str) -> list[bytes]:
        """Find the file of a service, method, message or enum by full name, as `file` does; raises KeyError."""
        try:
            found = self._pool.FindFileContainingSymbol(name)
        except KeyError:
            found = self._pool.FindMethodByName(name).containing_service.file
        return self.file(found.name)

    def message(self, name: str) -> None:
        """Raise KeyError if there is no such message."""
        self._pool.FindMessageTypeByName(name)


class _Reflection:
    """One stream: an answer to each question."""

    def __init__(self, described: Described, sender: Sender):
        self._described = described
        self._sender = sender

    def message(self, data: bytes) -> None:
        try:
            request = reflection_pb2.ServerReflectionRequest.FromString(data)
        except DecodeError:
            raise RpcError(Status.INVALID_ARGUMENT, "not a ServerReflectionRequest") from None
        self._sender.send(self._answer(request).SerializeToString())

    def closed(self, reason: CloseReason) -> None:
        del reason

    def _answer(self, request: reflection_pb2.ServerReflectionRequest) -> reflection_pb2.ServerReflectionResponse:
        answer = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        asked = request.WhichOneof("message_request")
        name: str = getattr(request, asked) if asked else ""
        try:
            match asked:
                case "list_services":
                    for service in self._described.names:
                        answer.list_services_response.service.add(name=service)
                case "file_by_filename":
                    answer.file_descriptor_response.file_descriptor_proto.extend(self._described.file(name))
                case "file_containing_symbol":
                    answer.file_descriptor_response.file_descriptor_proto.extend(self._described.symbol(name))
                case "all_extension_numbers_of_type":
                    # proto3 has no extensions; the answer to a known message is that there are none.
                    self._described.message(name)
                    answer.all_extension_numbers_response.base_type_name = name
                case "file_containing_extension":
                    extension = request.file_containing_extension
                    name = f"extension {extension.extension_number} of {extension.containing_type}"
                    raise KeyError(name)
                case _:
                    _refuse(answer, Status.INVALID_ARGUMENT, "nothing is asked")
        except KeyError:
            _refuse(answer, Status.NOT_FOUND, f"not found: {name[:_SHOWN]}")
        return answer


def _refuse(answer: reflection_pb2.ServerReflectionResponse, status: Status, why: str) -> None:
    answer.error_response.error_code = status
    answer.error_response.error_message = why
