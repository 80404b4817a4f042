"""`seawall policy` and `seawall key`, with a store of our own in place of the real one."""

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from seawall.cli import key, policy
from seawall.policy.canary import chosen
from seawall.store.contract import WorkerReport
from seawall.store.memory import MemoryStore

T = TypeVar("T")

GOOD = "limits: [{domain: llm, descriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 5}}]}]\n"
BAD = "output: {max_tokens: lots}\ncallers: {tenants: {a: {clas: vip}}}\n"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store that the commands reach instead of a real one."""
    kept = MemoryStore(owner="test")
    module: Any = ModuleType("seawall.cli.connection")

    @asynccontextmanager
    async def open_control(url: str | None) -> AsyncIterator[MemoryStore]:
        yield kept

    module.open_control = open_control
    monkeypatch.setitem(sys.modules, "seawall.cli.connection", module)
    return kept


def answer(question: "Coroutine[Any, Any, T]") -> T:
    """What the store says."""
    return asyncio.run(question)


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


def test_push_show_history_rollback(store: MemoryStore) -> None:
    """A pushed document comes back byte for byte, with its author and reason; rollback names the version."""
    text = "# mine: é\n" + GOOD
    assert run("push", "-", "--author", "me", "--reason", "why", text=text).stdout == "version 1 is current\n"
    assert json.loads(run("push", "-", "--json", text=GOOD).stdout) == {"version": 2, "needs": "0.1", "changes": []}
    first, second = (answer(store.document(n))[1] for n in (1, 2))
    assert first.digest == hashlib.sha256(text.encode()).hexdigest()
    assert "@" in second.author
    assert run("show", "1").stdout_bytes == text.encode()
    assert run("show").stdout == GOOD
    info = json.loads(run("show", "1", "--json").stdout)
    assert (info["author"], info["reason"], info["needs"]) == ("me", "why", "0.1")
    lines = run("history").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("* ")
    assert lines[1].endswith("me  why")
    assert [v["version"] for v in json.loads(run("history", "--json", "-n", "1").stdout)] == [2]
    assert run("rollback").stdout == "version 1 is current\n"


def test_push_says_what_changes(store: MemoryStore) -> None:
    """In words, and apart what Envoy has to read; a dry run changes nothing."""
    run("push", "-", text=GOOD)
    after = GOOD.replace("5", "3") + "pools: {default: {concurrency: {max: 4}}, more: {}}\n"
    expected = [
        "  each tenant: requests 5/minute → 3/minute",
        "with new files for Envoy:",
        "  pool default added",
        "  pool more added",
    ]
    dry = run("push", "-", "--dry-run", text=after)
    assert dry.stdout.splitlines() == [*expected, "nothing was pushed"]
    assert answer(store.current()) == 1
    assert run("push", "-", text=after).stdout.splitlines() == [*expected, "version 2 is current"]
    same = run("push", "-", text="# other words\n" + after)
    assert same.stdout.splitlines() == ["  no difference in meaning", "version 3 is current"]


def test_push_bad(store: MemoryStore) -> None:
    """A document with mistakes is not pushed, and all of them are told."""
    result = run("push", "-", text=BAD)
    assert result.exit_code == 1
    assert "nothing changed" in result.stderr
    assert "output.max_tokens" in result.stderr
    assert "callers.tenants.a.clas" in result.stderr
    assert answer(store.current()) is None


def test_push_conflict(store: MemoryStore) -> None:
    """A lost race is one line and exit code 1."""
    result = run("push", "-", "--if-current", "7", text=GOOD)
    assert result.exit_code == 1
    assert result.stderr == "seawall: current is none yet, not version 7\n"


def test_a_push_holds_to_what_it_was_compared_with(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --if-current too: another author between the comparison and the push is not overwritten."""
    run("push", "-", text=GOOD)
    push = store.push

    async def late(document: str, **more: Any) -> int:
        monkeypatch.setattr(store, "push", push)
        await push("output: {max_tokens: 1}", digest="d", author="other", reason="", needs="0.1")
        return await push(document, **more)

    monkeypatch.setattr(store, "push", late)
    result = run("push", "-", text=GOOD.replace("5", "3"))
    assert (result.exit_code, result.stderr) == (1, "seawall: current is version 2, not version 1\n")
    assert answer(store.current()) == 2


def test_diff(store: MemoryStore, tmp_path: Path) -> None:
    """Of versions, files, standard input, and the canary."""
    run("push", "-", text=GOOD)
    run("push", "-", text=GOOD.replace("5", "3"))
    (tmp_path / "p.yaml").write_text(GOOD.replace("5", "9"))
    assert run("diff", "1", "2").stdout == "  each tenant: requests 5/minute → 3/minute\n"
    assert run("diff", str(tmp_path / "p.yaml")).stdout == "  each tenant: requests 3/minute → 9/minute\n"
    assert run("diff", "current", "-", text=GOOD).stdout == "  each tenant: requests 3/minute → 5/minute\n"
    assert run("diff", "2", "current").stdout == "  no difference in meaning\n"
    assert json.loads(run("diff", "1", "--json").stdout) == [
        {
            "section": "limits",
            "change": "each tenant: requests 3/minute → 5/minute",
            "envoy": False,
            "follows_tenant": True,
        }
    ]
    assert run("diff").stderr == "seawall: no canary runs; name what to compare: a file, or a version\n"
    assert "unknown key" in run("diff", "-", text="no: such").stderr
    assert run("diff", "1", "2", "3").exit_code == 2
    assert run("diff", "-", "-").exit_code == 2


TENANTS = GOOD + "callers: {tenants: {" + ", ".join(f"t{n}: " for n in range(20)) + "}}\n"
CANARY = TENANTS.replace("unit: 5", "unit: 3") + "store_loss: {limits: deny}\n"


def test_canary(store: MemoryStore) -> None:
    """Started, moved and promoted, and each time said whom it is for and what it changes."""
    run("push", "-", text=TENANTS)
    dry = run("canary", "-", "--percent", "20", "--dry-run", text=CANARY).stdout
    started = run("canary", "-", "--percent", "20", "--author", "me", "--reason", "try", text=CANARY)
    canary = answer(store.canary())
    assert canary is not None
    names = sorted(chosen(canary, [f"t{n}" for n in range(20)]))
    assert 0 < len(names) < 20
    lines = started.stdout.splitlines()
    assert lines[0] == f"version 2 is the canary for 20 % of tenants, {len(names)} of 20 by now: {', '.join(names)}"
    assert lines[1].endswith("by me  try")
    assert lines[2:] == [
        "for its tenants now:",
        "  each tenant: requests 5/minute → 3/minute",
        "for all, when it is promoted:",
        "  store_loss.limits share → deny",
    ]
    assert dry.splitlines()[0] == lines[0].replace("version 2 is the canary", "the canary would be")
    assert run("canary").stdout == started.stdout
    assert run("diff").stdout.splitlines() == lines[2:]
    assert run("history").stdout.splitlines()[0].startswith("~ ")
    moved = json.loads(run("canary", "--percent", "60", "--tenants", "t0,t1", "--json").stdout)
    assert {*names, "t0", "t1"} <= set(moved["has_it"])
    assert (moved["canary"]["percent"], moved["canary"]["tenants"]) == (60, ["t0", "t1"])
    only = json.loads(run("canary", "--percent", "0", "--json").stdout)
    assert only["has_it"] == ["t0", "t1"]
    refused = run("push", "-", text=GOOD)
    assert "a canary runs, version 2 for t0, t1" in refused.stderr
    assert run("canary", "--promote").stdout == "version 2 is current for all\n"
    assert run("canary").stdout == "no canary runs\n"
    events = run("history", "--events").stdout.splitlines()
    assert [line.split()[2] for line in events] == ["promote", "canary", "canary", "canary", "push"]
    assert "version 2 (20 % of tenants to 60 % of tenants and t0, t1)" in events[2]
    assert events[3].endswith("me  try")
    told = json.loads(run("history", "--events", "--json", "-n", "1").stdout)
    assert (told[0]["kind"], told[0]["version"]) == ("promote", 2)


def test_canary_aborted_and_rolled_back(store: MemoryStore) -> None:
    """Both leave nobody on the canary."""
    run("push", "-", text=GOOD)
    run("push", "-", text=TENANTS)
    run("canary", "-", "--percent", "20", text=CANARY)
    assert run("canary", "--abort").stdout == "the canary, version 3, is ended; all are on version 2\n"
    run("canary", "-", "--percent", "20", text=CANARY)
    assert run("rollback").stdout == "version 1 is current\nthe canary, version 4, is ended\n"
    assert answer(store.canary()) is None


def test_canary_refused(store: MemoryStore) -> None:
    """What makes no sense is one line, or one for each mistake, and nothing changes."""
    assert "no current version" in run("canary", "-", "--percent", "5", text=CANARY).stderr
    run("push", "-", text=TENANTS)
    assert "say for whom" in run("canary", "-", text=CANARY).stderr
    assert run("canary", "--percent", "5").stderr == "seawall: no canary runs\n"
    assert run("canary", "--promote").stderr == "seawall: no canary runs\n"
    assert run("canary", "--abort", "--promote").exit_code == 2
    assert run("canary", "--abort", "--percent", "5").exit_code == 2
    gold = "classes: {gold: }\ncallers: {tenants: {t0: {class: gold}}}\n"
    unfit = run("canary", "-", "--percent", "5", text=gold)
    assert "stdin: callers.tenants.t0.class: class 'gold' is not in the current version" in unfit.stderr
    assert "no tenant 'nobody'" in run("canary", "-", "--tenants", "nobody", text=CANARY).stderr
    assert "equals version 1" in run("canary", "-", "--percent", "5", text=TENANTS).stderr
    assert answer(store.canary()) is None


def test_push_beside_a_canary(store: MemoryStore) -> None:
    """--keep-canary says so, and holds the canary against the new version."""
    run("push", "-", text=TENANTS)
    run("canary", "-", "--percent", "20", text=CANARY)
    unfit = run("push", "-", "--keep-canary", text="classes: {only: }\n")
    assert "the canary, version 2, would not fit" in unfit.stderr
    assert run("push", "-", "--keep-canary", text=TENANTS.replace("unit: 5", "unit: 4")).exit_code == 0
    assert "would undo that" in run("canary", "--promote").stderr
    assert run("canary", "--promote", "--if-current", "3").stdout == "version 2 is current for all\n"


def test_unknown_version(store: MemoryStore) -> None:
    """A version that is not kept, or none at all, is one line and exit code 1."""
    assert run("show").stderr == "seawall: no policy has been pushed\n"
    result = run("show", "9")
    assert result.exit_code == 1
    assert "version 9 is not kept" in result.stderr


@pytest.mark.parametrize("name", ["check", "diff", "push", "canary", "history", "show", "rollback"])
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


def keys(*words: str) -> Result:
    return CliRunner().invoke(key.command, list(words))


OWN = hashlib.sha256(b"sk-own").hexdigest()
WITH_KEY = f"callers: {{tenants: {{acme: {{keys: [{{id: own, sha256: {OWN}}}]}}, globex: }}}}\n"


def test_key_add_list_revoke(store: MemoryStore) -> None:
    """A key is shown once, kept by its hash, listed with its use, and revoked for good."""
    run("push", "-", text=WITH_KEY)
    made = keys("add", "--tenant", "acme", "--expires", "90d", "--id", "ci", "--author", "me")
    lines = made.stdout.splitlines()
    assert lines[0] == "id:      ci"
    secret = lines[1].removeprefix("key:     ")
    record = answer(store.key("ci"))
    assert record.sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert (record.tenant, record.by) == ("acme", "me")
    assert record.expires is not None and 89 * 86400 < record.expires - record.created <= 90 * 86400
    made = json.loads(keys("add", "--tenant", "globex", "--json").stdout)
    assert made["id"].startswith("globex-")
    assert made["key"].startswith("sk-")
    answer(store.add_key_uses({"ci": 7, "own": 2}, 1000.0))
    rows = {row["id"]: row for row in json.loads(keys("list", "--json").stdout)}
    assert set(rows) == {"ci", "own", made["id"]}
    assert (rows["ci"]["used"], rows["ci"]["last_used"], rows["ci"]["state"]) == (7, 1000.0, "good")
    assert (rows["own"]["in"], rows["own"]["used"], rows["own"]["tenant"]) == ("policy", 2, "acme")
    assert [row["id"] for row in json.loads(keys("list", "--tenant", "globex", "--json").stdout)] == [made["id"]]
    assert secret not in keys("list").stdout + str(rows)
    assert "ci is revoked since" in keys("revoke", "ci", "--author", "me").stdout
    assert "own is revoked since" in keys("revoke", "own").stdout
    assert {row["id"] for row in json.loads(keys("list", "--json").stdout)} == {made["id"]}
    every = {row["id"]: row["state"] for row in json.loads(keys("list", "--all", "--json").stdout)}
    assert every == {"ci": "revoked", "own": "revoked", made["id"]: "good"}
    assert answer(store.key("own")).sha256 == OWN


def test_a_key_whose_tenant_is_gone_is_told(store: MemoryStore) -> None:
    run("push", "-", text=WITH_KEY)
    keys("add", "--tenant", "globex", "--id", "g")
    run("push", "-", text="callers: {tenants: {acme: }}")
    (row,) = json.loads(keys("list", "--json").stdout)
    assert (row["id"], row["state"]) == ("g", "no tenant")


def test_key_of_a_canary_tenant(store: MemoryStore) -> None:
    """A tenant that only the canary has may get a key already."""
    run("push", "-", text=WITH_KEY)
    run("canary", "-", "--percent", "5", text=WITH_KEY.replace("globex:", "globex: , initech:"))
    assert keys("add", "--tenant", "initech").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "--tenant", "nobody"), "no tenant 'nobody' in the current policy; there are: acme, globex"),
        (("add", "--tenant", "acme", "--id", "own"), "id 'own' is taken by a key of the policy"),
        (("add", "--tenant", "acme", "--hash", OWN), "this key is in the policy already, as 'own'"),
        (("add", "--tenant", "acme", "--hash", "12"), "64 hex digits"),
        (("add", "--tenant", "acme", "--id", "no spaces"), "--id: letters, digits"),
        (("add", "--tenant", "acme", "--expires", "2001-01-01"), "is over already"),
        (("add", "--tenant", "acme", "--expires", "soon"), "'soon' is not allowed"),
        (("revoke", "nobody"), "no key 'nobody' in the store or in the policy"),
    ],
)
def test_key_refused(store: MemoryStore, words: tuple[str, ...], said: str) -> None:
    run("push", "-", text=WITH_KEY)
    result = keys(*words)
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert answer(store.key_count()) == 0


def test_an_existing_key_can_be_added_once(store: MemoryStore) -> None:
    run("push", "-", text=WITH_KEY)
    digest = hashlib.sha256(b"theirs").hexdigest()
    added = keys("add", "--tenant", "acme", "--id", "theirs", "--hash", digest.upper())
    assert "key:" not in added.stdout
    assert answer(store.key("theirs")).sha256 == digest
    assert "kept already, as 'theirs'" in keys("add", "--tenant", "acme", "--hash", digest).stderr
    assert "'theirs' is taken" in keys("add", "--tenant", "acme", "--id", "theirs").stderr


@pytest.mark.parametrize("name", ["add", "revoke", "list", "hash"])
def test_key_help(name: str) -> None:
    """Each command's help shows an example on lines of its own."""
    assert f"  Example:\n    seawall key {name}" in keys(name, "--help").stdout


def test_status_tells_canary_and_keys(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version, share, author, how many workers have it, and which worker is behind."""
    from seawall.cli import status
    from seawall.cli.connection import open_control

    monkeypatch.setattr(status, "open_control", open_control)
    run("push", "-", text=WITH_KEY)
    run("canary", "-", "--percent", "10", "--author", "me", text=WITH_KEY + "output: {max_tokens: 5}\n")
    keys("add", "--tenant", "acme", "--id", "ci")
    stamp = answer(store.key_stamp())

    async def report(worker: str, canary: int, keys_stamp: str) -> None:
        await store.report(
            WorkerReport(worker, 7, "h", 1, time.time(), "", "0.1.0", canary=canary, keys=1, keys_stamp=keys_stamp)
        )

    answer(report("w1", 2, stamp))
    answer(report("w2", 0, stamp))
    answer(report("w3", 2, ""))
    told = json.loads(CliRunner().invoke(status.command, ["--json"]).stdout)
    assert (told["canary"]["version"], told["canary"]["percent"], told["canary"]["workers"], told["keys"]) == (
        2,
        10,
        2,
        1,
    )
    assert [worker["behind"] for worker in told["workers"]] == [False, True, True]
    shown = " ".join(CliRunner().invoke(status.command, env={"COLUMNS": "200"}).stdout.split())
    assert "canary: version 2 for 10 % of tenants, by me since" in shown
    assert "in 2 of 3 workers" in shown
    assert "keys in the store: 1" in shown
    assert "1 ~2" in shown
