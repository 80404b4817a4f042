"""Limits from a control plane by xDS: the supervisor subscribes once and hands what it accepts to all workers.

One stream for the whole process tree, as the Go service has one: a control plane sees one client however many workers
there are, all workers have the same version, and only one process judges it. What is accepted is acknowledged when every
worker that answers has it in force, so an ACK is true. Workers need neither the stream nor the supervisor to go on by
what they have: both may die, and the last good rules stay until the next supervisor has subscribed anew.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from seawall.rpc.client import Stream, StreamEnded
from seawall.serve import xds_wire
from seawall.serve.xds_session import Heard, Session
from seawall.serve.xds_source import XdsSource
from seawall.telemetry.logfmt import Log

CONNECT_TIME = 10.0
"""Seconds that one try to connect may take."""

Hand = Callable[[int, bytes], Awaitable[None]]


class Subscriber:
    """Runs in the supervisor. `hand` gives the workers a response's number, from 1, and its bytes."""

    def __init__(self, source: XdsSource, hand: Hand, log: Log):
        self._source = source
        self._hand = hand
        self._log = log
        self._session = Session(source)
        self.latest: tuple[int, bytes] | None = None
        """What workers that start are to have."""
        self._since = time.monotonic()
        """When the stream opened, or was lost, or we began without one."""
        self._connected = self._reached = False
        """A stream is open; a connection was made since the last wait."""
        self._trouble = ""
        self._accepted: float | None = None
        self._resources = 0
        self._refused: tuple[str, str] | None = None
        """Version and error of the update refused last; None once a good one came."""
        self._updates: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    async def run(self) -> None:
        """Subscribe, and again whenever the stream ends; until cancelled."""
        unreached = barren = 0
        while True:
            accepted = self._updates.get("accepted", 0)
            self._reached = False
            try:
                await self._subscribe()
            except StreamEnded as e:
                self._lost(e)
            except Exception as e:
                # Whatever it was, the last good rules stay, and the next stream may go well.
                self._log("error", "fault", where="xds", error=repr(e))
                self._lost(StreamEnded("INTERNAL", type(e).__name__))
            unreached = 0 if self._reached else unreached + 1
            if self._reached:
                barren = 0 if self._updates.get("accepted", 0) > accepted else barren + 1
            await asyncio.sleep(self._source.wait(unreached, barren, random.random))

    async def _subscribe(self) -> None:
        """One stream, from its beginning to its end, which is StreamEnded."""
        source = self._source
        stream = await Stream.open(
            source.server,
            xds_wire.METHOD,
            tls=source.tls,
            metadata=source.headers,
            max_message=source.max_message,
            timeout=CONNECT_TIME,
        )
        self._reached = True
        try:
            await self._listen(stream)
        finally:
            await stream.close()

    async def _listen(self, stream: Stream) -> None:
        """Answer what comes; ends with StreamEnded only."""
        await stream.send(self._session.opened())
        self._connected, self._trouble, self._since = True, "", time.monotonic()
        self._log("info", "xds connected", server=self._source.server, node=self._source.node_id)
        while True:
            data = await stream.receive()
            try:
                heard = await asyncio.to_thread(self._session.heard, data)
            except ValueError as e:
                raise StreamEnded("INTERNAL", str(e)) from None
            await self._take(heard, data)
            if heard.answer is not None:
                await stream.send(heard.answer)

    async def _take(self, heard: Heard, data: bytes) -> None:
        if heard.error:
            outcome = "refused" if heard.answer is not None else "ignored"
            if outcome == "refused":
                self._refused = heard.version, heard.error
            self._log(
                "error",
                f"xds update {outcome}, the last good rules stay",
                version=heard.version,
                error=heard.error.splitlines()[0],
            )
        else:
            outcome = "accepted"
            if not heard.same:
                number = self.latest[0] + 1 if self.latest is not None else 1
                self.latest = number, data
                await self._hand(number, data)
            self._session.accept(heard)
            self._accepted, self._resources, self._refused = time.monotonic(), heard.resources, None
            self._log("info", "xds update in force", version=heard.version, resources=heard.resources, same=heard.same)
        self._updates[outcome] = self._updates.get(outcome, 0) + 1

    def _lost(self, why: StreamEnded) -> None:
        self._ends[why.status] = self._ends.get(why.status, 0) + 1
        if self._connected or str(why) != self._trouble:
            kept = "the last good rules stay" if self.latest is not None else "there are no rules yet"
            self._log("warn", f"xds server is away, {kept}", server=self._source.server, why=str(why))
        if self._connected:
            self._connected, self._since = False, time.monotonic()
        self._trouble = str(why)

    def told(self) -> dict[str, Any]:
        """What /readyz says; times in seconds. `since` is the age of the stream, or of its loss."""
        now = time.monotonic()
        refused = self._refused
        return {
            "server": self._source.server,
            "connected": self._connected,
            "since": round(now - self._since, 1),
            "trouble": self._trouble,
            "version": self._session.version,
            "resources": self._resources,
            "accepted_age": None if self._accepted is None else round(now - self._accepted, 1),
            "refused_version": refused[0] if refused else None,
            "error": refused[1] if refused else "",
        }

    def metrics(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Counters and gauges, as a snapshot has them."""
        now = time.monotonic()
        gone = 0.0 if self._connected else now - self._since
        gauges: list[list[Any]] = [
            ["seawall_xds_connected", [], float(self._connected)],
            ["seawall_xds_disconnected_seconds", [], gone],
            ["seawall_xds_refused", [], float(self._refused is not None)],
            ["seawall_xds_resources", [], self._resources],
        ]
        if self._accepted is not None:
            gauges.append(["seawall_xds_config_age_seconds", [], now - self._accepted])
        counters = [["seawall_xds_updates_total", [outcome], n] for outcome, n in self._updates.items()]
        counters += [["seawall_xds_stream_ends_total", [status], n] for status, n in self._ends.items()]
        return counters, gauges
