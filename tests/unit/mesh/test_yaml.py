"""envoy/envoy.yaml says what the generator says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_envoy_yaml", ROOT / "tools" / "envoy_yaml.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_up_to_date(tool: ModuleType) -> None:
    text, _ = tool.render(tool.configuration())
    assert (ROOT / "envoy" / "envoy.yaml").read_text("utf-8") == text, "run `python tools/envoy_yaml.py`"


def test_read_as_yaml_it_is_the_generated_configuration(tool: ModuleType) -> None:
    text, _ = tool.render(tool.configuration())
    assert yaml.safe_load(text) == tool.configuration()


def test_every_comment_stands_somewhere(tool: ModuleType) -> None:
    _, used = tool.render(tool.configuration())
    assert used == {pattern for pattern, _ in tool.COMMENTS}


def test_the_readme_has_what_the_configuration_has(tool: ModuleType) -> None:
    """Each snippet is YAML, and each of its filters and clusters is the generated one, defaults aside."""
    blocks = (ROOT / "envoy" / "README.md").read_text("utf-8").split("```yaml\n")[1:]
    snippets = {key: value for block in blocks for key, value in yaml.safe_load(block.split("```")[0]).items()}
    chain = tool.configuration()["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    assert [f["name"] for f in snippets["http_filters"]] == [f["name"] for f in chain["http_filters"]][:3]
    assert snippets["early_header_mutation_extensions"] == chain["early_header_mutation_extensions"]
    generated = [c["name"] for c in tool.configuration()["static_resources"]["clusters"]]
    assert [c["name"] for c in snippets["clusters"]] == generated
    routes = chain["route_config"]["virtual_hosts"][0]["routes"]
    assert snippets["routes"][0]["route"]["retry_policy"] == routes[0]["route"]["retry_policy"] | {
        "host_selection_retry_max_attempts": 50
    }
    for ours, theirs in zip(snippets["http_filters"], chain["http_filters"], strict=False):
        assert set(ours["typed_config"]) - {"rate_limits"} == set(theirs["typed_config"])


def test_envoy_stays_nobodys_package() -> None:
    assert not list((ROOT / "envoy").glob("**/*.py"))
