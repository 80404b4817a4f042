"""Reading a body as nobody else could read it differently, and changing it without touching the rest."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seawall.decision import Reason, Refusal
from seawall.llm.json_body import REMOVED, JsonObject, parse_object
from seawall.llm.spans import Member, members
from seawall.llm.strict_json import read_strictly

CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "llm" / "bodies.yaml").read_text())


def written(body: str | list[Any]) -> bytes:
    """Bytes of a body as the cases write it."""
    whole = b""
    for part in [body] if isinstance(body, str) else body:
        if isinstance(part, str):
            whole += part.encode()
        elif "hex" in part:
            whole += bytes.fromhex(part["hex"])
        else:
            whole += part["repeat"].encode() * part["times"]
    return whole


def changed(body: bytes, changes: dict[str, object]) -> bytes:
    """A body with top-level members set."""
    return parsed(body).changed({(name,): value for name, value in changes.items()})


def parsed(body: bytes) -> JsonObject:
    """Parse a body that must be accepted."""
    found = parse_object(body)
    assert isinstance(found, JsonObject), found
    return found


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["name"])
def test_refused(case: dict[str, Any]) -> None:
    """A body that two parsers could read differently is malformed, and the refusal names the field and the place."""
    refusal = parse_object(written(case["body"]))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.param) == (Reason.MALFORMED, case["param"])
    assert case["message"].lower() in refusal.message.lower()
    assert len(refusal.message) < 200


@pytest.mark.parametrize("case", CASES["accepted"], ids=lambda case: case["name"])
def test_accepted(case: dict[str, Any]) -> None:
    """What is JSON and can be read in one way only is read as Python's parser reads it, and written as it came."""
    body = written(case["body"])
    found = parsed(body)
    assert found.value == json.loads(body)
    assert found.changed({}) == body


@pytest.mark.parametrize(
    ("body", "changes", "expected"),
    [
        ('{"a": 1}', {"a": 2}, '{"a": 2}'),
        ('{"a":1,"b":2}', {"b": None, "a": "x"}, '{"a":"x","b":null}'),
        ('{ "a" : [1, {"b": 2}] , "c":3 }\n', {"a": 0}, '{ "a" : 0 , "c":3 }\n'),
        ("{}", {"a": 1}, '{"a":1}'),
        (" { } ", {"a": 1, "b": 2}, ' { "a":1,"b":2} '),
        ('{"a": "}"}', {"b": 1}, '{"a": "}","b":1}'),
        ('{"a": 1e2, "\\u0062": 1.0}', {"b": 7}, '{"a": 1e2, "\\u0062": 7}'),
        ('{"ä": "ü", "a": 1}', {"a": "ö\ud800"}, '{"ä": "ü", "a": "\\u00f6\\ud800"}'),
        ('{"a": null}', {"a": 1, 'q"': 2}, '{"a": 1,"q\\"":2}'),
    ],
)
def test_replaced(body: str, changes: dict[str, object], expected: str) -> None:
    """A change writes the value in its place, an addition the member before the last brace."""
    assert changed(body.encode(), changes) == expected.encode()


def test_null_is_absent() -> None:
    """A member that is null counts as absent, one that is false or 0 does not."""
    body = parsed(b'{"a": null, "b": false, "c": 0}')
    assert [body.get(name) for name in "abcd"] == [None, False, 0, None]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)
LAYOUTS = st.sampled_from([None, 0, 1, "\t", " \r"])


@given(OBJECTS, OBJECTS, LAYOUTS, st.booleans())
@settings(max_examples=150)
def test_only_the_change_differs(value: dict[str, Any], changes: dict[str, Any], indent: Any, ascii_only: bool) -> None:
    """Any object is read as it was meant; a change is there when read back, and every other byte is as it was."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    body = parsed(text.encode())
    assert body.value == value
    after = changed(body.data, changes)
    assert json.loads(after) == {**value, **changes}
    assert list(json.loads(after)) == list({**value, **changes})
    before, now = stretches(body), stretches(parsed(after))
    for name, (gap, text) in before.items():
        assert now[name][0] == gap
        assert name in changes or now[name][1] == text
    assert after.endswith(body.data[body.data.rindex(b"}") :])
    if not changes.keys() - value.keys():
        assert after.endswith(body.data[max([m.end for m in spans(body)], default=0) :])


def spans(body: JsonObject) -> Iterable[Member]:
    """Where the members of a body stand."""
    found = members(body.data)
    assert found is not None
    return found.values()


def stretches(body: JsonObject) -> dict[str, tuple[bytes, bytes]]:
    """For each member the bytes from the member before to its value, and the bytes of its value."""
    found, at = {}, 0
    for name, member in zip(body.value, spans(body), strict=True):
        found[name] = (body.data[at : member.start], body.data[member.start : member.end])
        at = member.end
    return found


@given(st.binary(max_size=40) | st.text('{}[]":,\\u0aNn1e-. \t', max_size=20).map(str.encode))
@example(b'{"a":' + b"[" * 5000)
@settings(max_examples=300)
def test_never_raises(body: bytes) -> None:
    """Any bytes are read or refused, and what is read the lenient parser reads alike."""
    found = parse_object(body)
    if isinstance(found, JsonObject):
        assert found.value == json.loads(body)
    else:
        assert found.reason is Reason.MALFORMED


@pytest.mark.parametrize("case", CASES["accepted"] + CASES["refused"], ids=lambda case: case["name"])
def test_the_short_way_decides_alike(case: dict[str, Any]) -> None:
    """What the fast reader takes, the slow one takes with the same value; all else is the slow one's word."""
    body = written(case["body"])
    fast, slow = parse_object(body), read_strictly(body)
    assert (fast.value if isinstance(fast, JsonObject) else fast) == slow


@given(
    st.recursive(
        st.sampled_from(['"a:b"', '"\\u003a"', '"\\u003A\\""', "1", "null", '"{["']),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
            | st.lists(
                st.tuples(st.sampled_from(['"a"', '"\\u0061"', '":"', '"\\u003a"', '"b :"']), inner), max_size=3
            ).map(lambda pairs: "{" + ", ".join(f"{k} : {v}" for k, v in pairs) + "}")
        ),
        max_leaves=8,
    )
)
@settings(max_examples=300)
def test_no_name_given_twice_is_missed(text: str) -> None:
    """However names and texts are spelled, a name that is given twice is found at any depth."""
    body = f'{{"x": {text}}}'.encode()
    found = parse_object(body)
    assert isinstance(found, Refusal) == isinstance(read_strictly(body), Refusal)


def test_removed() -> None:
    """A member is taken out with one comma, whichever it is, and an object may lose them all."""
    body = parsed(b'{ "a": 1 , "b" :2,"c": {"d": 3, "e": 4} }')
    for changes, expected in (
        ({("a",): REMOVED}, b'{ "b" :2,"c": {"d": 3, "e": 4} }'),
        ({("b",): REMOVED}, b'{ "a": 1,"c": {"d": 3, "e": 4} }'),
        ({("c",): REMOVED, ("b",): REMOVED}, b'{ "a": 1 }'),
        ({("a",): REMOVED, ("b",): REMOVED}, b'{ "c": {"d": 3, "e": 4} }'),
        ({("a",): REMOVED, ("b",): REMOVED, ("c",): REMOVED}, b"{  }"),
        ({("a",): REMOVED, ("b",): REMOVED, ("c",): REMOVED, ("f",): 5}, b'{  "f":5}'),
        ({("c", "d"): REMOVED, ("c", "f"): 5, ("b",): 7}, b'{ "a": 1 , "b" :7,"c": {"e": 4,"f":5} }'),
    ):
        assert body.changed(changes) == expected
        json.loads(expected)
