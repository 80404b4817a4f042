"""OpenAI completions (`/v1/completions`)."""

from collections.abc import Iterator

from seawall.llm.protocols.choices import DONE, ChoicesStream, ended, usage
from seawall.llm.protocols.contract import (
    Delta,
    Endpoint,
    Family,
    Json,
    Origin,
    Text,
    Texts,
    Tokens,
    dicts,
    dumps,
    sse,
    strings,
)


def deltas(event: Json) -> list[Delta]:
    """Text of every choice."""
    return [
        Delta(str(choice.get("index", i)), ("choices", i, "text"), text)
        for i, choice in dicts(event.get("choices"))
        if isinstance(text := choice.get("text"), str) and text
    ]


class CompletionStream(ChoicesStream):
    """Follows a stream of text_completion."""

    __slots__ = ()

    def __init__(self, origin: Origin, expected: int):
        super().__init__(origin, expected, "text_completion", {"text": "", "logprobs": None})


def texts(body: Json) -> Iterator[Text]:
    """The prompt or prompts, where they are no token ids, and the suffix."""
    yield from strings(body.get("prompt"), ("prompt",))
    yield from strings(body.get("suffix"), ("suffix",))


def spoken(answer: Json) -> Texts:
    """Texts of a whole answer, of every choice."""
    return [
        (("choices", i, "text"), text)
        for i, choice in dicts(answer.get("choices"))
        if isinstance(text := choice.get("text"), str) and text
    ]


def static(origin: Origin, text: str, stream: bool, tokens: Tokens | None) -> bytes:
    """A whole answer of ours; `tokens` None where a stream is not to tell usage."""
    kind = {"id": origin.id, "object": "text_completion", "created": origin.created, "model": origin.model}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    if not stream:
        return dumps({**kind, "choices": [choice], "usage": usage(tokens or Tokens(0, 0))}).encode()
    events: list[Json] = [{**kind, "choices": [choice]}]
    if tokens is not None:
        events.append({**kind, "choices": [], "usage": usage(tokens)})
    return sse(events) + DONE


COMPLETIONS = Endpoint(
    "completions",
    Family.OPENAI,
    True,
    ("max_tokens",),
    "max_tokens",
    ("prompt",),
    usage_asked=True,
    choices=True,
    logprobs=("logprobs", "logprob_token_ids", "prompt_logprobs", "echo"),
    texts=texts,
    deltas=deltas,
    stream=CompletionStream,
    spoken=spoken,
    ended=ended,
    static=static,
    needle=b'"text":"',
)
