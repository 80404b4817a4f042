"""The state machine of one request: transcripts in tests/cases/ext_proc/exchanges.yaml, and what holds for any order."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_proc import events as ev
from ext_proc.stream import Exchange
from seawall.decision import Reason
from seawall.llm import whole_answer
from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Profile
from tests.unit.ext_proc.transcript import METADATA, STARTED, replay, tell

CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "ext_proc" / "exchanges.yaml").read_text())
POLICIES = {name: compile_policy(text) for name, text in CASES["policies"].items()}


@pytest.mark.parametrize("case", CASES["exchanges"], ids=lambda case: case["name"])
def test_transcript(case: dict[str, Any]) -> None:
    """An exchange goes as its transcript says."""
    policy = POLICIES[case.get("policy", "models")]
    lines = [line.rstrip() for line in replay(policy, case["lines"], case.get("metadata", METADATA))]
    assert lines == case["lines"].rstrip().splitlines()


def test_no_engines() -> None:
    """A policy that names no engine for a request has none to send it to, and says when to come back."""
    policy = replace(POLICIES["open"], default_pool=None)
    lines = '> POST /v1/completions\n> body {"prompt": "x"}\n> close'
    assert list(replay(policy, lines, METADATA))[3:] == [
        "< refuse 503 seawall.gate_unavailable retry-after=5: No engines are configured here.",
        "> close",
        "< record gate_unavailable acme vip",
    ]


def test_a_route_has_its_own_class_cap_and_paths() -> None:
    """What the route says counts in place of metadata and policy; a path that it denies is refused and recorded."""
    policy = POLICIES["open"]
    exchange = Exchange(policy, STARTED, Profile("batch", 40))
    [refused] = tell(exchange, "POST /v1/completions", METADATA)
    assert isinstance(refused, ev.Refuse)
    assert refused.answer.status == 413
    assert b"50 bytes; allowed for class 'batch' are 40" in refused.answer.body
    exchange = Exchange(policy, STARTED, Profile(body_max=60_000))
    assert tell(exchange, "POST /v1/completions content-length=60000", METADATA) == [ev.AskForBody()]
    exchange = Exchange(policy, STARTED, Profile(class_="batch", unknown_paths="deny"))
    [refused] = tell(exchange, "GET /unknown end", METADATA)
    assert isinstance(refused, ev.Refuse)
    assert refused.details == "seawall.unknown_path"
    [finished] = tell(exchange, "close", METADATA)
    assert isinstance(finished, ev.Finished)
    assert (finished.record.reason, finished.record.class_) == (Reason.UNKNOWN_PATH, "batch")


def test_body_and_error_are_of_the_paths_protocol() -> None:
    """A refusal speaks the protocol of its path, with the id of the request where there is a place for it."""
    exchange = Exchange(POLICIES["open"], 0.0)
    [refused] = tell(exchange, "POST /v1/messages end", METADATA)
    assert isinstance(refused, ev.Refuse)
    assert b'"type": "error"' in refused.answer.body
    assert b'"request_id": "r1"' in refused.answer.body


def test_a_large_answer_passes_without_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JSON answer over the bound is not kept; it passes whole, its usage unknown."""
    monkeypatch.setattr(whole_answer, "MAX_WHOLE", 40)
    usage = '{"usage": {"prompt_tokens": 3}}'
    for padding, told in (("", " input=3 estimated"), (" " * 10, " input=1 estimated unread")):
        lines = '> POST /v1/completions\n> body {"prompt": "x"}\n> slot granted\n> answer 200 application/json\n'
        lines += f"> piece {padding}\n> last {usage}\n> close"
        went = list(replay(POLICIES["open"], lines, METADATA))
        assert any(line.startswith(f"< last {usage}") for line in went)
        assert went[-1] == f"< record ok acme vip pool=default{told}"


STREAM = (
    ': hi\n\ndata: {"choices": [{"delta": {"content": "ü😀"}}], "usage": {"prompt_tokens": 7}}\r\n\r\n'
    'data: {"choices": [],\ndata: "usage": {"prompt_tokens": 7, "completion_tokens": 2}}\n\ndata: [DONE]\n\n'
).encode()
ANSWERS = {
    "text/event-stream": STREAM,
    "application/json": b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}',
    "text/plain": b"\xff\x00 usage",
}


def answered(kind: str, pieces: list[bytes], end: str) -> tuple[bytes, list[ev.Command]]:
    """Bytes that are sent on of an answer in pieces, and what is done when the exchange ends."""
    exchange = Exchange(POLICIES["open"], 0.0)
    for line in ("POST /v1/chat/completions", 'body {"messages": [{}]}', "slot granted", f"answer 200 {kind}"):
        tell(exchange, line, METADATA)
    sent = b""
    for i, body in enumerate(pieces):
        is_last = end == "last" and i == len(pieces) - 1
        for piece in exchange.response_body(ev.ResponseBody(body, is_last)):
            assert isinstance(piece, ev.PassPiece)
            assert piece.end_of_stream == is_last
            sent += piece.body
    if end == "trailers":
        exchange.trailers(True)
    return sent, exchange.closed(1.0)


@given(
    st.sampled_from(sorted(ANSWERS)),
    st.lists(st.floats(0, 1), max_size=6),
    st.floats(0, 1) | st.just(1.0),
    st.sampled_from(["last", "trailers", "cut"]),
)
@settings(max_examples=150)
def test_cutting_makes_no_difference(kind: str, cuts: list[float], until: float, end: str) -> None:
    """However an answer is cut, the same bytes leave and the same is recorded, also where it broke off."""
    answer = ANSWERS[kind][: int(until * len(ANSWERS[kind]))]
    borders = [0, *sorted(int(cut * len(answer)) for cut in cuts), len(answer)]
    pieces = [answer[a:b] for a, b in pairwise(borders)]
    sent, commands = answered(kind, pieces, end)
    assert sent == answer
    assert (sent, commands) == answered(kind, [answer], end)


LINES = (
    "POST /v1/chat/completions",
    "POST /v1/messages end",
    "GET /v1/models end",
    'body {"messages": [{}]}',
    "body {",
    "body",
    'part {"messages": [{}]}',
    "POST /v1/completions chunked",
    "slot granted",
    "slot refused",
    "answer 200 text/event-stream",
    "answer 200 application/json",
    "answer 200 application/json end",
    "answer 503 text/plain",
    'piece data: {"usage": {"prompt_tokens": 1}}\\n\\n',
    "last data: [DONE]",
    "trailers",
    "request trailers",
    "alarm",
    "close",
)


@given(st.lists(st.sampled_from(LINES), max_size=12), st.sampled_from(sorted(POLICIES)))
@settings(max_examples=400)
def test_any_order(lines: list[str], policy: str) -> None:
    """In whatever order things come, nothing raises, each request is recorded once and every slot is given back."""
    exchange = Exchange(POLICIES[policy], 0.0)
    commands = [command for line in [*lines, "close", "close"] for command in tell(exchange, line, METADATA)]
    count = {kind: sum(isinstance(c, kind) for c in commands) for kind in (ev.Acquire, ev.Release, ev.Finished)}
    assert count[ev.Finished] <= 1
    assert count[ev.Acquire] == count[ev.Release] <= 1
    if count[ev.Acquire]:
        kinds = [type(c) for c in commands]
        assert kinds.index(ev.Acquire) < kinds.index(ev.Release) < kinds.index(ev.Finished)


@given(st.lists(st.sampled_from(LINES), max_size=12))
@settings(max_examples=200)
def test_nothing_passes_without_a_slot(lines: list[str]) -> None:
    """A request that needs a slot reaches an engine only after it was granted."""
    exchange = Exchange(POLICIES["open"], 0.0)
    tell(exchange, "POST /v1/chat/completions", METADATA)
    tell(exchange, 'body {"messages": [{}]}', METADATA)
    for line in lines:
        if line == "slot granted":
            break
        assert not any(isinstance(c, ev.PassBody) for c in tell(exchange, line, METADATA))
