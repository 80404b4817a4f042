"""ratelimit's messages to calls, statuses to messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratelimit import wire
from seawall.limits.decide import Descriptor, Status
from seawall.limits.descriptor import Limit
from seawall.limits.window import Unit
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
            Descriptor([("tenant", "acme"), ("class", "")], None),
            Descriptor([], 0),
            Descriptor([], 2**64 - 1),
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
    """Only our own descriptor at its place tells a version; it stays among the others, for it wants a status too."""
    request = pb.RateLimitRequest(domain="llm")
    for entries in descriptors:
        added = request.descriptors.add()
        for key, value in entries:
            added.entries.add(key=key, value=value)
    call = wire.decode(request.SerializeToString())
    assert call.version == version
    assert len(call.descriptors) == len(descriptors)


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


def test_encode() -> None:
    """One status over makes the answer OVER_LIMIT; each status has its limit, what remains and when it resets."""
    limit = Limit("tenant", 2**32 - 1, Unit.DAY)
    response = pb.RateLimitResponse.FromString(
        wire.encode([Status(False), Status(True, limit, 0, 86400), Status(False, limit, 2**32 - 1, 1)])
    )
    assert response.overall_code == pb.RateLimitResponse.OVER_LIMIT
    free, over, under = response.statuses
    assert free == pb.RateLimitResponse.DescriptorStatus(code=pb.RateLimitResponse.OK)
    assert (over.code, over.limit_remaining, over.duration_until_reset.seconds) == (
        pb.RateLimitResponse.OVER_LIMIT,
        0,
        86400,
    )
    assert (under.code, under.limit_remaining, under.duration_until_reset.seconds) == (
        pb.RateLimitResponse.OK,
        2**32 - 1,
        1,
    )
    for status in (over, under):
        assert status.current_limit.requests_per_unit == 2**32 - 1
        assert status.current_limit.unit == pb.RateLimitResponse.RateLimit.DAY


@pytest.mark.parametrize("unit", Unit)
def test_units(unit: Unit) -> None:
    """A unit has the same name on the wire."""
    [status] = pb.RateLimitResponse.FromString(wire.encode([Status(False, Limit("x", 1, unit), 1, 1)])).statuses
    assert status.current_limit.Unit.Name(status.current_limit.unit) == unit.name


@pytest.mark.parametrize("statuses", [[], [Status(False)], [Status(False, Limit("x", 1, Unit.HOUR), 1, 1)]])
def test_ok(statuses: list[Status]) -> None:
    """Without a status over the answer is OK, and UNKNOWN is never said."""
    assert pb.RateLimitResponse.FromString(wire.encode(statuses)).overall_code == pb.RateLimitResponse.OK
