"""Answers that are cut on their way: what the client sees, and that the engine stops."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.running_gate import DEMO, RunningGate, running, until

pytestmark = pytest.mark.e2e

CAPPED = DEMO.replace("output:\n", "output:\n  max_bytes: 150\n  max_time: 2s\n")
RESETS = "cluster.pool_default.upstream_cx_destroy_local_with_active_rq: "


@pytest.fixture(scope="module")
def capped() -> Iterator[RunningGate]:
    """A gate whose answers have 150 bytes of text and two seconds at most."""
    assert CAPPED != DEMO
    with running(policy=CAPPED) as gate:
        yield gate


def resets(gate: RunningGate) -> int:
    """Requests to engines that Envoy has broken off: over HTTP/1.1 their connection is closed."""
    lines = gate.get_admin("/stats?filter=destroy_local_with_active_rq").splitlines()
    return sum(int(line.removeprefix(RESETS)) for line in lines if line.startswith(RESETS))


def said(gate: RunningGate, **more: object) -> tuple[str, list[str], int]:
    """Text, reasons and chunks with usage that the openai client gets of a stream."""
    chunks = list(
        gate.openai().chat.completions.create(
            model=gate.model,
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            max_tokens=400,
            extra_body={"ignore_eos": True},
            **more,  # type: ignore[call-overload]
        )
    )
    choices = [choice for chunk in chunks for choice in chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
    return text, reasons, sum(chunk.usage is not None for chunk in chunks)


def test_a_stream_over_its_cap_ends_by_length_and_the_engine_stops(capped: RunningGate) -> None:
    """The client sees a regular end, the engine is aborted at once, Envoy has reset the request, the log says why."""
    aborted = sum(capped.engine(i)["aborted"] for i in range(len(capped.told["engines"])))
    before = resets(capped)
    text, reasons, usages = said(capped)
    assert (reasons, usages) == (["length"], 0)
    assert 140 < len(text.encode()) <= 150
    text, reasons, usages = said(capped, stream_options={"include_usage": True})
    assert (reasons, usages) == (["length"], 1)
    until(
        lambda: sum(capped.engine(i)["aborted"] for i in range(len(capped.told["engines"]))) == aborted + 2,
        "the engines stop",
    )
    assert resets(capped) == before + 2
    assert capped.metric("seawall_truncated_total", cap="bytes") == 2
    until(lambda: capped.in_flight() == 0, "the slots are free")
    line = [x for x in capped.log().splitlines() if "truncated=bytes" in x][-1]
    assert "reason=ok" in line


def test_a_silent_stream_ends_when_its_time_is_over(capped: RunningGate) -> None:
    """An engine that hangs in a stream costs no more than the time; the end is a regular one."""
    capped.fault(hang=2)
    try:
        text, reasons, _ = said(capped)
    finally:
        capped.fault()
    assert reasons == ["length"]
    assert text
    assert capped.metric("seawall_truncated_total", cap="time") == 1
    until(lambda: capped.in_flight() == 0, "the slot is free")


def test_a_json_answer_over_its_cap(capped: RunningGate) -> None:
    """It is valid JSON, its text ends within the cap, its reason says so."""
    response = capped.chat(max_tokens=400, ignore_eos=True)
    [choice] = response.json()["choices"]
    assert choice["finish_reason"] == "length"
    assert 0 < len(choice["message"]["content"].encode()) <= 150
    assert response.json()["usage"]["completion_tokens"] == 400


def test_fields_that_were_lowered_are_told(capped: RunningGate) -> None:
    """A client that asked for more than it may have is told so in front."""
    response = capped.chat(max_tokens=100_000, priority=-5)
    assert response.headers["x-seawall-changed"] == "max_tokens, priority"
    assert "x-seawall-changed" not in capped.chat(max_tokens=3).headers


def test_the_figures_are_in_envoys_log(capped: RunningGate) -> None:
    """What ext_proc has counted stands beside what the filters before it have decided."""
    capped.chat(max_tokens=3)
    lines = until(
        lambda: [x for x in capped.log("envoy").splitlines() if '"output_tokens":"3"' in x], "the line of the request"
    )
    told = json.loads(lines[-1])["seawall"]
    assert told["output_tokens"] == "3"
    assert int(told["input_tokens"]) > 0
