"""The HTTP shell of the simulated engine: routes, streams, and the control endpoints under /sim.

A client that leaves cancels its handler (`handler_cancellation`), which gives the slot back at the same moment.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web

from seawall.sim import answer
from seawall.sim.engine import Engine, Settings
from seawall.sim.faults import Error, Faults
from seawall.sim.request import BadRequest, read
from seawall.sim.sending import Cut, Sending

MAX_BODY = 64 << 20
MAX_HEADER = 128 << 10
VERSION = "0.32.0+seawall.sim"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(settings: Settings, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve one engine while the context is open; yields its base URL. Port 0 takes any free one.

    Raises:
        OSError: The address cannot be bound.
    """
    runner = web.AppRunner(
        build(settings),
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=3600,
        max_line_size=MAX_HEADER,
        max_field_size=MAX_HEADER,
        max_headers=1024,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
        bound = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    finally:
        await runner.cleanup()


def build(settings: Settings) -> web.Application:
    """Build the application of one engine; call it on the loop that will serve it."""
    sim = Simulator(settings)

    async def sign(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["x-engine"] = settings.name

    app = web.Application(client_max_size=MAX_BODY, middlewares=[_errors])
    app.on_response_prepare.append(sign)
    app.router.add_post("/v1/chat/completions", sim.chat)
    app.router.add_post("/v1/completions", sim.completions)
    app.router.add_get("/v1/models", sim.models)
    app.router.add_get("/health", sim.health)
    app.router.add_get("/version", sim.version)
    app.router.add_get("/metrics", sim.metrics)
    app.router.add_get("/sim/state", sim.state)
    app.router.add_get("/sim/faults", sim.show_faults)
    app.router.add_put("/sim/faults", sim.put_faults)
    app.router.add_delete("/sim/faults", sim.clear_faults)
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give errors of the router the shape that FastAPI, under vLLM, gives them."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _json({"detail": error.reason}, error.status)


class Simulator:
    """The handlers of one engine."""

    def __init__(self, settings: Settings) -> None:
        self.engine = Engine(settings)
        self.faults = Faults()
        self._started = int(time.time())

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._generate(request, chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._generate(request, chat=False)

    async def models(self, request: web.Request) -> web.Response:
        """GET /v1/models."""
        cards = [
            {"id": model, "object": "model", "created": self._started, "owned_by": "vllm"}
            for model in self.engine.settings.models
        ]
        return _json({"object": "list", "data": cards})

    async def health(self, request: web.Request) -> web.Response:
        """GET /health: 200 and an empty body."""
        return web.Response()

    async def version(self, request: web.Request) -> web.Response:
        """GET /version."""
        return _json({"version": VERSION})

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics."""
        return web.Response(text=self.engine.metrics(), headers={"content-type": "text/plain; version=0.0.4"})

    async def state(self, request: web.Request) -> web.Response:
        """GET /sim/state: what runs, totals, and the last 50 requests as they arrived."""
        engine = self.engine
        return _json(
            {
                "name": engine.settings.name,
                "models": engine.settings.models,
                "running": engine.running,
                "waiting": engine.waiting,
                "peak_running": engine.peak_running,
                "requests": engine.totals.requests,
                "aborted": engine.totals.finished["abort"],
                "prompt_tokens": engine.totals.prompt_tokens,
                "generated_tokens": engine.totals.generated_tokens,
                "recent": list(engine.recent),
            }
        )

    async def show_faults(self, request: web.Request) -> web.Response:
        """GET /sim/faults."""
        return _json(self.faults.current)

    async def put_faults(self, request: web.Request) -> web.Response:
        """PUT /sim/faults: replace the fault in force."""
        try:
            return _json(self.faults.put(await request.read()))
        except msgspec.DecodeError as error:
            return _failure(400, str(error))

    async def clear_faults(self, request: web.Request) -> web.Response:
        """DELETE /sim/faults."""
        self.faults.clear()
        return _json(self.faults.current)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        """Answer one request, or fail as the fault in force says."""
        body = await request.read()
        headers = _headers(request)
        number = self.engine.receive(request.path, headers, body)
        try:
            ask = read(body, chat=chat, models=self.engine.settings.models)
        except BadRequest as bad:
            return _failure(bad.status, bad.message, bad.param)
        over, fault = self.faults.over, self.faults.take()
        if fault.refusal is not None:
            return _refuse(fault.refusal)
        rid = headers.get("x-request-id") or f"{self.engine.settings.name}-{number}"
        reply = answer.Reply(f"{'chatcmpl' if chat else 'cmpl'}-{rid}", int(time.time()), ask.model, chat)
        sending = Sending(request, self.engine, ask, reply, fault, over)
        # After a cut or a failed write aiohttp still wants a response, and finds that the connection is closed.
        with suppress(Cut, ConnectionError):
            await (sending.stream() if ask.stream else sending.whole())
        return sending.response


def _refuse(error: Error) -> web.Response:
    """Return the error that a fault asks for."""
    response = _failure(error.status, "The engine was told to fail (/sim/faults).")
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response


def _failure(status: int, message: str, param: str | None = None) -> web.Response:
    """Return an error in vLLM's shape."""
    return web.Response(body=answer.error(status, message, param), status=status, content_type="application/json")


def _json(value: object, status: int = 200) -> web.Response:
    """Return any value that msgspec can encode."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _headers(request: web.Request) -> dict[str, str]:
    """Return the headers by lower-case name; repeated ones joined by ", ", bytes that are not UTF-8 replaced."""
    joined = {name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers}
    return {name: value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, value in joined.items()}
