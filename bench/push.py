"""From a pushed policy to its effect in all workers, under load.

Two workers of one `seawall serve` over the embedded Valkey, chat requests through Envoy all the while. A push is one call
of the control API; the effect is there when a Check on each worker's own socket tells the new version. Beside each push:
a bare round trip to the same Valkey, and the compiling of the same document in this process, which is what must be
waited for whatever one does.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import grpc.aio
import uvloop
from redis.asyncio import Redis

from bench.envoy import Row
from bench.gates import OWN, Gate, redis, upstream
from bench.noop import AUTHZ
from bench.processes import ROOT, Processes
from bench.realistic import policy_text
from bench.record import recorded
from bench.tables import Bound, Say, Table
from seawall import __version__
from seawall.policy.compile import compile_policy, digest_of
from seawall.proto.gen import ext_authz_pb2
from seawall.store import open_control
from seawall.store.contract import Control

WORKERS = 2
PUSHES = 100
RATE = 100
"""Chat requests in a second."""
EVERY = 0.1
"""Seconds between the beginnings of two pushes, at least."""
LOOK = 0.001
PATIENCE = 10.0
TITLE = f"Push of a policy, {WORKERS} workers over Valkey, {RATE} requests a second"
PING, COMPILE, BASE, EFFECT = (
    "Valkey round trip",
    "compile alone",
    "round trip + compile",
    "push to effect in all workers",
)
SCENARIOS = {"push": TITLE}
GOALS = [Bound(TITLE, EFFECT, 99, 100.0)]


def changed(text: str, number: int) -> str:
    """The same policy with another number in its limits."""
    return text.replace("requests_per_unit: 1000000000", f"requests_per_unit: {1_000_000_000 + number}")


async def effect(checks: list[grpc.aio.UnaryUnaryMultiCallable], version: int) -> None:
    """Wait until every worker decides by this version."""
    message = recorded()["check"][0]
    ends = time.monotonic() + PATIENCE
    for check in checks:
        while True:
            answer = ext_authz_pb2.CheckResponse.FromString(await check(message))
            if int(answer.dynamic_metadata.fields["policy"].string_value) >= version:
                break
            if time.monotonic() > ends:
                raise SystemExit(f"version {version} is not in force in every worker after {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK)


async def measured(text: str, url: str, sockets: list[str], pushes: int) -> dict[str, list[float]]:
    """Milliseconds of each step, push by push."""
    found: dict[str, list[float]] = {name: [] for name in (PING, COMPILE, BASE, EFFECT)}
    control: Control = open_control(url)
    await control.start()
    channels = [grpc.aio.insecure_channel(f"unix:{socket}") for socket in sockets]
    checks = [channel.unary_unary(f"/{AUTHZ}/Check") for channel in channels]
    valkey = Redis.from_url(url)
    try:
        for number in range(1, pushes + 1):
            began = time.perf_counter()
            document = changed(text, number)
            compile_policy(document)
            compiled = time.perf_counter() - began
            trips = []
            for _ in range(9):
                start = time.perf_counter()
                await valkey.ping()
                trips.append(time.perf_counter() - start)
            trip = statistics.median(trips)
            start = time.perf_counter()
            version = await control.push(
                document, digest=digest_of(document), author="bench", reason=f"push {number}", needs=__version__
            )
            await effect(checks, version)
            took = time.perf_counter() - start
            for name, seconds in ((PING, trip), (COMPILE, compiled), (BASE, trip + compiled), (EFFECT, took)):
                found[name].append(seconds * 1e3)
            await asyncio.sleep(max(0.0, began + EVERY - time.perf_counter()))
    finally:
        await valkey.aclose()
        await control.close()
        for channel in channels:
            await channel.close()
    return found


def run(peers: Path | None, say: Say, pushes: int = PUSHES) -> list[Table]:
    """Start everything, push, and give the table: a row's rounds are the pushes."""
    with tempfile.TemporaryDirectory(prefix="seawall-bench-") as name, Processes(Path(name)) as processes:
        text = policy_text(upstream(processes, peers))
        policy_file = Path(name) / "policy.yaml"
        policy_file.write_text(text, "utf-8")
        url = redis(processes)
        gate = Gate(OWN, processes, policy_file, url, peers, WORKERS)
        row = Row(OWN, processes, compile_policy(text), gate)
        processes.wait("Envoy and the workers", row.ready)
        # Longer than the pushes take; what is left of it then is ended.
        n = int(RATE * (pushes * EVERY * 4 + 5))
        command = [sys.executable, "-m", "bench.http_load", str(row.port), "--n", str(n), "-c", "16"]
        load = subprocess.Popen(
            [*command, "--rate", str(RATE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        with load:
            assert load.stdin is not None and load.stdout is not None
            if load.stdout.readline() != "ready\n":
                raise SystemExit("the load client failed")
            load.stdin.write("go\n")
            load.stdin.flush()
            found = uvloop.run(measured(text, url, gate.sockets, pushes))
            if load.poll() is not None:
                raise SystemExit("the load was over before the pushes were")
            load.terminate()
    table = Table(TITLE, found, [BASE], "ms", tail=99)
    say(table.markdown())
    return [table]
