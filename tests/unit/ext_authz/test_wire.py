"""ext_authz's messages to checks, decisions to messages."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_authz import wire
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
    response = pb.CheckResponse.FromString(wire.allow({"tenant": "acme", "key": ""}, ["x-seawall-pool"]))
    assert response.status.code == 0
    assert response.WhichOneof("http_response") == "ok_response"
    assert list(response.ok_response.headers_to_remove) == ["x-seawall-pool"]
    fields = response.dynamic_metadata.fields
    assert {name: value.WhichOneof("kind") for name, value in fields.items()} == dict.fromkeys(fields, "string_value")
    assert {name: value.string_value for name, value in fields.items()} == {"tenant": "acme", "key": ""}


def test_allow_without_changes() -> None:
    """The answer says that it allows even where nothing is to be changed."""
    assert pb.CheckResponse.FromString(wire.allow({}, [])).WhichOneof("http_response") == "ok_response"


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
