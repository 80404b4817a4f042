"""Requests and answers of tests/cases/llm, through one exchange without a proxy; `elsewhere` says what needs more."""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.ext_proc.played import Play, cuttings, play

FILES = ("framing", "truncation", "body", "errors_through", "params", "usage")
CASES = Path(__file__).parents[2] / "cases" / "llm"
ALL = [case for name in FILES for case in yaml.safe_load((CASES / f"{name}.yaml").read_text())["cases"]]


def scenes() -> Iterator[Any]:
    """Each request of a case against each answer that is meant for it."""
    for case in ALL:
        if "elsewhere" in case:
            continue
        requests = case.get("requests") or {"": case["request"]}
        upstream = case.get("upstream", {"json": True})
        for name, request in requests.items():
            variants = upstream.get("variants", {"": upstream})
            named = request.get("variant", name)
            for variant, answer in ({named: variants[named]} if named in variants else variants).items():
                yield pytest.param(
                    case, name, request, variant, answer, id=" ".join(filter(None, (case["id"], name, variant)))
                )


def merged(case: Mapping[str, Any], name: str, variant: str) -> dict[str, dict[str, Any]]:
    """What is expected of this request and answer: the common part, refined; null takes a word of the common part away."""
    expect = case["expect"]
    parts = (expect, expect.get("by_request", {}).get(name, {}), expect.get("by_variant", {}).get(variant, {}))
    whole: dict[str, dict[str, Any]] = {}
    for part in parts:
        for side in ("client", "upstream", "ledger"):
            whole[side] = {**whole.get(side, {}), **part.get(side, {})}
    for word in ("error_type", "no_retry"):
        if whole["client"].get(word, "") is None:
            del whole["client"][word]
    return whole


@pytest.mark.parametrize(("case", "name", "request_", "variant", "answer"), list(scenes()))
def test_case(case: dict[str, Any], name: str, request_: dict[str, Any], variant: str, answer: dict[str, Any]) -> None:
    """The client, the engine and the record get what the case says, however the answer was cut."""
    expect = merged(case, name, variant)
    for chunks in cuttings(answer):
        result = play(case, request_, answer, chunks)
        for word, value in expect["client"].items():
            CLIENT[word](result, value)
        for word, value in expect["upstream"].items():
            UPSTREAM[word](result, value)
        for word, value in expect["ledger"].items():
            ledger(result, word, value)


def test_every_case_is_run_or_says_where() -> None:
    """A case that is not run names the reason."""
    for case in ALL:
        assert ("elsewhere" in case) != ("expect" in case), case["id"]


# What the words of `expect` mean.


def equal(actual: Any, expected: Any) -> None:
    """Compare, with both shown."""
    assert actual == expected


def identical(result: Play, value: str) -> None:
    """`identical`: the bytes that the engine sent, or what they inflate to if their coding was taken off."""
    assert value == "identical"
    if "content-encoding" in result.headers.get("removed", ""):
        assert result.sent == inflated(result.given)
    else:
        assert result.sent == result.given


def inflated(data: bytes) -> bytes:
    """Plain bytes of a gzip body."""
    return gzip.decompress(data)


def error(result: Play) -> dict[str, Any]:
    """Error of a refusal."""
    found: dict[str, Any] = json.loads(result.sent)["error"]
    return found


def data_of(stream: bytes) -> list[bytes]:
    """Data of the events of a stream, read plainly."""
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events = [event.split(b"\n") for event in lines.split(b"\n\n")]
    return [
        b"\n".join(line[5:].removeprefix(b" ") for line in event if line.startswith(b"data:"))
        for event in events
        if any(line.startswith(b"data:") for line in event)
    ]


def objects(result: Play) -> list[dict[str, Any]]:
    """Events of a stream that are objects, or the one of a JSON answer."""
    if result.sent.startswith(b"{"):
        return [json.loads(result.sent)]
    return [json.loads(data) for data in data_of(result.sent) if data != b"[DONE]"]


def spoken(events: list[dict[str, Any]]) -> list[str]:
    """Pieces of generated text."""
    found = []
    for event in events:
        for choice in event.get("choices") or ():
            part = choice.get("delta") or choice.get("message") or choice
            found.append(part.get("content") or part.get("text") or "")
        if event.get("type") == "content_block_delta":
            found.append(event["delta"].get("text", ""))
        elif event.get("type") == "response.output_text.delta":
            found.append(event["delta"])
    return [text for text in found if text]


def finish_reasons(result: Play) -> list[str]:
    """Every reason that the client is told."""
    found = []
    for event in objects(result):
        found += [c["finish_reason"] for c in event.get("choices") or () if c.get("finish_reason")]
        if event.get("type") == "message_delta":
            found.append(event["delta"]["stop_reason"])
    return found


def usage(result: Play, value: dict[str, int] | None) -> None:
    """Usage that the client is told last; null: none."""
    told = [
        e.get("usage") or (e.get("response") or {}).get("usage")
        for e in objects(result)
        if e.get("usage") or (e.get("response") or {}).get("usage")
    ]
    if value is None:
        assert not told
    else:
        assert {name: told[-1][name] for name in value} == value


def is_prefix(result: Play, _: bool) -> None:
    """The client's text is the begin of the engine's, and not all of it."""
    given = Play(b"", sent=result.given)
    text, whole = "".join(spoken(objects(result))), "".join(spoken(objects(given)))
    assert text
    assert whole.startswith(text)
    assert text != whole


def without(result: Play, value: str) -> None:
    """The engine's bytes without the events that hold nothing but usage."""
    assert value == "usage events"
    events = result.given.split(b"\n\n")
    kept = [event for event in events if not (b'"choices":[]' in event and b'"usage":{' in event)]
    assert len(kept) == len(events) - 1
    assert result.sent == b"\n\n".join(kept)


def gapless(result: Play, _: str) -> None:
    """Sequence numbers of a stream of responses go on by one."""
    numbers = [event["sequence_number"] for event in objects(result)]
    assert numbers == list(range(len(numbers)))


def upstream_json(result: Play) -> dict[str, Any]:
    """Body that the engine got."""
    assert result.upstream is not None
    found: dict[str, Any] = json.loads(result.upstream)
    return found


def has(result: Play, value: dict[str, Any]) -> None:
    """Members that the engine's body has, in objects at least these."""
    body = upstream_json(result)
    for name, member in value.items():
        if isinstance(member, dict):
            assert {k: body[name][k] for k in member} == member
        else:
            assert body[name] == member


def tokens(told: Any, value: Any) -> None:
    """Tokens are those, or between two."""
    assert told == value


def ledger(result: Play, word: str, value: Any) -> None:
    """What is recorded of the request."""
    record = result.record
    assert record is not None
    assert record.usage is not None
    found = {
        "prompt": record.usage.input_tokens,
        "completion": record.usage.output_tokens,
        "cached": record.usage.cached_tokens,
        "reasoning": record.usage.reasoning_tokens,
        "estimated": record.usage.estimated,
        "truncated": record.truncated,
        "unread": record.unread,
    }
    if word == "completion_between":
        assert value[0] <= (record.usage.output_tokens or 0) <= value[1]
    else:
        assert found[word] == value, word


CLIENT = {
    "status": lambda r, v: equal(r.status, v) if v != "as upstream" else None,
    "stream": identical,
    "body": identical,
    "without": without,
    "text": lambda r, v: equal("".join(spoken(objects(r))), v),
    "pieces": lambda r, v: equal(len(spoken(objects(r))), v),
    "text_is_prefix": is_prefix,
    "finish_reason": lambda r, v: equal(set(finish_reasons(r)), {v}),
    "usage": usage,
    "done": lambda r, v: equal(data_of(r.sent)[-1:] == [b"[DONE]"], v),
    "last": lambda r, v: equal(objects(r)[-1]["type"], v),
    "status_of": lambda r, v: equal(objects(r)[-1]["response"]["status"], v),
    "incomplete": lambda r, v: equal(objects(r)[-1]["response"]["incomplete_details"], {"reason": v}),
    "sequence": gapless,
    "error_type": lambda r, v: equal(error(r)["type"], v),
    "error_code": lambda r, v: equal(error(r)["code"], v),
    "message_has": lambda r, v: equal(v in error(r)["message"], True),
    "no_retry": lambda r, v: equal(any(name.startswith("retry-") for name in r.headers), not v),
    "retry_after": lambda r, v: equal(int(r.headers["retry-after"]) >= v, True),
    "changed": lambda r, v: equal(r.headers["x-seawall-changed"], ", ".join(v)),
}
UPSTREAM = {
    "calls": lambda r, v: equal(r.calls, v),
    "body": lambda r, v: equal(r.upstream, r.request),
    "json": has,
    "json_without": lambda r, v: equal(set(v) & upstream_json(r).keys(), set()),
    "content_length": lambda r, v: equal(r.upstream_headers["content-length"], str(len(r.upstream))),
    "reset": lambda r, v: equal(r.reset, v),
    "unread": lambda r, v: equal(r.unread, v),
    "trailers": lambda r, v: equal(r.trailers, 2),
}
