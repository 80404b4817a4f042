"""Run h2spec (RFC 9113 and HPACK, from a Go module) against a worker's transport: `make conformance`.

Needs Go. Fails when a case fails that is not in KNOWN.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from seawall.rpc.contract import RpcService
from seawall.rpc.server import CodecServer

MODULE = "github.com/summerwind/h2spec/cmd/h2spec@latest"
LENIENT = (
    "nghttp2 ignores frames on streams that are over (RFC 9113 §5.1 lets an endpoint do so for a while after a reset)"
)
GET = "h2spec asks by GET and wants a body; a gRPC server answers 405 without one"
KNOWN = {
    "generic/2/2": GET,
    "generic/2/3": GET,
    "http2/5.1/5": f"{LENIENT}; and {GET}",
    "http2/5.1/8": LENIENT,
    "http2/5.1/9": LENIENT,
    "http2/5.1/11": LENIENT,
    "http2/5.1/12": LENIENT,
    "http2/5.1.1/2": "nghttp2 ignores a stream id below the last one",
    "http2/5.1.2/1": "each call of the case is answered at once, so the limit of 10,000 is never reached",
    "http2/5.3.1/2": "priority is obsolete (RFC 9113 §5.3) and ignored",
    "http2/6.3/1": "priority is obsolete (RFC 9113 §5.3) and ignored",
    "http2/6.9.1/3": f"the stream is over by then: {GET}",
}
"""Cases that fail, and why that is right or nghttp2's own choice."""


def h2spec() -> str:
    """Build h2spec into a cache; its path."""
    if shutil.which("go") is None:
        sys.exit("make conformance needs Go")
    place = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "seawall"
    binary = place / "h2spec"
    if not binary.is_file():
        subprocess.run(["go", "install", MODULE], env={**os.environ, "GOBIN": str(place)}, check=True)
    return str(binary)


def serve(port: "list[int]", ready: threading.Event, done: threading.Event) -> None:
    """Serve one unary method that echoes until `done`."""

    async def run() -> None:
        server = CodecServer(
            [RpcService("t.T", {"U": lambda data, _: data}, {})],
            ["127.0.0.1:0"],
            max_message=1 << 20,
            on_error=lambda where, error: print(where, repr(error)),
        )
        await server.start()
        port.append(server.ports[0])
        ready.set()
        await asyncio.to_thread(done.wait)
        await server.drain(0)

    asyncio.run(run())


def failures(report: str) -> set[str]:
    """Ids of failed cases out of a JUnit report: package and the case's number in it."""
    found = set()
    for suite in re.findall(r"<testsuite [^>]*>.*?</testsuite>", report, re.DOTALL):
        package = re.search(r'package="([^"]*)"', suite)
        assert package is not None
        for number, case in enumerate(re.findall(r"<testcase.*?(?:/>|</testcase>)", suite, re.DOTALL), 1):
            if "<failure" in case or "<error" in case:
                found.add(f"{package[1]}/{number}")
    return found


def main() -> int:
    """Run it; 1 when what fails is not what is known."""
    binary = h2spec()
    port: list[int] = []
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=serve, args=(port, ready, done))
    thread.start()
    ready.wait(10)
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [binary, "-h", "127.0.0.1", "-p", str(port[0]), "-P", "/t.T/U", "--timeout", "2", "-j", report.name]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        failed = failures(Path(report.name).read_text("utf-8"))
    done.set()
    thread.join()
    print(run.stdout.strip().splitlines()[-1])
    for case in sorted(failed):
        print(f"{'known' if case in KNOWN else 'NEW  '} {case}: {KNOWN.get(case, '')}")
    for case in sorted(set(KNOWN) - failed):
        print(f"passes now: {case}")
    return 1 if failed - set(KNOWN) else 0


if __name__ == "__main__":
    sys.exit(main())
