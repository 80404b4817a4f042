"""Calls as Envoy makes them: the three services and health, by name, with protobuf messages."""

import asyncio
import json
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from seawall.proto.gen import common_pb2, ext_authz_pb2, ext_proc_pb2, health_pb2, ratelimit_pb2

AUTHZ = "envoy.service.auth.v3.Authorization"
RATELIMIT = "envoy.service.ratelimit.v3.RateLimitService"
EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
SERVICES = (AUTHZ, RATELIMIT, EXT_PROC)
KEY = "sk-demo-vip"
CHAT = "/v1/chat/completions"
HEALTH = health_pb2.HealthCheckResponse
LIMIT = ratelimit_pb2.RateLimitResponse


def connect(address: Path | str) -> grpc.aio.Channel:
    """A connection of its own to a socket or `host:port`; tried again at once, since a test has no time to back off."""
    return grpc.aio.insecure_channel(
        f"unix:{address}" if isinstance(address, Path) else address,
        options=[
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 50),
            # In fact the time that an attempt may take: a busy machine needs some.
            ("grpc.min_reconnect_backoff_ms", 10_000),
            ("grpc.max_reconnect_backoff_ms", 100),
        ],
    )


async def status(of: Awaitable[Any]) -> grpc.StatusCode:
    """Status of a call, OK when it is answered."""
    try:
        await of
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def health(channel: grpc.aio.Channel, service: str = "seawall") -> int:
    ask = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        HEALTH.FromString,
    )
    return int((await ask(health_pb2.HealthCheckRequest(service=service), timeout=10)).status)


def watch(channel: grpc.aio.Channel, service: str = "seawall") -> Any:
    """The stream of a service's states. A client of Watch half-closes after its one message, as grpc's own does."""
    ask = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        health_pb2.HealthCheckRequest.SerializeToString,
        lambda data: HEALTH.FromString(data).status,
    )
    return ask(health_pb2.HealthCheckRequest(service=service))


async def check(channel: grpc.aio.Channel, path: str = CHAT, key: str | None = KEY, **headers: str) -> Any:
    """One Check call, about a POST with this key; header names with `_` for `-`."""
    request = ext_authz_pb2.CheckRequest()
    http = request.attributes.request.http
    http.method, http.path, http.host, http.protocol = "POST", path, "llm.example", "HTTP/1.1"
    http.headers.update({":method": "POST", ":path": path, "user-agent": "test/1"})
    http.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    if key is not None:
        http.headers["authorization"] = f"Bearer {key}"
    ask = channel.unary_unary(
        f"/{AUTHZ}/Check", ext_authz_pb2.CheckRequest.SerializeToString, ext_authz_pb2.CheckResponse.FromString
    )
    return await ask(request, timeout=10)


def denied(response: Any) -> tuple[int, dict[str, str], Any]:
    """Status, headers and body of a refusal, checked to be one that Envoy takes for one."""
    assert response.status.code != 0
    answer = response.denied_response
    headers = {o.header.key: o.header.value for o in answer.headers}
    return int(answer.status.code), headers, json.loads(answer.body)


async def should_rate_limit(
    channel: grpc.aio.Channel, *descriptors: Mapping[str, str], domain: str = "llm", hits: int = 0
) -> Any:
    """One ShouldRateLimit call; a descriptor is its entries in order."""
    request = ratelimit_pb2.RateLimitRequest(domain=domain, hits_addend=hits)
    for entries in descriptors:
        added = request.descriptors.add()
        for key, value in entries.items():
            added.entries.add(key=key, value=value)
    ask = channel.unary_unary(
        f"/{RATELIMIT}/ShouldRateLimit",
        ratelimit_pb2.RateLimitRequest.SerializeToString,
        ratelimit_pb2.RateLimitResponse.FromString,
    )
    return await ask(request, timeout=10)


class Process:
    """One Process stream, message by message."""

    def __init__(self, channel: grpc.aio.Channel):
        self.call: Any = channel.stream_stream(
            f"/{EXT_PROC}/Process",
            ext_proc_pb2.ProcessingRequest.SerializeToString,
            ext_proc_pb2.ProcessingResponse.FromString,
        )()

    async def ask(self, **message: Any) -> Any:
        """Send one message and read its answer."""
        await self.call.write(ext_proc_pb2.ProcessingRequest(**message))
        return await self.read()

    async def read(self) -> Any:
        async with asyncio.timeout(10):
            return await self.call.read()

    async def request_headers(
        self, path: str = CHAT, rid: str = "", end: bool = False, policy: str = "", **headers: str
    ) -> Any:
        values = {":method": "POST", ":path": path, **headers}
        message = ext_proc_pb2.ProcessingRequest(
            request_headers=ext_proc_pb2.HttpHeaders(headers=header_map(values), end_of_stream=end)
        )
        fields = message.metadata_context.filter_metadata["envoy.filters.http.ext_authz"].fields
        for name, value in {"tenant": "demo-vip", "class": "vip", "rid": rid, "policy": policy}.items():
            fields[name].string_value = value
        await self.call.write(message)
        return await self.read()

    async def request_body(self, **body: Any) -> Any:
        data = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], **body}).encode()
        return await self.ask(request_body=ext_proc_pb2.HttpBody(body=data, end_of_stream=True))

    async def response_headers(self, status: str = "200", kind: str = "application/json", **more: str) -> Any:
        values = {":status": status, "content-type": kind, **more}
        return await self.ask(response_headers=ext_proc_pb2.HttpHeaders(headers=header_map(values)))

    async def response_body(self, data: bytes, end: bool) -> Any:
        return await self.ask(response_body=ext_proc_pb2.HttpBody(body=data, end_of_stream=end))

    async def response_pieces(self, *pieces: bytes) -> Any:
        """The pieces of a whole answer in full-duplex: all that comes back, until its end."""
        for i, piece in enumerate(pieces):
            body = ext_proc_pb2.HttpBody(body=piece, end_of_stream=i == len(pieces) - 1)
            await self.call.write(ext_proc_pb2.ProcessingRequest(response_body=body))
        return await self.to_the_end()

    async def to_the_end(self) -> Any:
        """What comes until the answer's last piece: the bytes, and the metadata that came with it."""
        whole = b""
        while True:
            response = await self.read()
            piece = response.response_body.response.body_mutation.streamed_response
            whole += piece.body
            if piece.end_of_stream:
                fields = response.dynamic_metadata.fields["seawall"].struct_value.fields
                return whole, {name: value.string_value for name, value in fields.items()}

    async def done(self) -> grpc.StatusCode:
        """Half-close, as Envoy does at the end of the answer."""
        await self.call.done_writing()
        return await self.end()

    async def end(self) -> grpc.StatusCode:
        """How it ended from the other side."""
        try:
            async with asyncio.timeout(10):
                assert await self.call.read() is grpc.aio.EOF
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode(await self.call.code())


def header_map(values: Mapping[str, str]) -> common_pb2.HeaderMap:
    return common_pb2.HeaderMap(
        headers=[common_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in values.items()]
    )


def set_headers(mutation: Any) -> dict[str, str]:
    return {option.header.key: option.header.raw_value.decode() for option in mutation.set_headers}
