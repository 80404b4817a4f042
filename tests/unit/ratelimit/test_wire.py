"""ratelimit's messages to calls, statuses to messages."""

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ratelimit import wire
from seawall.limits.call import Descriptor, Override
from seawall.limits.decide import Status
from seawall.limits.window import Algorithm, Unit, Window
from seawall.proto.gen import ratelimit_pb2 as pb


def test_decode() -> None:
    """A call has its domain, descriptors in order with their entries, and hits; a written 0 is not an absent number."""
    request = pb.RateLimitRequest(domain="llm", hits_addend=7)
    first = request.descriptors.add()
    first.entries.add(key="tenant", value="acme")
    first.entries.add(key="class", value="")
    request.descriptors.add().hits_addend.value = 0
    request.descriptors.add().hits_addend.value = 2**64 - 1
    assert wire.decode(request.SerializeToString()) == (
        "llm",
        [
            Descriptor((("tenant", "acme"), ("class", "")), None),
            Descriptor((), 0),
            Descriptor((), 2**64 - 1),
        ],
        7,
        "",
    )


@pytest.mark.parametrize(
    ("descriptors", "version"),
    [
        ([[("tenant", "a")], [("seawall.policy", "7")]], "7"),
        ([[("seawall.policy", "7")]], "7"),
        ([[("seawall.policy", "7")], [("tenant", "a")]], ""),
        ([[("tenant", "a"), ("seawall.policy", "7")]], ""),
        ([[("seawall.policy", "7"), ("tenant", "a")]], ""),
    ],
)
def test_the_version_is_a_descriptor_of_its_own_and_the_last(
    descriptors: list[list[tuple[str, str]]], version: str
) -> None:
    """Only our own descriptor at its place tells a version; it keeps its place and matches no rule."""
    request = pb.RateLimitRequest(domain="llm")
    for entries in descriptors:
        added = request.descriptors.add()
        for key, value in entries:
            added.entries.add(key=key, value=value)
    call = wire.decode(request.SerializeToString())
    assert call.version == version
    assert len(call.descriptors) == len(descriptors)
    assert (call.descriptors[-1].entries == ()) == bool(version)


def test_empty_call() -> None:
    """An empty message is a call without anything; that it is none is decided elsewhere."""
    assert wire.decode(b"") == ("", [], 0, "")


@pytest.mark.parametrize("data", [b"\xff", b"\n\x05ab", b"\n\x01\xff", b"plain text"])
def test_garbage(data: bytes) -> None:
    """Bytes that are no message are a ValueError that repeats none of them."""
    with pytest.raises(ValueError, match=r"^not a RateLimitRequest$"):
        wire.decode(data)


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a call or a ValueError."""
    try:
        wire.decode(data)
    except ValueError as e:
        assert str(e) == "not a RateLimitRequest"


MINUTE = Window(Algorithm.FIXED, 2**32 - 1, 60)


def test_override_and_negative_hits() -> None:
    """A limit with the descriptor and hits to give back arrive; a unit that nobody knows arrives as its number."""
    request = pb.RateLimitRequest(domain="llm")
    first = request.descriptors.add(is_negative_hits=True)
    first.limit.requests_per_unit = 42
    first.limit.unit = pb.RateLimitUnit.HOUR
    request.descriptors.add().limit.unit = 99  # type: ignore[assignment]
    assert wire.decode(request.SerializeToString()).descriptors == [
        Descriptor((), None, Override(42, 3), True),
        Descriptor((), None, Override(0, 99)),
    ]


def test_encode() -> None:
    """Each status has its limit, what remains and when it resets; without a limit none of them."""
    response = pb.RateLimitResponse.FromString(
        wire.encode(
            True,
            [
                Status(False),
                Status(True, MINUTE, "n", 0, 60),
                Status(False, MINUTE, "", 2**32 - 1, 1),
                Status(False, remaining=2**32 - 1),
            ],
        )
    )
    assert response.overall_code == pb.RateLimitResponse.OVER_LIMIT
    free, over, under, unlimited = response.statuses
    assert free == pb.RateLimitResponse.DescriptorStatus(code=pb.RateLimitResponse.OK)
    assert unlimited == pb.RateLimitResponse.DescriptorStatus(code=pb.RateLimitResponse.OK, limit_remaining=2**32 - 1)
    assert (over.code, over.limit_remaining, over.duration_until_reset.seconds, over.current_limit.name) == (
        pb.RateLimitResponse.OVER_LIMIT,
        0,
        60,
        "n",
    )
    assert (under.code, under.limit_remaining, under.duration_until_reset.seconds, under.current_limit.name) == (
        pb.RateLimitResponse.OK,
        2**32 - 1,
        1,
        "",
    )
    for status in (over, under):
        assert status.current_limit.requests_per_unit == 2**32 - 1
        assert status.current_limit.unit == pb.RateLimitResponse.RateLimit.MINUTE


@pytest.mark.parametrize("unit", Unit)
def test_units(unit: Unit) -> None:
    """A unit has the same name on the wire."""
    window = Window(Algorithm.FIXED, 1, unit.seconds)
    [status] = pb.RateLimitResponse.FromString(wire.encode(False, [Status(False, window, "", 1, 1)])).statuses
    assert status.current_limit.Unit.Name(status.current_limit.unit) == unit.name


def test_a_window_without_a_unit() -> None:
    """30 seconds have no unit on the wire: the number and the reset are told, the unit is unknown."""
    window = Window(Algorithm.SLIDING, 9, 30)
    [status] = pb.RateLimitResponse.FromString(wire.encode(False, [Status(False, window, "", 1, 1)])).statuses
    assert (status.current_limit.requests_per_unit, status.current_limit.unit) == (9, 0)


def test_ok() -> None:
    """OK is said, UNKNOWN never."""
    assert pb.RateLimitResponse.FromString(wire.encode(False, [])).overall_code == pb.RateLimitResponse.OK


def test_headers_and_metadata() -> None:
    """Headers in their order; metadata as a Struct; neither when there is none."""
    bare = pb.RateLimitResponse.FromString(wire.encode(False, [Status(False)]))
    assert not bare.response_headers_to_add and not bare.HasField("dynamic_metadata")
    metadata = {
        "domain": "d",
        "descriptors": [{"entries": ["a=b"], "hitsAddend": 5}],
        "metadata": {"n": None, "b": [True]},
    }
    full = pb.RateLimitResponse.FromString(wire.encode(False, [], [("L", "1"), ("R", "0")], metadata))
    assert [(h.key, h.value) for h in full.response_headers_to_add] == [("L", "1"), ("R", "0")]
    assert MessageToDict(full.dynamic_metadata) == metadata
