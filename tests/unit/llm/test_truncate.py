"""Caps: where they cut, and that they never cut what they allow."""

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.llm.answer import Plan
from seawall.llm.counting import Measure, Spoken
from seawall.llm.protocols import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Endpoint
from seawall.llm.protocols.contract import Delta, End, Origin, Tokens
from seawall.llm.spans import Path
from seawall.llm.stream_answer import StreamAnswer
from seawall.llm.truncate import Cap, Caps, Meter, cut_answer, fitting
from seawall.llm.whole_answer import WholeAnswer
from tests.unit.llm.streams import STREAMS, endpoint_of_stream, plan, through

ORIGIN = Origin("r1", "mine", 7)


def delta(text: str, path: Path = ("t",)) -> Delta:
    """A delta at some place."""
    return Delta("0", path, text)


def meter(**caps: Any) -> Meter:
    """A meter of one choice."""
    return Meter(Caps(**caps), 1, Spoken())


def test_tokens_that_the_engine_tells() -> None:
    """Events pass up to the cap; of one that goes over it the share of its text that is within."""
    cap = meter(tokens=10)
    assert cap.take([delta("a")], 9) is None
    assert cap.take([], 10) is None
    assert cap.take([delta("abcdefgh")], 14) == {("t",): 0}
    cap = meter(tokens=10)
    assert cap.take([delta("a")], 8) is None
    assert cap.take([delta("abcdefgh")], 16) == {("t",): 2}
    assert (cap.which, cap.counted(99)) == (Cap.TOKENS, 10)


def test_tokens_that_nobody_tells() -> None:
    """A piece is a token at least, and 16 bytes are: less than that is never cut."""
    cap = meter(tokens=3)
    assert [cap.take([delta("x" * 10)], None) for _ in range(3)] == [None] * 3
    assert cap.take([delta("y")], None) == {("t",): 0}
    cap = meter(tokens=3)
    assert cap.take([delta("x" * 40)], None) is None
    assert cap.take([delta("y" * 20)], None) == {("t",): 8}
    assert cap.counted(15) == 3


def test_bytes_are_of_utf8_and_end_at_a_character() -> None:
    """No character is cut in two."""
    cap = meter(size=10)
    assert cap.take([delta("äöü")], None) is None
    assert cap.take([delta("x😀")], None) == {("t",): 1}
    assert cap.which is Cap.BYTES
    assert [fitting("aä😀", 3, size) for size in (-1, 0, 1, 2, 3, 6, 7)] == [0, 0, 1, 1, 2, 2, 3]


def test_what_several_texts_of_an_event_share() -> None:
    """The texts of an event get what is left one after the other."""
    cap = meter(size=5)
    assert cap.take([delta("abc", ("a",)), delta("def", ("b",)), delta("ghi", ("c",))], None) == {
        ("a",): 3,
        ("b",): 2,
        ("c",): 0,
    }


@given(st.lists(st.text(min_size=1, max_size=12), max_size=12), st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=150)
def test_a_cap_keeps_what_it_allows(texts: list[str], tokens: int, size: int) -> None:
    """No more goes than the cap on bytes, and nothing is cut before one of the caps is reached for certain."""
    cap = meter(tokens=tokens, size=size)
    kept = 0
    for i, text in enumerate(texts):
        room = cap.take([delta(text)], None)
        count = len(text) if room is None else room["t",]
        kept += len(text[:count].encode("utf-8", "surrogatepass"))
        if room is not None:
            whole = kept + len(text[count:].encode("utf-8", "surrogatepass"))
            assert whole > size or i + 1 > tokens or whole > tokens * 16
            break
    assert kept <= size


def client_of(endpoint: Endpoint, content: bytes, stream: bool) -> tuple[Any, httpx2.Client]:
    """The official client of an API, which gets these bytes to whatever it asks."""
    kind = "text/event-stream" if stream else "application/json"

    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(handle))
    if endpoint is MESSAGES:
        return anthropic.Anthropic(api_key="k", base_url="http://gate", max_retries=0, http_client=http), http
    return openai.OpenAI(api_key="k", base_url="http://gate/v1", max_retries=0, http_client=http), http


def seen(endpoint: Endpoint, content: bytes) -> tuple[str, str | None]:
    """Text and end of a stream as the official client gives them to a developer."""
    client, http = client_of(endpoint, content, stream=True)
    ask: dict[str, Any] = {"model": "m", "stream": True}
    say: Any = [{"role": "user", "content": "x"}]
    text, end = "", None
    with http:
        if endpoint is MESSAGES:
            del ask["stream"]
            with client.messages.stream(**ask, messages=say, max_tokens=9) as stream:
                message = stream.get_final_message()
            return "".join(b.text for b in message.content if b.type == "text"), message.stop_reason
        if endpoint is RESPONSES:
            for event in client.responses.create(**ask, input="x"):
                if event.type == "response.output_text.delta":
                    text += event.delta
                end = event.type
            return text, end
        if endpoint is CHAT:
            for chunk in client.chat.completions.create(**ask, messages=say):
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    end = choice.finish_reason or end
            return text, end
        for chunk in client.completions.create(**ask, prompt="x"):
            for choice in chunk.choices:
                text += choice.text
                end = choice.finish_reason or end
        return text, end


ENDS = {
    "chat": {End.LENGTH: "length", End.CONTENT: "content_filter"},
    "completions": {End.LENGTH: "length", End.CONTENT: "content_filter"},
    "messages": {End.LENGTH: "max_tokens", End.CONTENT: "refusal"},
    "responses": {End.LENGTH: "response.incomplete", End.CONTENT: "response.incomplete"},
}
WHOLE = [name for name in STREAMS if name not in {"vllm_dies", "anthropic_error", "odd_framing", "openai_refusal_cr"}]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("why", End)
def test_a_stream_can_be_ended_after_every_event(name: str, why: End) -> None:
    """The official client sees a regular end, wherever in a stream it comes: also before the first event."""
    endpoint = endpoint_of_stream(name)
    events = [event + b"\n\n" for event in STREAMS[name].replace(b"\r\n", b"\n").split(b"\n\n") if b"data:" in event]
    assert endpoint.stream is not None
    stream = endpoint.stream(ORIGIN, 1)
    sent = b""
    for event in [b"", *events]:
        data = event.partition(b"data: ")[2].strip()
        if data.startswith(b"{"):
            stream.take(json.loads(data))
        sent += event
        if data == b"[DONE]" or b"message_stop" in data or b"response.completed" in data:
            break
        _, end = seen(endpoint, sent + stream.end(why, Tokens(3, 4)))
        told = [w for w in ("stop", "length", "tool_calls", "tool_use") if f'"{w}"'.encode() in sent]
        assert end == ENDS[endpoint.name][why] or (told and end in told), data


def test_an_incomplete_response_says_all_that_was_said() -> None:
    """Text and arguments as far as they came, each item incomplete, the numbers going on."""
    events = STREAMS["responses_text_and_tool"].split(b"\n\n")
    for count, text, arguments in ((6, "Grüße 😀", None), (5, "Grü", None), (11, "Grüße 😀", '{"city":')):
        stream = RESPONSES.stream(ORIGIN, 1)  # type: ignore[misc]
        for event in events[:count]:
            stream.take(json.loads(event.partition(b"data: ")[2]))
        ends = [json.loads(e.partition(b"data: ")[2]) for e in stream.end(End.LENGTH, Tokens(1, 2)).split(b"\n\n")[:-1]]
        assert [e["sequence_number"] for e in ends] == list(range(count, count + len(ends)))
        last = ends[-1]["response"]
        assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert last["usage"]["output_tokens"] == 2
        assert last["output"][0]["content"][0]["text"] == text
        if arguments is None:
            assert [e["type"].removeprefix("response.") for e in ends] == [
                "output_text.done",
                "content_part.done",
                "output_item.done",
                "incomplete",
            ]
            assert last["output"][0]["status"] == "incomplete"
        else:
            assert last["output"][0]["status"] == "completed"
            assert (last["output"][1]["arguments"], last["output"][1]["status"]) == (arguments, "incomplete")


def test_only_open_choices_are_ended() -> None:
    """A choice that has ended gets no second end, one that has not begun gets one."""
    stream = CHAT.stream(ORIGIN, 3)  # type: ignore[misc]
    stream.take({"id": "x", "choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}, {"index": 0, "delta": {}}]})
    events = stream.end(End.LENGTH, None).split(b"\n\n")
    assert [json.loads(e[6:])["choices"][0]["index"] for e in events[:-2]] == [0, 2]
    assert events[-2:] == [b"data: [DONE]", b""]


def test_a_cut_event_loses_its_own_end() -> None:
    """Of everything in one event the text is shortened, the reason is ours, its logprobs are away."""
    event = {
        "id": "c",
        "choices": [
            {"index": 0, "delta": {"content": "one two three"}, "logprobs": {"content": [1]}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 6},
    }
    answer = StreamAnswer(Plan(CHAT, ORIGIN, caps=Caps(tokens=3)))
    sent = through(answer, [b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"])
    first, end, usage, done = sent.split(b"\n\n")[:4]
    assert json.loads(first[6:]) == {
        "id": "c",
        "choices": [{"index": 0, "delta": {"content": "one tw"}, "logprobs": None, "finish_reason": None}],
        "usage": None,
    }
    assert json.loads(end[6:])["choices"][0]["finish_reason"] == "length"
    assert json.loads(usage[6:])["usage"] == {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    assert done == b"data: [DONE]"


def test_arguments_of_a_tool_end_by_length() -> None:
    """A tool call that is cut is never told as `tool_calls`."""
    answer = StreamAnswer(plan("vllm_chat_reasoning_tools", caps=Caps(size=20)))
    sent = through(answer, [STREAMS["vllm_chat_reasoning_tools"]])
    assert b'"finish_reason":"length"' in sent
    assert b'"finish_reason":"tool_calls"' not in sent


def test_several_choices_may_have_as_much_each() -> None:
    """With n choices the cap holds for all of them together, n times as large."""
    stream = STREAMS["vllm_completions_two_choices"]
    for tokens, cut in ((3, False), (2, True)):
        answer = StreamAnswer(plan("vllm_completions_two_choices", caps=Caps(tokens=tokens)))
        assert (through(answer, [stream]) != stream) == cut
        assert answer.truncated == (Cap.TOKENS if cut else None)


CHAT_ANSWER = (
    '{ "id": "c", "model": "org/chat", "choices": [{"index": 0,'
    ' "message": {"role": "assistant", "content": "äbc\\u0064\\n😀fghi"},'
    ' "logprobs": {"content": []}, "finish_reason": "stop"}],'
    ' "usage": {"prompt_tokens": 9, "completion_tokens": 10}, "seed": 1.10}'
)
ANSWERS: dict[str, tuple[Endpoint, str, dict[Path, Any]]] = {
    "chat": (
        CHAT,
        CHAT_ANSWER,
        {("choices", 0, "message", "content"): "äbcd", ("choices", 0, "finish_reason"): "length"},
    ),
    "completions": (
        COMPLETIONS,
        '{"choices":[{"index":0,"text":"0123456789","finish_reason":"stop","logprobs":null}],"usage":{"completion_tokens":10}}',
        {("choices", 0, "text"): "0123", ("choices", 0, "finish_reason"): "length"},
    ),
    "messages": (
        MESSAGES,
        (
            '{"type":"message","content":[{"type":"thinking","thinking":"01"},{"type":"text","text":"23456789"},'
            '{"type":"tool_use","input":{"a":1}}],"stop_reason":"tool_use","usage":{"output_tokens":10}}'
        ),
        {("content", 1, "text"): "23", ("stop_reason",): "max_tokens"},
    ),
    "responses": (
        RESPONSES,
        (
            '{"object":"response","status":"completed","incomplete_details":null,'
            '"output":[{"type":"message","status":"completed","content":[{"type":"output_text","text":"0123456789"}]}],'
            '"usage":{"input_tokens":1,"output_tokens":10}}'
        ),
        {
            ("output", 0, "content", 0, "text"): "0123",
            ("output", 0, "status"): "incomplete",
            ("status",): "incomplete",
            ("incomplete_details",): {"reason": "max_output_tokens"},
        },
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_json_answer_over_its_cap(name: str) -> None:
    """The text is cut to the share that the cap allows, the reason says so, usage stays the engine's."""
    endpoint, body, changes = ANSWERS[name]
    answer = WholeAnswer(Plan(endpoint, ORIGIN, caps=Caps(tokens=4)))
    assert answer.piece(body[:20].encode()) == b""
    assert answer.piece(body[20:].encode()) == b""
    cut = json.loads(answer.finish())
    expected = json.loads(body)
    for path, value in changes.items():
        inner = expected
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
    if name == "chat":
        expected["choices"][0]["logprobs"] = None
    assert cut == expected
    assert answer.truncated is Cap.TOKENS
    assert answer.usage.output_tokens == 10


def test_what_is_within_its_caps_stays() -> None:
    """Also where more bytes than tokens are left, and where the engine tells nothing."""
    for body in (CHAT_ANSWER, CHAT_ANSWER.replace('"completion_tokens": 10', '"x": 1')):
        answer = WholeAnswer(Plan(CHAT, ORIGIN, caps=Caps(tokens=10, size=30)))
        assert (answer.piece(body.encode()), answer.finish()) == (b"", body.encode())
        assert answer.truncated is None
    answer = WholeAnswer(Plan(CHAT, ORIGIN, caps=Caps(size=5)))
    answer.piece(CHAT_ANSWER.encode())
    assert json.loads(answer.finish())["choices"][0]["message"]["content"] == "äbcd"
    assert answer.truncated is Cap.BYTES


def test_a_json_answer_gets_the_clients_name_of_the_model() -> None:
    """And nothing else of it changes."""
    answer = WholeAnswer(Plan(CHAT, ORIGIN, renamed="org/chat"))
    assert answer.piece(CHAT_ANSWER.encode()) == b""
    assert answer.finish() == CHAT_ANSWER.replace('"model": "org/chat"', '"model": "mine"').encode()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"choices": [', b'{"choices": 5, "usage": []}'])
def test_what_cannot_be_read_goes_on_as_it_came(body: bytes) -> None:
    """A JSON answer that is none, or was cut, is the engine's business."""
    answer = WholeAnswer(Plan(CHAT, ORIGIN, renamed="x", caps=Caps(1, 1)))
    assert answer.piece(body) + answer.finish() == body
    assert answer.finish() == b""


def test_content_can_be_stopped_in_a_json_answer() -> None:
    """With no room at all every text goes, and the reason is the filter's."""
    endpoint, body, _ = ANSWERS["responses"]
    cut = cut_answer(endpoint, body.encode(), json.loads(body), meter(size=0), None, End.CONTENT)
    assert cut is not None
    found = json.loads(cut)
    assert found["output"][0]["content"][0]["text"] == ""
    assert found["incomplete_details"] == {"reason": "content_filter"}


def test_the_measure_of_a_count() -> None:
    """`likely` is by bytes and by pieces, whichever is more."""
    spoken = Spoken(Measure(4, 16))
    for text in ("three tokens here ", "你好", "é"):
        spoken.add(text)
    assert (spoken.pieces, spoken.size, spoken.likely, spoken.most(3)) == (3, 26, 7, 48)


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS, MESSAGES, RESPONSES], ids=lambda e: e.name)
@pytest.mark.parametrize("tokens", [None, Tokens(3, 4)])
def test_a_static_answer(endpoint: Endpoint, tokens: Tokens | None) -> None:
    """Streamed and not, the official client gets the text and a regular end."""
    text = 'Busy — "try" later.\n😀'
    assert endpoint.static is not None
    got, end = seen(endpoint, endpoint.static(ORIGIN, text, True, tokens))
    assert got == text
    assert end in {"stop", "end_turn", "response.completed"}
    whole = json.loads(endpoint.static(ORIGIN, text, False, tokens))
    assert whole["model"] == "mine"
    assert endpoint.spoken is not None
    assert [found for _, found in endpoint.spoken(whole)] == [text]
