"""The gate before a real engine that no one here wrote: llama.cpp's server with random weights."""

import json
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.e2e.running_gate import DEMO, RunningGate, running, until
from tests.engines.fixture import Llama, llama

__all__ = ["llama"]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def gate(llama: Llama) -> Iterator[RunningGate]:
    policy = DEMO + f"\npools:\n  default: {{concurrency: {{max: {llama.slots}}}}}\n"
    with running("--workers", "2", "--upstream", llama.url, policy=policy) as gate:
        yield gate


def test_chat_and_stream(gate: RunningGate) -> None:
    """The openai client chats and streams with usage through the gate; the gate counts what the engine says."""
    client = gate.openai()
    ask = {"model": gate.model, "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 8}
    answer = client.chat.completions.create(**ask)
    assert answer.choices[0].message.content
    assert answer.usage
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    usage = [c.usage for c in chunks if c.usage]
    assert usage
    assert usage[-1].prompt_tokens == answer.usage.prompt_tokens
    counted = answer.usage.completion_tokens + usage[-1].completion_tokens
    # 1 more for the request that `up` sends before it says that it is up
    until(
        lambda: gate.metric("seawall_tokens_total", direction="output") in {counted, counted + 1},
        "the gate counts the engine's tokens",
    )
    assert "engine-0" not in gate.told["pids"]


def test_a_cap_stops_the_engine_s_answer(gate: RunningGate, llama: Llama) -> None:
    """llama.cpp takes any cap from a client; the policy's one reaches it."""
    capped = DEMO.replace("max_tokens: 4096", "max_tokens: 5") + "\npools:\n  default: {concurrency: {max: 2}}\n"
    gate.push(capped)
    sent = json.dumps({"max_tokens": 500, "ignore_eos": True, "messages": [{"role": "user", "content": "x"}]})
    answer = gate.post("/v1/chat/completions", sent).json()
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"
    gate.push(capped.replace("max_tokens: 5", "max_tokens: 4096"))


def test_a_client_that_leaves_frees_slots_and_engine(gate: RunningGate, llama: Llama) -> None:
    """After clients left in mid-stream the gate's slots are free, and so are the engine's."""
    sent = {
        "stream": True,
        "max_tokens": 4000,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "leave"}],
    }
    for _ in range(3):
        with httpx.stream(
            "POST", f"{gate.base}/v1/chat/completions", json=sent, headers=gate.headers("vip"), timeout=60
        ) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                if line.startswith("data:"):
                    break
    until(lambda: gate.in_flight() == 0, "the gate's slots are free")
    until(
        lambda: not any(s["is_processing"] for s in httpx.get(f"{llama.url}/slots", timeout=30).json()),
        "the engine's slots are free",
    )
