"""A call as proto-JSON, both spellings of its fields; beside `wire` the only file here that names Envoy's messages."""

import json

from google.protobuf import json_format

from seawall.proto.gen import ratelimit_pb2


def request(text: str) -> bytes:
    """Read a RateLimitRequest; raises ValueError for text that is none, unknown fields included."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        message = json_format.ParseDict(data, ratelimit_pb2.RateLimitRequest())
        return message.SerializeToString()
    except (json_format.ParseError, RecursionError, TypeError) as e:
        raise ValueError(str(e)[:200]) from None


def response(data: bytes) -> str:
    """Write a RateLimitResponse."""
    return json_format.MessageToJson(ratelimit_pb2.RateLimitResponse.FromString(data), indent=None)


def simple_request(domain: str, descriptors: list[list[tuple[str, str]]]) -> bytes:
    """A call of entries alone."""
    message = ratelimit_pb2.RateLimitRequest(domain=domain)
    for entries in descriptors:
        added = message.descriptors.add()
        for key, value in entries:
            added.entries.add(key=key, value=value)
    return message.SerializeToString()
