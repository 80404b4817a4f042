"""The Lua scripts and their Python twins agree on any sequence of operations."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seawall.admission.holders import Asker, Holders
from seawall.store import keys
from seawall.store.contract import Charge
from seawall.store.counters import Counters
from seawall.store.redis_data import ACQUIRE, RELEASE, RENEW
from seawall.store.resp import command
from tests.store.line import Line
from tests.store.node import Valkey

pytestmark = pytest.mark.store

few = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.fixture
def line(shared_node: Valkey) -> Iterator[Line]:
    line = Line(shared_node)
    yield line
    line.close()


charges = st.builds(
    Charge,
    identity=st.sampled_from([b"a", b"b"]),
    start=st.integers(1, 6).map(lambda n: n * 60),
    length=st.just(60),
    hits=st.one_of(st.integers(0, 3), st.sampled_from([2**53 - 2, 2**53, 2**60])),
)


@few
@given(calls=st.lists(st.lists(charges, max_size=4), max_size=12))
def test_windows(line: Line, calls: list[list[Charge]]) -> None:
    line.ask(command(b"FLUSHALL"))
    twin = Counters()
    for call in calls:
        assert line.charge(call) == twin.charge(call, now=0.0)


rids = st.sampled_from(["r1", "r2", "r3", "r4"])
owners = st.sampled_from(["o1", "o2", "o3"])
askers = st.tuples(
    owners, st.sampled_from(["n1", "n1", "n1", "n2"]), st.sampled_from(["own", "own", "", "x:1"]), st.integers(1, 3)
)
operations = st.one_of(
    st.tuples(st.just("acquire"), rids, askers, st.integers(0, 3), st.integers(0, 50)),
    st.tuples(st.just("release"), rids, askers, st.just(0), st.just(0)),
    st.tuples(st.just("renew"), st.lists(rids, max_size=3), askers, st.just(0), st.integers(0, 50)),
    st.tuples(st.just("flush"), rids, askers, st.just(0), st.just(0)),
)
Known = tuple[str, str, str, int]


@few
@given(steps=st.lists(st.tuples(st.integers(0, 30), operations), max_size=25))
def test_slots(line: Line, steps: list[tuple[int, tuple[str, str | list[str], Known, int, int]]]) -> None:
    """Owners that know of different lives, a node that becomes another, a store that is flushed."""
    line.ask(command(b"FLUSHALL"))
    twin, now = Holders(), 1_700_000_000_000
    pool = [keys.pool_holders("p"), keys.pool_owners("p"), keys.pool_life("p")]
    lives: dict[str, str] = {}
    for passed, (what, rid, (owner, node, known, workers), limit, lease) in steps:
        now += passed
        seen = lives.get(owner, "") if known == "own" else known
        asker = Asker(owner, node, seen, workers)
        times = [b"%d" % now, b"%d" % (now + lease)]
        knows = [node.encode(), seen.encode(), b"%d" % workers]
        if what == "flush":
            line.ask(command(b"FLUSHALL"))
            twin = Holders()
        elif isinstance(rid, list):
            held, asked = rid[:2], rid[2:]
            named = [b"%d" % len(held), *(r.encode() for r in rid)]
            got = line.ask(RENEW.call(pool, [owner.encode(), *times, *knows, *named]), RENEW)
            holders, added, paused, life = twin.renew(held, asker, now, now + lease, asked)
            assert got == [holders, added, paused, life.encode()]
            lives[owner] = life
        elif what == "acquire":
            got = line.ask(ACQUIRE.call(pool, [rid.encode(), owner.encode(), b"%d" % limit, *times, *knows]), ACQUIRE)
            outcome, holders, life = twin.acquire(rid, asker, limit, now, now + lease)
            assert got == ([outcome, holders] if life == seen else [outcome, holders, life.encode()])
            lives[owner] = life
        else:
            got = line.ask(RELEASE.call(pool, [rid.encode(), owner.encode()]), RELEASE)
            assert got == twin.release(rid, owner)
        assert line.ask(command(b"ZCOUNT", pool[0], b"(%d" % now, b"+inf")) == twin.live(now)
        assert line.ask(command(b"ZCARD", pool[0])) == line.ask(command(b"HLEN", pool[1]))
