"""TLS, client certificates, ACL users and passwords: what is refused, what is told, and what follows a rotation."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seawall.store.address import parse
from seawall.store.contract import Charge, StoreUnavailable
from seawall.store.redis import RedisStore
from tests.store.asking import HIT, failure, until, works
from tests.store.conftest import started
from tests.store.forms import ACL, Cluster, Form, Secured, TlsProxy
from tests.store.node import Valkey

pytestmark = [
    pytest.mark.store,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command to make certificates with"),
]


@pytest.fixture(scope="module")
def form() -> Iterator[Form]:
    yield from started(Secured())


async def opened(url: str) -> RedisStore:
    store = RedisStore(parse(url), owner="w", timeout=5)
    await store.start()
    return store


async def trouble(url: str) -> str:
    """Why neither path gets in."""
    store = await opened(url)
    try:
        told = await failure(store.charge(HIT)) + " " + await failure(store.current())
    finally:
        await store.close()
    assert "s3cr3t" not in told
    return told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("127.0.0.1:", "localhost:"), ""),
        (("/ca&", "/other&"), "SSLCertVerificationError"),
        (("/ca&", "/other&verify=chain&"), "SSLCertVerificationError"),
        (("/ca&", "/other&verify=off&"), ""),
        (("/ca&", "/ca&server_name=redis.internal&"), "SSLCertVerificationError"),
        (("/ca&", "/ca&server_name=redis.internal&verify=chain&"), ""),
        (("/ca&", "/ca&server_name=localhost&"), ""),
        (("rediss://", "redis://"), "not connected"),
    ],
)
async def test_what_is_verified(form: Secured, change: tuple[str, str], told: str) -> None:
    url = form.url.replace(*change)
    if "rediss" not in url:
        url = url.partition("?")[0] + f"?password_file={form.folder}/pw"
    if told:
        assert told in await trouble(url)
        return
    store = await opened(url)
    assert await works(store)
    assert await store.current() is None
    await store.close()


async def test_without_a_client_certificate_nobody_gets_in(form: Secured) -> None:
    assert "not connected" in await trouble(form.url.partition("&cert=")[0])


async def test_the_acl_is_what_lets_the_store_in(form: Secured) -> None:
    """The user of the suite may do no more than it says: other keys and other commands are refused."""
    told = (
        (Path(__file__).parents[2] / "docs" / "redis.md")
        .read_text("utf-8")
        .partition("ACL SETUSER gate on >PASSWORD ")[2]
    )
    assert told.partition("```")[0].split() == ACL.split()
    node = form.nodes[0]
    assert await node.ask("ACL", "DRYRUN", "gate", "SET", "sw:{policy}:inbox", "x") == b"+OK"
    for words in (("SET", "other", "x"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("SCRIPT", "FLUSH")):
        assert await node.ask("ACL", "DRYRUN", "gate", *words) != b"+OK", words


async def test_a_wrong_password_is_told_and_a_new_one_is_read(form: Secured, tmp_path: Path) -> None:
    """The file is read for each connection: a password that was rotated needs no restart."""
    secret = tmp_path / "pw"
    url = form.url.replace(f"{form.folder}/pw", str(secret))
    assert "password file: FileNotFoundError" in await trouble(url)
    secret.write_text("not-s3cr3t")
    store = await opened(url)
    assert "WRONGPASS" in store.trouble
    secret.write_text("s3cr3t-pw\n")
    await works(store)
    assert await store.current() is None
    await form.nodes[0].ask("ACL", "SETUSER", "gate", "<s3cr3t-pw", ">s3cr3t-new")
    secret.write_text("s3cr3t-new")
    await form.nodes[0].ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    try:
        await works(store)
        await until(lambda: store.healthy)
    finally:
        await form.nodes[0].ask("ACL", "SETUSER", "gate", "resetpass", ">s3cr3t-pw")
        await store.close()


async def test_certificates_that_vanish_are_told_and_found_again(form: Secured, tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        shutil.copy(form.folder / name, tmp_path)
    store = await opened(
        form.url.replace(str(form.folder), str(tmp_path)).replace(f"{tmp_path}/pw", f"{form.folder}/pw")
    )
    await works(store)
    (tmp_path / "cert").rename(tmp_path / "away")
    await form.nodes[0].ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await until(lambda: f"cert {tmp_path}/cert" in store.trouble)
    with pytest.raises(StoreUnavailable):
        await store.current()
    (tmp_path / "away").rename(tmp_path / "cert")
    await works(store)
    await store.close()


async def test_a_cluster_behind_tls(form: Secured) -> None:
    """Nodes announce the ports of their proxies; both paths find each node by its name and check its certificate."""
    cluster = Cluster()
    proxies = [TlsProxy(node.socket, form.folder) for node in cluster.nodes]
    for node, proxy in zip(cluster.nodes, proxies, strict=True):
        node.options = (*node.options, "--cluster-announce-port", str(proxy.port))
        proxy.start()
    await cluster.start()
    where = f"rediss+cluster://127.0.0.1:{proxies[0].port}?{form.query}"
    try:
        store = await opened(where)
        for n in range(20):
            assert list(await store.charge([Charge(b"%d" % n, 600, 60, 1)])) == [1]
        assert await store.push("text", digest="d", author="ann", reason="", needs="0.1") == 1
        assert len(await store.history()) == 1
        await store.close()
        assert "no node tells the slots (ConnectionError)" in await trouble_of(where + "&server_name=redis.internal")
    finally:
        for proxy in proxies:
            proxy.stop()
        cluster.remove()


async def trouble_of(url: str) -> str:
    store = await opened(url)
    try:
        await failure(store.history())
        return store.trouble
    finally:
        await store.close()


async def test_sentinels_and_their_master_behind_tls(form: Secured) -> None:
    master = Valkey()
    before = TlsProxy(master.socket, form.folder, mixed=True)
    sentinel = Valkey("--sentinel", config=f"sentinel monitor main 127.0.0.1 {before.port} 1\n")
    proxy = TlsProxy(sentinel.socket, form.folder)
    before.start()
    proxy.start()
    await asyncio.gather(master.start(), sentinel.start())
    where = f"rediss+sentinel://127.0.0.1:{proxy.port}/main?{form.query}"
    try:
        store = await opened(where)
        assert await works(store) == [1]
        assert await store.push("text", digest="d", author="ann", reason="", needs="0.1") == 1
        await store.close()
        assert await trouble_of(where + "&server_name=redis.internal") == "not connected (no sentinel names a master)"
    finally:
        proxy.stop()
        before.stop()
        sentinel.remove()
        master.remove()
