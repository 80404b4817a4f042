"""The official client works with the simulated engine, streamed and not."""

import openai
import pytest

from seawall.sim.generate import answer

HELLO = [{"role": "user", "content": "hello"}]
# the key of the answer to HELLO, and its tokens: 4 for the message and 2 for its text
PROMPT, PROMPT_TOKENS = "user: hello", 6


async def test_a_chat_is_the_generated_answer(client, sim):
    """Text, finish reason and usage are those of the pure generator."""
    expected = answer(1, PROMPT)
    chat = await client.chat.completions.create(model="sim-chat", messages=HELLO)
    assert chat.choices[0].message.content == expected.text()
    assert chat.choices[0].finish_reason == expected.finish == "stop"
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (PROMPT_TOKENS, expected.length)
    assert chat.usage.total_tokens == PROMPT_TOKENS + expected.length


async def test_two_engines_differ_by_seed_only(client, start):
    """An engine with the same seed gives the same answer, another seed another one."""
    texts = []
    for seed in (1, 2):
        other = await start(seed=seed, name=f"engine-{seed}")
        chat = await client.with_options(base_url=f"{other.url}/v1").chat.completions.create(
            model="sim-chat", messages=HELLO
        )
        texts.append(chat.choices[0].message.content)
    assert texts == [answer(1, PROMPT).text(), answer(2, PROMPT).text()]


async def test_a_stream_is_the_same_answer(client):
    """Role first, one token a chunk, then the finish reason, then usage alone."""
    expected = answer(1, PROMPT)
    stream = await client.chat.completions.create(
        model="sim-chat", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    first, *middle, finish, usage = [chunk async for chunk in stream]
    assert first.choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in middle] == [expected.token(i) for i in range(expected.length)]
    assert {chunk.usage for chunk in (first, *middle, finish)} == {None}
    assert (finish.choices[0].finish_reason, finish.choices[0].delta.content) == ("stop", None)
    assert usage.choices == []
    assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (PROMPT_TOKENS, expected.length)


async def test_a_stream_without_usage_has_none(client):
    """Nobody asked, so no chunk has usage and none is without a choice."""
    stream = await client.chat.completions.create(model="sim-chat", messages=HELLO, stream=True, max_tokens=3)
    chunks = [chunk async for chunk in stream]
    assert len(chunks) == 1 + 3 + 1
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_continuous_usage_counts_up(client):
    """With `continuous_usage_stats` every chunk says how far it is."""
    stream = await client.chat.completions.create(
        model="sim-chat",
        messages=HELLO,
        stream=True,
        max_tokens=3,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    assert [chunk.usage.completion_tokens async for chunk in stream] == [0, 1, 2, 3, 3, 3]


async def test_two_choices(client):
    """Choices differ, are counted together, and interleave on a stream with a finish each."""
    expected = [answer(1, PROMPT, choice).text() for choice in (0, 1)]
    chat = await client.chat.completions.create(model="sim-chat", messages=HELLO, n=2)
    assert [choice.message.content for choice in chat.choices] == expected
    total = sum(answer(1, PROMPT, choice).length for choice in (0, 1))
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (PROMPT_TOKENS, total)

    stream = await client.chat.completions.create(
        model="sim-chat", messages=HELLO, n=2, stream=True, stream_options={"include_usage": True}
    )
    texts, finished, used = ["", ""], [], None
    async for chunk in stream:
        used = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                finished.append(choice.index)
    assert texts == expected
    assert sorted(finished) == [0, 1]
    assert used.completion_tokens == total


async def test_the_cap_and_ignore_eos(client):
    """`ignore_eos` goes on past the natural end to exactly the cap."""
    chat = await client.chat.completions.create(
        model="sim-chat", messages=HELLO, max_completion_tokens=100, extra_body={"ignore_eos": True, "max_tokens": 5}
    )
    assert (chat.usage.completion_tokens, chat.choices[0].finish_reason) == (100, "length")


async def test_completions(client):
    """Completions number the choices of all prompts in a row, streamed and not."""
    expected = [answer(1, prompt).text() for prompt in ("one", "two")]
    plain = await client.completions.create(model="sim-chat", prompt=["one", "two"])
    assert [choice.text for choice in plain.choices] == expected
    assert plain.usage.prompt_tokens == 2
    texts = ["", ""]
    async for chunk in await client.completions.create(model="sim-chat", prompt=["one", "two"], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == expected


async def test_models(start, client):
    """All names are listed and all are answered."""
    sim = await start(models=("big", "small"))
    client = client.with_options(base_url=f"{sim.url}/v1")
    assert [model.id async for model in client.models.list()] == ["big", "small"]
    chat = await client.chat.completions.create(model="small", messages=HELLO)
    assert chat.model == "small"


@pytest.mark.parametrize(
    ("change", "kind", "param"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "model"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"tools": []}, openai.BadRequestError, "tools"),
        ({"stream_options": {"include_usage": True}}, openai.BadRequestError, "stream_options"),
    ],
)
async def test_refusals_raise_the_right_class(client, change, kind, param):
    """The client raises by status, and finds parameter, type and the number in `code` in the body."""
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(**{"model": "sim-chat", "messages": HELLO} | change)
    assert caught.value.param == param
    assert caught.value.type == kind.__name__
    assert caught.value.response.json()["error"]["code"] == caught.value.status_code


async def test_answers_are_signed(client):
    """The answer says which engine gave it and takes over the request's id."""
    answered = await client.chat.completions.with_raw_response.create(
        model="sim-chat", messages=HELLO, extra_headers={"x-request-id": "r-1"}
    )
    assert answered.headers["x-engine"] == "engine-0"
    assert answered.parse().id == "chatcmpl-r-1"
