"""Hostile documents: each is refused early, with a place, and by PolicyError only."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Policy
from seawall.policy.load import load
from seawall.policy.mistake import MISTAKES_SHOWN, PolicyError
from seawall.policy.reader import MAX_BYTES, read_tree
from seawall.policy.tree import plain_data


def refusal(text: str | bytes) -> PolicyError:
    with pytest.raises(PolicyError) as refused:
        load(text)
    return refused.value


def test_billion_laughs() -> None:
    """A billion-laughs document is refused before anything is expanded."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join(['*' + a] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    start = time.process_time()
    error = refusal("\n".join(lines))
    assert time.process_time() - start < 0.5
    assert "aliases expand to too many values" in str(error)


def test_merge_bomb() -> None:
    """Merge keys count like the aliases that they are."""
    text = (
        "a: &a {"
        + ", ".join(f"k{i}: 1" for i in range(9000))
        + "}\n"
        + "".join(f"b{i}: {{<<: *a}}\n" for i in range(99))
    )
    assert "aliases expand to too many values" in str(refusal(text))


def test_size() -> None:
    """4 MiB are read, one byte more is not; bytes count, not characters."""
    assert load("#" * MAX_BYTES).document
    assert f"{MAX_BYTES + 1} bytes" in str(refusal("#" * (MAX_BYTES + 1)))
    assert f"{MAX_BYTES + 2} bytes" in str(refusal("#" * MAX_BYTES + "é"))


@pytest.mark.parametrize(
    "text", ["[" * 10_000, "- " * 10_000, "{a: " * 10_000, "? " * 10_000, "a: " + "[" * 64 + "]" * 64]
)
def test_depth(text: str) -> None:
    """Deep nesting is refused, never a stack overflow."""
    assert "nest" in str(refusal(text))


def test_depth_through_aliases() -> None:
    """Aliases can't nest deeper than brackets may."""
    text = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 80))
    assert "nested too deep" in str(refusal(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a: b\nc: \xff", "policy.yaml:2:4: byte 0xff is not UTF-8"),
        (b"\xff\xfea\x00", "policy.yaml:1:1: byte 0xff is not UTF-8"),
        ("a: b\nc: \x01", "policy.yaml:2:4: control character U+0001 is not allowed in YAML"),
        ("a: \x00", "policy.yaml:1:4: control character U+0000 is not allowed in YAML"),
        ("a: \ud800", "policy.yaml:1:4: control character U+D800 is not allowed in YAML"),
    ],
)
def test_encoding(text: str | bytes, expected: str) -> None:
    """What is no text is refused at its place."""
    assert str(refusal(text)) == expected


def test_byte_order_mark() -> None:
    """A byte order mark, as editors write it, is no part of the document."""
    assert load("\ufeffseawall: 1").document.seawall == 1


def test_mistakes_are_bounded() -> None:
    """A document with a hundred thousand mistakes shows some and says that there are more."""
    error = refusal("callers: {tenants: {" + "".join(f"k{i}: {{class: c{i}}},\n" for i in range(20_000)) + "}}")
    assert len(error.mistakes) == MISTAKES_SHOWN
    assert str(error).endswith("more")


def test_long_text_is_cut() -> None:
    """A mistake repeats at most 80 characters of a value, and escapes control characters."""
    line = str(refusal("prefilter: {unknown_paths: " + "x" * 10_000 + "}"))
    assert len(line) < 250
    assert "\x1b" not in str(refusal('prefilter: {unknown_paths: "\\e[31m"}'))
    assert "\n" not in str(refusal('"a\\nb": 1'))


def test_merge_keeps_own_keys() -> None:
    """A merged mapping adds what is missing; the earlier source wins."""
    root, mistakes = read_tree("x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {<<: [*x, *y], a: 0}", "f")
    assert not mistakes
    assert plain_data(root)["z"] == {"a": "0", "b": "1", "c": "2"}


KEYS = [
    "seawall",
    "needs",
    "classes",
    "callers",
    "tenants",
    "prefilter",
    "body",
    "limits",
    "domain",
    "descriptors",
    "key",
]
KEYS += [
    "value",
    "rate_limit",
    "unit",
    "engines",
    "url",
    "pools",
    "models",
    "variants",
    "pool",
    "output",
    "per_class",
    "keys",
]
KEYS += ["keys", "sha256", "expires", "user_agents", "deny", "concurrency", "max", "anonymous", "needs", "x", "<<"]
SCALARS = st.one_of(
    st.sampled_from(
        ["llm", "1", "0x", "true", "~", "vip", "~(", "*", "16KiB", "2027-06-30", "0000-00-00", "9999-12-31", "http://["]
    ),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=8).map(repr),
)
FLOW = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
        )
    ),
    max_leaves=12,
)


@given(st.text(max_size=60) | FLOW | st.tuples(st.sampled_from(KEYS), FLOW).map(lambda pair: f"{pair[0]}: {pair[1]}"))
@settings(max_examples=300, deadline=None)
@example("callers: {tenants: {a: {keys: [{id: a, sha256: 1, expires: 9999-12-31}]}}}")
@example("engines: {a: {url: 'http://[::1'}}")
@example("needs: 0.1\nneeds: 9\n")
def test_any_text(text: str) -> None:
    """Any text is a Policy or a PolicyError, and a mistake has a place."""
    try:
        assert isinstance(compile_policy(text), Policy)
    except PolicyError as e:
        assert e.mistakes
        assert all(m.line >= 1 and m.column >= 1 for m in e.mistakes)
