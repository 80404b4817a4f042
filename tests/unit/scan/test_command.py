"""`seawall scan test`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seawall.cli import scan

POLICY = r"""
scan:
  rules:
    - {id: password, pattern: '密码\s{0,3}[:：]\s{0,3}\w+', do: mask}
    - {id: card, builtin: payment_cards, on: [response], do: block}
    - {id: key, pattern: 'BEGIN .{1,3000} END', do: mask}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


def run(*words: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(scan.command, ["test", *words], input=text)


def test_what_is_found(policy: str) -> None:
    """Each match with its place, the masked text, and the time of each rule."""
    result = run("--policy", policy, "--text", "我的密码：abc123。")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["password", "mask", "2-11", "密码：abc123"]
    assert "我的[password]。" in lines
    assert [line.split()[0] for line in lines if "response" in line] == ["password", "card", "key"]
    assert (
        "rule 'key': in a stream it may take 12040 bytes until a match is known, and only 1024 are held"
        in result.stdout
    )


def test_a_text_that_is_blocked(policy: str, tmp_path: Path) -> None:
    """Exit code 1 and the rule's name, not what it found, on standard error."""
    text = tmp_path / "text"
    text.write_text("card\n4111 1111 1111 1111\n")
    result = run("--policy", policy, "--rule", "card", str(text))
    assert result.exit_code == 1
    assert result.stderr == "seawall: rule 'card' blocks this text\n"
    assert "5-24" in result.stdout
    assert "password" not in result.stdout


def test_json(policy: str) -> None:
    result = run("--policy", policy, "--json", "-", text="密码: x 4111111111111111")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["hits"] == [
        {"rule": "password", "action": "mask", "start": 0, "end": 5, "text": "密码: x"},
        {"rule": "card", "action": "block", "start": 6, "end": 22, "text": "4111111111111111"},
    ]
    assert told["masked"] == "[password] 4111111111111111"
    assert [(rule["rule"], rule["hits"]) for rule in told["rules"]] == [("password", 1), ("card", 1), ("key", 0)]
    assert all(rule["microseconds"] > 0 for rule in told["rules"])
    assert told["late"] == [{"rule": "key", "bytes": 12040}]


def test_nothing_found(policy: str) -> None:
    result = run("--policy", policy, "--text", "hello")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "no rule matches")


def test_control_characters_stay_off_the_terminal(policy: str) -> None:
    result = run("--policy", policy, "--text", "BEGIN \x1b[31m END")
    assert "\x1b" not in result.stdout.split("masked:")[0]


@pytest.mark.parametrize(
    ("words", "text", "why"),
    [
        (["--text", "x", "--rule", "nix"], None, "has no rule 'nix'; it has password, card, key"),
        (["/no/such/file"], None, "/no/such/file: No such file or directory"),
        (["-"], b"\xff", "-: not UTF-8"),
    ],
)
def test_failures(policy: str, words: list[str], text: bytes | None, why: str) -> None:
    result = run("--policy", policy, *words, text=text)
    assert result.exit_code == 1
    assert why in result.stderr


@pytest.mark.parametrize(
    ("policy_text", "why"),
    [
        ("scan: {rules: [{id: a, pattern: '(?=x)y'}]}", "stdin:1:33: scan.rules[0].pattern: rule 'a': look-around"),
        ("{}", "stdin: has no rules in its section 'scan'"),
    ],
)
def test_bad_policies(policy_text: str, why: str) -> None:
    result = run("--policy", "-", "--text", "x", text=policy_text)
    assert result.exit_code == 1
    assert why in result.stderr.replace("-: has", "stdin: has")


@pytest.mark.parametrize("words", [[], ["FILE", "--text", "x"]])
def test_wrong_usage(policy: str, words: list[str]) -> None:
    assert run("--policy", policy, *words).exit_code == 2
