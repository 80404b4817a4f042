"""The wheel holds what it must and nothing else, and works where no checkout is at hand."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("seawall", "ext_authz", "ratelimit", "ext_proc")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the back end that is installed, without network."""
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacked by pip into a folder of its own."""
    target = tmp_path_factory.mktemp("target")
    pip = ["-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    run(*pip, "--target", str(target), str(wheel), cwd=target)
    return target


def run(*command: str, cwd: Path, **environ: str) -> str:
    """What a Python command prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask(installed: Path, code: str, cwd: Path) -> object:
    """Run code that prints JSON, with the installed wheel before this checkout, from somewhere else."""
    return json.loads(run("-c", code, cwd=cwd, PYTHONPATH=str(installed)))


def test_name(wheel: Path) -> None:
    assert wheel.name.startswith("seawall-")
    assert wheel.name.endswith("-py3-none-any.whl")


def test_what_is_in_it(names: set[str]) -> None:
    """Every file of our packages, types and Lua scripts included, and the demo policy."""
    sources = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources - names == set()
    kinds = {Path(name).suffix for name in sources}
    assert kinds >= {".py", ".pyi", ".lua", ".typed"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert "seawall/store/scripts/charge.lua" in names
    assert "seawall/proto/gen/ext_proc_pb2.pyi" in names
    assert "seawall/examples/policy.yaml" in names


def test_what_is_not_in_it(names: set[str]) -> None:
    """No tests, no tools, no `envoy`: only our four packages and the wheel's own record."""
    tops = {name.partition("/")[0] for name in names}
    (record,) = tops - set(PACKAGES)
    assert record.endswith(".dist-info")
    assert [name for name in names if "test" in name or "__pycache__" in name or name.endswith(".pyc")] == []


def test_licence(names: set[str]) -> None:
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")] != []


def test_it_runs(installed: Path, tmp_path: Path) -> None:
    """The command and each service start, from the target and from nowhere else."""
    said = run("-m", "seawall", "--version", cwd=tmp_path, PYTHONPATH=str(installed))
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'version = "{said.split()[-1]}"' in pyproject
    for service in ("ext_authz", "ratelimit", "ext_proc"):
        assert "Usage" in run("-m", service, "--help", cwd=tmp_path, PYTHONPATH=str(installed))


def test_imports_come_from_it(installed: Path, tmp_path: Path) -> None:
    """Each package is the wheel's although a checkout is installed beside it."""
    code = f"import importlib, json; print(json.dumps([importlib.import_module(n).__file__ for n in {PACKAGES}]))"
    assert ask(installed, code, tmp_path) == [str(installed / package / "__init__.py") for package in PACKAGES]


def test_owner(installed: Path, tmp_path: Path) -> None:
    """The names are the distribution's `seawall`, and of no other."""
    code = f"""
import importlib.metadata, json
found = importlib.metadata.packages_distributions()
print(json.dumps([found.get(n) for n in {PACKAGES}]))
"""
    assert ask(installed, code, tmp_path) == [["seawall"]] * len(PACKAGES)


def test_services_are_found(installed: Path, tmp_path: Path) -> None:
    """A worker finds all three by entry point, in the wheel."""
    code = """
import importlib.metadata, json, sys
from seawall.serve.worker import builders
found = builders(["ext_authz", "ratelimit", "ext_proc"])
print(json.dumps({name: sys.modules[build.__module__].__file__ for name, build in found.items()}))
"""
    assert ask(installed, code, tmp_path) == {
        name: str(installed / name / "service.py") for name in ("ext_authz", "ratelimit", "ext_proc")
    }


def test_the_demo_policy_is_found(installed: Path, tmp_path: Path) -> None:
    """`seawall up` without --policy works without a checkout; the policy is the one of examples/."""
    code = "import json; from seawall.cli.up import demo_policy; print(json.dumps(str(demo_policy())))"
    found = ask(installed, code, tmp_path)
    assert found == str(installed / "seawall" / "examples" / "policy.yaml")
    assert Path(str(found)).read_bytes() == (ROOT / "examples" / "policy.yaml").read_bytes()
    said = run("-m", "seawall", "policy", "check", str(found), cwd=tmp_path, PYTHONPATH=str(installed))
    assert "tenant" in said
