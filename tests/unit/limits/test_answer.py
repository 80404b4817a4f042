"""One call from question to answer: the cache beside the store, headers, metadata."""

from typing import Any

import pytest

from seawall.limits.answer import Answer, Modes, answer, ask, passed
from seawall.limits.build import Rule, build
from seawall.limits.call import Descriptor, Override
from seawall.limits.charge import Counter, charge_all
from seawall.limits.decide import Status
from seawall.limits.descriptor import Limit
from seawall.limits.over_limit_cache import OverLimitCache
from seawall.limits.response import HeaderNames
from seawall.limits.window import US, Algorithm, Window

NOW = 1_760_000_040 * US + 2 * US


def limit(requests: int, **more: Any) -> Limit:
    return Limit("", (Window(Algorithm.FIXED, requests, 60, hidden=more.pop("hidden", False)),), **more)


M1: dict[str, Any] = {"a": {"left": 1}, "b": [1, "two", True]}
M2: dict[str, Any] = {"a": {"left": 9, "right": 2}, "b": "other", "c": {"deep": {"er": 1}}}
TREE = build(
    [
        Rule("five", limit=limit(5)),
        Rule("three", limit=limit(3)),
        Rule("also3", limit=limit(3)),
        Rule("quota", limit=limit(1, quota=True)),
        Rule("soft", limit=limit(1, shadow=True, metadata={"s": 1})),
        Rule("hidden", limit=limit(1, hidden=True)),
        Rule("m1", limit=limit(9, metadata=M1)),
        Rule("m2", limit=limit(9, metadata=M2)),
        Rule("free", limit=Limit("", (), metadata={"u": 1})),
    ]
)


class Caller:
    """Calls with one state and one setting."""

    def __init__(self, modes: Modes, cache: OverLimitCache | None = None):
        self.modes, self.cache = modes, cache
        self.counters: dict[bytes, Counter] = {}
        self.asked = 0

    def call(self, *keys: str, hits: int = 1) -> Answer:
        return self.send([Descriptor(((key, "x"),)) for key in keys], hits)

    def send(self, descriptors: list[Descriptor], hits: int = 1) -> Answer:
        asked = ask("d", TREE, descriptors, hits, NOW, self.modes, self.cache)
        self.asked = len(asked.demands)
        outcomes = charge_all(self.counters, asked.demands, NOW, stop=self.modes.stop)
        return answer(asked, outcomes, NOW, self.modes, self.cache)


@pytest.mark.parametrize(
    ("keys", "hits", "told"),
    [
        (("five",), 2, ["5", "3", "58"]),
        (("five", "three", "also3"), 2, ["3", "1", "58"]),
        # The last that is over; a quota and a shadowed one count with nothing left.
        (("three", "five"), 6, ["5", "0", "58"]),
        (("three", "quota"), 2, ["1", "0", "58"]),
        (("five", "soft", "three"), 2, ["1", "0", "58"]),
        (("hidden", "five"), 2, ["5", "3", "58"]),
        (("hidden",), 2, []),
        (("free", "nothing"), 1, []),
    ],
)
def test_headers(keys: tuple[str, ...], hits: int, told: list[str]) -> None:
    """Limit, remaining and reset of the descriptor that matters."""
    headers = Caller(Modes(headers=HeaderNames("L", "R", "T"))).call(*keys, hits=hits).headers
    assert list(headers) == list(zip(("L", "R", "T"), told, strict=False))
    assert Caller(Modes()).call(*keys, hits=hits).headers == ()


def test_headers_in_quota_mode() -> None:
    """Every descriptor is a quota then: the one with the least left, not the last that is over."""
    told = Caller(Modes(quota=True, headers=HeaderNames())).call("three", "five", hits=6)
    assert told.headers[0] == ("RateLimit-Limit", "3")


def test_metadata_is_merged_into_a_copy() -> None:
    """Maps merge, the first stays on a conflict, and no rule is changed by a call."""
    caller = Caller(Modes(metadata=True))
    both = caller.call("m1", "m2", "free").metadata
    assert both is not None
    assert both["metadata"] == {
        "a": {"left": 1, "right": 2},
        "b": [1, "two", True],
        "c": {"deep": {"er": 1}},
    }
    first = caller.call("m1").metadata
    assert first is not None and first["metadata"] == M1
    assert M1 == {"a": {"left": 1}, "b": [1, "two", True]}
    soft = caller.call("soft", hits=5).metadata
    assert soft is not None and soft["metadata"] == {"s": 1}


def test_metadata_says_what_was_asked() -> None:
    """Entries, a limit and hits only where they were sent."""
    override = Descriptor((("a", "b"), ("c", "")), 0, Override(0, 2))
    told = Caller(Modes(metadata=True)).send([override, Descriptor((("five", "x"),))], 0).metadata
    assert told == {
        "domain": "d",
        "descriptors": [{"entries": ["a=b", "c="], "limit": "unit:MINUTE", "hitsAddend": 0}, {"entries": ["five=x"]}],
    }
    assert Caller(Modes()).call("five").metadata is None


def test_shadow_mode() -> None:
    """The call passes and says so; the status stays over."""
    told = Caller(Modes(shadow=True)).call("three", hits=4)
    assert (told.over, told.shadowed, told.statuses[0].over) == (False, True, True)
    told = Caller(Modes()).call("three", hits=4)
    assert (told.over, told.shadowed) == (True, False)


def test_cache() -> None:
    """What is known to be over is not asked of the store; the other descriptors are."""
    caller = Caller(Modes(), OverLimitCache(10))
    caller.call("three", "five", hits=4)
    told = caller.call("three", "five")
    assert caller.asked == 1
    assert [status.over for status in told.statuses] == [True, False]
    assert told.statuses[1].remaining == 0
    assert [hits.over_with_local_cache for _, hits in told.counted] == [1, 0]


def test_cache_in_stop_mode() -> None:
    """One that is known to be over spares the others; hits that are given back are given back."""
    caller = Caller(Modes(stop=True), OverLimitCache(10))
    caller.call("three", "five", hits=4)
    told = caller.send(
        [Descriptor((("three", "x"),)), Descriptor((("five", "x"),)), Descriptor((("m1", "x"),), 2, None, True)], 3
    )
    assert [status.remaining for status in told.statuses] == [0, 5, 9]
    assert [hits.within for _, hits in told.counted] == [0, 0, 0]


def test_passed() -> None:
    """Without a store and with leave to let all through: as many statuses as descriptors, none over."""
    asked = ask("d", TREE, [Descriptor((("five", "x"),))] * 3, 9, NOW)
    assert passed(asked).statuses == [Status(False)] * 3
    assert not passed(asked).over
