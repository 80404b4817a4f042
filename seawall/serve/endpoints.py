"""The supervisor's HTTP endpoints: /metrics, /healthz, /readyz, /version, and those of envoyproxy/ratelimit."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from seawall import __version__
from seawall.serve.errands import Page, Question
from seawall.serve.settings import Settings, host_port
from seawall.telemetry.exposition import render
from seawall.telemetry.limit_names import go_names
from seawall.telemetry.metrics import Totals

_INDEX = {
    "/rlconfig": "print out the currently loaded configuration for debugging",
    "/stats": "print out stats",
    "/explain": "tell which rules, counters and numbers decide a call (POST a RateLimitRequest as JSON)",
    "/metrics": "print out stats for Prometheus",
    "/readyz": "tell the state of the workers",
}


class Endpoints:
    """Serves what `metrics`, `ready` and `healthy` say, and what a worker answers to an `errand`."""

    def __init__(
        self,
        settings: Settings,
        metrics: Callable[[], Awaitable[Totals]],
        ready: Callable[[], tuple[bool, dict[str, Any]]],
        healthy: Callable[[], bool],
        errand: Callable[[Question], Awaitable[Page | None]],
    ):
        self._settings = settings
        self._metrics = metrics
        self._ready = ready
        self._healthy = healthy
        self._errand = errand
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        """Listen where the settings say; raises OSError."""
        settings = self._settings
        if settings.http is not None:
            routes = [
                web.get("/metrics", self._get_metrics),
                web.get("/healthz", self._get_healthz),
                web.get("/readyz", self._get_readyz),
                web.get("/version", self._get_version),
            ]
            if "ratelimit" in settings.services:
                routes += [
                    web.get("/", self._get_index),
                    web.get("/stats", self._get_stats),
                    web.get("/rlconfig", self._pass_on),
                    web.get("/explain", self._pass_on),
                    web.post("/explain", self._pass_on),
                ]
            await self._listen(settings.http, routes)
        if settings.healthcheck is not None:
            routes = [web.get("/healthcheck", self._get_healthcheck)]
            if settings.json_endpoint:
                routes.append(web.route("*", "/json", self._pass_on))
            await self._listen(settings.healthcheck, routes)
        if settings.prometheus is not None:
            address, path = settings.prometheus
            await self._listen(address, [web.get(path, self._get_metrics)])

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

    async def _get_index(self, _: web.Request) -> web.Response:
        return web.Response(text="".join(f"{path}: {what}\n" for path, what in _INDEX.items()))

    async def _get_stats(self, _: web.Request) -> web.Response:
        totals = await self._metrics()
        return web.Response(text="".join(f"{name}: {n}\n" for name, n in sorted(go_names(totals.series()))))

    async def _get_healthcheck(self, _: web.Request) -> web.Response:
        """200 OK or 500 with an empty body, as envoyproxy/ratelimit answers."""
        return web.Response(text="OK") if self._healthy() else web.Response(status=500)

    async def _pass_on(self, request: web.Request) -> web.Response:
        try:
            body = (await request.read()).decode("utf-8")
        except UnicodeDecodeError:
            return web.Response(status=400, text="Bad Request\n")
        page = await self._errand(Question(request.path, tuple(request.query.items()), body))
        if page is None:
            return web.Response(status=503, text="no worker answers\n")
        return web.Response(status=page.status, text=page.text, content_type=page.kind)
