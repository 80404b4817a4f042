"""`seawall envoy-config`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seawall.cli.envoy_config import command

UPSTREAM = ("--upstream", "http://127.0.0.1:8000")


@pytest.fixture(autouse=True)
def _no_settings_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLICY", "SOCKET_DIR", "WORKERS", "UPSTREAMS", "MAX_HOLD", "MAX_BODY", "ENGINE_CA"):
        monkeypatch.delenv(f"SEAWALL_{name}", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_one_whole_file_on_standard_output() -> None:
    result = run(*UPSTREAM, "--socket-dir", "/run/x", "--workers", "2", "--port", "8080")
    assert result.exit_code == 0, result.output
    made = json.loads(result.output)
    assert "/run/x/w1.sock" in result.output
    assert [c["name"] for c in made["static_resources"]["clusters"]] == ["gate", "no_pool", "pool_default"]
    assert made["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] == 8080


def test_sockets_may_be_named_one_by_one() -> None:
    result = run(*UPSTREAM, "--socket", "/a.sock", "--socket", "/b.sock")
    assert "/a.sock" in result.output
    assert "/b.sock" in result.output
    assert "w0.sock" not in result.output


def test_settings_of_the_workers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAWALL_MAX_HOLD", "90s")
    monkeypatch.setenv("SEAWALL_MAX_BODY", "1MiB")
    result = run(*UPSTREAM)
    assert '"max_message_timeout": "90s"' in result.output
    assert '"per_connection_buffer_limit_bytes": 1048576' in result.output


def test_limits_of_the_policy_become_descriptors(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    rule = "{key: tenant, rate_limit: {unit: minute, requests_per_unit: 5}}"
    file.write_text(f"limits: [{{domain: llm, descriptors: [{rule}]}}]\n")
    assert '"descriptor_key": "tenant"' in run(*UPSTREAM, "--policy", str(file)).output


def test_a_directory_gets_the_files_that_envoy_watches(tmp_path: Path) -> None:
    result = run(*UPSTREAM, "--out", f"{tmp_path}/new/")
    assert result.exit_code == 0, result.output
    assert {f.name for f in (tmp_path / "new").iterdir()} == {"envoy.json", "cds.json", "rds.json", "ready.json"}
    assert str(tmp_path / "new" / "cds.json") in (tmp_path / "new" / "envoy.json").read_text()


def test_https_engines_are_checked_by_the_settings_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEAWALL_ENGINE_CA", "/etc/ours.pem")
    assert '"filename": "/etc/ours.pem"' in run("--upstream", "https://engine.example").output
    run("--upstream", "https://engine.example", "--out", f"{tmp_path}/")
    assert '"filename": "/etc/ours.pem"' in (tmp_path / "cds.json").read_text()


def test_a_file_gets_it_whole(tmp_path: Path) -> None:
    assert run(*UPSTREAM, "--out", str(tmp_path / "e.json")).output == ""
    assert "pool_default" in (tmp_path / "e.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "there is no engine"),
        ((*UPSTREAM, "--policy", "/nowhere.yaml"), "/nowhere.yaml: No such file"),
        (("--upstream", "ftp://x"), "--upstream"),
        ((*UPSTREAM, "--out", "/nowhere/e.json"), "/nowhere/e.json: No such file"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(arguments: tuple[str, ...], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.output.startswith("seawall: ")
    assert says in result.output
    assert len(result.output.splitlines()) == 1
