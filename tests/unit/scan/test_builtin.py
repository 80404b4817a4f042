"""The sets that come with Seawall: what they find, what they leave alone."""

import pytest

from seawall.scan.builtin import BUILTIN
from seawall.scan.checks import cn_resident_id, iban_mod97, luhn
from seawall.scan.dialect import parse
from seawall.scan.mask import mask
from seawall.scan.prefilter import Engine
from seawall.scan.rules import Rule
from seawall.scan.ruleset import RuleSet, compile_rules
from seawall.scan.stream import Hold, StreamScanner
from tests.unit.scan.cases import clean_texts, positives

ENGINES: tuple[Engine, ...] = ("hyperscan", "re2")
WITH_SHAPE = [name for name in BUILTIN if name != "five_layer"]
"""The article's numbers are any numbers."""


@pytest.fixture(scope="module", params=ENGINES)
def sets(request: pytest.FixtureRequest) -> RuleSet:
    return compile_rules([Rule(name, builtin=name, action="mask") for name in BUILTIN], request.param)


def test_clean_texts_stay_clean(sets: RuleSet) -> None:
    """No set finds anything in texts that merely look like something."""
    texts = clean_texts()
    assert len(texts) >= 200
    found = {text: [(h.rule.id, text[h.start : h.end]) for h in sets.spans(text)] for text in texts}
    assert {t: wrong for t, hits in found.items() if (wrong := [h for h in hits if h[0] in WITH_SHAPE])} == {}


@pytest.mark.parametrize(("name", "text", "match"), positives())
def test_positives(sets: RuleSet, name: str, text: str, match: str | None) -> None:
    """A set finds exactly the value, however it is written."""
    hits = [hit for hit in sets.spans(text) if hit.rule.id == name]
    assert [text[hit.start : hit.end] for hit in hits] == ([] if match is None else [match])


def test_every_set_has_cases() -> None:
    assert {name for name, _, match in positives() if match is not None} == BUILTIN.keys()


@pytest.mark.parametrize("cut", [1, 2, 7])
def test_positives_in_pieces(sets: RuleSet, cut: int) -> None:
    """A stream of all of them, cut anywhere, leaves as the whole text masked, and none of the values is in it."""
    text = " — ".join(text for _, text, _ in positives())
    scanner = StreamScanner(sets, Hold())
    out = "".join(scanner.feed(text[i : i + cut], 0.0).text for i in range(0, len(text), cut))
    out += scanner.finish(0.0).text
    assert out == mask(text, sets.spans(text))
    assert [m for name, _, m in positives() if m is not None and name != "five_layer" and m in out] == []


def test_every_pattern_is_of_the_dialect() -> None:
    for parts in BUILTIN.values():
        for part in parts:
            parse(part.pattern)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (
            luhn,
            ["4111111111111111", "4111-1111 1111 1111", "79927398713", "４１１１１１１１１１１１１１１１"],
            ["79927398710", "0000", "7", ""],
        ),
        (
            cn_resident_id,
            ["11010519491231002X", "440524188001010014"],
            ["11010519491231002", "11010519490229002X", "99", ""],
        ),
        (
            iban_mod97,
            ["GB82 WEST 1234 5698 7654 32", "de89370400440532013000"],
            ["GB82WEST1234569876543", "XX82", ""],
        ),
    ],
)
def test_checks(check: object, good: list[str], bad: list[str]) -> None:
    assert callable(check)
    assert [text for text in good if not check(text)] == []
    assert [text for text in bad if check(text)] == []


def test_a_leap_day_must_have_been() -> None:
    """29 February counts in leap years only; the check digits are right in both."""
    body, other = "110105200002290", "110105190002290"
    made = {
        b: next(b + t for t in (f"{n:02d}{c}" for n in range(100) for c in "0123456789X") if _digit(b + t))
        for b in (body, other)
    }
    assert cn_resident_id(made[body])
    assert not cn_resident_id(made[other])


def _digit(number: str) -> bool:
    weights = [2 ** (17 - i) % 11 for i in range(17)]
    return (
        len(number) == 18
        and "10X98765432"[sum(int(d) * w for d, w in zip(number, weights, strict=False)) % 11] == number[17]
    )
