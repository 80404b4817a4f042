"""What a request asks for, and what the gate writes into it."""

import json
from typing import Any

import pytest

from seawall.decision import Reason, Refusal
from seawall.llm.protocols import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES, Endpoint
from seawall.llm.request import LlmRequest, read_request
from seawall.llm.rewrites import Actions, Rewritten, rewrite

SMALLEST: dict[str, tuple[Endpoint, str]] = {
    "chat": (CHAT, '"messages": [{}]'),
    "completions": (COMPLETIONS, '"prompt": "x"'),
    "responses": (RESPONSES, '"input": "x"'),
    "embeddings": (EMBEDDINGS, '"input": "x"'),
    "messages": (MESSAGES, '"messages": [{}]'),
}
CAPS = [
    ("chat", "max_tokens"),
    ("chat", "max_completion_tokens"),
    ("completions", "max_tokens"),
    ("responses", "max_output_tokens"),
    ("messages", "max_tokens"),
]
NO_COUNT = {
    "string": ('"12"', "a string"),
    "empty string": ('""', "an empty string"),
    "negative": ("-1", "-1"),
    "zero": ("0", "0"),
    "infinite": ("1e309", "inf"),
    "true": ("true", "a boolean"),
    "false": ("false", "a boolean"),
    "float": ("1.0", "1.0"),
    "list": ("[1]", "a list"),
    "empty list": ("[]", "an empty list"),
    "object": ("{}", "an object"),
    "minus 4,000 digits": ("-" + "9" * 4000, "-99999999999999999999..."),
}


def refused(endpoint: Endpoint, body: str) -> Refusal:
    """Refusal of a body."""
    refusal = read_request(endpoint, body.encode())
    assert isinstance(refusal, Refusal), body
    return refusal


def read(endpoint: Endpoint, body: str) -> LlmRequest:
    """Request of a body."""
    request = read_request(endpoint, body.encode())
    assert isinstance(request, LlmRequest), request
    return request


def rewritten(request: LlmRequest, *, model: str, cap: int | None) -> bytes | None:
    """Body after the two changes that every policy makes."""
    found = rewrite(request, Actions(model, cap))
    assert isinstance(found, Rewritten)
    return found.body


def chat(more: str) -> LlmRequest:
    """Chat request with further members."""
    return read(CHAT, f'{{"model": "m", "messages": [{{}}], {more}}}')


@pytest.mark.parametrize("name", SMALLEST)
def test_smallest(name: str) -> None:
    """The smallest request of each API is read; what it does not say is absent."""
    endpoint, prompt = SMALLEST[name]
    request = read(endpoint, f"{{{prompt}}}")
    assert (request.model, request.stream, request.output_cap) == ("", False, None)
    assert request.endpoint is endpoint
    nulls = '"model": null, "stream": null, "n": null, "best_of": null, "max_tokens": null, "max_output_tokens": null'
    request = read(endpoint, f"{{{prompt}, {nulls}}}")
    assert (request.model, request.stream, request.output_cap) == ("", False, None)


@pytest.mark.parametrize("endpoint", [CHAT, MESSAGES], ids=["chat", "messages"])
@pytest.mark.parametrize("body", ["{}", '{"messages": null}'])
def test_messages_are_required(endpoint: Endpoint, body: str) -> None:
    """A chat without messages is refused with the field's name."""
    refusal = refused(endpoint, body)
    assert (refusal.reason, refusal.param) == (Reason.PARAMETER, "messages")
    assert refusal.message == "The parameter 'messages' is required."


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        *(
            ("chat", "messages", value)
            for value in ('""', '"x"', "[]", "{}", "[1]", '[{}, "x"]', "[null]", "5", "true")
        ),
        *(("messages", "messages", value) for value in ('"x"', "[]", "[[]]")),
        *(("completions", "prompt", value) for value in ("5", "{}", "true", "1.5")),
        *(("responses", "input", value) for value in ("5", "{}", "false")),
        *(("embeddings", "input", value) for value in ("5", "{}", "true")),
    ],
)
def test_prompt_types(name: str, field: str, value: str) -> None:
    """A prompt of a wrong type is refused with the field's name."""
    refusal = refused(SMALLEST[name][0], f'{{"{field}": {value}}}')
    assert (refusal.reason, refusal.param) == (Reason.PARAMETER, field)
    assert f"'{field}'" in refusal.message


@pytest.mark.parametrize("value", ['"x"', '""', '["x", "y"]', "[1, 2]", "[[1], [2]]", "[]"])
def test_prompt_forms(value: str) -> None:
    """A prompt may be a text, a list of texts, of token ids or of lists of them."""
    for endpoint, field in ((COMPLETIONS, "prompt"), (EMBEDDINGS, "input"), (RESPONSES, "input")):
        read(endpoint, f'{{"{field}": {value}}}')


@pytest.mark.parametrize(("name", "field"), CAPS)
@pytest.mark.parametrize("value", NO_COUNT)
def test_cap_types(name: str, field: str, value: str) -> None:
    """A cap that is no whole number of at least 1 is refused with the field's name and what was sent."""
    endpoint, prompt = SMALLEST[name]
    text, shown = NO_COUNT[value]
    refusal = refused(endpoint, f'{{{prompt}, "{field}": {text}}}')
    assert (refusal.reason, refusal.param) == (Reason.PARAMETER, field)
    assert refusal.message == f"The parameter '{field}' must be a whole number of at least 1, not {shown}."


@pytest.mark.parametrize("field", ["n", "best_of"])
@pytest.mark.parametrize("value", NO_COUNT)
def test_count_types(field: str, value: str) -> None:
    """So is a number of choices."""
    refusal = refused(COMPLETIONS, f'{{"prompt": "x", "{field}": {NO_COUNT[value][0]}}}')
    assert (refusal.reason, refusal.param) == (Reason.PARAMETER, field)


@pytest.mark.parametrize("value", ["1", "0", '"true"', '""', "[]", "{}", "1.0"])
def test_stream_type(value: str) -> None:
    """Only true and false say whether to stream."""
    refusal = refused(CHAT, f'{{"messages": [{{}}], "stream": {value}}}')
    assert (refusal.reason, refusal.param) == (Reason.PARAMETER, "stream")


@pytest.mark.parametrize("value", ["1", "true", "false", '""', "[]", '["m"]', "{}", "0"])
def test_model_type(value: str) -> None:
    """A model is named by a text that is not empty."""
    refusal = refused(CHAT, f'{{"messages": [{{}}], "model": {value}}}')
    assert (refusal.reason, refusal.param) == (Reason.PARAMETER, "model")


def test_another_apis_cap_is_not_read() -> None:
    """A field that the API does not know is the engine's business, whatever it holds."""
    assert chat('"max_output_tokens": "x"').output_cap is None
    assert read(EMBEDDINGS, '{"input": "x", "max_tokens": -1}').output_cap is None


def test_malformed() -> None:
    """A body that is no JSON is refused as such."""
    assert refused(CHAT, "{").reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("more", "cap"),
    [
        ('"max_tokens": 5', 5),
        ('"max_completion_tokens": 6', 6),
        ('"max_tokens": 5, "max_completion_tokens": 6', 6),
        ('"max_tokens": 5, "max_completion_tokens": null', 5),
        ('"temperature": 1', None),
    ],
)
def test_output_cap(more: str, cap: int | None) -> None:
    """The client's cap is the one that engines take."""
    assert chat(more).output_cap == cap


@pytest.mark.parametrize(
    ("more", "cap", "expected"),
    [
        # Nothing to change.
        ('"max_tokens": 10', 10, None),
        ('"max_tokens": 1, "max_completion_tokens": 10', 10, None),
        ('"max_tokens": 99', None, None),
        ('"temperature": 1', None, None),
        # Each field that is too large, and only that.
        ('"max_tokens": 11', 10, '"max_tokens": 10'),
        ('"max_completion_tokens": 11', 10, '"max_completion_tokens": 10'),
        (
            '"max_tokens": 11, "max_completion_tokens": 12',
            10,
            '"max_tokens": 10, "max_completion_tokens": 10',
        ),
        ('"max_tokens": 11, "max_completion_tokens": 9', 10, '"max_tokens": 10, "max_completion_tokens": 9'),
        ('"max_tokens": 11, "max_completion_tokens": null', 10, '"max_tokens": 10, "max_completion_tokens": null'),
        ('"max_tokens": null, "max_completion_tokens": 11', 10, '"max_tokens": null, "max_completion_tokens": 10'),
        (f'"max_tokens": {"9" * 4000}', 10, '"max_tokens": 10'),
        # None given: the default field.
        ('"temperature": 1', 10, '"temperature": 1,"max_tokens":10'),
        ('"max_tokens": null', 10, '"max_tokens": 10'),
        ('"max_completion_tokens": null', 10, '"max_completion_tokens": null,"max_tokens":10'),
        ('"max_completion_tokens": null, "max_tokens": null', 10, '"max_completion_tokens": null, "max_tokens": 10'),
    ],
)
def test_chat_cap(more: str, cap: int | None, expected: str | None) -> None:
    """Every cap that the client gave is held down; without any the field that each engine knows is set."""
    body = rewritten(chat(more), model="m", cap=cap)
    whole = None if expected is None else f'{{"model": "m", "messages": [{{}}], {expected}}}'
    assert (body and body.decode()) == whole


@pytest.mark.parametrize(
    ("name", "field"), [("completions", "max_tokens"), ("responses", "max_output_tokens"), ("messages", "max_tokens")]
)
def test_cap_of_other_apis(name: str, field: str) -> None:
    """Each API has its own field for the cap."""
    endpoint, prompt = SMALLEST[name]
    assert rewritten(read(endpoint, f"{{{prompt}}}"), model="", cap=7) == f'{{{prompt},"{field}":7}}'.encode()
    assert rewritten(read(endpoint, f'{{{prompt}, "{field}": 8}}'), model="", cap=7) == (
        f'{{{prompt}, "{field}": 7}}'.encode()
    )


def test_embeddings_have_no_cap() -> None:
    """Where nothing is generated nothing is capped."""
    assert rewritten(read(EMBEDDINGS, '{"input": "x", "max_tokens": 9}'), model="", cap=1) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"messages": [{}], "model": "a"}', '{"messages": [{}], "model": "org/b"}'),
        ('{"messages": [{}]}', '{"messages": [{}],"model":"org/b"}'),
        ('{"messages": [{}], "model": null}', '{"messages": [{}], "model": "org/b"}'),
        ('{"messages": [{}], "m\\u006fdel": "org/b"}', None),
    ],
)
def test_model_is_renamed(body: str, expected: str | None) -> None:
    """The engine's own name of the model takes the place of the client's."""
    changed = rewritten(read(CHAT, body), model="org/b", cap=None)
    assert (changed and changed.decode()) == expected


def test_the_rest_survives() -> None:
    """Order of keys, digits of numbers, unknown fields, escapes and white space go on as they came."""
    body = (
        '{ "seed": 18446744073709551615, "zeta": 1, "temperature": 1.10, "big": 123456789012345678901234567890,\n'
        '  "messages": [{"role": "user", "content": "caf\\u00e9 \\ud83d ✓ max_tokens"}],\t"max_tokens" : 9999,'
        ' "alpha": {"max_tokens": 9999}, "logit_bias": {"50256": -1e2}, "e": 1E400 }'
    )
    changed = rewritten(read(CHAT, body), model="", cap=100)
    assert changed == body.replace('"max_tokens" : 9999', '"max_tokens" : 100').encode()
    assert list(json.loads(changed)) == list(json.loads(body))


@pytest.mark.parametrize(
    "more",
    [
        '"\\"max_tokens": 1, "max_tokens": 9999',
        '"x": {"max_tokens": 1}, "max_tokens": 9999',
        '"x": "\\"max_tokens\\":1", "max_tokens": 9999',
        '"x": {"max_tokens":1}, "max\\u005ftokens":9999',
        '"max_tokens" : 9999, "x": {"max_tokens":1}',
    ],
)
def test_no_spelling_gets_around_the_cap(more: str) -> None:
    """What looks like the field and is none stays, and the field itself is lowered."""
    for body in (more, more.replace('": ', '":')):
        changed = json.loads(rewritten(chat(body), model="m", cap=10) or b"")
        assert changed["max_tokens"] == 10
        assert {name: value for name, value in changed.items() if name not in {"max_tokens", "model", "messages"}} == {
            name: value for name, value in json.loads(f"{{{body}}}").items() if name != "max_tokens"
        }


def test_cap_is_what_the_engine_reads() -> None:
    """Whatever the spelling of the field, the engine reads the cap of the gate, once."""
    changed = rewritten(chat('"max\\u005ftokens": 11'), model="m", cap=10)
    pairs: list[Any] = json.loads(changed or b"", object_pairs_hook=list)
    assert [value for name, value in pairs if name == "max_tokens"] == [10]
