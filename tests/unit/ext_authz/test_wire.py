"""ext_authz's messages to checks, decisions to messages."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_authz import wire
from ext_authz.rid import Rids
from seawall.decision import Reason, Refusal
from seawall.llm.errors import answer
from seawall.llm.protocols import Family
from seawall.proto.gen import ext_authz_pb2 as pb


def test_decode() -> None:
    """A check has the request's method, path with its query, and headers."""
    request = pb.CheckRequest()
    http = request.attributes.request.http
    http.method, http.path = "POST", "/v1/models?x=y"
    http.headers["user-agent"] = "ü"
    http.headers["x-empty"] = ""
    request.attributes.context_extensions["seawall.class"] = "vip"
    check = wire.decode(request.SerializeToString())
    assert dict(check.extensions) == {"seawall.class": "vip"}
    assert (check.method, check.path, dict(check.headers)) == (
        "POST",
        "/v1/models?x=y",
        {"user-agent": "ü", "x-empty": ""},
    )
    assert check.headers.get("absent") is None


def test_empty() -> None:
    """An empty message is a check of nothing."""
    check = wire.decode(b"")
    assert (check.method, check.path, dict(check.headers)) == ("", "", {})


@pytest.mark.parametrize("data", [b"\xff", b"\n\x05ab", b"plain text"])
def test_garbage(data: bytes) -> None:
    """Bytes that are no message are a ValueError that repeats none of them."""
    with pytest.raises(ValueError, match=r"^not a CheckRequest$"):
        wire.decode(data)


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a check or a ValueError."""
    try:
        wire.decode(data)
    except ValueError as e:
        assert str(e) == "not a CheckRequest"


def test_allow() -> None:
    """A request goes on with code 0, headers taken away, and metadata of texts only."""
    response = pb.CheckResponse.FromString(wire.allow({"tenant": "acme", "key": ""}, "00ff", ["x-seawall-pool"]))
    assert response.status.code == 0
    assert response.WhichOneof("http_response") == "ok_response"
    assert list(response.ok_response.headers_to_remove) == ["x-seawall-pool"]
    fields = response.dynamic_metadata.fields
    assert {name: value.WhichOneof("kind") for name, value in fields.items()} == dict.fromkeys(fields, "string_value")
    assert {name: value.string_value for name, value in fields.items()} == {"tenant": "acme", "key": "", "rid": "00ff"}


def test_allow_without_changes() -> None:
    """The answer says that it allows even where nothing is to be changed."""
    assert pb.CheckResponse.FromString(wire.allow({}, "1", [])).WhichOneof("http_response") == "ok_response"


def test_kept_answers() -> None:
    """What is kept of one answer never shows in another, and long names are not kept."""
    told = []
    before = wire._allowed.cache_info().currsize
    for rid, tenant, remove in [("1", "a", ["k"]), ("2", "a", ["k"]), ("3", "b", []), ("4", "a", ["x" * 200, "k"])]:
        response = pb.CheckResponse.FromString(wire.allow({"tenant": tenant}, rid, remove))
        fields = response.dynamic_metadata.fields
        told.append(
            (fields["rid"].string_value, fields["tenant"].string_value, [*response.ok_response.headers_to_remove])
        )
    assert told == [("1", "a", ["k"]), ("2", "a", ["k"]), ("3", "b", []), ("4", "a", ["x" * 200, "k"])]
    assert wire._allowed.cache_info().currsize == before + 2


def test_rids() -> None:
    """Rids are 16 hexadecimal digits, and no two are the same."""
    rids = Rids()
    given = [rids.next() for _ in range(2_000)]
    assert len(set(given)) == len(given)
    assert all(len(rid) == 16 and set(rid) <= set("0123456789abcdef") for rid in given)


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("reason", [Reason.MISSING_KEY, Reason.USER_AGENT, Reason.HEADERS, Reason.UNKNOWN_PATH])
def test_deny(reason: Reason, family: Family) -> None:
    """A refusal has a code other than 0, our status, our headers over Envoy's own, and our body."""
    error = answer(Refusal(reason, "Why \ud83d ü.", "f"), family, "r1")
    response = pb.CheckResponse.FromString(wire.deny(error, {"reason": reason.value}))
    denied = response.denied_response
    assert response.status.code == 7
    assert denied.status.code == error.status
    assert json.loads(denied.body) == json.loads(error.body)
    assert [(o.header.key, o.header.value) for o in denied.headers] == list(error.headers)
    assert {o.append_action for o in denied.headers} == {2}
    assert response.dynamic_metadata.fields["reason"].string_value == reason.value
