"""ProcessingRequest to events, replies to ProcessingResponse: the only file of this service that names Envoy's messages."""

from collections.abc import Container, Iterable, Mapping

from google.protobuf.message import DecodeError

from ext_proc import events as ev
from seawall.mesh.names import AUTHZ, EXT_PROC, METADATA
from seawall.proto.gen import common_pb2, ext_proc_pb2

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD = "Process"


_Response = ext_proc_pb2.ProcessingResponse
_Mode = ext_proc_pb2.ProcessingMode


def decode(data: bytes) -> ev.Event | None:
    """Read one message; None for one that asks nothing. Raises ValueError for bytes that are no ProcessingRequest."""
    try:
        request = ext_proc_pb2.ProcessingRequest.FromString(data)
    except DecodeError:
        raise ValueError("not a ProcessingRequest") from None
    kind = request.WhichOneof("request")
    if kind == "response_body":
        piece = request.response_body
        return ev.ResponseBody(piece.body, piece.end_of_stream)
    if kind == "request_headers":
        message = request.request_headers
        headers = _headers(message.headers, ev.REQUEST_HEADERS)
        return ev.RequestHeaders(headers, message.end_of_stream, _metadata(request), _source(request))
    if kind == "request_body":
        return ev.RequestBody(request.request_body.body, request.request_body.end_of_stream)
    if kind == "response_headers":
        answer = request.response_headers
        return ev.ResponseHeaders(_headers(answer.headers, ev.RESPONSE_HEADERS), answer.end_of_stream)
    if kind == "response_trailers":
        return ev.Trailers(response=True)
    if kind == "request_trailers":
        return ev.Trailers(response=False)
    return None


def _headers(message: common_pb2.HeaderMap, wanted: Container[str]) -> dict[str, str]:
    headers = {}
    for header in message.headers:
        # Each field that is touched costs more than parsing all of them.
        if (name := header.key) in wanted:
            raw = header.raw_value
            headers[name] = raw.decode("utf-8", "replace") if raw else header.value
    return headers


def _metadata(request: ext_proc_pb2.ProcessingRequest) -> dict[str, str]:
    spaces = request.metadata_context.filter_metadata
    if AUTHZ not in spaces:
        return {}
    return {name: value.string_value for name, value in spaces[AUTHZ].fields.items()}


def _source(request: ext_proc_pb2.ProcessingRequest) -> str:
    if EXT_PROC not in request.attributes:
        return ""
    fields = request.attributes[EXT_PROC].fields
    return fields["source.address"].string_value if "source.address" in fields else ""


def encode(reply: ev.Reply) -> bytes:
    """Write one reply."""
    if isinstance(reply, ev.PassPiece):
        _PIECE.body, _PIECE.end_of_stream, metadata = reply
        if metadata:
            return _PIECE_ANSWER.SerializeToString() + _written(metadata)
        return _PIECE_ANSWER.SerializeToString()
    if isinstance(reply, ev.PassResponseHeaders):
        if reply.set_headers or reply.remove_headers:
            return _answer(reply)
        return _STREAM_ANSWER if reply.stream_body else _PASS_ANSWER
    if isinstance(reply, ev.AskForBody):
        return _ASK_FOR_BODY
    if isinstance(reply, ev.PassTrailers):
        return _PASS_RESPONSE_TRAILERS if reply.response else _PASS_REQUEST_TRAILERS
    response = _Response()
    if isinstance(reply, ev.PassBody):
        common = response.request_body.response
        common.clear_route_cache = True
        if reply.body is not None:
            common.body_mutation.body = reply.body
        _mutate(common.header_mutation, reply.set_headers.items(), reply.remove_headers)
    elif isinstance(reply, ev.PassHeaders):
        common = response.request_headers.response
        common.clear_route_cache = True
        _mutate(common.header_mutation, reply.set_headers.items(), ())
    else:
        immediate = response.immediate_response
        immediate.status.code = reply.answer.status  # type: ignore[assignment]
        immediate.body = reply.answer.body
        immediate.details = reply.details
        _mutate(immediate.headers, reply.answer.headers, ())
    return response.SerializeToString()


def _mutate(mutation: ext_proc_pb2.HeaderMutation, headers: Iterable[tuple[str, str]], remove: Iterable[str]) -> None:
    for name, value in headers:
        option = mutation.set_headers.add()
        # raw_value: a header with only `value` set arrives empty.
        option.header.key, option.header.raw_value = name, value.encode()
        option.append_action = option.OVERWRITE_IF_EXISTS_OR_ADD
    mutation.remove_headers.extend(remove)


def _ask_for_body() -> bytes:
    response = _Response()
    response.request_headers.SetInParent()
    response.mode_override.request_header_mode = _Mode.SEND
    response.mode_override.request_body_mode = _Mode.BUFFERED
    response.mode_override.response_header_mode = _Mode.SEND
    response.mode_override.response_trailer_mode = _Mode.SEND
    return response.SerializeToString()


def _answer(reply: ev.PassResponseHeaders) -> bytes:
    response = _Response()
    response.response_headers.SetInParent()
    if reply.set_headers or reply.remove_headers:
        mutation = response.response_headers.response.header_mutation
        _mutate(mutation, reply.set_headers.items(), reply.remove_headers)
    if reply.stream_body:
        response.mode_override.response_header_mode = _Mode.SEND
        response.mode_override.response_body_mode = _Mode.FULL_DUPLEX_STREAMED
        response.mode_override.response_trailer_mode = _Mode.SEND
    return response.SerializeToString()


def _written(metadata: Mapping[str, str]) -> bytes:
    # Messages written one after the other are one message (protobuf's encoding).
    response = _Response()
    for name, value in metadata.items():
        response.dynamic_metadata.fields[METADATA].struct_value.fields[name].string_value = value
    return response.SerializeToString()


def _trailers(response: bool) -> bytes:
    message = _Response()
    (message.response_trailers if response else message.request_trailers).SetInParent()
    return message.SerializeToString()


_PIECE_ANSWER = _Response()
_PIECE = _PIECE_ANSWER.response_body.response.body_mutation.streamed_response
"""One message for all pieces: what of it is not the piece itself costs more to build than to keep."""
_ASK_FOR_BODY = _ask_for_body()
_STREAM_ANSWER = _answer(ev.PassResponseHeaders(stream_body=True))
_PASS_ANSWER = _answer(ev.PassResponseHeaders(stream_body=False))
_PASS_RESPONSE_TRAILERS, _PASS_REQUEST_TRAILERS = _trailers(True), _trailers(False)
