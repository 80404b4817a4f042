"""`seawall policy` and `seawall key`, with a store of our own in place of the real one."""

import hashlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from seawall.cli import key, policy
from seawall.store.contract import Conflict, UnknownVersion, VersionInfo

GOOD = "limits: [{domain: llm, descriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 5}}]}]\n"
BAD = "output: {max_tokens: lots}\ncallers: {tenants: {a: {clas: vip}}}\n"


class Kept:
    """As much of a control path as the commands use."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.infos: list[VersionInfo] = []
        self.at: int | None = None

    async def push(
        self, document: str, *, digest: str, author: str, reason: str, needs: str, if_current: int | None = None
    ) -> int:
        if if_current is not None and if_current != self.at:
            raise Conflict(f"version {self.at} is current, not {if_current}", self.at)
        self.texts.append(document)
        self.at = len(self.texts)
        self.infos.append(VersionInfo(self.at, digest, author, reason, 0.0, needs, current=True))
        return self.at

    async def current(self) -> int | None:
        return self.at

    async def document(self, version: int) -> tuple[str, VersionInfo]:
        if not 1 <= version <= len(self.texts):
            raise UnknownVersion(f"version {version} is not kept")
        return self.texts[version - 1], self.infos[version - 1]

    async def history(self, count: int = 20) -> Sequence[VersionInfo]:
        return self.infos[::-1][:count]

    async def rollback(self, version: int | None, *, author: str, reason: str) -> int:
        self.at = version or 1
        return self.at


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """A store that the commands reach instead of a real one."""
    kept = Kept()
    module: Any = ModuleType("seawall.cli.connection")

    @asynccontextmanager
    async def open_control(url: str | None) -> AsyncIterator[Kept]:
        yield kept

    module.open_control = open_control
    monkeypatch.setitem(sys.modules, "seawall.cli.connection", module)
    return kept


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(policy.command, list(words), input=text)


def test_check(tmp_path: Path) -> None:
    """A valid document is ok, and each limit says who charges it."""
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD)
    result = run("check", str(file))
    assert result.exit_code == 0
    assert result.stdout == f"{file}: ok\n  limit llm: tenant: charged by ratelimit\n"


def test_check_bad() -> None:
    """All mistakes of a bad document are printed, exit code 1."""
    result = run("check", "-", text=BAD)
    assert result.exit_code == 1
    assert "stdin:1:22: output.max_tokens: 'lots'" in result.stderr
    assert "stdin:2:25: callers.tenants.a.clas: unknown key; did you mean 'class'?" in result.stderr


def test_check_json(tmp_path: Path) -> None:
    """The JSON form has the same, one object for all files."""
    (tmp_path / "good").write_text(GOOD)
    (tmp_path / "bad").write_text(BAD)
    result = run("check", "--json", str(tmp_path / "good"), str(tmp_path / "bad"))
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert not answer["ok"]
    good, bad = answer["files"]
    assert good["limits"] == [{"limit": "llm: tenant", "charged_by": "ratelimit"}]
    assert good["needs"] == "0.1"
    assert [(m["line"], m["column"], m["path"]) for m in bad["mistakes"]] == [
        (1, 22, "output.max_tokens"),
        (2, 25, "callers.tenants.a.clas"),
    ]


@pytest.mark.parametrize("words", [("check", "/no/such/file"), ("push", "/no/such/file"), ("check", "/")])
def test_no_file(words: tuple[str, ...]) -> None:
    """A file that can't be read is one line and exit code 1."""
    result = run(*words)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_check_max_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEAWALL_MAX_BODY bounds the body caps."""
    monkeypatch.setenv("SEAWALL_MAX_BODY", "8KiB")
    result = run("check", "-", text="prefilter: {body: {max: 9KiB}}")
    assert result.exit_code == 1
    assert "SEAWALL_MAX_BODY" in result.stderr


def test_push_show_history_rollback(store: Kept) -> None:
    """A pushed document comes back byte for byte, with its author and reason; rollback names the version."""
    text = "# mine: é\n" + GOOD
    assert run("push", "-", "--author", "me", "--reason", "why", text=text).stdout == "version 1 is current\n"
    assert json.loads(run("push", "-", "--json", text=GOOD).stdout) == {"version": 2, "needs": "0.1"}
    assert store.infos[0].digest == hashlib.sha256(text.encode()).hexdigest()
    assert "@" in store.infos[1].author
    assert run("show", "1").stdout_bytes == text.encode()
    assert run("show").stdout == GOOD
    info = json.loads(run("show", "1", "--json").stdout)
    assert (info["author"], info["reason"], info["needs"]) == ("me", "why", "0.1")
    lines = run("history").stdout.splitlines()
    assert len(lines) == 2
    assert "1970-01-01 00:00:00Z" in lines[1]
    assert lines[1].endswith("me  why")
    assert [v["version"] for v in json.loads(run("history", "--json", "-n", "1").stdout)] == [2]
    assert run("rollback").stdout == "version 1 is current\n"


def test_push_bad(store: Kept) -> None:
    """A document with mistakes is not pushed, and all of them are told."""
    result = run("push", "-", text=BAD)
    assert result.exit_code == 1
    assert "nothing changed" in result.stderr
    assert "output.max_tokens" in result.stderr
    assert "callers.tenants.a.clas" in result.stderr
    assert store.texts == []


def test_push_conflict(store: Kept) -> None:
    """A lost race is one line and exit code 1."""
    result = run("push", "-", "--if-current", "7", text=GOOD)
    assert result.exit_code == 1
    assert result.stderr == "seawall: version None is current, not 7\n"


def test_unknown_version(store: Kept) -> None:
    """A version that is not kept, or none at all, is one line and exit code 1."""
    assert run("show").stderr == "seawall: no policy has been pushed\n"
    result = run("show", "9")
    assert result.exit_code == 1
    assert "version 9 is not kept" in result.stderr


@pytest.mark.parametrize("name", ["check", "push", "history", "show", "rollback"])
def test_help(name: str) -> None:
    """Each command's help shows an example on lines of its own."""
    assert f"  Example:\n    seawall policy {name}" in run(name, "--help").stdout


def key_hash(*words: str, text: str = "") -> Result:
    return CliRunner().invoke(key.command, ["hash", *words], input=text)


def test_key_hash() -> None:
    """The SHA-256 of the key on standard input, white space around it left out."""
    digest = hashlib.sha256(b"sk-demo-vip").hexdigest()
    assert key_hash(text="sk-demo-vip").stdout == digest + "\n"
    assert key_hash(text="  sk-demo-vip\r\n").stdout == digest + "\n"
    assert json.loads(key_hash("--json", text="sk-demo-vip").stdout) == {"sha256": digest}


def test_new_key() -> None:
    """A new key is long, random, and printed with its hash."""
    made = [json.loads(key_hash("--new", "--json").stdout) for _ in range(2)]
    assert made[0]["key"] != made[1]["key"]
    for one in made:
        assert one["key"].startswith("sk-")
        assert len(one["key"]) >= 40
        assert hashlib.sha256(one["key"].encode()).hexdigest() == one["sha256"]
    assert key_hash("--new").stdout.startswith("key:    sk-")


@pytest.mark.parametrize("text", ["", "\n", "two words", "sk-ü", "a,b", "x" * 5000])
def test_no_key(text: str) -> None:
    """What no client could send as a key is refused without repeating it."""
    result = key_hash(text=text)
    assert result.exit_code == 1
    assert "two words" not in result.output


def test_key_is_no_argument() -> None:
    """A key on the command line is wrong usage: the shell's history would keep it."""
    assert key_hash("sk-secret").exit_code == 2
    assert "seawall key hash --new" in CliRunner().invoke(key.command, ["hash", "--help"]).stdout
