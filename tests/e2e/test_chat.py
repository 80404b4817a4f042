"""What a user does first: chat, streamed or not, with the official clients."""

import json
import re
import shlex
import subprocess

import anthropic
import httpx2 as httpx
import openai
import pytest

from seawall.cli.up import usage
from tests.e2e.running_gate import RunningGate, until

pytestmark = pytest.mark.e2e


def test_a_chat_is_answered_with_usage(gate: RunningGate) -> None:
    """The openai client gets text and usage from an engine."""
    answer = gate.openai().chat.completions.create(
        model=gate.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=20
    )
    assert answer.choices[0].message.content
    assert answer.usage and answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_chat_streams_with_usage(gate: RunningGate) -> None:
    """The openai client streams a chat to its end, and the last chunk holds the usage."""
    chunks = list(
        gate.openai().chat.completions.create(
            model=gate.model,
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1].usage and chunks[-1].usage.completion_tokens > 0
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]


def test_a_streamed_answer_is_the_engine_s_byte_for_byte(gate: RunningGate) -> None:
    """Nothing in the chain changes a byte of a stream."""
    body = {"model": gate.model, "messages": [{"role": "user", "content": "same"}], "stream": True, "max_tokens": 30}
    through = gate.post("/v1/chat/completions", json.dumps(body)).content
    names = re.compile(rb'"(id|created)":("[^"]*"|\d+)')
    direct = httpx.post(f"{gate.told['engines'][0]}/v1/chat/completions", json=body).content
    assert names.sub(b"", through) == names.sub(b"", direct)


def test_completions_and_models_pass(gate: RunningGate) -> None:
    """The other two paths of the simulator work through the gate."""
    client = gate.openai("standard")
    assert client.completions.create(model=gate.model, prompt="Once", max_tokens=5).choices[0].text
    assert [m.id for m in client.models.list()] == [gate.model]


def test_the_printed_curl_works(gate: RunningGate) -> None:
    """The example that `up` prints is a command that answers."""
    text = usage(gate.base, gate.keys["vip"], gate.model, gate.told["redis"])
    command = text[text.index("curl") : text.index("from openai")].replace("\\\n", " ")
    done = subprocess.run(["curl", "-s", *shlex.split(command)[1:]], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_the_request_line_holds_tokens_and_no_secret(gate: RunningGate) -> None:
    """One logfmt line a request, with the fields an operator looks for, and never a key."""
    gate.chat("standard", max_tokens=7, ignore_eos=True)
    line = until(
        lambda: [x for x in gate.log().splitlines() if "output_tokens=7" in x and "tenant=demo-standard" in x],
        "the request's line",
    )[-1]
    for field in ("ts=", "level=info", "msg=request", "latency=", f"model={gate.model}", "pool=default", "reason=ok"):
        assert field in line
    assert "input_tokens=" in line
    assert not any(key in gate.log() for key in gate.keys.values())


@pytest.mark.parametrize("client_headers", [{}, {"x-api-key": "sk-wrong"}])
def test_unknown_keys_are_refused_in_both_dialects(gate: RunningGate, client_headers: dict[str, str]) -> None:
    """Each official client raises its own AuthenticationError, and the key is not repeated."""
    wrong = openai.OpenAI(base_url=f"{gate.base}/v1", api_key="sk-wrong-one", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as refused:
        wrong.chat.completions.create(model=gate.model, messages=[])
    assert refused.value.code == "invalid_api_key"
    assert "sk-wrong-one" not in str(refused.value)
    client = anthropic.Anthropic(
        base_url=gate.base, api_key="sk-wrong-two", max_retries=0, default_headers=client_headers
    )
    with pytest.raises(anthropic.AuthenticationError) as denied:
        client.messages.create(model=gate.model, max_tokens=5, messages=[{"role": "user", "content": "x"}])
    assert denied.value.body["error"]["type"] == "authentication_error"  # type: ignore[index, call-overload]
    assert "sk-wrong" not in str(denied.value)


def test_anthropic_keys_reach_the_same_tenants(gate: RunningGate) -> None:
    """x-api-key is read like Authorization: an unknown path of the engine is the engine's own answer."""
    response = gate.post(
        "/v1/messages",
        json.dumps({"model": gate.model, "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}),
    )
    assert response.status_code == 404
    assert "x-seawall-reason" not in response.headers


def test_unknown_paths_and_agents_are_refused(gate: RunningGate) -> None:
    """The prefilter answers before a key is looked at."""
    assert gate.get("/v2/anything").status_code == 404
    assert gate.get("/v1/models", **{"user-agent": "sqlmap/1.7"}).status_code == 403
    assert gate.get("/v1/models", **{"user-agent": "sqlmap/1.7"}).headers["x-seawall-reason"] == "user_agent_denied"


def test_control_headers_of_a_client_never_reach_the_engine(gate: RunningGate) -> None:
    """What only the gate may say is taken off at the edge and written anew."""
    forged = {"x-seawall-class": "vip", "x-seawall-pool": "other", "x-seawall-tenant": "root", "x-vllm-priority": "0"}
    body = json.dumps({"model": gate.model, "messages": [{"role": "user", "content": "forged"}], "max_tokens": 1})
    assert gate.post("/v1/chat/completions", body, "batch", **forged).status_code == 200
    seen = [r for i in range(2) for r in gate.engine(i)["recent"] if "forged" in r["body"]]
    assert seen[-1]["headers"]["x-seawall-class"] == "batch"
    assert seen[-1]["headers"]["x-seawall-tenant"] == "demo-batch"
    assert seen[-1]["headers"]["x-seawall-pool"] == "default"
    assert "x-vllm-priority" not in seen[-1]["headers"]
    # Keys are for the gate: no engine, and no log of one, gets to see them.
    assert "authorization" not in seen[-1]["headers"]
    assert not any(key in json.dumps(seen) for key in gate.keys.values())


def test_output_is_capped_for_the_engine(gate: RunningGate) -> None:
    """A cap above the policy's is lowered, a missing one added, and nothing else of the body changes."""
    body = '{"model": "%s", "seed": 9007199254740993, "messages": [{"role": "user", "content": "cap %s"}]%s}'
    for n, (given, expected) in enumerate((("", 4096), (', "max_tokens": 999999', 4096), (', "max_tokens": 3', 3))):
        gate.post("/v1/chat/completions", body % (gate.model, n, given))
        seen = [r for i in range(2) for r in gate.engine(i)["recent"] if f'"cap {n}"' in r["body"]][-1]
        assert json.loads(seen["body"])["max_tokens"] == expected
        assert '"seed": 9007199254740993' in seen["body"]
        assert int(seen["headers"]["content-length"]) == len(seen["body"])
