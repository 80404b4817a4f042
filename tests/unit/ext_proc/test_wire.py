"""ext_proc's messages to events, replies to messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_proc import events as ev
from ext_proc import wire
from seawall.decision import Reason, Refusal
from seawall.llm.errors import answer
from seawall.llm.protocols import Family
from seawall.proto.gen import ext_proc_pb2 as pb

AUTHZ = "envoy.filters.http.ext_authz"
EXT_PROC = "envoy.filters.http.ext_proc"


def request(**parts: object) -> pb.ProcessingRequest:
    """Message with one part."""
    return pb.ProcessingRequest(**parts)


def add(message: pb.HttpHeaders, *headers: tuple[str, str, bytes]) -> None:
    """Add headers: name, value, raw value."""
    for key, value, raw in headers:
        message.headers.headers.add(key=key, value=value, raw_value=raw)


def decoded(message: pb.ProcessingRequest) -> ev.Event | None:
    """Event of a message."""
    return wire.decode(message.SerializeToString())


def encoded(reply: ev.Reply) -> pb.ProcessingResponse:
    """Message of a reply."""
    return pb.ProcessingResponse.FromString(wire.encode(reply))


def test_request_headers() -> None:
    """Headers that are read come by their raw value or else their value, with what ext_authz said and the peer."""
    message = pb.ProcessingRequest()
    add(
        message.request_headers,
        (":path", "", b"/v1/models"),
        (":method", "v", b""),
        ("content-length", "old", b"new"),
        ("content-encoding", "", b""),
        ("x-request-id", "", b"a\xff"),
        ("authorization", "", b"sk-secret"),
    )
    message.request_headers.end_of_stream = True
    said = message.metadata_context.filter_metadata
    said[AUTHZ].fields["tenant"].string_value = "acme"
    said[AUTHZ].fields["number"].number_value = 5
    said["other"].fields["tenant"].string_value = "evil"
    message.attributes[EXT_PROC].fields["source.address"].string_value = "10.0.0.1:5"
    assert decoded(message) == ev.RequestHeaders(
        headers={
            ":path": "/v1/models",
            ":method": "v",
            "content-length": "new",
            "content-encoding": "",
            "x-request-id": "a\ufffd",
        },
        end_of_stream=True,
        metadata={"tenant": "acme", "number": ""},
        source="10.0.0.1:5",
    )


def test_nothing_known() -> None:
    """Without ext_authz and attributes there is no metadata and no source."""
    message = pb.ProcessingRequest()
    message.request_headers.SetInParent()
    assert decoded(message) == ev.RequestHeaders({}, False, {}, "")
    message.metadata_context.filter_metadata["other"].fields["tenant"].string_value = "evil"
    message.attributes[EXT_PROC].fields["source.port"].number_value = 5
    message.attributes["other"].fields["source.address"].string_value = "evil"
    assert decoded(message) == ev.RequestHeaders({}, False, {}, "")


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (request(request_body=pb.HttpBody(body=b"x\xff", end_of_stream=True)), ev.RequestBody(b"x\xff", True)),
        (request(response_body=pb.HttpBody(body=b"x")), ev.ResponseBody(b"x", False)),
        (request(response_body=pb.HttpBody(end_of_stream=True)), ev.ResponseBody(b"", True)),
        (request(response_headers=pb.HttpHeaders(end_of_stream=True)), ev.ResponseHeaders({}, True)),
        (request(response_trailers=pb.HttpTrailers()), ev.Trailers(response=True)),
        (request(request_trailers=pb.HttpTrailers()), ev.Trailers(response=False)),
        (request(), None),
        (request(observability_mode=True), None),
    ],
)
def test_other_events(message: pb.ProcessingRequest, event: ev.Event | None) -> None:
    """Each part of a request is its event; a message without one asks nothing."""
    assert decoded(message) == event


def test_response_headers() -> None:
    """So do the answer's headers."""
    message = pb.ProcessingRequest()
    add(message.response_headers, (":status", "", b"200"))
    assert decoded(message) == ev.ResponseHeaders({":status": "200"}, False)


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x05ab", b"not a message", b"\x12\x07\n\x05\n\x03\n\x01\xff"])
def test_garbage(data: bytes) -> None:
    """Bytes that are no message are a ValueError that repeats none of them."""
    with pytest.raises(ValueError, match=r"^not a ProcessingRequest$"):
        wire.decode(data)


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_any_bytes(data: bytes) -> None:
    """Any bytes are an event, nothing, or a ValueError."""
    try:
        wire.decode(data)
    except ValueError as e:
        assert str(e) == "not a ProcessingRequest"


def mutation(message: pb.HeaderMutation) -> list[tuple[str, bytes, str]]:
    """Headers that are set: name, raw value, action."""
    for option in message.set_headers:
        assert not option.header.value
    return [(o.header.key, o.header.raw_value, o.HeaderAppendAction.Name(o.append_action)) for o in message.set_headers]


OVERWRITE = "OVERWRITE_IF_EXISTS_OR_ADD"


def test_pass_headers() -> None:
    """The request goes on with headers set, over what a client sent, and finds its route anew."""
    message = encoded(ev.PassHeaders({"x-seawall-pool": "big"}))
    common = message.request_headers.response
    assert message.WhichOneof("response") == "request_headers"
    assert mutation(common.header_mutation) == [("x-seawall-pool", b"big", OVERWRITE)]
    assert common.clear_route_cache
    assert not message.HasField("mode_override")


def test_ask_for_body() -> None:
    """The stream stays for the whole body and for the answer."""
    message = encoded(ev.AskForBody())
    assert message.WhichOneof("response") == "request_headers"
    assert message.mode_override == pb.ProcessingMode(
        request_header_mode="SEND",
        request_body_mode="BUFFERED",
        response_header_mode="SEND",
        response_trailer_mode="SEND",
    )


def test_pass_body() -> None:
    """A body goes on as it is or changed, with its headers."""
    message = encoded(ev.PassBody(b"new", {"content-length": "3", "x-t": "ü"}, ("accept-encoding",)))
    common = message.request_body.response
    assert common.body_mutation.body == b"new"
    assert mutation(common.header_mutation) == [
        ("content-length", b"3", OVERWRITE),
        ("x-t", "ü".encode(), OVERWRITE),
    ]
    assert list(common.header_mutation.remove_headers) == ["accept-encoding"]
    assert common.clear_route_cache
    common = encoded(ev.PassBody()).request_body.response
    assert not common.HasField("body_mutation")
    assert encoded(ev.PassBody(b"")).request_body.response.body_mutation.WhichOneof("mutation") == "body"


@pytest.mark.parametrize("stream_body", [True, False])
def test_pass_response_headers(stream_body: bool) -> None:
    """The answer's body is asked for piece by piece, or not at all."""
    message = encoded(ev.PassResponseHeaders(stream_body))
    assert message.WhichOneof("response") == "response_headers"
    assert message.HasField("mode_override") == stream_body
    if stream_body:
        assert message.mode_override == pb.ProcessingMode(
            response_header_mode="SEND", response_body_mode="FULL_DUPLEX_STREAMED", response_trailer_mode="SEND"
        )


@pytest.mark.parametrize(("body", "end"), [(b"x\xff", False), (b"", True)])
def test_pass_piece(body: bytes, end: bool) -> None:
    """A piece of the answer goes on as a streamed response."""
    message = encoded(ev.PassPiece(body, end))
    assert message.WhichOneof("response") == "response_body"
    assert message.response_body.response.body_mutation.streamed_response == pb.StreamedBodyResponse(
        body=body, end_of_stream=end
    )


def test_pass_trailers() -> None:
    """Trailers are answered as what they are."""
    assert encoded(ev.PassTrailers(True)).WhichOneof("response") == "response_trailers"
    assert encoded(ev.PassTrailers(False)).WhichOneof("response") == "request_trailers"


def test_refuse() -> None:
    """A refusal is Envoy's answer: status, headers over Envoy's own, body and details."""
    error = answer(Refusal(Reason.OVERLOADED, "Full \ud83d.", retry_after=0.5), Family.OPENAI)
    immediate = encoded(ev.Refuse(error, "seawall.overloaded")).immediate_response
    assert (immediate.status.code, immediate.body, immediate.details) == (503, error.body, "seawall.overloaded")
    assert mutation(immediate.headers) == [(name, value.encode(), OVERWRITE) for name, value in error.headers]
