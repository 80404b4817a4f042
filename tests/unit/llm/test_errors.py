"""What a refusal looks like to a client."""

import json
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.decision import Reason, Refusal
from seawall.llm.errors import ErrorAnswer, answer, status_of, stream_error
from seawall.llm.protocols import CHAT, MESSAGES, RESPONSES, Family

TABLE: dict[Reason, list[Any]] = {
    Reason(reason): row
    for reason, row in yaml.safe_load((Path(__file__).parents[2] / "cases" / "llm" / "errors.yaml").read_text()).items()
}
REFUSE_NOTHING = {Reason.OK, Reason.UPSTREAM_ERROR, Reason.ABORTED}


def test_every_reason_is_in_the_table() -> None:
    """Each reason refuses with the row of the table, or refuses nothing and has no status."""
    assert set(TABLE) | REFUSE_NOTHING == set(Reason)
    for reason in REFUSE_NOTHING:
        with pytest.raises(KeyError):
            status_of(reason)


def answering(error: ErrorAnswer) -> httpx2.Client:
    """HTTP client that gets this answer to whatever it asks."""

    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(error.status, headers=error.headers, content=error.body)

    return httpx2.Client(transport=httpx2.MockTransport(handle))


@pytest.mark.parametrize("reason", TABLE, ids=str)
def test_openai(reason: Reason) -> None:
    """An OpenAI path gets OpenAI's envelope, and the client raises the class that its documentation names."""
    status, kind, code, class_, _, _ = TABLE[reason]
    error = answer(Refusal(reason, "Why.", "field"), Family.OPENAI, "rid-1")
    assert error.status == status_of(reason) == status
    assert json.loads(error.body) == {"error": {"message": "Why.", "type": kind, "param": "field", "code": code}}
    client = openai.OpenAI(api_key="k", base_url="http://gate/v1", max_retries=0, http_client=answering(error))
    with client, pytest.raises(openai.APIStatusError) as raised:
        client.models.list()
    assert type(raised.value).__name__ == class_
    assert (raised.value.code, raised.value.param, raised.value.type) == (code, "field", kind)


@pytest.mark.parametrize("reason", TABLE, ids=str)
def test_anthropic(reason: Reason) -> None:
    """An Anthropic path gets Anthropic's envelope with the request's id, and the client raises its class."""
    status, _, _, _, kind, class_ = TABLE[reason]
    error = answer(Refusal(reason, "Why."), Family.ANTHROPIC, "rid-1")
    assert error.status == status
    assert json.loads(error.body) == {
        "type": "error",
        "error": {"type": kind, "message": "Why."},
        "request_id": "rid-1",
    }
    client = anthropic.Anthropic(api_key="k", base_url="http://gate", max_retries=0, http_client=answering(error))
    with client, pytest.raises(anthropic.APIStatusError) as raised:
        client.models.list()
    assert type(raised.value).__name__ == class_


@pytest.mark.parametrize("reason", TABLE, ids=str)
@pytest.mark.parametrize("family", Family)
def test_headers(reason: Reason, family: Family) -> None:
    """Each answer says that it is JSON and why it was refused, once, in lower case."""
    headers = answer(Refusal(reason, "Why."), family).headers
    names = [name for name, _ in headers]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert dict(headers)["content-type"] == "application/json"
    assert dict(headers)["x-seawall-reason"] == reason.value
    assert ("allow" in names) == (reason is Reason.METHOD)
    assert "retry-after" not in names


def test_without_param_and_rid() -> None:
    """What is not known is null at OpenAI and absent at Anthropic."""
    assert json.loads(answer(Refusal(Reason.MODEL, "x"), Family.OPENAI).body)["error"]["param"] is None
    assert json.loads(answer(Refusal(Reason.MODEL, "x"), Family.ANTHROPIC).body) == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "x"},
    }


def test_anthropic_names_the_field() -> None:
    """Where the protocol has no place for the field it stands before the message."""
    body = json.loads(answer(Refusal(Reason.PARAMETER, "Wrong.", "max_tokens"), Family.ANTHROPIC).body)
    assert body["error"]["message"] == "max_tokens: Wrong."


@pytest.mark.parametrize(
    ("seconds", "headers"),
    [
        (None, {}),
        (1, {"retry-after": "1"}),
        (1.0, {"retry-after": "1"}),
        (1.1, {"retry-after": "2"}),
        (59.001, {"retry-after": "60"}),
        (3600, {"retry-after": "3600"}),
        (0.25, {"retry-after": "1", "retry-after-ms": "250"}),
        (0.9999, {"retry-after": "1", "retry-after-ms": "999"}),
        (0.0001, {"retry-after": "1", "retry-after-ms": "1"}),
        (0, {"retry-after": "1", "retry-after-ms": "1"}),
        (-5, {"retry-after": "1", "retry-after-ms": "1"}),
    ],
)
def test_retry_after(seconds: float | None, headers: dict[str, str]) -> None:
    """`retry-after` is whole seconds, at least 1, never shorter than meant; less than a second is told beside it."""
    error = answer(Refusal(Reason.OVERLOADED, "Full.", retry_after=seconds), Family.OPENAI)
    assert {name: value for name, value in error.headers if name.startswith("retry-")} == headers


@given(st.text(max_size=20), st.none() | st.text(max_size=5), st.text(max_size=5), st.sampled_from(Family))
@settings(max_examples=100)
def test_any_text(message: str, param: str | None, rid: str, family: Family) -> None:
    """Any text, halves of surrogate pairs too, arrives as valid JSON in UTF-8."""
    body = json.loads(answer(Refusal(Reason.MODEL, message, param), family, rid).body.decode())
    shown = body["error"]["message"]
    if family is Family.OPENAI:
        assert (joined(shown), body["error"]["param"]) == (joined(message), param and joined(param))
    else:
        assert joined(shown) == joined(message if param is None else f"{param}: {message}")


def joined(text: str) -> str:
    """Text with the halves of surrogate pairs put together, as JSON's escapes are read."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def test_half_a_surrogate_pair() -> None:
    """What a client can write and UTF-8 can't is sent as JSON's escape."""
    error = answer(Refusal(Reason.MODEL, "The model '\ud83d' …", "\udc00"), Family.OPENAI)
    assert b"'\\ud83d' \xe2\x80\xa6" in error.body
    assert json.loads(error.body)["error"]["param"] == "\udc00"


STREAMED = Refusal(Reason.CONTENT_BLOCKED, "No 'such' words – please.", "messages")


def test_an_error_in_a_stream_openai() -> None:
    """OpenAI's client raises what a stream of chunks says, with its code; the stream has its end."""
    events = stream_error(STREAMED, CHAT)
    assert events.endswith(b"data: [DONE]\n\n")
    client = openai.OpenAI(api_key="k", base_url="http://gate/v1", max_retries=0, http_client=streaming(events))
    with client, pytest.raises(openai.APIError) as raised:
        list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True))
    assert (raised.value.code, raised.value.type, raised.value.param) == (
        "content_blocked",
        "permission_error",
        "messages",
    )


def test_an_error_in_a_stream_anthropic() -> None:
    """Anthropic's client raises its own."""
    events = stream_error(STREAMED, MESSAGES, "rid-1")
    client = anthropic.Anthropic(api_key="k", base_url="http://gate", max_retries=0, http_client=streaming(events))
    say: Any = [{"role": "user", "content": "x"}]
    with client, pytest.raises(anthropic.APIStatusError) as raised:
        list(client.messages.create(model="m", max_tokens=1, messages=say, stream=True))
    assert raised.value.type == "permission_error"


def test_an_error_in_a_stream_of_responses() -> None:
    """OpenAI's client gives it to the caller as an event, in its place."""
    events = stream_error(STREAMED, RESPONSES, sequence=7)
    client = openai.OpenAI(api_key="k", base_url="http://gate/v1", max_retries=0, http_client=streaming(events))
    with client:
        [event] = client.responses.create(model="m", input="x", stream=True)
    assert event.type == "error"
    assert (event.code, event.param, event.sequence_number) == ("content_blocked", "messages", 7)


def streaming(events: bytes) -> httpx2.Client:
    """HTTP client that gets these events to whatever it asks."""

    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events)

    return httpx2.Client(transport=httpx2.MockTransport(handle))


def test_anthropics_header_of_the_request() -> None:
    """Anthropic's clients show `request-id`; OpenAI's show Envoy's x-request-id."""
    assert dict(answer(STREAMED, Family.ANTHROPIC, "rid-1").headers)["request-id"] == "rid-1"
    assert "request-id" not in dict(answer(STREAMED, Family.OPENAI, "rid-1").headers)
