"""The supervisor's HTTP endpoints: /metrics, /healthz, /readyz, /version, and ratelimit's /healthcheck."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from seawall import __version__
from seawall.serve.settings import host_port
from seawall.telemetry.exposition import render
from seawall.telemetry.metrics import Totals


class Endpoints:
    """Serves what `metrics` and `ready` say."""

    def __init__(self, metrics: Callable[[], Awaitable[Totals]], ready: Callable[[], tuple[bool, dict[str, Any]]]):
        self._metrics = metrics
        self._ready = ready
        self._runners: list[web.AppRunner] = []

    async def start(self, address: str | None, healthcheck: str | None = None) -> None:
        """Listen on `host:port`, and on another for /healthcheck alone; raises OSError."""
        if address is not None:
            routes = [
                web.get("/metrics", self._get_metrics),
                web.get("/healthz", self._get_healthz),
                web.get("/readyz", self._get_readyz),
                web.get("/version", self._get_version),
            ]
            await self._listen(address, routes)
        if healthcheck is not None:
            await self._listen(healthcheck, [web.get("/healthcheck", self._get_healthcheck)])

    async def _listen(self, address: str, routes: list[web.RouteDef]) -> None:
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None)
        self._runners.append(runner)
        await runner.setup()
        host, port = host_port("SEAWALL_HTTP", address)
        await web.TCPSite(runner, host, port).start()

    async def stop(self) -> None:
        """Close the listeners."""
        for runner in self._runners:
            await runner.cleanup()

    async def _get_metrics(self, _: web.Request) -> web.Response:
        totals = await self._metrics()
        return web.Response(
            body=render(totals.series()), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _get_healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _get_readyz(self, _: web.Request) -> web.Response:
        ready, detail = self._ready()
        return web.json_response(detail, status=200 if ready else 503)

    async def _get_version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": __version__})

    async def _get_healthcheck(self, _: web.Request) -> web.Response:
        """200 OK or 500 with an empty body, as envoyproxy/ratelimit answers."""
        ready, _detail = self._ready()
        return web.Response(text="OK") if ready else web.Response(status=500)
