"""Where values stand in JSON bytes, and changes that touch nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seawall.llm.spans import Path, changed, encoded, items, locate, members, scalar_member, text_spliced

TEXT = st.text(
    alphabet=st.characters(codec="utf-16", exclude_categories=()) | st.sampled_from('"\\/\n\t😀é'), max_size=6
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
LAYOUTS = st.sampled_from([None, 0, 1, "\t", " \r"])


def paths(value: Any, at: Path = ()) -> list[Path]:
    """Every path into a value."""
    found = [at]
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in pairs:
        found += paths(inner, (*at, step))
    return found


def at(value: Any, path: Path) -> Any:
    """Value at a path."""
    for step in path:
        value = value[step]
    return value


@given(JSON, LAYOUTS, st.booleans())
@settings(max_examples=150)
def test_every_value_is_found(value: Any, indent: Any, ascii_only: bool) -> None:
    """Each value of any JSON text is located by its path, however the text is laid out and escaped."""
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if b"\xed" in data and not ascii_only:
        data = json.dumps(value, indent=indent).encode()
    for path in paths(value):
        span = locate(data, path)
        assert span is not None
        assert json.loads(data[span[0] : span[1]]) == at(value, path)


@pytest.mark.parametrize("path", [("x",), (0,), ("a", 0), ("b", "c"), ("b", 5), ("b", -3), ("a", "a", "a")])
def test_nothing_there(path: Path) -> None:
    """A path that leads nowhere has no place."""
    assert locate(b'{"a": {"a": 1}, "b": [1, 2]}', path) is None


def test_a_name_given_twice_has_no_place() -> None:
    """It isn't known which of the two a reader takes."""
    assert members(b'{"a": 1, "a": 2, "b": 3}') is None
    assert members(b'{"a": 1, "\\u0061": 2}') is None


@pytest.mark.parametrize("data", [b"", b"[", b"{", b'{"a"}', b"[1,2", b"x", b'{"a": 1} x', b"\xff"])
def test_what_is_no_json(data: bytes) -> None:
    """Bytes that are no JSON have no members and no items."""
    assert members(data) is None
    assert items(data) is None


def test_a_path_must_lead_to_an_object() -> None:
    """A change of a member of nothing is a fault of the caller."""
    for changes in ({("b", "c"): b"1"}, {("a", "c"): b"1"}):
        with pytest.raises(ValueError, match="no"):
            changed(b'{"a": 1}', changes)


@given(st.dictionaries(TEXT, JSON, min_size=1, max_size=4), st.data(), LAYOUTS)
@settings(max_examples=150)
def test_changes_are_there_and_nothing_else(value: dict[str, Any], data: st.DataObject, indent: Any) -> None:
    """Set, added or taken out: the text reads as if the value had been changed."""
    text = json.dumps(value, indent=indent).encode()
    gone = data.draw(st.sets(st.sampled_from(sorted(value))))
    new = data.draw(st.dictionaries(TEXT, st.integers(), max_size=3))
    changes: dict[Path, bytes | None] = {(name,): None for name in gone}
    changes |= {(name,): encoded(number) for name, number in new.items()}
    kept = {name: member for name, member in value.items() if name not in gone or name in new}
    assert json.loads(changed(text, changes)) == {**kept, **new}


@given(TEXT, st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), TEXT), max_size=3), st.booleans())
@settings(max_examples=200)
def test_text_is_changed_by_its_characters(text: str, edits: list[tuple[int, int, str]], ascii_only: bool) -> None:
    """Places count characters of the text, whatever its escapes; what is outside keeps its spelling."""
    written = json.dumps(text, ensure_ascii=ascii_only)
    token = written.encode("utf-8", "surrogatepass")
    if b"\xed\xa0" in token or any("\ud800" <= c <= "\udfff" for c in text):
        token = json.dumps(text).encode()
    text = json.loads(token)
    placed, at_ = [], 0
    for gap, length, new in edits:
        start, end = min(at_ + gap, len(text)), min(at_ + gap + length, len(text))
        placed.append((start, end, new))
        at_ = end
    expected, last = "", 0
    for start, end, new in placed:
        expected += text[last:start] + new
        last = end
    after = text_spliced(token, placed)
    joined = json.loads(json.dumps(expected + text[last:]))
    assert json.loads(after.decode("utf-8", "surrogatepass")) == joined
    if not placed:
        assert after == token


NAMES = st.sampled_from(["n", '"n', '\\"n', "\\n", 'n"', ":n", '"', "\\", "a:b", '"n":1', "é"])
TRICKY = st.recursive(
    st.sampled_from([1, None, '"n":', "n", '\\"n":1', "\\", '"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, TRICKY, max_size=5), st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
@settings(max_examples=300)
def test_a_scalar_of_the_top(value: dict[str, Any], separators: tuple[str, str]) -> None:
    """The short way finds the value that the long way finds, or leaves it to that, whatever looks like the name."""
    data = json.dumps(value, separators=separators).encode()
    for name in ("n", *value):
        span = scalar_member(data, name)
        assert span is None or span == locate(data, (name,))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"n":1}', b"1"),
        (b'{"x":{"n":2},"n": -1.5e3 }', b"-1.5e3"),
        (b'{"x":"\\"n\\":3","n":"a\\"b"}', b'"a\\"b"'),
        (b'{"x":["n",{"n":1}],"y":{"n":2},"n":null}', b"null"),
        (b'{"\\"n":1,"n":2}', b"2"),
        (b'{"\\\\":1,"n":2}', b"2"),
        # Not sure: other spellings, no scalar, not at the top.
        (b'{"\\u006e":1,"x":{"n":2}}', None),
        (b'{"n" :1}', None),
        (b'{"n":[1]}', None),
        (b'{"x":{"n":1}}', None),
        (b'{"a":{"n":1},"b":{"n":1},"c":{"n":1},"d":{"n":1},"n":5}', None),
    ],
)
def test_which_scalar(data: bytes, expected: bytes | None) -> None:
    """Only a member of the top counts, whatever else looks like it."""
    span = scalar_member(data, "n")
    assert (None if span is None else data[span[0] : span[1]]) == expected
