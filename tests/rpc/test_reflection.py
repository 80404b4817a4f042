"""Reflection over both transports: a client that knows none of our messages lists, describes and calls."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from ext_authz import wire
from seawall.proto.gen import reflection_pb2
from seawall.rpc.contract import Call, RpcService
from seawall.rpc.reference import GrpcioServer
from seawall.rpc.server import CodecServer
from seawall.serve.health import Health
from seawall.serve.reflection import METHODS, NAMES, reflection
from seawall.serve.settings import SERVICES
from tests.wire import carried
from tests.wire.carried import refusal, talk

# grpcio still tells a loop of calls that a test is done with: one loop for all, as in tests/wire.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("transport")]
V1, V1ALPHA = NAMES
AUTHZ = "envoy.service.auth.v3.Authorization"
UNKNOWN_TO_US = "acme.Unheard"
NOT_FOUND, INVALID_ARGUMENT = 5, 3
versions = pytest.mark.parametrize("version", NAMES, ids=["v1", "v1alpha"])


@pytest.fixture(params=[CodecServer, GrpcioServer], ids=["own", "grpcio"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(carried.transport, "kind", request.param)
    yield


def check(data: bytes, _: Call) -> bytes:
    """Answers with what it was asked."""
    asked = wire.decode(data)
    return wire.allow({"path": asked.path, "agent": asked.headers["user-agent"]}, "1", ["x-api-key"])


def services() -> list[RpcService]:
    """One of each, as a worker has them, and one that a stranger has installed."""
    ours = [
        RpcService(AUTHZ, {"Check": check}, {}),
        *(RpcService(name, {}, {}) for name in METHODS if name.startswith("envoy") and name != AUTHZ),
        RpcService(UNKNOWN_TO_US, {}, {}),
    ]
    return [*ours, Health([s.name for s in ours]).service()]


class Client:
    """One reflection stream."""

    def __init__(self, channel: grpc.aio.Channel, version: str):
        self.channel = channel
        self._stream = talk(channel, f"/{version}/ServerReflectionInfo")

    async def ask(self, **what: Any) -> reflection_pb2.ServerReflectionResponse:
        request = reflection_pb2.ServerReflectionRequest(host="here", **what)
        await self._stream.write(request.SerializeToString())
        answer = reflection_pb2.ServerReflectionResponse.FromString(await self._stream.read())
        assert (answer.valid_host, answer.original_request) == ("here", request)
        return answer

    async def files(self, **what: Any) -> list[FileDescriptorProto]:
        answer = await self.ask(**what)
        assert answer.WhichOneof("message_response") == "file_descriptor_response", answer
        return [FileDescriptorProto.FromString(f) for f in answer.file_descriptor_response.file_descriptor_proto]

    async def end(self) -> None:
        await self._stream.done_writing()
        assert await self._stream.read() is grpc.aio.EOF
        assert await self._stream.code() is grpc.StatusCode.OK


@asynccontextmanager
async def client(version: str = V1) -> AsyncIterator[Client]:
    offered = services()
    async with carried.carried(*offered, *reflection(offered)) as running, running.connect() as channel:
        made = Client(channel, version)
        yield made
        await made.end()
        assert running.faults == []


def pool_of(files: list[FileDescriptorProto]) -> DescriptorPool:
    """A pool of these files and no others: one whose import is missing is refused."""
    pool, waiting = DescriptorPool(), {file.name: file for file in files}

    def add(name: str) -> None:
        if (file := waiting.pop(name, None)) is not None:
            for dependency in file.dependency:
                add(dependency)
            pool.Add(file)

    for file in files:
        add(file.name)
    return pool


@versions
async def test_list(version: str) -> None:
    """All that is carried, reflection among it, whatever the client says it wants."""
    async with client(version) as to:
        for value in ("", "*"):
            listed = [s.name for s in (await to.ask(list_services=value)).list_services_response.service]
            assert listed == sorted([*METHODS, UNKNOWN_TO_US])


@versions
@pytest.mark.parametrize("service", METHODS)
async def test_describe(version: str, service: str) -> None:
    """The service's file comes first and what it imports with it; its methods are those of the table."""
    async with client(version) as to:
        files = await to.files(file_containing_symbol=service)
        assert files[0].package == service.rpartition(".")[0]
        described = pool_of(files).FindServiceByName(service)
        told = {
            m.name: (m.input_type.full_name, m.output_type.full_name, m.client_streaming, m.server_streaming)
            for m in described.methods
        }
        assert told == {
            name: (m.asked.DESCRIPTOR.full_name, m.answered.DESCRIPTOR.full_name, m.asks_many, m.answers_many)
            for name, m in METHODS[service].items()
        }


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        (f"{AUTHZ}.Check", f"seawall/{AUTHZ}.proto"),
        ("seawall.proto.ext_authz.CheckRequest", "seawall/proto/gen/ext_authz.proto"),
        ("seawall.proto.ext_authz.AttributeContext.HttpRequest", "seawall/proto/gen/ext_authz.proto"),
        ("seawall.proto.common.StatusCode", "seawall/proto/gen/common.proto"),
        ("google.protobuf.Struct", "google/protobuf/struct.proto"),
    ],
)
async def test_symbols(symbol: str, file: str) -> None:
    """Methods, messages and enums, ours and those that ours are made of."""
    async with client() as to:
        files = await to.files(file_containing_symbol=symbol)
        assert files[0].name == file
        pool_of(files)


async def test_files_by_name() -> None:
    """What a file imports can be asked for by name, and is the same again."""
    async with client() as to:
        files = await to.files(file_containing_symbol=AUTHZ)
        assert len({file.name for file in files}) == len(files)
        for file in files:
            first, *imported = await to.files(file_by_filename=file.name)
            assert first == file
            assert set(file.dependency) <= {f.name for f in imported}


@versions
@pytest.mark.parametrize(
    "asked",
    [
        {"file_containing_symbol": "acme.Nothing"},
        {"file_containing_symbol": UNKNOWN_TO_US},
        {"file_containing_symbol": f"{AUTHZ}.Nothing"},
        {"file_containing_symbol": ""},
        {"file_containing_symbol": "x" * 10_000},
        {"file_by_filename": "acme.proto"},
        {"file_by_filename": ""},
        {"all_extension_numbers_of_type": "acme.Nothing"},
        {"file_containing_extension": {"containing_type": "google.protobuf.Struct", "extension_number": 7}},
    ],
    ids=lambda asked: " ".join(map(str, *asked.items()))[:60],
)
async def test_unknown(version: str, asked: dict[str, Any]) -> None:
    """It is NOT_FOUND in the answer; the stream goes on."""
    async with client(version) as to:
        error = (await to.ask(**asked)).error_response
        assert error.error_code == NOT_FOUND
        assert error.error_message.startswith("not found: ")
        assert len(error.error_message) < 200
        assert (await to.ask(list_services="")).list_services_response.service


async def test_a_question_without_one() -> None:
    async with client() as to:
        assert (await to.ask()).error_response.error_code == INVALID_ARGUMENT


async def test_extensions() -> None:
    """A known message has none."""
    async with client() as to:
        answer = (await to.ask(all_extension_numbers_of_type="google.protobuf.Struct")).all_extension_numbers_response
        assert (answer.base_type_name, list(answer.extension_number)) == ("google.protobuf.Struct", [])


async def test_bytes_that_are_no_question() -> None:
    offered = services()
    async with carried.carried(*reflection(offered)) as running, running.connect() as channel:
        stream = talk(channel, f"/{V1}/ServerReflectionInfo")
        await stream.write(b"\xff")
        assert (await refusal(stream.read()))[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert running.faults == []


async def test_a_call_by_what_was_described() -> None:
    """A client makes its messages of the answers, and is understood."""
    async with client() as to:
        pool = pool_of(await to.files(file_containing_symbol=AUTHZ))
        method = pool.FindServiceByName(AUTHZ).methods_by_name["Check"]
        request: Any = GetMessageClass(method.input_type)()
        request.attributes.request.http.path = "/v1/models"
        request.attributes.request.http.headers["user-agent"] = "reflected"
        ask = to.channel.unary_unary(f"/{AUTHZ}/Check")
        response: Any = GetMessageClass(method.output_type).FromString(
            await ask(request.SerializeToString(), timeout=10)
        )
        assert list(response.ok_response.headers_to_remove) == ["x-api-key"]
        assert dict(response.dynamic_metadata.items()) == {"path": "/v1/models", "agent": "reflected", "rid": "1"}


@pytest.mark.parametrize("service", SERVICES)
async def test_the_table_is_what_services_offer(service: str) -> None:
    """Names by each service's own wire module: a service that is not in the table would not be described."""
    module = __import__(f"{service}.wire", fromlist=["wire"])
    assert set(METHODS[module.SERVICE]) == {module.METHOD}
