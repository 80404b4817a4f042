"""What a running Envoy says of the files it watches, by its admin port."""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from seawall.mesh.names import ROUTE_CONFIG, STAT_PREFIX
from seawall.serve.envoy_ready import Taken

_STATS = (
    rf"^(cluster_manager\.(cds\.(version_text|update_rejected)|warming_clusters)"
    rf"|http\.{STAT_PREFIX}\.rds\.{ROUTE_CONFIG}\.(version_text|update_rejected))$"
)
POLL = 0.02


class NoEnvoy(Exception):
    """Nothing answers at the admin address as Envoy does."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Versions of clusters and routes in force, how many of each were refused, and clusters that are not ready yet."""

    clusters: str
    routes: str
    clusters_refused: int
    routes_refused: int
    warming: int


class EnvoyAdmin:
    """Asks `host:port`."""

    def __init__(self, address: str):
        self._url = f"http://{address}/stats"

    async def loaded(self) -> Loaded:
        """Ask what is in force; raises NoEnvoy."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
                session.get(self._url, params={"filter": _STATS}) as response,
            ):
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise NoEnvoy(type(e).__name__) from None
        if response.status != 200:
            raise NoEnvoy(f"status {response.status}")
        said = dict(re.findall(r'^(\S+): "?([^"\n]*)"?$', text, re.MULTILINE))
        routes = f"http.{STAT_PREFIX}.rds.{ROUTE_CONFIG}"
        return Loaded(
            clusters=said.get("cluster_manager.cds.version_text", ""),
            routes=said.get(f"{routes}.version_text", ""),
            clusters_refused=_count(said.get("cluster_manager.cds.update_rejected")),
            routes_refused=_count(said.get(f"{routes}.update_rejected")),
            warming=_count(said.get("cluster_manager.warming_clusters")),
        )

    async def until(self, there: Callable[[Loaded], bool], refused: Callable[[Loaded], bool], patience: float) -> Taken:
        """Wait until what was written is in force, is refused, or `patience` seconds are over; raises NoEnvoy."""
        ends = time.monotonic() + patience
        while True:
            now = await self.loaded()
            if there(now):
                return Taken.TAKEN
            if refused(now):
                return Taken.REFUSED
            if time.monotonic() > ends:
                return Taken.LATE
            await asyncio.sleep(POLL)


def _count(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
