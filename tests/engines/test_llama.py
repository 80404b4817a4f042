"""The real engine that the end-to-end tests stand before answers as they expect."""

import openai
import pytest

from tests.engines.fixture import Llama

ASK = {"model": "llama", "messages": [{"role": "user", "content": "hello world"}], "max_tokens": 8}


@pytest.fixture
def client(llama: Llama):
    with openai.OpenAI(base_url=f"{llama.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_it_answers_a_chat(client: openai.OpenAI):
    """A chat has text, and exactly the tokens asked for when it may not end by itself."""
    answer = client.chat.completions.create(**ASK, extra_body={"ignore_eos": True})
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


def test_it_streams_a_chat(client: openai.OpenAI):
    """A stream has text in several chunks, a finish reason and, asked for, usage."""
    stream = client.chat.completions.create(
        **ASK, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True}
    )
    chunks = list(stream)
    assert sum(1 for chunk in chunks if chunk.choices and chunk.choices[0].delta.content) > 1
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [8]
