"""Documents say what the code does: nothing left out, nothing that is not there, no link that leads nowhere."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from ratelimit.environment import flags
from ratelimit.variables import IGNORED
from ratelimit.variables import VARIABLES as GO_VARIABLES
from seawall.cli.main import COMMANDS, main
from seawall.decision import Reason
from seawall.llm.errors import _ROWS
from seawall.mesh.bootstrap import bootstrap, http_filters_of
from seawall.mesh.replies import REPLIES
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy
from seawall.serve.settings import VARIABLES
from seawall.telemetry.catalog import METRICS

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")

REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs"),
        ("crates", "io"),
        ("proxy", "golang"),
        ("deb", "debian", "org"),
    )
]
MACHINE = re.compile("|".join(rf"(?<![\w.*-])/{name}(?:/|\b)" for name in ("work", "root", "tmp", "home")))
"""A path that means something on one machine only."""


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@cache
def committed() -> list[Path]:
    """Files that git has or would have; without git, all that are not hidden."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return sorted(p for p in ROOT.glob("[!.]*/**/*") if p.is_file()) + sorted(ROOT.glob("*.md"))
    return sorted(p for name in set(done.stdout.split("\0")) if name and (p := ROOT / name).is_file())


def pages() -> list[Path]:
    return [p for p in committed() if p.suffix == ".md"]


def rows(page: str, heading: str | None = None) -> dict[str, list[str]]:
    """Table rows whose first cell begins with code, by that code; of one section, or of the page."""
    section = page if heading is None else re.split(rf"^#+ {re.escape(heading)}$", page, flags=re.MULTILINE)[1]
    found = {}
    for line in section.splitlines():
        if heading is not None and line.startswith("#"):
            break
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name] = cells[1:]
    return found


def test_every_metric_has_its_row() -> None:
    """docs/metrics.md names each metric of the catalogue with its labels, and none that is not there."""
    told = rows(text("docs/metrics.md"))
    assert set(told) == {*METRICS, "seawall_build_info"}
    for name, metric in METRICS.items():
        assert tuple(re.findall(r"`(\w+)`", told[name][0])) == metric.labels, name


def test_every_setting_has_its_row() -> None:
    """docs/settings.md names each variable, and none that is not there."""
    page = text("docs/settings.md")
    assert set(rows(page, "Environment variables")) == set(VARIABLES)
    assert set(re.findall(r"SEAWALL_[A-Z_]+", page)) == set(VARIABLES)


def test_every_flag_of_serve_names_its_variable() -> None:
    """docs/settings.md has each flag of `seawall serve`."""
    told = {name.split()[0] for name in rows(text("docs/settings.md"), "Flags of `seawall serve`")}
    assert told == set(options(dict(leaves())["serve"]))


def test_every_variable_of_the_go_service_has_its_row() -> None:
    """docs/settings.md names what ratelimit/environment.py reads."""
    asked: set[str] = set()

    class Asked(dict[str, str]):
        def __contains__(self, name: object) -> bool:
            asked.add(str(name))
            return super().__contains__(name)

        def __getitem__(self, name: str) -> str:
            asked.add(name)
            return super().__getitem__(name)

        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return super().get(name, default)

    for environ in (
        {"RUNTIME_ROOT": "/x", "REDIS_URL": "/s"},
        {"GRPC_PORT": "1", "REDIS_URL": "redis://h"},
        {"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true"},
    ):
        flags(Asked(environ))
    asked -= set(VARIABLES)
    told = rows(text("docs/settings.md"), "`python -m ratelimit` in place of envoyproxy/ratelimit")
    names = set(told) - {"password", "user:password"}
    asked = {name for name in asked if not name.startswith("SEAWALL_")}
    assert names <= asked <= set(GO_VARIABLES)
    here = rows(text("docs/ratelimit.md"), "Environment variables of the Go service")
    assert {name: here[name][:2] for name in here} == {n: [v.kind, v.told] for n, v in GO_VARIABLES.items()}
    # What is honoured is read; what is read is not said to be ignored.
    ignored = {name for name, variable in GO_VARIABLES.items() if variable.kind == IGNORED}
    assert asked == set(GO_VARIABLES) - ignored - PARTS_OF_OTHERS


PARTS_OF_OTHERS = frozenset({"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT"}) | frozenset(
    {"PROMETHEUS_ADDR", "PROMETHEUS_PATH"}
)
"""Read only where another variable turns on what they are for."""


def leaves() -> list[tuple[str, click.Command]]:
    """Every command by the words that call it, groups left out."""
    found: list[tuple[str, click.Command]] = []
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [(f"{name} {below}", sub) for below, sub in command.commands.items()]
        else:
            found.append((name, command))
    return found


def options(command: click.Command) -> list[str]:
    return [
        next((o for o in [*p.opts, *p.secondary_opts] if o.startswith("--")), p.opts[0])
        for p in command.params
        if isinstance(p, click.Option)
    ]


@pytest.mark.parametrize(("words", "command"), leaves(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_command_has_its_section(words: str, command: click.Command) -> None:
    """docs/cli.md has a section with an example for each, and its help has one too; each option is named."""
    page = text("docs/cli.md")
    section = re.search(rf"^## `seawall {re.escape(words)}`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"no section for 'seawall {words}'"
    assert f"$ seawall {words}" in section[1] or f"| seawall {words}" in section[1]
    assert "Example:" in (command.help or "")
    for option in options(command):
        assert re.search(rf"`{re.escape(option)}[` ]", section[1]), f"{words}: {option} is not named"
    told = set(re.findall(r"`(--[a-z][a-z-]*)", section[1]))
    known = {o for p in command.params for o in [*p.opts, *p.secondary_opts]}
    assert told <= known, f"{words} has no {sorted(told - known)}"


def test_every_refusal_is_told() -> None:
    """docs/wire.md has status, types and code of each reason that refuses, as the code has them."""
    told = rows(text("docs/wire.md"), "Reasons")
    assert set(told) & {r.value for r in Reason} >= {r.value for r in _ROWS}
    for reason, row in _ROWS.items():
        cells = [cell.strip("`") for cell in told[reason.value][:4]]
        assert cells == [str(row.status), row.openai_type, row.code, row.anthropic_type], reason
    page = text("docs/wire.md")
    for reason in Reason:
        assert f"`{reason.value}`" in page
    for reply in REPLIES:
        if reply.reason is None and (code := reply.openai[1]):
            assert f"`{code}`" in page


@pytest.mark.parametrize(
    "page", ["docs/failure-modes.md", "CONTRIBUTING.md", *(f"docs/{n}.md" for n in ("wire", "cli"))]
)
def test_tests_that_are_named_are_there(page: str) -> None:
    """A row that names a test names one that exists."""
    for file, name in TEST.findall(text(page)):
        path = ROOT / file
        assert path.is_file(), f"{page}: {file}"
        if name:
            pattern = rf"^(async )?def {name}\("
            assert re.search(pattern, path.read_text("utf-8"), re.MULTILINE), f"{page}: {file} has no {name}"


def test_every_failure_mode_says_what_shows_it() -> None:
    """The last column names a test, or says that there is none."""
    for line in text("docs/failure-modes.md").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "what fails":
            assert len(cells) == 5, line
            assert "`tests/" in cells[-1] or "not shown yet" in cells[-1], line


def anchors(path: Path) -> set[str]:
    """Names that GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", path.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link inside the repository has its file, and its heading."""
    for link in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert path.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(path), link


def test_no_registry_is_named() -> None:
    """Where packages come from is the business of whoever installs them."""
    found = []
    for path in committed():
        try:
            content = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {host}" for host in REGISTRIES if host in content.lower()]
    assert not found


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_path_of_one_machine(page: Path) -> None:
    """Documents name no directory that only their author has."""
    assert not MACHINE.findall(page.read_text("utf-8"))


def plain(value: Any) -> Any:
    """YAML by people and JSON by envoy-data-plane alike: numbers as text, a wrapped 0 as an empty object."""
    if isinstance(value, dict):
        return {} if value == {"value": 0} else {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bool):
        return value
    codes = {"503": "ServiceUnavailable"}
    return codes.get(str(value), str(value))


@pytest.mark.parametrize("page", ["README.md", "envoy/README.md"])
def test_snippets_are_what_envoy_config_writes(page: str) -> None:
    """Filters and gate cluster to copy are those of the generated configuration, on which all tests run."""
    blocks = text(page).split("```yaml\n")[1:]
    pieces: dict[str, Any] = {k: v for b in blocks for k, v in yaml.safe_load(b.split("```")[0]).items()}
    mesh = MeshSettings(sockets=("/run/seawall/w0.sock", "/run/seawall/w1.sock"))
    policy = compile_policy("", upstreams=(("http://127.0.0.1:8000", "vllm"),))
    made = bootstrap(mesh, policy, descriptors=[("tenant",)])
    filters = http_filters_of(made)
    for piece in pieces["http_filters"]:
        shown = {**piece["typed_config"]}
        # For a mesh with one virtual host the descriptors may stand in the filter; ours hang on the virtual host.
        shown.pop("rate_limits", None)
        for config in (shown, generated := {**filters[piece["name"]]}):
            mode = dict(config.get("processing_mode", {}))
            if mode:
                config["processing_mode"] = {
                    k: v for k, v in mode.items() if v != "SKIP" or k == "response_header_mode"
                }
        assert plain(shown) == plain(generated), piece["name"]
    gate = next(c for c in pieces["clusters"] if c["name"] == "gate")
    assert plain(gate) == plain(next(c for c in made["static_resources"]["clusters"] if c["name"] == "gate"))
