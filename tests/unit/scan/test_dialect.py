"""Patterns mean what they mean to Python's `re`; what is beyond the dialect is refused with its place."""

import re
import sys

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from seawall.scan import charset, matcher
from seawall.scan.dialect import Refused, parse
from seawall.scan.forms import exact, loose
from seawall.scan.matcher import Matcher, TooMuchWork
from seawall.scan.pattern import Chars, known_after, least_length, most_length
from seawall.scan.view import View
from tests.unit.scan.patterns import PATTERNS, TEXTS, by_python

SLOW = settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
ARTICLE = [r"(密码|账号|身份证)\s*[:：=]\s*\w+", r"[\u4e00-\u9fa5]+\s*的\s*(银行卡|手机号)", r"\b\d{6,18}\b"]


def ours(pattern: str, text: str) -> list[tuple[int, int]]:
    view = View(text)
    found = list(Matcher(parse(pattern)).all(view))
    indices = view.indices({offset for span in found for offset in span})
    return [(indices[start], indices[end]) for start, end in found]


@SLOW
@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=3), st.sampled_from([2, 3, 7, 256]))
@example(r"(?:\B(?:\B|\W)(?:a|\D))+", ["-é"], 256)
@example(r"-(?:(?:a|\b)){2,}", ["-é"], 256)
@example(r"a$", ["a\n", "a\na", "a\n\n"], 2)
def test_spans_are_those_of_python(pattern: str, texts: list[str], window: int) -> None:
    """On any text, whatever part of it RE2 looks at first."""
    try:
        parse(pattern)
    except Refused:
        assume(condition=False)
    before, matcher.FIRST_WINDOW = matcher.FIRST_WINDOW, window
    try:
        for text in texts:
            assert ours(pattern, text) == by_python(pattern, text)
    finally:
        matcher.FIRST_WINDOW = before


@pytest.mark.parametrize("pattern", ARTICLE)
@pytest.mark.parametrize(
    "text",
    [
        "密码：张三李四",
        "密码:abc 账号 ＝ x 身份证=１２３",
        "这是李四的 银行卡，王五的手机号",
        "order 123456 and １２３４５６７, x1234567 no",
        "第123456号 123456",
        "1234567890123456789",
    ],
)
def test_the_article_s_patterns(pattern: str, text: str) -> None:
    assert ours(pattern, text) == by_python(pattern, text)


def test_a_password_in_chinese() -> None:
    """`\\w` is Unicode's: RE2's own would end before the first character."""
    assert ours(ARTICLE[0], "我的密码：张三李四。") == [(2, 9)]


@pytest.mark.parametrize(
    ("pattern", "why", "position"),
    [
        ("a(?=b)", "look-around", 1),
        ("a(?!b)", "look-around", 1),
        ("(?<!x)a", "look-around", 0),
        ("x(?<=[(?=]x)a", "look-around", 1),
        (r"\\(?!)x", "look-around", 2),
        (r"(a)\1", "a back-reference", 3),
        ("(?P<n>a)(?P=n)", "a back-reference", 8),
        ("[(?=]a*+", "a possessive quantifier", 7),
        ("(?>a)b", "an atomic group", 0),
        ("(a)?(?(1)b|c)", "a conditional group", 4),
        ("a(", "is no pattern: missing ), unterminated subpattern", 1),
        ("a**", "is no pattern: multiple repeat", 2),
        ("a*", "matches the empty text", None),
        (r"\b", "matches the empty text", None),
        ("(?:a{1000}){1000}", "repeats inside repeats", None),
        (r"\w{1,1000}", "too many repeats of wide sets", None),
        ("a{20000}", "repeats more than", None),
        ("(" * 1500 + "a" + ")" * 1500, "is nested too deeply", None),
        (r"\b" * 9 + "a", "more than 8 assertions", None),
        ("a" * 5000, "a pattern of more than 4096 characters", None),
    ],
)
def test_refusals(pattern: str, why: str, position: int | None) -> None:
    """Each names the construct, and its place where it has one."""
    with pytest.raises(Refused) as refused:
        parse(pattern)
    assert refused.value.why.startswith(why)
    assert refused.value.position == position


def test_categories_are_python_s() -> None:
    """Over all of Unicode, though only its first part is looked at."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for flags in (re.UNICODE, re.ASCII):
        for letter in "wdsWDS":
            found = tuple((m.start(), m.end() - 1) for m in re.compile(rf"\{letter}+", flags).finditer(everything))
            assert charset.category(letter, int(flags)) == found
    assert all(c.lower() == c == c.upper() == c.casefold() for c in everything[0x20000:])


@pytest.mark.parametrize("pattern", ["[a-z]", "k", "[^k]", "s", "ß", "Σ", "[α-ω]", "ı", "İ", r"[\d_x]", "ǆ", "[^à-ÿ]"])
def test_caseless_sets_are_python_s(pattern: str) -> None:
    """Over all of Unicode: `re` has its own idea of which characters are equal."""
    node = parse(f"(?i){pattern}")
    assert isinstance(node, Chars)
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert list(node.ranges) == [(m.start(), m.end() - 1) for m in re.finditer(f"(?i)(?:{pattern})+", everything)]


@pytest.mark.parametrize(
    "pattern",
    [".{1,3000}", "(?:a{1,100}){1,20}", "(?:ab|c){2500}", "[^x]{0,1500}?y", "(?:(?:a{3}){4}){200}b", r"\w{1,300}c"],
)
def test_counts_beyond_re2_s(pattern: str) -> None:
    """RE2 counts to 1,000; longer counts are cut into a row."""
    for text in ("ab" * 2600 + "c" * 2600 + "y", "a" * 2400 + "b", "c" * 3100):
        assert ours(pattern, text) == by_python(pattern, text)


@pytest.mark.parametrize(("pattern", "text"), [(r"(a+)+$", "a" * 100_000 + "!"), (r"(\w+\s?)*@", "a" * 100_000 + "!")])
def test_hostile_patterns_cost_little(pattern: str, text: str) -> None:
    """What makes a backtracking engine explode is within the bound of work."""
    assert ours(pattern, text) == []


def test_quadratic_work_is_ended() -> None:
    """A pattern that looks to the end of the text from each of its characters is stopped."""
    with pytest.raises(TooMuchWork):
        ours("a[^b]*b|a", "a" * 100_000)


def test_many_matches_are_within_the_bound() -> None:
    assert len(ours(r"\w+@\w+", "bob@example " * 50_000)) == 50_000


@pytest.mark.parametrize(
    ("pattern", "least", "most", "known"),
    [
        ("sk-[a-z]{20,}", 23, None, 23),
        ("BEGIN .{1,3000} END", 11, 3010, 3010),
        (r"\b\d{6,18}\b", 6, 18, 18),
        ("(?:ab|c)?d", 1, 3, 3),
        ("a+b?", 1, None, 1),
        ("a+b", 2, None, None),
    ],
)
def test_lengths(pattern: str, least: int, most: int | None, known: int | None) -> None:
    """Fewest and most characters of a match, and after how many it is one."""
    node = parse(pattern)
    assert (least_length(node), most_length(node), known_after(node)) == (least, most, known)


def test_forms() -> None:
    """Exact for RE2; loose over bytes, which misses nothing."""
    node = parse("密[a-c]+")
    assert exact(node) == r"[\x{5bc6}](?:[\x{61}-\x{63}])+"
    assert loose(node, 16) == rb"\xe5\xaf\x86(?:[\x61-\x63])+"
