"""Sentinels that name another master, or can't be asked."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from seawall.store import keys
from seawall.store.address import parse
from seawall.store.contract import Charge, StoreUnavailable
from seawall.store.redis import RedisStore
from tests.store.asking import HIT, answered, failure, until, works
from tests.store.forms import Sentinel, has
from tests.store.forms import until as until_node
from tests.store.node import Valkey

pytestmark = pytest.mark.store


@pytest.fixture
async def group() -> AsyncIterator[Sentinel]:
    group = Sentinel()
    await group.start()
    yield group
    group.remove()


@pytest.fixture
async def store(group: Sentinel) -> AsyncIterator[RedisStore]:
    store = RedisStore(parse(group.url), owner="w", timeout=0.5)
    await store.start()
    assert list(await store.charge([Charge(b"fault", 600, 60, 41)])) == [41]
    assert await store.push("text", digest="d", author="ann", reason="", needs="0.1") == 1
    assert await group.nodes[0].ask("WAIT", "1", "5000") == b":1"
    yield store
    await store.close()


async def test_another_master_is_found_when_the_first_dies(group: Sentinel, store: RedisStore) -> None:
    group.nodes[0].kill()
    assert await works(store) == [42]
    assert await answered(store.current) == 1
    assert (await group.nodes[1].text("INFO", "replication")).splitlines()[1] == "role:master"
    await until(lambda: store.healthy)


async def test_a_master_that_hung_and_comes_back_is_left(group: Sentinel, store: RedisStore) -> None:
    """SIGSTOP until another was chosen: what is asked after that goes to the other, and stays there."""
    old, new = group.nodes
    old.signal(signal.SIGSTOP)
    try:
        assert await works(store) == [42]
    finally:
        old.signal(signal.SIGCONT)
    await until_node(lambda: has(old, "role:slave", "INFO", "replication"))
    counts = [await works(store) for _ in range(50)]
    assert counts == [[43 + n] for n in range(50)]
    assert (await new.ask("HGET", keys.counter(b"fault"), "600")) == b"$2"


async def test_a_failover_on_command_is_followed(group: Sentinel, store: RedisStore) -> None:
    """The old master lives and answers: it says READONLY, and sentinels name another."""
    assert await group.sentinels[0].ask("SENTINEL", "FAILOVER", "main") == b"+OK"
    await until_node(lambda: has(group.nodes[1], "role:master", "INFO", "replication"))
    await until_node(lambda: has(group.nodes[0], "role:slave", "INFO", "replication"))
    assert await works(store) == [42]
    assert await answered(lambda: store.push("new", digest="e", author="ann", reason="", needs="0.1")) == 2


async def test_one_sentinel_is_enough(group: Sentinel, store: RedisStore) -> None:
    for sentinel in group.sentinels[:2]:
        sentinel.kill()
    later = RedisStore(parse(group.url), owner="later", timeout=5)
    await later.start()
    assert await works(later) == [42]
    assert await later.current() == 1
    await later.close()
    assert await works(store) == [43]


async def test_without_sentinels_the_master_at_hand_stays(group: Sentinel, store: RedisStore) -> None:
    for sentinel in group.sentinels:
        sentinel.kill()
    await asyncio.sleep(1.5)  # longer than it takes to look for another master
    assert await works(store) == [42]
    later = RedisStore(parse(group.url), owner="later", timeout=5)
    await later.start()
    assert later.trouble == "not connected (no sentinel names a master)"
    assert "no sentinel names a master" in await failure(later.charge(HIT))
    with pytest.raises(StoreUnavailable, match="not connected"):
        await later.current()
    await later.close()


async def test_sentinels_have_a_password_of_their_own() -> None:
    master = Valkey("--requirepass", "s3cr3t-pw", tcp=True)
    watched = f"sentinel monitor main 127.0.0.1 {master.port} 1\nsentinel auth-pass main s3cr3t-pw\n"
    sentinel = Valkey("--sentinel", tcp=True, config=watched + "requirepass s3cr3t-sentinel\n")
    await asyncio.gather(master.start(), sentinel.start())
    try:
        where = f"127.0.0.1:{sentinel.port}/main/2"
        store = RedisStore(
            parse(f"redis+sentinel://:s3cr3t-pw@{where}?sentinel_password=s3cr3t-sentinel"), owner="w", timeout=5
        )
        await store.start()
        assert await works(store) == [1]
        assert await store.push("text", digest="d", author="ann", reason="", needs="0.1") == 1
        assert "s3cr3t" not in repr(store) + repr(vars(store))
        await store.close()
        for url in (f"redis+sentinel://:s3cr3t-pw@{where}", f"redis+sentinel://{where}?sentinel_password=s3cr3t-x"):
            wrong = RedisStore(parse(url), owner="w", timeout=5)
            await wrong.start()
            told = await failure(wrong.charge(HIT)) + await failure(wrong.current())
            assert "s3cr3t" not in told
            await wrong.close()
    finally:
        sentinel.remove()
        master.remove()
