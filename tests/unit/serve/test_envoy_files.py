"""Files before workers: what is written when, what stays, and what workers are told."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from seawall.policy.compile import compile_policy, digest_of
from seawall.policy.compiled import Policy
from seawall.policy.mistake import PolicyError
from seawall.serve import envoy_files as module
from seawall.serve.envoy_admin import EnvoyAdmin, NoEnvoy
from seawall.serve.envoy_files import EnvoyFiles, Kept, write_dynamic
from seawall.serve.envoy_ready import READY_FILE, EnvoyReady, Taken, read_ready, ready_versions
from seawall.serve.policies import Policies
from seawall.serve.settings import Settings
from seawall.store.memory import MemoryStore

CA = "/etc/ca.pem"


class Told:
    """A log that keeps what it is given."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def __call__(self, level: str, msg: str, **fields: object) -> None:
        self.lines.append((level, msg, fields))


def policy(*pools: str, more: str = "") -> Policy:
    """A policy with these pools, all of one engine."""
    named = ", ".join(f"{name}: {{}}" for name in pools)
    models = f"models: {{m: {{variants: {{full: {{pool: {pools[0]}}}}}}}}}"
    return compile_policy(f"engines: {{e: {{url: 'http://127.0.0.1:1'}}}}\npools: {{{named}}}\n{models}\n{more}")


def made(directory: Path, admin: str | None = None, keep: float = 600) -> tuple[EnvoyFiles, Told]:
    log = Told()
    return EnvoyFiles(str(directory), admin, CA, log, keep), log  # type: ignore[arg-type]


def clusters(directory: Path) -> list[str]:
    return [c["name"] for c in json.loads((directory / "cds.json").read_text())["resources"]]


def routes(directory: Path) -> list[str]:
    [table] = json.loads((directory / "rds.json").read_text())["resources"]
    return [r["name"] for r in table["virtual_hosts"][0]["routes"]]


async def bring(files: EnvoyFiles, version: int, made: Policy) -> Taken:
    return await files.bring(version, made.digest, made)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE", 0.0)


async def test_pools_of_older_policies_stay_and_go(tmp_path: Path) -> None:
    """A removed pool stays for the time of a request, then it goes: first the word, then routes, then clusters."""
    files, log = made(tmp_path, keep=0.0)
    first, second = policy("a", "b"), policy("b", "c")
    assert await bring(files, 1, first) is Taken.WRITTEN
    assert clusters(tmp_path) == ["pool_a", "pool_b"]
    await bring(files, 2, second)
    assert clusters(tmp_path) == ["pool_a", "pool_b", "pool_c"]
    assert routes(tmp_path) == ["a", "b", "c", "no_pool"]
    assert set(read_ready(str(tmp_path))) == {first.digest, second.digest}
    assert files.due()
    await files.expire(in_use={1})
    assert clusters(tmp_path) == ["pool_a", "pool_b", "pool_c"], "a living worker still uses version 1"
    await files.expire(in_use={2})
    assert clusters(tmp_path) == ["pool_b", "pool_c"]
    assert routes(tmp_path) == ["b", "c", "no_pool"]
    assert set(read_ready(str(tmp_path))) == {second.digest}
    assert not files.due()
    assert log.lines[-1][1] == "envoy files without the pools of older policies"


async def test_before_its_time_nothing_goes(tmp_path: Path) -> None:
    """Nobody uses the older version any more, but a request may still be on its way."""
    files, _ = made(tmp_path)
    await bring(files, 1, policy("a"))
    await bring(files, 2, policy("b"))
    assert not files.due()
    await files.expire(in_use=set())
    assert clusters(tmp_path) == ["pool_a", "pool_b"]


async def test_the_newest_of_one_name_counts(tmp_path: Path) -> None:
    """A pool that both have is as the current policy has it; one that two older ones have, as the newer of them."""
    files, _ = made(tmp_path)
    await bring(files, 1, policy("a", "x", more="retries: {attempts: 1}"))
    other = policy("a").pools["a"]
    changed = policy("a", "y")
    assert other.max_in_flight == 128
    await bring(files, 2, changed)
    merged = module.with_older(policy("z"), [Kept(2, "2", changed), Kept(1, "1", policy("a", "x"))])
    assert merged.pools["a"] is changed.pools["a"]
    assert set(merged.pools) == {"a", "x", "y", "z"}


async def test_what_changes_nothing_for_envoy_is_not_written(tmp_path: Path) -> None:
    """A limit, a tenant, a cap: no file is touched, and the word is there at once."""
    files, log = made(tmp_path)
    first = policy("a")
    await bring(files, 1, first)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in ("cds.json", "rds.json")}
    second = policy("a", more="output: {max_tokens: 5}")
    await bring(files, 2, second)
    assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in before}
    assert second.digest in read_ready(str(tmp_path))
    assert len(log.lines) == 1


async def test_the_next_supervisor_keeps_what_this_one_kept(tmp_path: Path) -> None:
    """`ready.json` says which versions, and for how long; those that were refused or are over don't count."""
    files, _ = made(tmp_path)
    first, second = policy("a"), policy("b")
    await bring(files, 1, first)
    await bring(files, 2, second)
    successor, _ = made(tmp_path)
    told = successor.kept_before()
    assert [(version, digest) for version, digest, _ in told] == [(2, second.digest), (1, first.digest)]
    assert all(time.time() < until < time.time() + 601 for _, _, until in told)
    third = policy("c")
    successor.keep([Kept(2, second.digest, second, told[0][2]), Kept(1, first.digest, first, told[1][2])])
    await bring(successor, 3, third)
    assert clusters(tmp_path) == ["pool_a", "pool_b", "pool_c"]
    (tmp_path / READY_FILE).write_text("{")
    assert successor.kept_before() == []


async def test_back_to_an_older_version(tmp_path: Path) -> None:
    """A version that is current again is no older one."""
    files, _ = made(tmp_path, keep=0.0)
    first, second = policy("a"), policy("b")
    await bring(files, 1, first)
    await bring(files, 2, second)
    await bring(files, 1, first)
    await files.expire(in_use=set())
    assert clusters(tmp_path) == ["pool_a"]


class Admin:
    """Envoy's admin port, as far as it is asked: it takes files as the test wishes."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.takes = True
        self.refuses = False
        self.warming = 0
        self.refused = 0
        self.had: dict[str, str] = {"cds.json": "", "rds.json": ""}
        self.order: list[str] = []
        self.address = ""

    async def stats(self, _: web.Request) -> web.Response:
        for name, had in self.had.items():
            path = self.directory / name
            version = json.loads(path.read_text())["version_info"] if path.exists() else ""
            if version != had and self.refuses:
                self.refused += 1
                self.had[name] = version
            elif version != had and self.takes:
                self.order.append(name)
                self.had[name] = version
        lines = [
            f'cluster_manager.cds.version_text: "{"" if self.refuses else self.had["cds.json"]}"',
            f'http.edge.rds.seawall.version_text: "{self.had["rds.json"]}"',
            f"cluster_manager.cds.update_rejected: {self.refused}",
            "http.edge.rds.seawall.update_rejected: 0",
            f"cluster_manager.warming_clusters: {self.warming}",
        ]
        return web.Response(text="\n".join(lines) + "\n")


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    made = Admin(tmp_path)
    app = web.Application()
    app.add_routes([web.get("/stats", made.stats)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.address = f"127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def test_clusters_are_there_before_routes(tmp_path: Path, admin: Admin) -> None:
    """Envoy has said that it has the clusters when the routes are written, and both when workers are told."""
    files, _ = made(tmp_path, admin.address)
    assert await bring(files, 1, policy("a")) is Taken.WRITTEN, "there was no file that Envoy could have started with"
    admin.order.clear()
    second = policy("b")
    assert await bring(files, 2, second) is Taken.TAKEN
    assert admin.order[-2:] == ["cds.json", "rds.json"]
    assert read_ready(str(tmp_path))[second.digest] == "taken"
    admin.order.clear()
    files._older = []
    await files._put(second, removing=True)
    await EnvoyAdmin(admin.address).loaded()
    assert admin.order == ["rds.json", "cds.json"]


async def test_an_envoy_that_is_late(tmp_path: Path, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that does not become ready is waited for, for a while; then workers are told what is known."""
    monkeypatch.setattr(module, "ENVOY_TIME", 0.1)
    files, log = made(tmp_path, admin.address)
    await bring(files, 1, policy("a"))
    admin.warming = 1
    second = policy("b")
    assert await bring(files, 2, second) is Taken.LATE
    assert read_ready(str(tmp_path))[second.digest] == "late"
    assert log.lines[-1][0] == "warn"


async def test_what_envoy_refuses_is_put_back(tmp_path: Path, admin: Admin) -> None:
    """The files before are in their place again, workers are told, and the next good policy goes on from there."""
    files, log = made(tmp_path, admin.address)
    first, second, third = policy("a"), policy("b"), policy("c")
    await bring(files, 1, first)
    before = (tmp_path / "cds.json").read_text()
    await EnvoyAdmin(admin.address).loaded()
    admin.refuses = True
    assert await bring(files, 2, second) is Taken.REFUSED
    assert (tmp_path / "cds.json").read_text() == before
    assert read_ready(str(tmp_path)) == {first.digest: "written", second.digest: "refused"}
    assert any(level == "error" for level, _, _ in log.lines)
    assert made(tmp_path)[0].kept_before()[0][0] == 1
    admin.refuses = False
    assert await bring(files, 3, third) is Taken.TAKEN
    assert clusters(tmp_path) == ["pool_a", "pool_c"]


async def test_no_envoy(tmp_path: Path) -> None:
    """Where nothing answers, nobody waits for an answer."""
    with pytest.raises(NoEnvoy):
        await EnvoyAdmin("127.0.0.1:1").loaded()
    files, _ = made(tmp_path, "127.0.0.1:1")
    await bring(files, 1, policy("a"))
    assert await bring(files, 2, policy("b")) is Taken.WRITTEN


class Unsure(list[str]):
    """Why a policy was used all the same."""


async def ready(directory: Path | None, new: Policy, before: Policy | None, patience: float = 0.0) -> Unsure:
    unsure = Unsure()
    looks = EnvoyReady(str(directory) if directory else None, unsure.append, patience)
    await looks.wait(new, new.digest, before, "version 2")
    return unsure


async def test_a_worker_waits_for_the_word(tmp_path: Path) -> None:
    """It goes on when the supervisor has said that the files are there."""
    new = policy("b")
    unsure = Unsure()
    waiting = asyncio.ensure_future(
        EnvoyReady(str(tmp_path), unsure.append, 60).wait(new, new.digest, policy("a"), "version 2")
    )
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await bring(made(tmp_path)[0], 2, new)
    await waiting
    assert not unsure


async def test_a_worker_waits_no_longer_than_its_patience(tmp_path: Path) -> None:
    """Without a word it goes on, and says so."""
    [why] = await ready(tmp_path, policy("b"), policy("a"))
    assert "has not written" in why


@pytest.mark.parametrize(("word", "told"), [("taken", 0), ("written", 0), ("late", 1), ("nonsense", 1)])
async def test_what_a_worker_makes_of_each_word(tmp_path: Path, word: str, told: int) -> None:
    """Only what is not sure is told."""
    new = policy("b")
    (tmp_path / READY_FILE).write_text(json.dumps({"policies": {new.digest: {"files": word}}}))
    assert len(await ready(tmp_path, new, policy("a"))) == told


async def test_a_worker_stays_on_the_last_policy_that_envoy_took(tmp_path: Path) -> None:
    """A policy that Envoy refused is refused; a worker that has none yet goes on, and says so."""
    new = policy("b")
    (tmp_path / READY_FILE).write_text(json.dumps({"policies": {new.digest: {"files": "refused"}}}))
    with pytest.raises(PolicyError, match="version 2:1:1: Envoy refused"):
        await ready(tmp_path, new, policy("a"))
    assert len(await ready(tmp_path, new, None)) == 1


@pytest.mark.parametrize("more", ["output: {max_tokens: 5}", "store_loss: {limits: deny}", "classes: {vip: , low: }"])
async def test_a_worker_waits_for_nothing_that_envoy_does_not_see(tmp_path: Path, more: str) -> None:
    """Most pushes change nothing for Envoy: they cost no look at a file."""
    assert not await ready(tmp_path, policy("a", more=more), policy("a"))
    assert not await ready(None, policy("b"), policy("a"))


@pytest.mark.parametrize(
    "more",
    [
        "retries: {attempts: 1}",
        "limits: [{domain: llm, descriptors: [{key: tenant}, {key: class, rate_limit: {unit: day}}]}]",
        "profiles: {p: {hosts: [h.example]}}",
    ],
)
async def test_a_worker_waits_for_all_that_envoy_sees(tmp_path: Path, more: str) -> None:
    """Pools are not all that is in the files."""
    assert await ready(tmp_path, policy("a", more=more), policy("a"))


async def test_files_for_an_envoy_that_is_not_there_yet(tmp_path: Path) -> None:
    """`up` and `envoy-config` write the word too: workers need not wait for what is there."""
    first = policy("a")
    write_dynamic(str(tmp_path), first, CA)
    assert read_ready(str(tmp_path)) == {first.digest: "written"}
    assert made(tmp_path)[0].kept_before() == []
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"policies": []}', '{"policies": {"d": 1}}', '{"policies": {"d": {}}}']
)
def test_a_word_that_nobody_understands_is_none(tmp_path: Path, text: str) -> None:
    """Half a file or somebody else's is no word."""
    (tmp_path / READY_FILE).write_text(text)
    assert read_ready(str(tmp_path)) == {}
    assert made(tmp_path)[0].kept_before() == []


def test_nothing_is_read_where_nothing_is(tmp_path: Path) -> None:
    """No directory, no file: no word."""
    assert read_ready(str(tmp_path / "none")) == {}


class Following:
    """A worker that starts beside a store with two versions, whose pools differ."""

    ONE = "pools: {a: {}}\n"
    TWO = "pools: {b: {}}\n"

    def __init__(self, directory: Path):
        self.store = MemoryStore(owner="w")
        settings = Settings(upstreams=(("http://e", "vllm"),), envoy_dir=str(directory))
        self.policies = Policies(self.store, settings, "w", lambda *_: None)

    async def push(self, text: str) -> None:
        await self.store.push(text, digest=digest_of(text), author="a", reason="", needs="0.1")


def say(directory: Path, *entries: tuple[int, str, str]) -> None:
    said = {digest_of(text): {"version": number, "files": word, "until": None} for number, text, word in entries}
    (directory / READY_FILE).write_text(json.dumps({"policies": said}))


async def test_a_worker_that_starts_serves_what_envoy_has_meanwhile(tmp_path: Path) -> None:
    """It takes the place of one that goes: a push that came just then must not keep it from serving."""
    here = Following(tmp_path)
    await here.push(here.ONE)
    await here.push(here.TWO)
    say(tmp_path, (1, here.ONE, "taken"), (7, "pools: {gone: {}}", "taken"))
    looking = asyncio.ensure_future(here.policies.check())
    while here.policies.version != 1:
        assert not looking.done()
        await asyncio.sleep(0.01)
    assert not looking.done()
    say(tmp_path, (1, here.ONE, "written"), (2, here.TWO, "taken"))
    await looking
    assert here.policies.version == 2


@pytest.mark.parametrize("word", ["late", "refused"])
async def test_a_worker_begins_with_nothing_that_is_not_sure(tmp_path: Path, word: str) -> None:
    """Only versions whose files are there count, and a number that means another document does not."""
    say(tmp_path, (1, Following.ONE, word), (2, Following.TWO, "taken"))
    here = Following(tmp_path)
    await here.push(Following.TWO)
    await here.policies.check()
    assert here.policies.version == 1
    assert here.policies.current is not None
    assert set(here.policies.current.pools) == {"b"}
    assert ready_versions(str(tmp_path)) == [(2, digest_of(Following.TWO))]
