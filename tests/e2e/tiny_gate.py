"""A gate of a few lines for tests of the Envoy configuration: what it answers is chosen by path and key.

Plain grpcio in threads, so that a fixture can outlive a test's event loop.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from seawall.proto.gen import common_pb2, ext_authz_pb2, ext_proc_pb2, health_pb2, ratelimit_pb2

OWN = b'{"error":{"message":"ours"}}'


def header(key: str, value: str) -> common_pb2.HeaderValueOption:
    """ext_authz reads `value`, ext_proc `raw_value`."""
    return common_pb2.HeaderValueOption(header=common_pb2.HeaderValue(key=key, value=value, raw_value=value.encode()))


def refuse(answer: ext_proc_pb2.ProcessingResponse) -> None:
    answer.immediate_response.status.code = common_pb2.PayloadTooLarge
    answer.immediate_response.body = OWN
    answer.immediate_response.details = "seawall.request_too_large"
    answer.immediate_response.headers.set_headers.append(header("content-type", "application/json"))


class TinyGate:
    """All three services and health on one socket; keeps what it was asked."""

    def __init__(self, socket: str):
        self.authz: list[dict[str, str]] = []
        self.descriptors: list[list[tuple[str, str]]] = []
        self.metadata: list[dict[str, Any]] = []
        self.attributes: list[dict[str, Any]] = []
        self.ext_proc_streams = 0
        # Envoy's keep-alive pings, one every 10 s, are an attack in the eyes of a server that isn't told of them.
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.http2.max_ping_strikes", 0)])
        self._server.add_insecure_port(f"unix:{socket}")
        self._serve("envoy.service.auth.v3.Authorization", "Check", ext_authz_pb2.CheckRequest, self._check)
        self._serve(
            "envoy.service.ratelimit.v3.RateLimitService",
            "ShouldRateLimit",
            ratelimit_pb2.RateLimitRequest,
            self._should_rate_limit,
        )
        self._serve("grpc.health.v1.Health", "Check", health_pb2.HealthCheckRequest, self._health)
        stream: Any = grpc.stream_stream_rpc_method_handler(
            self._process, ext_proc_pb2.ProcessingRequest.FromString, lambda m: m.SerializeToString()
        )
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("envoy.service.ext_proc.v3.ExternalProcessor", {"Process": stream})]
        )
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def _serve(self, service: str, method: str, request: Any, answer: Any) -> None:
        handler: Any = grpc.unary_unary_rpc_method_handler(answer, request.FromString, lambda m: m.SerializeToString())
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])

    def _health(self, request: health_pb2.HealthCheckRequest, _: Any) -> health_pb2.HealthCheckResponse:
        known = request.service == "seawall"
        return health_pb2.HealthCheckResponse(status="SERVING" if known else "SERVICE_UNKNOWN")

    def _check(self, request: ext_authz_pb2.CheckRequest, _: Any) -> ext_authz_pb2.CheckResponse:
        headers = dict(request.attributes.request.http.headers)
        self.authz.append(headers)
        answer = ext_authz_pb2.CheckResponse()
        key = headers.get("authorization", "")
        if key == "Bearer wrong":
            answer.status.code = 16
            answer.denied_response.status.code = common_pb2.Unauthorized
            answer.denied_response.body = OWN.decode()
            answer.denied_response.headers.append(header("content-type", "application/json"))
            return answer
        answer.ok_response.SetInParent()
        answer.dynamic_metadata.update({"tenant": "over" if key == "Bearer over" else "acme", "class": "vip"})
        return answer

    def _should_rate_limit(self, request: ratelimit_pb2.RateLimitRequest, _: Any) -> ratelimit_pb2.RateLimitResponse:
        seen = [(e.key, e.value) for d in request.descriptors for e in d.entries]
        self.descriptors.append(seen)
        over = ("tenant", "over") in seen
        answer = ratelimit_pb2.RateLimitResponse(overall_code="OVER_LIMIT" if over else "OK")
        for _ in request.descriptors:
            status = answer.statuses.add(code=answer.overall_code, limit_remaining=0 if over else 9)
            status.current_limit.requests_per_unit = 10
            status.current_limit.unit = ratelimit_pb2.RateLimitResponse.RateLimit.MINUTE
            status.duration_until_reset.seconds = 17
        return answer

    def _process(self, messages: Iterator[ext_proc_pb2.ProcessingRequest], call: Any) -> Iterator[Any]:
        self.ext_proc_streams += 1
        known = False
        for message in messages:
            answer = ext_proc_pb2.ProcessingResponse()
            if message.HasField("request_headers"):
                self.metadata.append({k: dict(v) for k, v in message.metadata_context.filter_metadata.items()})
                self.attributes.append({k: dict(v) for k, v in message.attributes.items()})
                headers = {h.key: h.raw_value for h in message.request_headers.headers.headers}
                if headers[":path"].endswith(b"/abort"):
                    call.abort(grpc.StatusCode.UNKNOWN, "as the test asked")
                if headers[":path"].endswith(b"/ours"):
                    refuse(answer)
                else:
                    answer.request_headers.SetInParent()
                    known = "content-length" in headers
                    answer.mode_override.request_body_mode = ext_proc_pb2.ProcessingMode.BUFFERED
            elif message.HasField("request_body"):
                body = json.loads(message.request_body.body)
                rewritten = json.dumps({**body, "seen": True}).encode()
                common = answer.request_body.response
                common.clear_route_cache = True
                common.body_mutation.body = rewritten
                if known:
                    common.header_mutation.set_headers.append(header("content-length", str(len(rewritten))))
                if "pool" in body:
                    common.header_mutation.set_headers.append(header("x-seawall-pool", body["pool"]))
            yield answer


class Engine:
    """An upstream that answers with its name and what it was sent, unless it is told to do something else."""

    def __init__(self, name: str, port: int = 0):
        self.health = 200
        self.next: deque[Callable[[Any], bool]] = deque()
        """What to do with the next requests: each is given the handler, and says whether it has answered."""
        self.asked: list[float] = []
        """When requests came, in seconds of a monotonic clock."""
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(engine.health)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])) if "content-length" in self.headers else b""
                while not self.headers.get("content-length") and (size := int(self.rfile.readline(), 16)):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                engine.asked.append(time.monotonic())
                if engine.next and engine.next.popleft()(self):
                    return
                said = {"engine": name, "headers": dict(self.headers), "body": json.loads(body)}
                data = json.dumps(said).encode()
                self.send_response(int(self.headers.get("x-test-status", "200")))
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self._pool = ThreadPoolExecutor(1)
        self._pool.submit(self._server.serve_forever, 0.05)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._pool.shutdown()


def status(code: int, **headers: str) -> Callable[[Any], bool]:
    """Answer with a status and no body."""

    def answer(handler: Any) -> bool:
        handler.send_response(code)
        for key, value in headers.items():
            handler.send_header(key.replace("_", "-"), value)
        handler.send_header("content-length", "0")
        handler.end_headers()
        return True

    return answer


def gone(handler: Any) -> bool:
    """Take the request and close the connection without a word."""
    handler.close_connection = True
    return True


def cut(handler: Any) -> bool:
    """Begin to answer, then close the connection."""
    handler.send_response(200)
    handler.send_header("content-length", "100")
    handler.end_headers()
    handler.wfile.write(b"begun")
    handler.wfile.flush()
    handler.close_connection = True
    return True
