"""A whole gate on this machine: what `seawall up` starts, waits for, watches and stops."""

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seawall.cli import binaries
from seawall.cli.asking import ask
from seawall.cli.children import Child, Recipe, stop_all
from seawall.cli.failure import Failure
from seawall.cli.policy_file import compiled
from seawall.cli.ports import LOOPBACK, PortLost, free_port, is_port_lost, taken
from seawall.cli.running import publish
from seawall.mesh.bootstrap import bootstrap, bootstrap_json
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys
from seawall.policy.compiled import Policy
from seawall.serve.envoy_files import write_dynamic
from seawall.serve.orphans import workers_of
from seawall.serve.policy_text import read_policy
from seawall.serve.settings import SettingError, Settings, from_environment
from seawall.serve.sockets import sweep
from seawall.store import open_control
from seawall.store.address import PARTS
from seawall.store.contract import StoreUnavailable

ENGINE_TIME = 20.0
"""Seconds that an engine has to list its models."""
START_TIME = 60.0
"""Seconds after which a gate that is not up has failed."""
PORT_TRIES = 3
ENGINES = 2
SIM_MODEL = "sim-chat"
DEMO_KEYS = ("sk-demo-vip", "sk-demo-standard", "sk-demo-batch")
"""Keys of examples/policy.yaml; shown by class where the policy in use knows them."""
FLUSH = ("--file-flush-interval-msec", "500")
"""Envoy keeps its access log back for 10 s by default: too long for someone who looks."""
MAX_SOCKET_DIR = 70
"""Bytes of a directory's path that leave room for the names of sockets in it."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Options of `seawall up`."""

    policy: Path
    port: int = 10000
    workers: int | None = None
    redis: str | None = None
    upstreams: tuple[str, ...] = ()
    config_dir: Path = Path()


@dataclass(slots=True)
class LocalGate:
    """One gate: start, watch, stop. `told` is the object that `--json` prints."""

    wishes: Wishes
    children: dict[str, Child] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    _short: Path | None = None
    _probe: str = field(default_factory=lambda: f"sk-probe-{secrets.token_hex(16)}")

    def start(self, stopped: threading.Event) -> None:
        """Start everything and wait until a test request has passed the whole chain. Raises Failure; see `stop`."""
        for _ in range(PORT_TRIES - 1):
            try:
                return self._start(stopped)
            except PortLost:
                # Two gates that start at once may choose the same: the second look sees what the other took.
                stop_all([self.children[name] for name in reversed(self.children)])
                self.children.clear()
        return self._start(stopped)

    def _start(self, stopped: threading.Event) -> None:
        envoy = binaries.envoy()
        taken(LOOPBACK, self.wishes.port)
        if self.wishes.redis == "memory":
            raise Failure("--redis: a gate of several processes needs a Redis: redis://host:port or unix:///path")
        if self.wishes.redis is not None:
            in_force(self.wishes.redis)
        redis_port = free_port(6379 + 10000)
        redis_url = self.wishes.redis or f"redis://{LOOPBACK}:{redis_port}/0"
        engines = list(self.wishes.upstreams) or self._simulators()
        admin_port = free_port(9901, {self.wishes.port})
        settings = self._settings(redis_url, engines, admin_port)
        policy = compiled(settings)
        directory = self.wishes.config_dir
        logs = directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        write_dynamic(str(directory), policy, settings.engine_ca)
        config = directory / "envoy.json"
        mesh = MeshSettings(
            sockets=tuple(settings.socket(i) for i in range(settings.workers)),
            port=self.wishes.port,
            admin_port=admin_port,
            max_hold_s=settings.max_hold,
            max_body=settings.max_body,
            check_interval_s=settings.check_interval,
        )
        config.write_text(
            bootstrap_json(bootstrap(mesh, policy, str(directory), descriptors=descriptor_keys(policy))), "utf-8"
        )
        if self.wishes.redis is None:
            self._add(Recipe("redis", valkey_argv(redis_port, directory), os.environ), logs)
        own_engines = () if self.wishes.upstreams or policy_has_engines(policy, engines) else engines
        for index, url in enumerate(own_engines):
            self._add(Recipe(f"engine-{index}", simulator_argv(index, url), os.environ), logs)
        self._add(
            Recipe(
                "supervisor",
                [sys.executable, "-m", "seawall", "serve"],
                serve_environment(settings),
                last_will=signal.SIGINT,
                stop=signal.SIGINT,
            ),
            logs,
        )
        self._add(
            Recipe("envoy", [envoy, "-c", str(config), "-l", "warning", "--disable-hot-restart", *FLUSH], os.environ),
            logs,
        )
        shown = [engine.url for engine in policy.engines.values()]
        self.told = {
            "listener": f"http://{LOOPBACK}:{self.wishes.port}",
            "admin": f"http://{LOOPBACK}:{admin_port}",
            "metrics": f"http://{settings.http}/metrics",
            "redis": redis_url,
            "model": "",
            "engines": shown,
            "keys": demo_keys(policy),
            "policy": {"version": None, "note": ""},
            "pids": {},
            "workers": settings.workers,
            "socket_dir": settings.socket_dir,
            "config_dir": str(directory),
            "logs": str(logs),
        }
        self._wait(stopped, policy, settings)
        self.told["pids"] = self.pids()
        self._tell_policy_in_force(redis_url, settings)

    def pids(self) -> dict[str, int]:
        """Process ids by name: `up` itself, and its children."""
        return {"up": os.getpid(), **{name: child.pid for name, child in self.children.items()}}

    def watch(self, stopped: threading.Event, restart: threading.Event) -> None:
        """Start again what dies, until told to stop; the state file follows. `restart` asks for a rolling restart."""
        while not stopped.wait(0.1):
            if restart.is_set():
                restart.clear()
                self.children["supervisor"].signal(signal.SIGHUP)
            for child in self.children.values():
                if child.revive(time.monotonic()):
                    self.told["pids"] = self.pids()
                    publish(os.getpid(), self.told)

    def stop(self) -> None:
        """Stop everything: Envoy first, so that nothing new arrives, the store last."""
        stop_all([self.children[name] for name in reversed(self.children)])
        if self.told:
            # Those of a supervisor that died just now and has no successor.
            kill_workers(self.told["socket_dir"])
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)

    def _add(self, recipe: Recipe, logs: Path) -> None:
        self.children[recipe.name] = Child(recipe, logs)

    def _simulators(self) -> list[str]:
        ports: set[int] = set()
        for index in range(ENGINES):
            ports.add(free_port(8100 + index, ports))
        return [f"http://{LOOPBACK}:{port}" for port in sorted(ports)]

    def _settings(self, redis_url: str, engines: list[str], admin_port: int) -> Settings:
        inherited = {
            k: v
            for k, v in os.environ.items()
            if k not in {"SEAWALL_STORE", "SEAWALL_POLICY", "SEAWALL_HTTP"} and k not in PARTS
        }
        try:
            return from_environment(
                inherited,
                store=redis_url,
                policy_file=str(self.wishes.policy),
                workers=self.wishes.workers,
                socket_dir=self._socket_dir(),
                http=f"{LOOPBACK}:{free_port(9902)}",
                upstreams=tuple((url, "vllm") for url in engines),
                envoy_dir=str(self.wishes.config_dir),
                envoy_admin=f"{LOOPBACK}:{admin_port}",
                probe_key=hashlib.sha256(self._probe.encode()).hexdigest(),
            )
        except SettingError as e:
            raise Failure(str(e)) from None

    def _socket_dir(self) -> str:
        """Where the workers' sockets go: beside the configuration, unless its path is too long for a socket's."""
        directory = str(self.wishes.config_dir)
        if len(directory.encode()) <= MAX_SOCKET_DIR:
            return directory
        self._short = self._short or Path(tempfile.mkdtemp(prefix="seawall-"))
        return str(self._short)

    def _wait(self, stopped: threading.Event, policy: Policy, settings: Settings) -> None:
        deadline = time.monotonic() + START_TIME
        waiting = "engines"
        while not stopped.wait(0.05):
            for child in self.children.values():
                if (status := child.ended()) is not None:
                    words = child.last_words()
                    kind = PortLost if is_port_lost(words) else Failure
                    raise kind(f"{child.recipe.name} ended with status {status}: {words}")
            if time.monotonic() > deadline:
                raise Failure(f"not up after {START_TIME:.0f} s: waiting for {waiting}; --config-dir keeps the logs")
            if not self.told["model"]:
                waiting = f"engine {self.told['engines'][0]}" if self.told["engines"] else "engines"
                self.told["model"] = next(iter(policy.models), None) or first_model(self.told["engines"])
                if not self.told["model"] and time.monotonic() > deadline - START_TIME + ENGINE_TIME:
                    raise Failure(f"no engine lists a model at {', '.join(self.told['engines'])}/v1/models")
                continue
            waiting = "workers"
            if not workers_ready(str(settings.http), settings.workers):
                continue
            waiting = "Envoy to see every worker healthy"
            if envoy_sees(self.told["admin"]) != settings.workers:
                continue
            waiting = "a test request through Envoy"
            if self._request_passes():
                return
        raise Failure("stopped while starting")

    def _tell_policy_in_force(self, redis_url: str, settings: Settings) -> None:
        """A store that had a policy keeps it: say so, and show the keys of that one."""
        version, text = in_force(redis_url)
        note = ""
        if text != read_policy(self.wishes.policy):
            note = f"The store had a policy already, version {version}; {self.wishes.policy} was not pushed."
            self.told["keys"] = demo_keys(compile_policy(text, upstreams=settings.upstreams))
        self.told["policy"] = {"version": version, "note": note}

    def _request_passes(self) -> bool:
        """Send one short chat as a tenant of our own, whose requests use up nobody's limit."""
        body = json.dumps(
            {"model": self.told["model"], "max_tokens": 1, "messages": [{"role": "user", "content": "ready?"}]}
        )
        headers = {
            "authorization": f"Bearer {self._probe}",
            "content-type": "application/json",
            "user-agent": "seawall-up",
        }
        answer = ask("POST", f"{self.told['listener']}/v1/chat/completions", body, headers)
        return answer is not None and answer[0] == 200


def kill_workers(directory: str) -> None:
    """End workers that are left without a supervisor."""
    for pid in workers_of(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sweep(directory)


def serve_environment(settings: Settings) -> dict[str, str]:
    """Environment of `seawall serve` for these settings."""
    return {
        **os.environ,
        **dict.fromkeys(PARTS, ""),
        "SEAWALL_STORE": settings.store,
        "SEAWALL_POLICY": str(settings.policy_file),
        "SEAWALL_WORKERS": str(settings.workers),
        "SEAWALL_SOCKET_DIR": settings.socket_dir,
        "SEAWALL_HTTP": str(settings.http),
        "SEAWALL_UPSTREAMS": ",".join(f"{kind}={url}" for url, kind in settings.upstreams),
        "SEAWALL_ENVOY_DIR": str(settings.envoy_dir),
        "SEAWALL_ENVOY_ADMIN": str(settings.envoy_admin),
        "SEAWALL_ENGINE_CA": settings.engine_ca,
        "SEAWALL_PROBE_KEY": str(settings.probe_key),
    }


def valkey_argv(port: int, directory: Path) -> list[str]:
    """Command line of the embedded Valkey: append-only, on loopback."""
    data = directory / "redis"
    data.mkdir(parents=True, exist_ok=True)
    return [
        binaries.valkey(),
        *("--port", str(port), "--bind", LOOPBACK, "--dir", str(data)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--maxmemory-policy", "noeviction"),
    ]


def simulator_argv(index: int, url: str) -> list[str]:
    """Command line of one simulated engine."""
    port = str(urlsplit(url).port)
    name = f"engine-{index}"
    return [sys.executable, "-m", "seawall", "sim", "--port", port, "--name", name, "--model", SIM_MODEL]


def policy_has_engines(policy: Policy, ours: list[str]) -> bool:
    """Say whether the policy names engines itself."""
    return {engine.url for engine in policy.engines.values()} != set(ours)


def demo_keys(policy: Policy) -> dict[str, str]:
    """Demo keys that the policy knows, by class."""
    keys: dict[str, str] = {}
    for secret in DEMO_KEYS:
        key = policy.callers.keys.get(hashlib.sha256(secret.encode()).digest())
        if key is not None:
            keys[key.tenant.class_] = secret
    return keys


def first_model(engines: list[str]) -> str:
    """First model that any engine lists, "" while none answers."""
    for url in engines:
        answer = ask("GET", f"{url}/v1/models")
        if answer is None or answer[0] != 200:
            continue
        try:
            return str(json.loads(answer[1])["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError):
            continue
    return ""


def in_force(redis_url: str) -> tuple[int | None, str]:
    """Version and text of the current policy (None and "" without one); Failure when Redis does not answer."""

    async def look() -> tuple[int | None, str]:
        control = open_control(redis_url)
        await control.start()
        try:
            version = await control.current()
            return (None, "") if version is None else (version, (await control.document(version))[0])
        finally:
            await control.close()

    try:
        return asyncio.run(look())
    except StoreUnavailable as e:
        raise Failure(f"redis can't be reached: {e}") from None
    except ValueError as e:
        raise Failure(f"--redis: {e}") from None


def workers_ready(address: str, workers: int) -> bool:
    """Say whether all workers serve."""
    answer = ask("GET", f"http://{address}/readyz")
    if answer is None or answer[0] != 200:
        return False
    states = [w["state"] for w in json.loads(answer[1])["workers"].values()]
    return states.count("serving") == workers


def envoy_sees(admin: str) -> int:
    """Workers that Envoy's health checks have found SERVING; 0 while its admin port does not answer."""
    answer = ask("GET", f"{admin}/stats?filter=cluster.gate.membership_healthy")
    number = answer[1].rpartition(b": ")[2].strip() if answer and answer[0] == 200 else b""
    return int(number) if number.isdigit() else 0
