"""The contracts on imports hold, and each of them would be noticed if it were broken."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
PACKAGES: list[str] = SETTINGS["root_packages"]
CONTRACTS: dict[str, str] = {contract["id"]: contract["name"] for contract in SETTINGS["contracts"]}
MOST_LINES = 400
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "base"}


def lint(tree: Path) -> tuple[int, str]:
    """Run the linter as `make check` does, on the packages of a tree."""
    done = subprocess.run(
        [str(LINTER), "--no-cache", "--config", str(tree / "pyproject.toml")],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def ours() -> list[Path]:
    """Modules that people write."""
    return [path for path in modules() if "gen" not in path.parts]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of our packages and of what is demanded of them."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold() -> None:
    status, said = lint(ROOT)
    assert status == 0, said
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in said


# Contract, module, and an import that it must not have.
BROKEN = [
    ("services", "ext_authz/decide.py", "import ratelimit.wire"),
    ("services", "seawall/serve/gate.py", "from ext_proc import events"),
    ("rooms", "seawall/store/keys.py", "import seawall.serve.settings"),
    ("rooms", "seawall/telemetry/metrics.py", "from seawall.rpc import tasks"),
    ("rooms", "seawall/limits/window.py", "import seawall.llm.sse"),
    ("pure", "seawall/caller/keys.py", "import asyncio"),
    ("pure", "ext_proc/stream.py", "import time"),
    ("pure", "seawall/admission/holders.py", "import seawall.proto.gen.common_pb2"),
    ("pure", "seawall/scan/matcher.py", "import logging"),
    ("rooms", "seawall/scan/rules.py", "import seawall.llm.sse"),
    ("wire", "ext_proc/service.py", "from seawall.proto.gen import ext_proc_pb2"),
    ("wire", "seawall/store/redis.py", "import seawall.proto"),
    ("transport", "ratelimit/service.py", "import grpc"),
    ("transport", "seawall/serve/health.py", "import grpc.aio"),
]


def test_every_contract_is_broken_below() -> None:
    assert {contract for contract, _, _ in BROKEN} == CONTRACTS.keys()


@pytest.mark.parametrize(("contract", "module", "line"), BROKEN, ids=[f"{c}-{m}" for c, m, _ in BROKEN])
def test_a_broken_contract_is_noticed(tree: Path, contract: str, module: str, line: str) -> None:
    """The forbidden import is told with the contract's name and the module that has it."""
    with (tree / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    status, said = lint(tree)
    assert status == 1, said
    assert f"{CONTRACTS[contract]} BROKEN" in said
    assert module.removesuffix(".py").replace("/", ".") in said


def test_the_copy_is_what_was_linted(tree: Path) -> None:
    """Unbroken, the copy is as good as the original: a broken one fails for its import alone."""
    assert lint(tree)[0] == 0


def test_a_room_without_a_place_is_noticed(tree: Path) -> None:
    """A new room in seawall/ must be given a layer."""
    (tree / "seawall" / "attic").mkdir()
    (tree / "seawall" / "attic" / "__init__.py").touch()
    status, said = lint(tree)
    assert status == 1, said
    assert "seawall.attic" in said


def test_every_module_is_in_a_layer() -> None:
    """Top-level packages in one contract, rooms of seawall/ in the other."""
    by_id = {contract["id"]: contract for contract in SETTINGS["contracts"]}

    def layers(of: str) -> set[str]:
        return {name.strip() for layer in by_id[of]["layers"] for name in layer.replace(":", "|").split("|")}

    assert layers("services") == set(PACKAGES)
    rooms = {p.stem for p in (ROOT / "seawall").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert rooms - {"__init__"} == layers("rooms")


def test_every_package_of_the_wheel_is_held() -> None:
    """What is shipped is what the contracts are about."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == PACKAGES
    assert pyproject["tool"]["mypy"]["packages"] == PACKAGES


def test_files_are_short() -> None:
    """A file that one can't hold in mind is two files."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in ours()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_names_say_something() -> None:
    """No module is called after its being useful."""
    parts = {part for path in ours() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert parts & NAMES_THAT_SAY_NOTHING == set()
