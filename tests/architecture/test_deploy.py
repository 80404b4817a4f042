"""docker-compose.yml, Dockerfile, systemd units and Prometheus' file say nothing that our own commands don't know."""

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from seawall.cli.main import main
from seawall.serve.settings import VARIABLES, from_environment

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("seawall:")]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
LISTENS = {"valkey": 6379, "gate": 9902, "envoy": 9901, "sim-1": 8000, "sim-2": 8000}
"""Ports inside the network, each of which a command or a setting below names."""


def parsed(words: list[str]) -> dict[str, Any]:
    """Options of one `seawall` command line, as click reads it; fails where click would."""
    command = main.get_command(click.Context(main), words[0])
    assert command is not None, f"no command '{words[0]}'"
    return command.make_context(words[0], words[1:]).params


def test_the_services() -> None:
    """Valkey, the gate, Envoy, two simulators, Prometheus, and the step that writes Envoy's file."""
    assert set(SERVICES) == {"valkey", "gate", "envoy", "sim-1", "sim-2", "prometheus", "envoy-config"}
    assert sorted(OURS) == ["envoy-config", "gate", "sim-1", "sim-2"]


def test_docker_reads_it() -> None:
    """`docker compose config` where that can be had."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose here: the other tests of this file check it")
    subprocess.run([docker, "compose", "config", "--quiet"], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", OURS)
def test_our_commands(name: str) -> None:
    """Click takes each command line, and settings each environment."""
    options = parsed(SERVICES[name]["command"])
    if name.startswith("sim"):
        assert (options["host"], options["port"], options["name"]) == ("0.0.0.0", LISTENS[name], name)
    environment = SERVICES[name].get("environment", {})
    assert set(environment) <= set(VARIABLES)
    if environment:
        settings = from_environment(environment)
        assert settings.store == f"redis://valkey:{LISTENS['valkey']}/0"
        assert settings.http == f"0.0.0.0:{LISTENS['gate']}"
        assert [url for url, _ in settings.upstreams] == [f"http://{s}:{LISTENS[s]}" for s in ("sim-1", "sim-2")]


def test_gate_and_envoy_agree() -> None:
    """One environment for both; Envoy's ports are those that are published and scraped; both have one user."""
    assert SERVICES["gate"]["environment"] == SERVICES["envoy-config"]["environment"]
    options = parsed(SERVICES["envoy-config"]["command"])
    assert (options["admin_host"], options["admin_port"]) == ("0.0.0.0", LISTENS["envoy"])
    assert options["host"] == "0.0.0.0"
    assert SERVICES["envoy"]["ports"] == [f"127.0.0.1:{options['port']}:{options['port']}"]
    environment = SERVICES["gate"]["environment"]
    assert options["out"].rstrip("/") == environment["SEAWALL_ENVOY_DIR"]
    command = SERVICES["envoy"]["command"]
    assert command[command.index("-c") + 1] == f"{environment['SEAWALL_ENVOY_DIR']}/envoy.json"
    user = re.search(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    assert user is not None
    assert SERVICES["envoy"]["user"] == user[1]


def test_mounts() -> None:
    """What is mounted from here exists; volumes are declared, used, and where the settings say; sockets are shared."""
    used = set()
    at: dict[str, dict[str, str]] = {}
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            source, target, *_ = mount.split(":")
            at.setdefault(name, {})[target] = source
            if source.startswith("."):
                assert (ROOT / source).is_file(), mount
            else:
                used.add(source)
    assert used == set(COMPOSE["volumes"])
    environment = SERVICES["gate"]["environment"]
    for name in ("gate", "envoy", "envoy-config"):
        assert at[name][environment["SEAWALL_SOCKET_DIR"]] == "sockets"
        assert at[name][environment["SEAWALL_ENVOY_DIR"]] == "envoy"
        # A volume takes over the owner of the image's directory, so the image must have it.
    for directory in (environment["SEAWALL_SOCKET_DIR"], environment["SEAWALL_ENVOY_DIR"]):
        assert re.search(rf"install -d -o seawall .*{re.escape(directory)}\b", DOCKERFILE)
    assert at["gate"][environment["SEAWALL_POLICY"]] == "./examples/policy.yaml"


def test_dependencies() -> None:
    """Who is waited for exists and has a health check, or is the step that ends by itself."""
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name}: {other}"
            if wait["condition"] == "service_healthy":
                own = SERVICES[other].get("healthcheck", {}).get("test") is not None
                assert own or (SERVICES[other]["image"].startswith("seawall:") and "HEALTHCHECK" in DOCKERFILE)
            else:
                assert wait["condition"] == "service_completed_successfully"
                assert SERVICES[other]["restart"] == "no"


def test_health_checks_ask_where_someone_listens() -> None:
    """Each port that a check asks is that service's own."""
    checks = {name: s["healthcheck"]["test"] for name, s in SERVICES.items() if s.get("healthcheck", {}).get("test")}
    checks["gate"] = re.findall(r"HEALTHCHECK.*\\\n\s*CMD (.*)", DOCKERFILE)
    assert set(checks) == {"valkey", "sim-1", "sim-2", "envoy", "gate"}
    for name, check in checks.items():
        ports = re.findall(r"127\.0\.0\.1[:/](\d+)", " ".join(check))
        assert ports == [str(LISTENS[name])] or check == ["CMD", "valkey-cli", "ping"], name


def test_images_are_pinned() -> None:
    """By tag, and without the name of a registry's host."""
    images = [s["image"] for s in SERVICES.values()] + re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    for image in images:
        assert re.fullmatch(r"([a-z]+/)?[a-z]+:v?\d+\.\d+\.\d+[\w.-]*", image), image
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version is not None
    assert {s["image"] for s in SERVICES.values() if "seawall" in s["image"]} == {f"seawall:{version[1]}"}


def test_prometheus_asks_who_is_there() -> None:
    """Every target is a service at the port where it listens."""
    document = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text("utf-8"))
    targets = [t for job in document["scrape_configs"] for s in job["static_configs"] for t in s["targets"]]
    assert sorted(targets) == sorted(f"{name}:{LISTENS[name]}" for name in ("gate", "envoy", "sim-1", "sim-2"))


def test_the_image_has_what_it_copies() -> None:
    """Every file that is copied is here and passes .dockerignore; every package of ours is copied; no source stays."""
    _, stage, final = re.split("^FROM ", DOCKERFILE, flags=re.MULTILINE)
    copied = [word for line in re.findall(r"^COPY (.*)$", stage, re.MULTILINE) for word in line.split()[:-1]]
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    assert set(copied) == kept
    for name in copied:
        assert (ROOT / name).exists(), name
    packages = re.search(r"^packages = \[(.+)\]$", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert packages is not None
    assert set(re.findall(r'"(\w+)"', packages[1])) <= set(copied)
    assert re.findall(r"^COPY (.*)$", final, re.MULTILINE) == ["--from=build /opt/seawall /opt/seawall"]
    assert stage.count("--require-hashes") == 2
    assert "USER 10001" in final
    ran = re.search(r"^CMD (\[.*\])$", final, re.MULTILINE)
    assert ran is not None
    parsed(yaml.safe_load(ran[1]))


def test_the_image_s_wheel_builds_from_what_it_copies(tmp_path: Path) -> None:
    """Without the rest of the checkout, as in the image."""
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        if line.startswith("!"):
            source, target = ROOT / line[1:], tmp_path / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"seawall/cli/main.py", "ratelimit/__main__.py", "seawall/examples/policy.yaml"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def settings_of(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text("utf-8").splitlines():
        name, mark, value = line.partition("=")
        if mark and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_gate_s_unit() -> None:
    """Its command is one of ours, its environment is known, and it has time to drain."""
    unit = settings_of(ROOT / "deploy" / "systemd" / "seawall-gate.service")
    program, *words = shlex.split(unit["ExecStart"][0])
    assert Path(program).name == "seawall"
    parsed(words)
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    lines = (ROOT / "deploy" / "systemd" / "gate.env").read_text("utf-8").splitlines()
    settings = from_environment(dict(line.split("=", 1) for line in lines if line and not line.startswith("#")))
    drain = 2 * settings.check_interval + 1 + settings.grace
    assert int(unit["TimeoutStopSec"][0]) > drain
    stop = re.fullmatch(r"(\d+)s", SERVICES["gate"]["stop_grace_period"])
    assert stop is not None
    assert int(stop[1]) > drain
    assert f"/run/{unit['RuntimeDirectory'][0]}" == settings.socket_dir
    assert [f"/var/lib/{name}" for name in unit["StateDirectory"][0].split()][-1] == settings.envoy_dir
    assert Path(unit["EnvironmentFile"][0]).name == "gate.env"


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_systemd_takes_it(unit: Path) -> None:
    """`systemd-analyze verify` has nothing to say but that the programs are not installed here."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze here")
    done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip("systemd-analyze does not run here")
    said = [line for line in done.stderr.splitlines() if "is not executable: No such file" not in line]
    assert said == []
