"""Tokens that an engine says it used."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.llm.answer import Plan
from seawall.llm.protocols import CHAT
from seawall.llm.protocols.contract import Origin
from seawall.llm.stream_answer import StreamAnswer
from seawall.llm.usage import MAX_TOKENS, UsageReader

PLAN = Plan(CHAT, Origin("id", "m"))


def sse(*events: str | dict[str, Any]) -> bytes:
    """Stream of events without names; dictionaries as JSON."""
    return b"".join(b"data: " + (e if isinstance(e, str) else json.dumps(e)).encode() + b"\n\n" for e in events)


def named(*events: dict[str, Any]) -> bytes:
    """Stream of events with their type as name."""
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def delta(text: str, usage: Any = None) -> dict[str, Any]:
    """Chunk of a chat stream."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}], "usage": usage}


def counted(prompt: Any, completion: Any) -> dict[str, Any]:
    """Usage as OpenAI's chat writes it, with parts that are inside the totals."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": 99,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


START = {"type": "message_start", "message": {"role": "assistant", "content": []}}
TEXT = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": '"usage"'}}


def start(**usage: Any) -> dict[str, Any]:
    """First event of an Anthropic stream."""
    return {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": usage}}


def told(**usage: Any) -> dict[str, Any]:
    """Event before the last of an Anthropic stream."""
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


STOP = {"type": "message_stop"}


def response(kind: str, **more: Any) -> dict[str, Any]:
    """Event of a Responses stream that repeats the response."""
    return {"type": f"response.{kind}", "sequence_number": 0, "response": {"object": "response", "error": None, **more}}


# stream, input tokens, output tokens, done, error
STREAMS: dict[str, tuple[bytes, int | None, int | None, bool, bool]] = {
    "nothing": (b"", None, None, False, False),
    "no usage": (sse(delta("a"), delta("b"), "[DONE]"), None, None, True, False),
    "usage in the last event": (
        sse(delta("a"), delta("b"), {"choices": [], "usage": counted(9, 2)}, "[DONE]"),
        9,
        2,
        True,
        False,
    ),
    "usage with the finish": (sse(delta("a", counted(9, 1)), "[DONE]"), 9, 1, True, False),
    "continuous usage": (
        sse(delta("a", counted(9, 1)), delta("b", counted(9, 2)), delta("c", counted(9, 3)), "[DONE]"),
        9,
        3,
        True,
        False,
    ),
    "continuous usage, cut": (sse(delta("a", counted(9, 1)), delta("b", counted(9, 2))), 9, 2, False, False),
    "prompt first": (sse(delta("", counted(9, 0)), delta("b")), 9, 0, False, False),
    "zeros": (sse({"choices": [], "usage": counted(0, 0)}, "[DONE]"), 0, 0, True, False),
    "null usage after usage": (sse(delta("a", counted(9, 1)), delta("b", None)), 9, 1, False, False),
    "completions": (
        sse({"object": "text_completion", "choices": [], "usage": counted(4, 5)}, "[DONE]"),
        4,
        5,
        True,
        False,
    ),
    "one event of two lines": (
        b'data: {"choices": [],\ndata: "usage": {"prompt_tokens": 1}}\n\n',
        1,
        None,
        False,
        False,
    ),
    "CRLF, no space, comments": (
        b': ping\r\n\r\ndata:{"usage":{"prompt_tokens":3}}\r\n\r\ndata:[DONE]',
        3,
        None,
        True,
        False,
    ),
    "no final line end": (b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}', 3, 4, False, False),
    "cut in the event": (b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 44', None, None, False, False),
    "error": (sse(delta("a"), {"error": {"message": "x", "code": 500}}, "[DONE]"), None, None, True, True),
    "error after usage": (sse(delta("a", counted(9, 1)), {"error": {"message": "x"}}), 9, 1, False, True),
    "null error": (sse({"error": None, "usage": counted(1, 2)}), 1, 2, False, False),
    "usage in the text": (sse(delta('"usage": {"prompt_tokens": 7}')), None, None, False, False),
    "half a surrogate pair": (
        b'data: {"choices": [{"delta": {"content": "\\ud83d"}}], "usage": {"prompt_tokens": 9}}\n\n',
        9,
        None,
        False,
        False,
    ),
    "NaN beside it": (sse({"logprobs": [float("-inf"), float("nan")], "usage": counted(9, 1)}), 9, 1, False, False),
    "no UTF-8 beside it": (
        b'data: {"x": "\xff", "type": "\xff", "usage": {"prompt_tokens": 9}}\n\n',
        9,
        None,
        False,
        False,
    ),
    "not JSON": (
        b'data: "usage"\n\ndata: {"usage"\n\ndata: ["usage"]\n\ndata: "error" nonsense\n\n',
        None,
        None,
        False,
        False,
    ),
    "Anthropic": (
        named(start(input_tokens=10, output_tokens=1), TEXT, told(output_tokens=7), STOP),
        10,
        7,
        True,
        False,
    ),
    "Anthropic, cached": (
        named(
            start(input_tokens=10, cache_creation_input_tokens=20, cache_read_input_tokens=300, output_tokens=1),
            told(output_tokens=3),
            told(output_tokens=7),
            STOP,
        ),
        330,
        7,
        True,
        False,
    ),
    "Anthropic, input again": (
        named(
            start(input_tokens=10, cache_read_input_tokens=300, output_tokens=1),
            told(input_tokens=0, cache_creation_input_tokens=0, cache_read_input_tokens=0, output_tokens=7),
        ),
        310,
        7,
        False,
        False,
    ),
    "Anthropic, one part grows": (
        named(start(input_tokens=10, cache_read_input_tokens=5), told(input_tokens=12, output_tokens=1)),
        17,
        1,
        False,
        False,
    ),
    "Anthropic, output does not shrink": (
        named(start(input_tokens=1, output_tokens=5), told(output_tokens=0)),
        1,
        5,
        False,
        False,
    ),
    "Anthropic, null parts": (
        named(start(input_tokens=10, cache_creation_input_tokens=None, cache_read_input_tokens=None)),
        10,
        None,
        False,
        False,
    ),
    "Anthropic, no usage": (named(START, TEXT, STOP), None, None, True, False),
    "Anthropic, error": (
        named(start(input_tokens=10, output_tokens=1), {"type": "error", "error": {"type": "overloaded_error"}}),
        10,
        None,
        False,
        True,
    ),
    "Responses": (
        named(
            response("created", usage=None),
            {"type": "response.output_text.delta", "delta": "\ud83d"},
            response("completed", output=["\ud83d"], usage={"input_tokens": 8, "output_tokens": 3, "total_tokens": 11}),
        ),
        8,
        3,
        True,
        False,
    ),
    "Responses, cut off": (
        named(response("incomplete", usage={"input_tokens": 8, "output_tokens": 3})),
        8,
        3,
        True,
        False,
    ),
    "Responses, failed": (
        named(response("failed", error={"code": "server_error"}, usage=None)),
        None,
        None,
        True,
        True,
    ),
    "Responses, error": (
        named({"type": "error", "code": "server_error", "message": "no object", "param": None}),
        None,
        None,
        False,
        True,
    ),
}


def state(reader: UsageReader) -> tuple[int | None, int | None, bool, bool]:
    """All that a reader tells."""
    return reader.input_tokens, reader.output_tokens, reader.done, reader.error


def read(stream: bytes, cuts: list[int]) -> tuple[int | None, int | None, bool, bool]:
    """What is known of a stream that comes in pieces."""
    answer = StreamAnswer(PLAN)
    for a, b in pairwise([0, *sorted(cuts), len(stream)]):
        assert answer.piece(stream[a:b]) == stream[a:b]
    assert answer.finish() == b""
    return state(answer.reader)


@pytest.mark.parametrize("name", STREAMS)
def test_stream(name: str) -> None:
    """Usage, end and errors are read from a stream, whole and byte by byte."""
    stream, *expected = STREAMS[name]
    assert read(stream, []) == tuple(expected)
    assert read(stream, list(range(len(stream)))) == tuple(expected)


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.floats(0, 1), max_size=5))
@settings(max_examples=150)
def test_any_cut(name: str, cuts: list[float]) -> None:
    """Cutting a stream makes no difference."""
    stream, *expected = STREAMS[name]
    assert read(stream, [int(c * len(stream)) for c in cuts]) == tuple(expected)


def test_usage_is_known_before_the_end() -> None:
    """Usage and the protocol's end count when they are seen: clients leave at `[DONE]`."""
    answer = StreamAnswer(PLAN)
    answer.piece(sse({"choices": [], "usage": counted(9, 2)}, "[DONE]"))
    assert state(answer.reader) == (9, 2, True, False)


ANSWERS: dict[str, tuple[bytes, int | None, int | None, bool]] = {
    "chat": (json.dumps({"object": "chat.completion", "choices": [], "usage": counted(9, 2)}).encode(), 9, 2, False),
    "embeddings": (b'{"object": "list", "data": [], "usage": {"prompt_tokens": 5, "total_tokens": 5}}', 5, None, False),
    "messages": (
        b'{"type": "message", "usage": {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 4}}',
        3,
        4,
        False,
    ),
    "responses": (
        b'{"object": "response", "error": null, "usage": {"input_tokens": 1, "output_tokens": 4}}',
        1,
        4,
        False,
    ),
    "failed response": (b'{"object": "response", "error": {"code": "x"}, "usage": null}', None, None, True),
    "no usage": (b'{"choices": []}', None, None, False),
    "null usage": (b'{"usage": null}', None, None, False),
    "null numbers": (b'{"usage": {"prompt_tokens": null, "completion_tokens": null}}', None, None, False),
    "usage by its escape": (b'{"us\\u0061ge": {"prompt_tokens": 5}}', 5, None, False),
    "half a surrogate pair": (
        b'{"choices": ["\\ud83d"], "usage": {"prompt_tokens": 5, "completion_tokens": 6}}',
        5,
        6,
        False,
    ),
    "message is a text": (
        b'{"message": "x", "response": [], "type": 5, "usage": {"prompt_tokens": 5}}',
        5,
        None,
        False,
    ),
    "type is a list": (b'{"type": ["error"], "usage": {"prompt_tokens": 5}}', 5, None, False),
    "not JSON": (b"<html>", None, None, False),
    "cut": (b'{"usage": {"prompt_tokens": 5', None, None, False),
    "array": (b'[{"usage": {"prompt_tokens": 5}}]', None, None, False),
    "null": (b"null", None, None, False),
    "empty": (b"", None, None, False),
    "deep": (b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b', "usage": {"prompt_tokens": 5}}', None, None, False),
    "5,000 digits": (b'{"seed": ' + b"9" * 5000 + b', "usage": {"prompt_tokens": 5}}', 5, None, False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_whole_answer(name: str) -> None:
    """Usage and errors are read from a JSON answer."""
    body, *expected = ANSWERS[name]
    reader = UsageReader()
    reader.whole_answer(body)
    assert [reader.input_tokens, reader.output_tokens, reader.error] == expected
    assert not reader.done


@pytest.mark.parametrize(
    "usage",
    ['"9"', "5", "true", "[]", "[9]", "{}", '""', "1.5", "1e999"]
    + [
        f'{{"prompt_tokens": {v}, "input_tokens": {v}}}'
        for v in ("-1", "1.0", '"9"', "true", "[9]", "{}", "1e3", "1e400")
    ]
    + [f'{{"prompt_tokens": {MAX_TOKENS + 1}}}', f'{{"prompt_tokens": {"9" * 4000}}}', f'{{"x": {"9" * 5000}}}'],
)
def test_usage_of_wrong_type(usage: str) -> None:
    """What is no count is not known, and hides neither the error nor what else was told."""
    reader = UsageReader()
    reader.whole_answer(f'{{"usage": {usage}, "response": {{"usage": {{"output_tokens": 4}}}}, "error": "x"}}'.encode())
    if "9" * 5000 in usage or "1e" in usage:
        # msgspec reads no number out of its range, Python's parser none of 5,000 digits.
        assert reader.input_tokens is None
    else:
        assert state(reader) == (None, 4, False, True)


def test_wrong_number_beside_a_right_one() -> None:
    """Each number stands for itself."""
    reader = UsageReader()
    reader.whole_answer(b'{"usage": {"prompt_tokens": -5, "completion_tokens": 7}}')
    assert state(reader) == (None, 7, False, False)
    reader.whole_answer(f'{{"usage": {{"prompt_tokens": {MAX_TOKENS}}}}}'.encode())
    assert reader.input_tokens == MAX_TOKENS


def test_too_large_an_event() -> None:
    """Past an event that is too large nothing is judged, and what was known stays."""
    answer = StreamAnswer(PLAN)
    answer.piece(sse(delta("a", counted(9, 1))) + b"data: " + b"x" * 2**20)
    answer.piece(b"\n\n" + sse(delta("a", counted(9, 2)), "[DONE]"))
    answer.finish()
    assert state(answer.reader) == (9, 1, False, False)
    assert answer.unread


@given(
    st.lists(
        st.binary(max_size=30) | st.sampled_from([b'data: {"usage":', b'"error"', b"}\n\n", b"[DONE]"]), max_size=8
    )
)
@settings(max_examples=150)
def test_never_raises(chunks: list[bytes]) -> None:
    """Whatever an engine sends is read or passed over."""
    answer = StreamAnswer(PLAN)
    for chunk in chunks:
        answer.piece(chunk)
        UsageReader().whole_answer(chunk)
    answer.finish()
