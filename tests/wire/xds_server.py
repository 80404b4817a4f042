"""A control plane for tests: xDS, state of the world over ADS, with grpcio; answers as go-control-plane's server does."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import ParseDict

from seawall.proto.gen.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from seawall.proto.gen.ratelimit_config_pb2 import RateLimitConfig
from tests.wire.carried import until

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
TYPE = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"


def resource(domain: str, *descriptors: Mapping[str, Any], name: str | None = None) -> RateLimitConfig:
    """One domain's rules, written as in a rule file, with units in capitals."""
    data = {"name": name or domain, "domain": domain, "descriptors": list(descriptors)}
    return ParseDict(data, RateLimitConfig())


def who(count: int, unit: str = "DAY", **more: Any) -> dict[str, Any]:
    """A rule for each `who`."""
    return {"key": "who", "rate_limit": {"unit": unit, "requests_per_unit": count}, **more}


def response(version: str, nonce: str, resources: Sequence[RateLimitConfig]) -> DiscoveryResponse:
    message = DiscoveryResponse(version_info=version, type_url=TYPE, nonce=nonce)
    for each in resources:
        message.resources.add(type_url=TYPE, value=each.SerializeToString())
    return message


class XdsServer:
    """Sends its snapshot to each stream that subscribes, and to all when it is set; keeps what they say."""

    def __init__(self, port: int = 0, credentials: grpc.ServerCredentials | None = None):
        self.port = port
        self._credentials = credentials
        self._server: grpc.aio.Server | None = None
        self._streams: dict[Any, asyncio.Event] = {}
        self._nonce = 0
        self._snapshot: tuple[str, Sequence[RateLimitConfig]] | None = None
        self.requests: list[DiscoveryRequest] = []
        self.headers: list[dict[str, Any]] = []
        """Of each stream."""

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        method = grpc.stream_stream_rpc_method_handler(self._stream)
        handlers = grpc.method_handlers_generic_handler(SERVICE, {"StreamAggregatedResources": method})
        self._server.add_generic_rpc_handlers((handlers,))
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._credentials)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def set(self, version: str, *resources: RateLimitConfig) -> None:
        """Make a snapshot the one in force, and send it to all."""
        self._snapshot = version, resources
        for wanted in self._streams.values():
            wanted.set()

    @property
    def streams(self) -> int:
        return len(self._streams)

    @property
    def streams_ever(self) -> int:
        return len(self.headers)

    def accepted(self, version: str) -> bool:
        return any(
            r.response_nonce and r.version_info == version and not r.HasField("error_detail") for r in self.requests
        )

    def refusals(self) -> list[DiscoveryRequest]:
        return [r for r in self.requests if r.HasField("error_detail")]

    async def acked(self, version: str) -> None:
        await until(lambda: self.accepted(version), f"version {version} is accepted; {self.requests[-3:]}", 20)

    async def nacked(self, count: int = 1) -> DiscoveryRequest:
        await until(lambda: len(self.refusals()) >= count, f"{count} refusals; {self.requests[-3:]}", 20)
        return self.refusals()[-1]

    async def _stream(self, _: Any, context: Any) -> None:
        self.headers.append(dict(context.invocation_metadata() or ()))
        wanted = asyncio.Event()
        reading = asyncio.ensure_future(self._read(context, wanted))
        self._streams[context] = wanted
        try:
            while True:
                await wanted.wait()
                wanted.clear()
                if self._snapshot is not None:
                    self._nonce += 1
                    await context.write(
                        response(self._snapshot[0], str(self._nonce), self._snapshot[1]).SerializeToString()
                    )
        finally:
            del self._streams[context]
            reading.cancel()

    async def _read(self, context: Any, wanted: asyncio.Event) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            request = DiscoveryRequest.FromString(data)
            self.requests.append(request)
            assert request.type_url == TYPE
            if not request.response_nonce and (self._snapshot is None or request.version_info != self._snapshot[0]):
                wanted.set()


@asynccontextmanager
async def control_plane(port: int = 0, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[XdsServer]:
    server = XdsServer(port, credentials)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
