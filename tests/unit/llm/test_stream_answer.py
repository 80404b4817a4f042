"""A streamed answer: 0 bytes differ where nothing is to change, and what changes does so however the stream is cut."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.llm.answer import Plan
from seawall.llm.inflate import Inflater
from seawall.llm.protocols import CHAT
from seawall.llm.protocols.contract import Origin
from seawall.llm.stream_answer import StreamAnswer
from seawall.llm.truncate import Cap, Caps
from seawall.llm.usage import Usage
from tests.unit.llm.streams import LARGE, STREAMS, data_of, plan, through

PLANS: dict[str, dict[str, Any]] = {
    "read": {},
    "within its caps": {"caps": LARGE},
    "renamed to itself": {"renamed": "elsewhere", "caps": LARGE},
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("kind", ["read", "within its caps"])
def test_no_byte_differs(name: str, kind: str) -> None:
    """Cut in two at every offset, and byte by byte, a stream in which nothing is to change is the one that came."""
    stream, what = STREAMS[name], plan(name, **PLANS[kind])
    usages = set()
    for cuts in ([stream], [bytes([b]) for b in stream], *([stream[:i], stream[i:]] for i in range(len(stream)))):
        answer = StreamAnswer(what)
        assert through(answer, cuts) == stream
        usages.add(answer.usage)
    assert len(usages) == 1


CHANGES: dict[str, dict[str, Any]] = {
    "usage hidden": {"asked": False, "hide_event": True, "hide_numbers": True},
    "numbers hidden": {"hide_numbers": True},
    "renamed": {"renamed": "org/chat"},
    "all": {"renamed": "org/chat", "asked": False, "hide_event": True, "hide_numbers": True, "caps": LARGE},
    "cut": {"caps": Caps(size=12)},
    "cut at tokens": {"caps": Caps(tokens=2)},
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_does_not_depend_on_cuts(name: str, change: str) -> None:
    """Whatever is hidden, renamed or cut, the client gets the same however the engine's bytes came."""
    stream, what = STREAMS[name], plan(name, **CHANGES[change])
    whole = StreamAnswer(what)
    expected = through(whole, [stream])
    for cuts in ([bytes([b]) for b in stream], *([stream[:i], stream[i:]] for i in range(0, len(stream), 3))):
        answer = StreamAnswer(what)
        assert through(answer, cuts) == expected
        assert (answer.usage, answer.truncated, answer.ended) == (whole.usage, whole.truncated, whole.ended)


@given(st.sampled_from(sorted(STREAMS)), st.sampled_from(sorted(CHANGES)), st.lists(st.floats(0, 1), max_size=12))
@settings(max_examples=150)
def test_nor_on_many_cuts(name: str, change: str, cuts: list[float]) -> None:
    """The same with many cuts at random."""
    stream, what = STREAMS[name], plan(name, **CHANGES[change])
    borders = [0, *sorted(int(cut * len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(borders)]
    assert through(StreamAnswer(what), pieces) == through(StreamAnswer(what), [stream])


def test_hidden_usage_leaves_what_a_direct_call_gives() -> None:
    """VLLM with usage that we asked for, hidden again, is byte for byte vLLM without it."""
    asked, unasked = STREAMS["vllm_chat_continuous_usage"], STREAMS["vllm_chat_usage_at_the_end"]
    only_the_end = through(StreamAnswer(plan("vllm", hide_numbers=True)), [asked])
    events = unasked.split(b"\n\n")
    direct = b"\n\n".join(event for event in events if b'"choices":[]' not in event)
    assert only_the_end.replace(b',"prompt_tokens_details":{"cached_tokens":8}', b"") == unasked.replace(
        b',"prompt_tokens_details":{"cached_tokens":8}', b""
    )
    assert through(StreamAnswer(plan("vllm", **CHANGES["usage hidden"])), [asked]) == direct


def test_each_of_two_usage_events_is_hidden() -> None:
    """llama.cpp sends one for each choice; none of the rest changes."""
    stream = STREAMS["llamacpp_two_choices"]
    answer = StreamAnswer(plan("llamacpp_two_choices", per_choice=True, **CHANGES["usage hidden"]))
    kept = [event for event in stream.split(b"\n\n") if b'"choices":[]' not in event]
    assert through(answer, [stream]) == b"\n\n".join(kept)
    assert answer.usage == Usage(16, 5, None)


def test_what_an_event_of_its_own_is() -> None:
    """Usage beside the end of the text stays where the client asked for usage: it gets no other."""
    usage = b',"usage":{"prompt_tokens":1,"completion_tokens":2}'
    last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]' + usage + b"}\n\n"
    first = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    assert through(StreamAnswer(plan("vllm", hide_numbers=True)), [first, last]) == first + last
    hidden = through(StreamAnswer(plan("vllm", **CHANGES["usage hidden"])), [first, last])
    assert hidden == first + last.replace(usage, b"")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ('{"usage":{"completion_tokens":1},"choices":[{"index":0}]}', '{"choices":[{"index":0}]}'),
        ('{"choices":[{"index":0}],"usage": {"completion_tokens":1} ,"x":1}', '{"choices":[{"index":0}] ,"x":1}'),
        ('{ "choices" : [ { "index" : 0 } ] , "usage" : { "a" : 1 } }', '{ "choices" : [ { "index" : 0 } ] }'),
        ('{"choices":[{"delta":{"content":"\\"usage\\":{\\"a\\":1}"}}]}', None),
        ('{"choices":[{"delta":{"usage":{"a":1}}}]}', None),
        ('{"choices":[{"delta":{}}],"usage":null}', None),
        ('{"choices":[{"delta":{}}],"usage":{"a":{"b":{}}}}', '{"choices":[{"delta":{}}]}'),
        ('{"choices":[{"delta":{}}],"x":{"y":1,"usage":{"a":1}}}', None),
        ('{"choices": [], "usage": {"a": 1}}', ""),
        ('{"choices":[],"usage":null}', None),
        ('{"usage":{"a":1}}', "{}"),
        ('{"choices":[{"index":0}],"usage":{"a":1},"usage":{"b":1}}', None),
        ('not "usage":{} JSON', None),
        (
            '{"choices":[{"delta":{"content":"\\ud83d"}}],"usage":{"a":1}}',
            '{"choices":[{"delta":{"content":"\\ud83d"}}]}',
        ),
    ],
)
def test_what_is_hidden_in_an_event(event: str, expected: str | None) -> None:
    """Of an event the usage itself goes, and not what only looks like it; an event of nothing else goes whole."""
    sent = through(StreamAnswer(plan("vllm", **CHANGES["usage hidden"])), [f"data: {event}\n\n".encode()])
    assert sent == (b"" if expected == "" else f"data: {event if expected is None else expected}\n\n".encode())


@pytest.mark.parametrize(
    ("name", "count"),
    [("vllm_chat_continuous_usage", 11), ("vllm_completions_two_choices", 7), ("responses_text_and_tool", 3)],
)
def test_the_clients_name_of_the_model(name: str, count: int) -> None:
    """It stands in the place of the engine's in every event, and no other byte changes."""
    stream = STREAMS[name]
    model = b"org/base" if "completions" in name else b"org/chat"
    sent = through(StreamAnswer(plan(name, renamed=model.decode())), [stream])
    # Where a tool of the client's names a model, that stays.
    tool = b'{"type":"image_generation","model":"org/chat"}'
    expected = stream.replace(tool, b"TOOL").replace(b'"model":"%s"' % model, b'"model":"mine"').replace(b"TOOL", tool)
    assert sent == expected
    assert sent.count(b'"model":"mine"') == count


def test_a_name_that_the_engine_spells_differently_is_replaced_too() -> None:
    """llama.cpp says the name of its file whatever it was asked for: the client asked for something else."""
    sent = through(StreamAnswer(plan("llamacpp", renamed="small")), [STREAMS["llamacpp_two_choices"]])
    assert b"small.gguf" not in sent
    assert sent.count(b'"model":"mine"') == 9


USAGES = {
    "vllm_chat_continuous_usage": Usage(11, 9, 8),
    "vllm_chat_usage_at_the_end": Usage(11, 9, 8),
    "vllm_completions_two_choices": Usage(3, 5),
    "sglang_reasoning": Usage(5, 7),
    "openai_refusal_crlf": Usage(9, 4, 0, 2),
    "openai_refusal_cr": Usage(9, 4, 0, 2),
    "odd_framing": Usage(9, 4, 0, 2),
    "anthropic_thinking_tools": Usage(33, 42, 20),
    "responses_text_and_tool": Usage(11, 9, 3, 2),
    "vllm_chat_reasoning_tools": Usage(40, 12, estimated=True),
    "vllm_dies": Usage(40, 3, estimated=True),
    "anthropic_error": Usage(33, 1, 20, estimated=True),
}


@pytest.mark.parametrize("name", USAGES)
@pytest.mark.parametrize("kind", ["read", "within its caps"])
def test_usage(name: str, kind: str) -> None:
    """What the engine tells, else our own count of what went by, and the prompt as it was estimated."""
    answer = StreamAnswer(plan(name, prompt=40, **PLANS[kind]))
    through(answer, [STREAMS[name]])
    assert answer.usage == USAGES[name]


def test_a_client_that_leaves_has_the_last_number_or_our_count() -> None:
    """Usage beside each piece makes the count exact at any time; without it what has gone by is counted."""
    stream = STREAMS["vllm_chat_continuous_usage"]
    answer = StreamAnswer(plan("vllm", **CHANGES["usage hidden"]))
    answer.piece(stream[: stream.index(b"quoted")])
    assert answer.usage == Usage(11, 5)
    answer = StreamAnswer(plan("vllm", prompt=12))
    stream = STREAMS["vllm_chat_usage_at_the_end"]
    answer.piece(stream[: stream.index(b"quoted")])
    assert answer.usage == Usage(12, 7, estimated=True)


def test_an_error_before_any_text_costs_nothing() -> None:
    """Nothing is estimated then."""
    answer = StreamAnswer(plan("vllm", prompt=12))
    through(answer, [b'data: {"error":{"message":"x","code":500}}\n\ndata: [DONE]\n\n'])
    assert (answer.usage, answer.reader.error) == (Usage(), True)


def test_nothing_goes_on_after_the_end() -> None:
    """What the engine sent before it was stopped is swallowed, and a second end is none."""
    stream = STREAMS["vllm_chat_usage_at_the_end"]
    answer = StreamAnswer(plan("vllm", caps=Caps(tokens=1)))
    assert answer.piece(stream).endswith(b"data: [DONE]\n\n")
    assert answer.ended
    assert answer.piece(stream) == answer.finish() == answer.expired() == b""


def test_time_is_over() -> None:
    """An unfinished event is not sent; a stream that is over, or that broke by an error, gets no second end."""
    stream = STREAMS["vllm_chat_usage_at_the_end"]
    answer = StreamAnswer(plan("vllm", caps=Caps(seconds=5)))
    cut = stream.index(b"quoted")
    sent = answer.piece(stream[:cut])
    end = answer.expired()
    assert stream.startswith(sent)
    assert data_of(end)[-1] == b"[DONE]"
    assert json.loads(data_of(end)[0])["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
    assert (answer.truncated, answer.ended) == (Cap.TIME, True)
    for whole in (stream, STREAMS["vllm_dies"].split(b"data: [DONE]")[0]):
        answer = StreamAnswer(plan("vllm", caps=Caps(seconds=5)))
        answer.piece(whole)
        assert answer.expired() == b""
        assert answer.ended
    assert StreamAnswer(plan("vllm")).expired() == b""


def event_of(size: int) -> bytes:
    """Event with so many bytes of data."""
    text = b'{"choices":[{"index":0,"delta":{"content":"' + b"x" * (size - 60)
    return b"data: " + text + b'"},"finish_reason":null}]}\n\n'


def test_a_10_mb_event() -> None:
    """An event that is too large passes unread, with all after it; a cap on bytes ends the stream in front of it."""
    first, large = event_of(100), event_of(10_000_000)
    pieces = [first, *(large[i : i + 65_536] for i in range(0, len(large), 65_536)), b"data: [DONE]\n\n"]
    answer = StreamAnswer(plan("vllm", asked=False, hide_event=True, prompt=3))
    most = 0
    sent = []
    for piece in pieces:
        sent.append(answer.piece(piece))
        most = max(most, len(answer._events.rest))
    sent.append(answer.finish())
    assert b"".join(sent) == b"".join(pieces)
    assert most <= 2**20
    assert answer.unread
    assert answer.usage == Usage(3, 10, estimated=True)
    answer = StreamAnswer(plan("vllm", caps=Caps(size=10**8)))
    cut = through(answer, pieces)
    assert cut.startswith(first)
    assert cut.endswith(b"data: [DONE]\n\n")
    assert (len(cut) < 1000, answer.truncated) == (True, Cap.BYTES)


def test_an_endless_line_is_not_kept() -> None:
    """A line without end is given on once it is too long, and nothing of it stays here."""
    answer = StreamAnswer(plan("vllm", hide_event=True))
    sent = sum(len(answer.piece(b"x" * 65_536)) for _ in range(100))
    assert sent == 6_553_600
    assert not answer._events.rest


def test_a_thousand_choices() -> None:
    """More choices than are followed pass; those that are followed are ended once each."""
    events = b"".join(
        b'data: {"choices":[{"index":%d,"delta":{"content":"a"},"finish_reason":null}]}\n\n' % i for i in range(3000)
    )
    answer = StreamAnswer(plan("vllm", choices=1000, caps=Caps(seconds=1)))
    assert answer.piece(events) == events
    *ends, usage, done = data_of(answer.expired())
    assert [json.loads(data)["choices"][0]["index"] for data in ends] == list(range(1024))
    assert (json.loads(usage)["choices"], done) == ([], b"[DONE]")


@pytest.mark.parametrize("depth", [500, 5000, 200_000])
def test_a_deeply_nested_event(depth: int) -> None:
    """An event that no parser takes passes as it is."""
    deep = b'data: {"a":' + b"[" * depth + b"]" * depth + b',"usage":{"completion_tokens":3}}\n\n'
    answer = StreamAnswer(plan("vllm", renamed="x", hide_event=True, hide_numbers=True, asked=False, caps=LARGE))
    sent = through(answer, [deep])
    assert sent in (deep, deep.replace(b',"usage":{"completion_tokens":3}', b""))


@pytest.mark.parametrize("second", [(9, 2), (9, 5), (0, 0)])
def test_usage_told_twice(second: tuple[int, int]) -> None:
    """The last word of an engine counts, not the sum; both events are hidden."""
    told = [
        b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n' % n for n in ((9, 2), second)
    ]
    answer = StreamAnswer(plan("vllm", **CHANGES["usage hidden"]))
    assert through(answer, told) == b""
    assert answer.usage == Usage(*second)


def test_negative_usage_is_none() -> None:
    """A negative number is no count: our own stands in for it."""
    answer = StreamAnswer(plan("vllm", prompt=5, **CHANGES["usage hidden"]))
    through(
        answer, [b'data: {"choices":[{"index":0,"delta":{"content":"one two"}}],"usage":{"completion_tokens":-4}}\n\n']
    )
    assert answer.usage == Usage(5, 2, estimated=True)


def test_a_coding_that_breaks_ends_the_stream() -> None:
    """Plain text was promised; what could be read goes on, and then nothing."""
    import gzip

    stream = STREAMS["vllm_chat_usage_at_the_end"]
    packed = gzip.compress(stream)
    answer = StreamAnswer(plan("vllm", hide_event=True), Inflater("gzip"))
    assert answer.recoded
    assert stream.startswith(answer.piece(packed[: len(packed) // 2] + b"broken" * 10))
    assert (answer.ended, answer.unread) == (True, True)
    reading = StreamAnswer(plan("vllm"), Inflater("gzip"))
    assert not reading.recoded
    assert through(reading, [packed[:300], packed[300:]]) == packed
    assert reading.usage == Usage(11, 9, 8)


def test_memory_of_an_idle_stream() -> None:
    """What one open stream holds between two events is small, also where it is followed to be ended."""
    import tracemalloc

    stream = STREAMS["vllm_chat_continuous_usage"].split(b"data: [DONE]")[0]
    what = Plan(
        CHAT, Origin("r1", "mine"), renamed="org/chat", asked=False, hide_event=True, hide_numbers=True, caps=LARGE
    )
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = []
    for _ in range(200):
        answer = StreamAnswer(what)
        answer.piece(stream)
        kept.append(answer)
    each = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
    tracemalloc.stop()
    assert each < 8 * 1024, each


@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from([b"data: {", b'"usage":{', b'"model":"x"', b"}\n\n", b"[DONE]", b"\r"]),
        max_size=12,
    )
)
@settings(max_examples=150)
def test_never_raises(chunks: list[bytes]) -> None:
    """Whatever an engine sends, nothing raises, and what can't be understood passes."""
    answer = StreamAnswer(
        plan("vllm", renamed="x", hide_event=True, hide_numbers=True, asked=False, caps=Caps(5, 50, 1))
    )
    for chunk in chunks:
        answer.piece(chunk)
    answer.expired()
    answer.finish()


def test_usage_beside_pieces_of_several_choices() -> None:
    """It is that of the piece's own choice: the sum is what a client that leaves has had."""
    told = [(0, 1), (1, 1), (1, 4), (0, 2)]
    pieces = [
        b'data: {"choices":[{"index":%d,"delta":{"content":"a"},"finish_reason":null}],'
        b'"usage":{"prompt_tokens":9,"completion_tokens":%d}}\n\n' % pair
        for pair in told
    ]
    last = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}\n\n'
    for more in ({}, CHANGES["usage hidden"]):
        answer = StreamAnswer(plan("vllm", choices=2, **more))
        for piece in pieces:
            answer.piece(piece)
        assert answer.usage == Usage(9, 6)
        answer.piece(last)
        assert answer.usage == Usage(9, 7)
