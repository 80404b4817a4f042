"""Record what Envoy sends for one chat request: the messages that own code is measured with.

    python -m bench.record

One streamed request goes through a real Envoy, with the configuration that `seawall envoy-config` writes, to the
simulator. bench/recorded.json is written anew; it is kept in git, so that every run measures with the same bytes.
"""

import asyncio
import base64
import json
import sys
import tempfile
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import uvloop

from bench.inside import services
from bench.processes import Processes
from bench.realistic import HEADERS, MODEL, chat, policy_text
from seawall.cli import binaries
from seawall.cli.local_gate import ask, envoy_sees, free_port
from seawall.mesh.bootstrap import bootstrap, bootstrap_json
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys
from seawall.rpc.contract import Call, CloseReason, RpcService, Sender, StreamHandler, StreamOpener, Unary
from seawall.rpc.server import CodecServer
from seawall.serve.health import Health, State

FILE = Path(__file__).resolve().parent / "recorded.json"
LOOPBACK = "127.0.0.1"
MAX_MESSAGE = 8 * 2**20


def recorded() -> dict[str, list[bytes]]:
    """Messages of one request: `check` and `limit` (one each), and `process` in their order."""
    return {kind: [base64.b64decode(m) for m in found] for kind, found in json.loads(FILE.read_text("utf-8")).items()}


class _Tape(StreamHandler):
    """A stream whose messages are written down before they are handled."""

    def __init__(self, handler: StreamHandler, messages: list[bytes]):
        self._handler = handler
        self._messages = messages

    def message(self, data: bytes) -> Awaitable[None] | None:
        self._messages.append(data)
        return self._handler.message(data)

    def closed(self, reason: CloseReason) -> None:
        self._handler.closed(reason)


def taped(service: RpcService, messages: list[bytes]) -> RpcService:
    """The same service, with what it receives written down."""

    def unary(handler: Unary) -> Unary:
        def handle(data: bytes, call: Call) -> bytes | Awaitable[bytes]:
            messages.append(data)
            return handler(data, call)

        return handle

    def stream(opener: StreamOpener) -> StreamOpener:
        def opened(call: Call, sender: Sender) -> StreamHandler:
            return _Tape(opener(call, sender), messages)

        return opened

    return replace(
        service,
        unary={name: unary(handler) for name, handler in service.unary.items()},
        streams={name: stream(opener) for name, opener in service.streams.items()},
    )


async def record() -> dict[str, list[bytes]]:
    """Start everything, send the request, stop."""
    found: dict[str, list[bytes]] = {"check": [], "limit": [], "process": []}
    with tempfile.TemporaryDirectory(prefix="seawall-bench-") as name, Processes(Path(name)) as processes:
        folder = Path(name)
        engine, port = free_port(0), free_port(0)
        admin = free_port(0, {engine, port})
        simulator = [sys.executable, "-m", "seawall", "sim", "--port", str(engine), "--model", MODEL, "--ttft", "0"]
        processes.start("engine", simulator)
        text = policy_text(f"http://{LOOPBACK}:{engine}")
        socket = str(folder / "gate.sock")
        async with services(text) as own:
            health = Health([])
            kinds = zip(found, ("ext_authz", "ratelimit", "ext_proc"), strict=True)
            carried = [health.service(), *(taped(own[service], found[kind]) for kind, service in kinds)]
            server = CodecServer(carried, [f"unix:{socket}"], max_message=MAX_MESSAGE, on_error=_failed)
            await server.start()
            health.become(State.SERVING)
            policy = compile_policy(text)
            mesh = MeshSettings(sockets=(socket,), port=port, admin_port=admin, access_log=False)
            file = folder / "envoy.json"
            file.write_text(bootstrap_json(bootstrap(mesh, policy, descriptors=descriptor_keys(policy))), "utf-8")
            processes.start("envoy", [binaries.envoy(), "-c", str(file), "--use-dynamic-base-id", "-l", "warning"])
            url = f"http://{LOOPBACK}:{engine}/v1/models"
            await asyncio.to_thread(processes.wait, "the engine", lambda: ask("GET", url) is not None)
            gate = f"http://{LOOPBACK}:{admin}"
            await asyncio.to_thread(processes.wait, "Envoy", lambda: envoy_sees(gate) == 1)
            url = f"http://{LOOPBACK}:{port}/v1/chat/completions"
            answer = await asyncio.to_thread(ask, "POST", url, chat().decode(), HEADERS)
            await server.drain(1.0)
        if answer is None or answer[0] != 200:
            raise SystemExit(f"the request was not answered: {answer}")
    return found


def _failed(where: str, error: BaseException) -> None:
    print(where, repr(error), file=sys.stderr)


def main() -> None:
    found = uvloop.run(record())
    plain = {kind: [base64.b64encode(message).decode() for message in messages] for kind, messages in found.items()}
    FILE.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    print({kind: [len(message) for message in messages] for kind, messages in found.items()})


if __name__ == "__main__":
    main()
